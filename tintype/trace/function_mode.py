"""Torch functions that do not take symbolic numbers by themselves.

Most functions hand symbolic sizes on to operators. A few look at them in C++ and want plain integers: indexing with
a symbolic position, ``torch.tensor`` of a symbolic number. While symbols are about, calls of those are rewritten into
operators that take them, and so are calls of operators that take functions, which torch would differentiate by rules
of its own. The mode is only on when there are symbols or gradients, since it costs something on every call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from tintype.errors import CaptureError
from tintype.fake.tensor import FakeTensor, is_symbolic, with_numbers
from tintype.ir.operators import callable_of
from tintype.symbolic.bridge import from_torch, sym_ite, to_torch
from tintype.symbolic.expression import Size
from tintype.symbolic.location import user_location
from tintype.symbolic.sizes import certainly_at_least, certainly_same
from tintype.trace.differentiated import DIFFERENTIATED
from tintype.trace.direct_calls import DIRECT, called, is_direct
from tintype.trace.expected_failures import decide_small_sizes, may_be_stretched
from tintype.trace.known_values import known_value
from tintype.trace.nested import attention as nested_attention
from tintype.trace.replaced_functions import meant_function
from tintype.trace.spectra import SPECTRA
from tintype.trace.symbolic_factories import SYMBOLIC_FACTORIES
from tintype.trace.tangents import WITH_TANGENTS
from tintype.trace.tried_views import note_view_of_differentiated
from tintype.trace.varying_arguments import VARYING_ARGUMENTS
from tintype.trace.views_or_copies import CONTIGUOUS, VIEWS_OR_COPIES, MadeContiguous, detached_in_place

if TYPE_CHECKING:
    from tintype.trace.recorder import Recorder

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_LARGEST = (1 << 63) - 1
_push = torch._C._push_on_torch_dispatch_stack
_pop = torch._C._pop_torch_dispatch_stack


class SymbolicFunctionMode(TorchFunctionMode):
    """Rewrites the calls that need it and passes all others through.

    Kernels that consist of others may fail in a joint graph before the recorder gets to see anything; what works the
    example's way alone is tried again here, too."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if type(func) is FunctionType:
            func = meant_function(func)
        recorder = self._recorder
        direct = DIRECT.get(func) if recorder.below_autograd else None
        if direct is not None:
            call = direct(args, kwargs)
            if call is not None and is_direct(recorder):
                if not recorder.context.environment.symbols:
                    return func(*args, **kwargs)
                _pop(None)  # as in call_directly
                try:
                    return recorder.__torch_dispatch__(call[0], (), call[1], call[2])
                except RuntimeError as error:
                    if not _may_be_repeated(func) or not may_be_stretched(recorder, error, args, inside=True):
                        raise
                finally:
                    _push(recorder)
                with recorder.context.environment.following_hints():
                    return func(*args, **kwargs)
        handler = _HANDLERS.get(func)
        if handler is not None:
            result = handler(recorder, args, kwargs)
            if result is not NotImplemented:
                return result
        rewrite = _REWRITES.get(func)
        if rewrite is None and not recorder.below_autograd:
            rewrite = DIFFERENTIATED.get(func)
        if rewrite is not None:
            result = rewrite(*args, **kwargs)
            if result is not NotImplemented:
                return result
        function = callable_of(func)
        if recorder.below_autograd or func not in VIEWS_OR_COPIES:
            return self._called(function, args, kwargs)
        # which of the two it is must be the example's answer, and the program's from then on
        tensor = args[0] if args else kwargs.get("input")
        if isinstance(tensor, FakeTensor) and not tensor.info.is_contiguous():
            decide_small_sizes(recorder, [tensor])
        result = self._called(function, args, kwargs)
        noted = recorder.noted_calls
        if noted is None:
            return result
        if result is tensor and func in CONTIGUOUS and recorder.compares_tensors:
            return result
        result = noted.note(func, tensor, result, kwargs)
        if func in CONTIGUOUS and type(tensor) is FakeTensor:
            recorder.made_contiguous.append(MadeContiguous(tensor, result, **kwargs))
        return result

    def _called(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Call a function."""
        environment = self._recorder.context.environment
        if not environment.symbols:
            return function(*args, **kwargs)
        try:
            return function(*args, **kwargs)
        except RuntimeError as error:
            if not _may_be_repeated(function) or not may_be_stretched(self._recorder, error, args, inside=True):
                raise
            with environment.following_hints():
                return function(*args, **kwargs)


aten = torch.ops.aten


def _may_be_repeated(function: Any) -> bool:
    """Whether a function is one of torch's that writes to nothing."""
    if getattr(function, "__module__", "") in ("torch.functional", "torch.nn.functional"):
        return not function.__name__.endswith("_")
    return isinstance(function, (BuiltinFunctionType, MethodDescriptorType)) and not function.__name__.endswith("_")


def _has_symbol(index: Any) -> bool:
    if isinstance(index, tuple):
        return any(isinstance(entry, torch.SymInt) for entry in index)
    return isinstance(index, torch.SymInt)


def _has_symbolic_slice(index: Any, given: Any) -> bool:
    """Whether an end of a slice is a number that varies, where the program gave a tensor that holds it."""
    if isinstance(index, tuple):
        return any(map(_has_symbolic_slice, index, given))
    if not isinstance(index, slice):
        return False
    ends = zip((index.start, index.stop, index.step), (given.start, given.stop, given.step), strict=True)
    return any(isinstance(end, torch.SymInt) and end is not other for end, other in ends)


def _get_item(tensor: torch.Tensor, index: Any) -> Any:
    if type(tensor) is FakeTensor and not is_symbolic(tensor.info) and _is_plain_index(index):
        return NotImplemented
    if type(index) is tuple and type(tensor) is FakeTensor and _is_simple(index):
        return _sliced(tensor, index)
    given, index = index, with_numbers(index)
    if _has_symbol(index):
        return _select(tensor, index)
    if _has_symbolic_slice(index, given):
        return torch._C.TensorBase.__getitem__(tensor, index)
    if type(index) is tuple and type(tensor) is FakeTensor and _is_simple(index):
        return _sliced(tensor, index)
    return NotImplemented


def _is_plain_index(index: Any) -> bool:
    """Whether an index holds nothing that torch has to be helped with."""
    entries = index if type(index) is tuple else (index,)
    for entry in entries:
        kind = type(entry)
        if kind is slice:
            if not (type(entry.start) in _PLAIN_ENDS and type(entry.stop) in _PLAIN_ENDS and entry.step is None):
                return False
        elif kind is not int and entry is not None and entry is not Ellipsis:
            return False
    return True


_PLAIN_ENDS = frozenset({int, type(None)})


def _is_simple(index: tuple[Any, ...]) -> bool:
    """Whether an index has slices and new dimensions alone."""
    return all(entry is None or entry is Ellipsis or _is_plain_slice(entry) for entry in index)


def _sliced(tensor: FakeTensor, index: tuple[Any, ...]) -> Any:
    """Indexing with slices and new dimensions alone, as torch does it; NotImplemented for what torch refuses.

    torch would ask for all sizes again before every step, and each question is a call from C++ into Python."""
    others = index.count(None) + index.count(Ellipsis)
    taken = len(index) - others
    if taken > tensor.info.dim or others - index.count(None) > 1:
        return NotImplemented
    recorder: Any = tensor.context.session
    result, dimension = tensor, 0
    for entry in index:
        if entry is Ellipsis:
            dimension += tensor.info.dim - taken
            continue
        if entry is None:
            result = called(recorder, aten.unsqueeze.default, result, dimension)
        elif not _is_all(entry, result.info.sizes[dimension]):
            stop = _LARGEST if entry.stop is None else entry.stop
            result = called(recorder, aten.slice.Tensor, result, dimension, entry.start or 0, stop)
        dimension += 1
    return called(recorder, aten.alias.default, tensor) if result is tensor else result


def _is_plain_slice(entry: Any) -> bool:
    if type(entry) is not slice:
        return False
    start, stop, step = entry.start, entry.stop, entry.step
    return (
        (start is None or (type(start) is int and -_LARGEST <= start <= _LARGEST))
        and (stop is None or (type(stop) is int and -_LARGEST <= stop <= _LARGEST))
        and (step is None or (type(step) is int and step == 1))
    )


def _is_all(entry: slice, size: Size) -> bool:
    """Whether a slice certainly takes everything."""
    if entry.start:
        return False
    return entry.stop is None or entry.stop == _LARGEST or certainly_at_least(entry.stop, size)


def _shape(tensor: torch.Tensor, owner: Any = None) -> Any:
    """``tensor.shape``, for which torch would ask through an operator."""
    return torch.Size(map(to_torch, tensor.info.sizes)) if type(tensor) is FakeTensor else NotImplemented


def _set_item(tensor: torch.Tensor, index: Any, value: Any) -> Any:
    given_index, index = index, with_numbers(index)
    given, value = value, _without_leading_ones(tensor, index, value)
    if not _has_symbol(index):
        if value is given and not _has_symbolic_slice(index, given_index):
            return NotImplemented
        return torch._C.TensorBase.__setitem__(tensor, index, value)
    entries = index if isinstance(index, tuple) else (index,)
    if any(isinstance(entry, (torch.Tensor, list)) for entry in entries):
        raise CaptureError(
            "a position that varies can't be mixed with tensors in an assignment",
            location=user_location(),
            remedy="make a tensor of the position: torch.tensor(position)",
        )
    view = _select(tensor, index)
    view.copy_(value) if isinstance(value, torch.Tensor) else view.fill_(value)
    return None


def _without_leading_ones(tensor: torch.Tensor, index: Any, value: Any) -> Any:
    """What is assigned may have more dimensions than there is room for, if they are of size 1; torch looks only at
    sizes that don't vary."""
    entries = index if isinstance(index, tuple) else (index,)
    if not isinstance(value, torch.Tensor) or any(isinstance(entry, (torch.Tensor, list, bool)) for entry in entries):
        return value
    numbers = sum(isinstance(entry, (int, torch.SymInt)) for entry in entries)
    room = tensor.dim() - numbers + sum(entry is None for entry in entries)
    while value.dim() > room and isinstance(value.shape[0], torch.SymInt) and value.shape[0] == 1:
        value = torch.select(value, 0, 0)
    return value


def _select(tensor: torch.Tensor, index: Any) -> torch.Tensor:
    """Indexing, one dimension after the other; tensors among the indices come last."""
    tensor, remaining = apply_simple_indices(tensor, index)
    return tensor[tuple(remaining)] if any(not isinstance(entry, slice) for entry in remaining) else tensor


def apply_simple_indices(tensor: torch.Tensor, index: Any) -> tuple[torch.Tensor, list[Any]]:
    """Apply the numbers, slices and None of an index; returns the result, and per dimension of it the tensor that it
    is still to be indexed with, or a full slice."""
    entries = list(index) if isinstance(index, tuple) else [index]
    consumed = sum(_dimensions(entry) for entry in entries)
    if Ellipsis in [entry if entry is Ellipsis else None for entry in entries]:
        where = next(i for i, entry in enumerate(entries) if entry is Ellipsis)
        entries[where : where + 1] = [slice(None)] * (tensor.dim() - consumed)
    dimension = 0
    remaining: list[Any] = []
    for entry in entries:
        if isinstance(entry, (int, torch.SymInt)) and not isinstance(entry, bool):
            tensor = torch.select(tensor, dimension, entry)
            continue
        if entry is None:
            tensor = tensor.unsqueeze(dimension)
            remaining.append(slice(None))
        elif isinstance(entry, slice):
            if entry != slice(None):
                tensor = torch.ops.aten.slice.Tensor(tensor, dimension, entry.start, entry.stop, entry.step or 1)
            remaining.append(slice(None))
        else:
            remaining.append(entry)
        dimension += 1
    return tensor, remaining


def _dimensions(entry: Any) -> int:
    if entry is None or entry is Ellipsis:
        return 0
    if isinstance(entry, torch.Tensor) and entry.dtype is torch.bool:
        return entry.dim()
    return 1


def tensor_of(
    data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **options: Any
) -> Any:
    """``torch.tensor`` of lists that hold symbolic numbers or tensors; NotImplemented for others."""
    if not isinstance(data, (list, tuple, *_SYMBOLIC)) or not _holds_symbol(data):
        return NotImplemented
    result = _stacked(data, dtype or functools.reduce(torch.promote_types, _dtypes(data)), device)
    return result.requires_grad_() if requires_grad else result


def _new_tensor(tensor: torch.Tensor, data: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Any:
    return tensor_of(data, dtype=dtype or tensor.dtype, device=device or tensor.device, **options)


def _holds_symbol(data: Any) -> bool:
    return _holds(data, (*_SYMBOLIC, FakeTensor))


def _holds(data: Any, kinds: Any) -> bool:
    if isinstance(data, (list, tuple)):
        return any(_holds(item, kinds) for item in data)
    return isinstance(data, kinds)


def _dtypes(data: Any) -> Iterator[torch.dtype]:
    if isinstance(data, (list, tuple)):
        for item in data:
            yield from _dtypes(item)
    elif isinstance(data, torch.Tensor):
        yield data.dtype
    else:
        kinds = {torch.SymInt: torch.int64, int: torch.int64, torch.SymBool: torch.bool, bool: torch.bool}
        default = torch.get_default_dtype()
        yield default.to_complex() if isinstance(data, complex) else kinds.get(type(data), default)


def _stacked(data: Any, dtype: Any, device: Any) -> torch.Tensor:
    if isinstance(data, (list, tuple)):
        return torch.stack([_stacked(item, dtype, device) for item in data])
    if isinstance(data, torch.Tensor):
        return _as_number(data, dtype).to(dtype=dtype, device=device)
    return torch.scalar_tensor(data, dtype=dtype, device=device)


def _as_number(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A tensor among the numbers of a list, which has to be one; raises what torch raises otherwise."""
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        if not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError("only integer tensors of a single element can be converted to an index")
    if tensor.numel() != 1:
        raise ValueError("only one element tensors can be converted to Python scalars")
    return tensor.detach().reshape(())


def _zeros(*size: Any, **options: Any) -> Any:
    """Sizes that are tensors: recurrent layers on packed sequences take the batch size from one."""
    sizes = size[0] if len(size) == 1 and isinstance(size[0], (list, tuple)) else size
    if not any(isinstance(entry, torch.Tensor) for entry in sizes):
        return NotImplemented
    numbers: list[Any] = [entry.item() if isinstance(entry, torch.Tensor) else entry for entry in sizes]
    return torch.zeros(numbers, **options)


def _pad_packed_sequence(data: Any, batch_sizes: Any, batch_first: bool, padding: Any, total_length: Any) -> Any:
    """The operator wants a plain integer for the number of time steps; 0 means as many as there are."""
    if type(total_length) is not torch.SymInt or from_torch(total_length) is not from_torch(batch_sizes.shape[0]):
        return NotImplemented
    return torch.ops.aten._pad_packed_sequence.default(data, batch_sizes, batch_first, padding, 0)


def _one_hot(tensor: torch.Tensor, num_classes: int = -1) -> Any:
    """The operator looks whether its classes exist, but not where autograd would take it apart."""
    with torch._C._AutoDispatchBelowADInplaceOrView():
        return torch.ops.aten.one_hot.default(tensor, num_classes)


def _ctc_loss(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, *args: Any, function: Any, **kwargs: Any
) -> Any:
    """Taken apart by autograd, the operator makes tensors of lengths that are numbers where nobody sees it."""
    if isinstance(input_lengths, torch.Tensor) and isinstance(target_lengths, torch.Tensor):
        return NotImplemented
    lengths = torch.as_tensor(input_lengths), torch.as_tensor(target_lengths)
    return function(log_probs, targets, *lengths, *args, **kwargs)


def _batch_norm(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: Any = 0.1,
    eps: float = 1e-5,
) -> Any:
    """The operator wants its momentum as a plain number; only the running statistics are computed with it."""
    if type(momentum) is not torch.SymFloat or not training or running_mean is None:
        function = WITH_TANGENTS[torch.nn.functional.batch_norm]
        return function(input, running_mean, running_var, weight, bias, training, momentum, eps)
    means, variances = torch.zeros_like(running_mean), torch.zeros_like(running_var)
    result = torch.nn.functional.batch_norm(input, means, variances, weight, bias, True, 1.0, eps)
    # a batch without elements teaches nothing, and leaves the statistics as they were
    factor: Any = momentum * torch.sym_float(torch.sym_min(input.numel(), 1))
    for running, of_batch in ((running_mean, means), (running_var, variances)):
        running.mul_(1 - factor).add_(of_batch * factor)
    return result


def _local_response_norm(input: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Any:
    """torch asks whether there are elements, and returns its argument where there are none. Computed so, it does not
    matter but to who changes the geometry of what it returns."""
    sizes = input.shape
    if len(sizes) < 3 or type(sizes[1]) is not int or not sizes[1]:
        return NotImplemented
    if not any(isinstance(length, torch.SymInt) for length in sizes):
        return NotImplemented
    around = [0, 0] * (len(sizes) - 2) + [size // 2, (size - 1) // 2]
    near = torch.nn.functional.pad(input.mul(input), around).unfold(1, size, 1).mean(-1)
    result = input / near.mul(alpha).add(k).pow(beta)
    if type(input) is FakeTensor and type(result) is FakeTensor:
        recorder: Any = input.context.session
        recorder.same_if_empty.append((input, result))
    return result


def _quantizing(function: Any, zero_type: torch.dtype, scale_type: torch.dtype) -> Callable[..., Any]:
    """Of the two forms of these operators, the one that takes numbers wants plain ones; the other takes tensors."""

    def call(input: Any, scale: Any, zero_point: Any, *rest: Any, **options: Any) -> Any:
        if not isinstance(scale, torch.SymFloat) and not isinstance(zero_point, torch.SymInt):
            return NotImplemented
        scales = torch.scalar_tensor(scale, dtype=scale_type, device=input.device)
        zeros = torch.scalar_tensor(zero_point, dtype=zero_type, device=input.device)
        return function(input, scales, zeros, *rest, **options)

    return call


def _affine_grid(theta: Any, size: Any, align_corners: bool | None = None) -> Any:
    """torch looks for the smallest of the sizes, which one of them it is makes no difference."""
    if not any(isinstance(length, torch.SymInt) for length in size) or not theta.is_floating_point():
        return NotImplemented
    if any(length <= 0 for length in size):
        return NotImplemented  # torch says what is wrong
    return torch.affine_grid_generator(theta, list(size), bool(align_corners))


def _compared(compare: Any) -> Callable[..., Any]:
    """Whether all elements of two tensors are alike: what only a run can tell."""

    def ask(input: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = [tensor for tensor in (input, other) if type(tensor) is FakeTensor]
        if not tensors or not isinstance(input, torch.Tensor) or not isinstance(other, torch.Tensor):
            return NotImplemented
        recorder: Any = tensors[0].context.session
        alike = (input.dtype, input.device) == (other.dtype, other.device) and input.dim() == other.dim()
        fakes = [recorder.as_fake(tensor) for tensor in (input, other)]
        known = [known_value(recorder.constant_of, fake) is not None for fake in fakes]
        if not alike or not recorder.is_recording or recorder.example is not None or all(known):
            return NotImplemented
        if not all(certainly_same(*lengths) for lengths in zip(*(fake.info.sizes for fake in fakes), strict=True)):
            return NotImplemented
        return compare(input, other, *args, **kwargs).all().item()

    return ask


def _ite(condition: Any, chosen: Any, otherwise: Any) -> Any:
    if isinstance(condition, bool):  # torch's own wants two numbers of one class, also where one is a plain one
        return chosen if condition else otherwise
    return sym_ite(condition, chosen, otherwise) if isinstance(condition, torch.SymBool) else NotImplemented


def _assign_data(tensor: torch.Tensor, value: Any) -> Any:
    """Above autograd the assignment is no operator."""
    raise CaptureError(
        "the program assigns to the .data of a tensor, which can't be captured",
        location=user_location(),
        remedy="write to the tensor in place instead: with torch.no_grad(): tensor.copy_(value)",
    )


def _sparse_coo_tensor(
    indices: Any, values: Any = None, size: Any = None, *, dtype: Any = None, is_coalesced: Any = None, **options: Any
) -> Any:
    if not isinstance(values, torch.Tensor) or size is None or not _has_symbol(tuple(size)) or options:
        return NotImplemented
    return aten._sparse_coo_tensor_unsafe(indices, values, list(size), dtype=dtype, is_coalesced=is_coalesced)


# Functions that need the recorder.
_HANDLERS: dict[Any, Callable[..., Any]] = {
    **VARYING_ARGUMENTS,
    **dict.fromkeys((torch.Tensor.view, torch.Tensor.view_as), note_view_of_differentiated),
    torch.Tensor.detach_: detached_in_place,
}

_REWRITES: dict[Any, Callable[..., Any]] = {
    **WITH_TANGENTS,
    **SPECTRA,
    torch.Tensor.shape.__get__: _shape,  # type: ignore[attr-defined]
    torch.Tensor.data.__set__: _assign_data,  # type: ignore[attr-defined]
    torch.Tensor.__getitem__: _get_item,
    torch.Tensor.__setitem__: _set_item,
    torch.tensor: tensor_of,
    torch.Tensor.new_tensor: _new_tensor,
    torch.ctc_loss: functools.partial(_ctc_loss, function=torch.ctc_loss),
    torch.nn.functional.ctc_loss: functools.partial(_ctc_loss, function=torch.nn.functional.ctc_loss),
    torch.nn.functional.batch_norm: _batch_norm,
    torch.nn.functional.local_response_norm: _local_response_norm,
    torch._C._nn.one_hot: _one_hot,
    torch.fake_quantize_per_tensor_affine: _quantizing(
        torch.fake_quantize_per_tensor_affine, torch.int32, torch.float32
    ),
    torch.quantize_per_tensor: _quantizing(torch.quantize_per_tensor, torch.int64, torch.float64),
    torch.nn.functional.affine_grid: _affine_grid,
    **{question: _compared(torch.eq) for question in (torch.equal, torch.Tensor.equal)},
    **{question: _compared(torch.isclose) for question in (torch.allclose, torch.Tensor.allclose)},
    torch.zeros: _zeros,
    torch._C._VariableFunctions._pad_packed_sequence: _pad_packed_sequence,
    torch.sym_ite: _ite,
    torch.sparse_coo_tensor: _sparse_coo_tensor,
    torch.nn.functional.scaled_dot_product_attention: nested_attention,
    **SYMBOLIC_FACTORIES,
}


def stands_in_for(stand_in: Any, function: Any) -> None:
    """Let calls of what stands in for a function of torch's, which torch hands to modes, be rewritten alike."""
    if function in _REWRITES:
        _REWRITES[stand_in] = _REWRITES[function]
