"""Statements that ask tensors, make them of numbers, or are operators that only TorchScript has."""

from __future__ import annotations

from types import CodeType
from typing import TYPE_CHECKING, Any

import torch

from tintype.errors import CaptureError
from tintype.interop.torchscript.heap import plain
from tintype.interop.torchscript.operators import call_operator, called
from tintype.interop.torchscript.tables import computes, handles
from tintype.interop.torchscript.values import DTYPE_NUMBERS, LAYOUTS, dtype_of, is_symbolic, memory_format_of
from tintype.symbolic.location import user_location

if TYPE_CHECKING:
    from tintype.interop.torchscript.interpreter import Interpreter
    from tintype.interop.torchscript.reading import Statement


@handles("aten::size", "aten::sym_size")
def _size(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    if len(args) == 1:
        return interpreter.heap.list(args[0].shape)
    return args[0].size(args[1])


@computes("aten::dim")
def _dim(tensor: Any) -> Any:
    return tensor.dim()


@computes("aten::numel")
def _numel(tensor: Any) -> Any:
    return tensor.numel()


@computes("aten::len.Tensor")
def _length(tensor: Any) -> Any:
    if not tensor.dim():
        raise CaptureError("len() of a 0-d tensor", location=user_location())
    return tensor.size(0)


@computes("prim::dtype")
def _dtype(tensor: Any) -> Any:
    return DTYPE_NUMBERS[tensor.dtype]


@computes("prim::layout")
def _layout(tensor: Any) -> Any:
    return LAYOUTS.index(tensor.layout)


@computes("prim::device")
def _device(tensor: Any) -> Any:
    return tensor.device


@computes("prim::index")
def _device_index(device: Any) -> Any:
    return device.index


@computes("prim::type")
def _device_type(device: Any) -> Any:
    return device.type


@computes("aten::is_floating_point")
def _is_floating_point(tensor: Any) -> Any:
    return tensor.dtype.is_floating_point


@computes("aten::is_complex")
def _is_complex(tensor: Any) -> Any:
    return tensor.dtype.is_complex


@computes("aten::element_size", "prim::itemsize")
def _element_size(tensor: Any) -> Any:
    return tensor.dtype.itemsize


def _ask_about_kind(name: str) -> None:
    @computes(f"prim::{name}")
    def ask(tensor: Any) -> Any:
        return getattr(tensor, name)


for _name in ("cpu", "cuda", "ipu", "maia", "meta", "mkldnn", "mps", "mtia", "sparse", "sparse_csr"):
    _ask_about_kind(f"is_{_name}")
for _name in ("vulkan", "xla", "xpu", "nested"):
    _ask_about_kind(f"is_{_name}")


@computes("prim::is_quantized")
def _is_quantized(tensor: Any) -> Any:
    return tensor.dtype in (torch.quint8, torch.qint8, torch.qint32)


# --- questions whose answers a program depends on -----------------------------------------------------------


def _of_the_script(function: Any) -> Any:
    """What the function asks, the script asks: its answers are part of what a captured program rests on."""
    code: CodeType = function.__code__
    function.__code__ = code.replace(co_filename="<torchscript>")
    return function


@computes("prim::requires_grad")
@_of_the_script
def _requires_grad(tensor: Any) -> Any:
    return tensor.requires_grad


@_of_the_script
def _strides(tensor: Any) -> Any:
    return list(tensor.stride())


@_of_the_script
def _is_contiguous(tensor: Any, memory_format: Any) -> Any:
    return tensor.is_contiguous(memory_format=memory_format)


@_of_the_script
def _storage_offset(tensor: Any) -> Any:
    return tensor.storage_offset()


@_of_the_script
def _grad_enabled() -> Any:
    return torch.is_grad_enabled()


@handles("aten::stride", "aten::sym_stride")
def _stride(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    strides = _strides(args[0])
    return interpreter.heap.list(strides) if len(args) == 1 else strides[args[1]]


@computes("aten::is_contiguous")
def _contiguous(tensor: Any) -> Any:
    return _is_contiguous(tensor, torch.contiguous_format)


@computes("aten::is_contiguous.memory_format")
def _contiguous_in(tensor: Any, memory_format: Any) -> Any:
    return _is_contiguous(tensor, memory_format_of(memory_format))


@computes("aten::storage_offset")
def _offset(tensor: Any) -> Any:
    return _storage_offset(tensor)


@computes("aten::is_grad_enabled")
def _is_grad_enabled() -> Any:
    return _grad_enabled()


@computes("aten::set_grad_enabled")
def _set_grad_enabled(enabled: Any) -> None:
    torch._C._set_grad_enabled(enabled)


@computes("aten::is_scripting", "aten::is_autocast_enabled", "aten::is_autocast_cpu_enabled")
def _is_scripting() -> Any:
    return False


@computes("aten::has_torch_function")
def _has_torch_function(*values: Any) -> Any:
    return False


# --- making tensors --------------------------------------------------------------------------------------


@handles("aten::tensor", "aten::_list_to_tensor")
def _tensor(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    interpreter.note_origin(statement, "tensor")
    data, *options = args
    dtype, device, requires_grad = [*options, None, None, None][:3]
    return torch.tensor(plain(data), dtype=dtype_of(dtype), device=device, requires_grad=bool(requires_grad))


@handles("aten::as_tensor")
def _as_tensor(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    data, dtype, device = args
    if not isinstance(data, torch.Tensor):
        return _tensor(interpreter, statement, args)
    interpreter.note_origin(statement, "to")
    return data.to(device=device or data.device, dtype=dtype_of(dtype) if dtype is not None else data.dtype)


@handles("aten::to.prim_Device")
def _to_device(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    tensor, device, dtype, non_blocking, copy = args
    return _to(interpreter, statement, tensor, device, dtype, non_blocking, copy)


@handles("aten::to.prim_dtype")
def _to_dtype(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    tensor, dtype, non_blocking, copy = args
    return _to(interpreter, statement, tensor, None, dtype, non_blocking, copy)


@handles("aten::to.prim_other")
def _to_other(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    tensor, non_blocking, copy = args
    return _to(interpreter, statement, tensor, None, None, non_blocking, copy)


def _to(interpreter: Any, statement: Any, tensor: Any, device: Any, dtype: Any, non_blocking: Any, copy: Any) -> Any:
    interpreter.note_origin(statement, "to")
    options: dict[str, Any] = {}
    if device is not None:
        options["device"] = device
    if dtype is not None:
        options["dtype"] = dtype_of(dtype)
    if copy:
        options["copy"] = True
    return tensor.to(non_blocking=bool(non_blocking), **options) if options else tensor


@handles("aten::_autocast_to_reduced_precision")
def _to_reduced(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    tensor, on_cuda, on_cpu, cuda_dtype, cpu_dtype = args
    enabled, dtype = (on_cuda, cuda_dtype) if tensor.is_cuda else (on_cpu and tensor.is_cpu, cpu_dtype)
    if not enabled or tensor.dtype is not torch.float32:
        return tensor
    return _to(interpreter, statement, tensor, None, dtype, False, False)


@handles("aten::_autocast_to_full_precision")
def _to_full(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    tensor, on_cuda, on_cpu = args
    enabled = on_cuda if tensor.is_cuda else on_cpu and tensor.is_cpu
    if not enabled or tensor.dtype not in (torch.float16, torch.bfloat16):
        return tensor
    return _to(interpreter, statement, tensor, None, DTYPE_NUMBERS[torch.float32], False, False)


@handles("aten::cpu")
def _cpu(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    interpreter.note_origin(statement, "cpu")
    return args[0].cpu()


@handles("prim::data")
def _data(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    interpreter.note_origin(statement, "detach")
    return args[0].detach()


@handles("prim::tolist")
def _to_list(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    interpreter.note_origin(statement, "tolist")
    known = interpreter.numbers.get(id(args[0]))
    value = args[0].tolist() if known is None else known[1]
    return interpreter.heap.adopt(value)


# --- operators that only TorchScript has ---------------------------------------------------------------------


def _instead(kind: str, name: str) -> None:
    """Call another operator with the same arguments."""

    @handles(kind)
    def call(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
        interpreter.note_origin(statement, called(name).name)
        return called(name).call(args)


_instead("aten::index.Tensor_hacked_twin", "aten::index.Tensor")
_instead("aten::_unsafe_index.Tensor_hacked_twin", "aten::_unsafe_index.Tensor")
_instead("aten::index_put.hacked_twin", "aten::index_put")
_instead("aten::index_put_.hacked_twin", "aten::index_put_")
_instead("aten::_unsafe_index_put.hacked_twin", "aten::_unsafe_index_put")
_instead("aten::_index_put_impl_.hacked_twin", "aten::_index_put_impl_")


def _without_gradient(kind: str, method: str) -> None:
    """``torch.nn.init``'s functions, which write below ``no_grad``."""

    @handles(f"aten::{kind}")
    def call(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
        interpreter.note_origin(statement, method)
        with torch.no_grad():
            return getattr(args[0], method)(*[value for value in args[1:] if value is not None])


_without_gradient("_no_grad_fill_", "fill_")
_without_gradient("_no_grad_zero_", "zero_")
_without_gradient("_no_grad_uniform_", "uniform_")
_without_gradient("_no_grad_normal_", "normal_")


def _transposed(name: str) -> None:
    @handles(f"aten::{name}", f"aten::{name}.a")
    def call(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
        interpreter.note_origin(statement, name)
        return getattr(args[0], {"numpy_T": "T", "matrix_H": "H"}.get(name, name))


for _name in ("numpy_T", "mT", "mH", "matrix_H"):
    _transposed(_name)


# --- operators that take plain numbers only -------------------------------------------------------------------


@handles("aten::batch_norm")
def _batch_norm(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    """With ``momentum=None`` it is one over the number of calls, which is only known when the program runs."""
    if not is_symbolic(args[6]):
        return call_operator(interpreter, statement, args)
    tensor, weight, bias, mean, variance, training, momentum, eps, _ = args
    interpreter.note_origin(statement, "batch_norm")
    return torch.nn.functional.batch_norm(tensor, mean, variance, weight, bias, training, momentum, eps)


@handles("aten::_pad_packed_sequence")
def _pad_packed_sequence(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    if not is_symbolic(args[4]):
        return call_operator(interpreter, statement, args)
    interpreter.note_origin(statement, "_pad_packed_sequence")
    return torch._C._VariableFunctions._pad_packed_sequence(*args)


@handles("aten::linspace")
def _linspace(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    if not is_symbolic(args[2]):
        return call_operator(interpreter, statement, args)
    interpreter.note_origin(statement, "linspace")
    start, end, steps, dtype, _, device, _ = args
    return torch.linspace(start, end, steps, dtype=dtype_of(dtype), device=device)


@handles("aten::quantize_per_tensor")
def _quantize(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    """Scale and zero point may be in buffers; the operator that takes them as tensors is the same."""
    tensor, scale, zero_point, dtype = args
    if statement.operator != "aten::quantize_per_tensor" or not (is_symbolic(scale) or is_symbolic(zero_point)):
        return call_operator(interpreter, statement, args)
    interpreter.note_origin(statement, "quantize_per_tensor")
    scales = torch.ops.aten.scalar_tensor.default(scale, dtype=torch.float64, device=tensor.device)
    zero_points = torch.ops.aten.scalar_tensor.default(zero_point, dtype=torch.int64, device=tensor.device)
    return torch.ops.aten.quantize_per_tensor.tensor_qparams(tensor, scales, zero_points, dtype_of(dtype))


@handles("prim::ConstantChunk")
def _chunk(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    interpreter.note_origin(statement, "chunk")
    pieces = torch.chunk(args[0], statement.node.i("chunks"), statement.node.i("dim"))
    return pieces[0] if len(statement.outputs) == 1 else pieces


@handles("aten::broadcast_shapes", "aten::_infer_size")
def _broadcast_shapes(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    shapes = [shape.known() for shape in (args[0].known() if len(args) == 1 else args)]
    return interpreter.heap.list(torch.broadcast_shapes(*shapes))
