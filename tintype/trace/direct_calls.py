"""Calls of torch's functions that are calls of one operator: the recorder gets them without torch's dispatcher.

While symbols are about, every function that the program calls comes to Python first
(:mod:`~tintype.trace.function_mode`). torch would then parse the arguments in C++, dispatch the operator, find that a
mode of Python's wants it, and make Python objects of the arguments again. Where a function and its arguments say by
themselves which operator it will be, and with which arguments, the recorder is called with that.

Each entry of ``DIRECT`` takes the arguments of a function and gives the operator with its arguments as the dispatcher
would hand them over (defaults are left out), or None for arguments that it is not sure of: these go the long way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from tintype.fake.tensor import FakeTensor

if TYPE_CHECKING:
    from tintype.trace.recorder import Recorder

aten = torch.ops.aten
functional: Any = torch.nn.functional

# (arguments, keywords) -> (operator, arguments, keywords)
Arguments: TypeAlias = tuple[Any, ...]
Direct: TypeAlias = Callable[[Arguments, dict[str, Any]], "tuple[Any, Arguments, dict[str, Any]] | None"]

_dispatch_modes = torch._C._len_torch_dispatch_stack
_dispatch_mode_at = torch._C._get_dispatch_stack_at
_function_modes = torch._C._len_torch_function_stack
_autocast_is_on = torch._C._is_any_autocast_enabled
_level_of_transforms = torch._C._functorch.maybe_current_level
_push = torch._C._push_on_torch_dispatch_stack
_pop = torch._C._pop_torch_dispatch_stack

# Subclasses may have ideas of their own.
_TENSORS = frozenset({FakeTensor, torch.Tensor, torch.nn.Parameter})
_SIZES = frozenset({int, torch.SymInt})
_LARGEST = (1 << 63) - 1


def is_direct(recorder: Recorder) -> bool:
    """Whether nobody but this recorder would see an operator that the program calls: no mode of the program's, no
    transform of functions, no autocast; and autograd would not."""
    return (
        _dispatch_modes() == 1
        and not _function_modes()
        and _dispatch_mode_at(0) is recorder
        and recorder.below_autograd
        and not _autocast_is_on()
        and _level_of_transforms() is None
    )


def call_directly(recorder: Recorder, operator: Any, args: Arguments, kwargs: dict[str, Any]) -> Any:
    """Let the recorder handle an operator as if it came from torch's dispatcher."""
    _pop(None)
    try:
        return recorder.__torch_dispatch__(operator, (), args, kwargs)
    finally:
        _push(recorder)


def called(recorder: Any, operator: Any, *args: Any) -> Any:
    """Call an operator, directly where that is the same."""
    return call_directly(recorder, operator, args, {}) if is_direct(recorder) else operator(*args)


# --- what the functions are ------------------------------------------------------------------------------


def _unary(operator: Any) -> Direct:
    """Of one tensor."""

    def call(args: Arguments, kwargs: dict[str, Any]) -> Any:
        return (operator, args, kwargs) if len(args) == 1 and not kwargs and type(args[0]) is FakeTensor else None

    return call


def _is_number(value: Any) -> bool:
    kind = type(value)
    return kind is float or (kind is int and -_LARGEST <= value <= _LARGEST)


def _binary(of_tensors: Any, of_numbers: Any) -> Direct:
    """Of a tensor and a tensor or a number."""

    def call(args: Arguments, kwargs: dict[str, Any]) -> Any:
        if len(args) != 2 or kwargs:
            return None
        left, right = args
        if type(right) in _TENSORS:
            return (of_tensors, args, kwargs) if type(left) in _TENSORS else None
        if of_numbers is None or type(left) is not FakeTensor or not _is_number(right):
            return None
        return of_numbers, args, kwargs

    return call


def _power(args: Arguments, kwargs: dict[str, Any]) -> Any:
    if len(args) == 2 and not kwargs and type(args[0]) is FakeTensor and _is_number(args[1]):
        return aten.pow.Tensor_Scalar, args, kwargs
    return None


def _of_dimensions(operator: Any, count: int) -> Direct:
    """Of a tensor and so many dimensions."""

    def call(args: Arguments, kwargs: dict[str, Any]) -> Any:
        if len(args) != count + 1 or kwargs or type(args[0]) is not FakeTensor:
            return None
        return (operator, args, kwargs) if all(type(dim) is int for dim in args[1:]) else None

    return call


def _of_sizes(operator: Any) -> Direct:
    """Of a tensor and sizes: one after the other, or in a list."""

    def call(args: Arguments, kwargs: dict[str, Any]) -> Any:
        if kwargs or len(args) < 2 or type(args[0]) is not FakeTensor:
            return None
        sizes = args[1] if len(args) == 2 and type(args[1]) in (tuple, list, torch.Size) else args[1:]
        return (operator, (args[0], list(sizes)), kwargs) if _SIZES.issuperset(map(type, sizes)) else None

    return call


def _mean(args: Arguments, kwargs: dict[str, Any]) -> Any:
    if len(args) != 2 or type(args[0]) is not FakeTensor or type(args[1]) is not int:
        return None
    if not kwargs or (len(kwargs) == 1 and kwargs.get("keepdim") is False):
        return aten.mean.dim, (args[0], [args[1]]), {}
    if len(kwargs) == 1 and kwargs.get("keepdim") is True:
        return aten.mean.dim, (args[0], [args[1]], True), {}
    return None


def _cat(args: Arguments, kwargs: dict[str, Any]) -> Any:
    if kwargs.keys() <= {"dim"} and 1 <= len(args) + len(kwargs) <= 2 and args:
        tensors, dim = args[0], kwargs.get("dim", 0) if len(args) == 1 else args[1]
        if type(tensors) in (list, tuple) and tensors and type(dim) is int:
            if all(type(tensor) is FakeTensor for tensor in tensors):
                return aten.cat.default, (list(tensors), dim) if dim else (list(tensors),), {}
    return None


def _linear(args: Arguments, kwargs: dict[str, Any]) -> Any:
    if kwargs or not 2 <= len(args) <= 3 or not _TENSORS.issuperset(map(type, args[:2])):
        return None
    if len(args) == 2 or args[2] is None:
        return aten.linear.default, args[:2], kwargs
    return (aten.linear.default, args, kwargs) if type(args[2]) in _TENSORS else None


def _to(args: Arguments, kwargs: dict[str, Any]) -> Any:
    """A conversion to a dtype."""
    if type(args[0]) is not FakeTensor:
        return None
    if len(args) == 2:
        return (aten.to.dtype, args, kwargs) if not kwargs and type(args[1]) is torch.dtype else None
    if len(args) == 1 and len(kwargs) == 1 and type(dtype := kwargs.get("dtype")) is torch.dtype:
        return aten.to.dtype, (args[0], dtype), {}
    return None


def _to_dtype(dtype: torch.dtype) -> Direct:
    def call(args: Arguments, kwargs: dict[str, Any]) -> Any:
        if len(args) == 1 and not kwargs and type(args[0]) is FakeTensor:
            return aten.to.dtype, (args[0], dtype), kwargs
        return None

    return call


def _contiguous(args: Arguments, kwargs: dict[str, Any]) -> Any:
    if len(args) == 1 and type(args[0]) is FakeTensor and len(kwargs) <= 1:
        if kwargs.get("memory_format", torch.contiguous_format) is torch.contiguous_format:
            return aten.contiguous.default, args, {}
    return None


def _attention(args: Arguments, kwargs: dict[str, Any]) -> Any:
    """With keywords after the three tensors, as models call it."""
    if len(args) != 3 or not all(type(tensor) is FakeTensor for tensor in args):
        return None
    if not kwargs.keys() <= {"attn_mask", "dropout_p", "is_causal", "scale"}:
        return None
    mask, dropout = kwargs.get("attn_mask"), kwargs.get("dropout_p", 0.0)
    causal, scale = kwargs.get("is_causal", False), kwargs.get("scale")
    if not (mask is None or type(mask) is FakeTensor) or type(dropout) is not float or type(causal) is not bool:
        return None
    if not (scale is None or type(scale) is float):
        return None
    given: Arguments = ()
    if causal:
        given = (mask, dropout, causal)
    elif dropout:
        given = (mask, dropout)
    elif mask is not None:
        given = (mask,)
    options = {} if scale is None else {"scale": scale}
    return aten.scaled_dot_product_attention.default, (*args, *given), options


_UNARY = (
    *("neg", "cos", "sin", "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "abs", "erf", "reciprocal", "square"),
    *("relu", "logical_not", "bitwise_not"),
)
_ARITHMETIC = ("add", "sub", "mul", "div")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_BITS = ("__and__", "__or__", "__xor__")


def _forms(name: str) -> list[Any]:
    """The method and the function of a name."""
    return [getattr(owner, name) for owner in (torch._C.TensorBase, torch) if hasattr(owner, name)]


DIRECT: dict[Any, Direct] = {
    **{form: _unary(getattr(aten, name).default) for name in _UNARY for form in _forms(name)},
    **{
        form: _binary(operator.Tensor, operator.Tensor)
        for name in _ARITHMETIC
        for operator in [getattr(aten, name)]
        for form in _forms(name)
    },
    **{
        form: _binary(operator.Tensor, operator.Scalar)
        for name in (*_COMPARISONS, *_BITS)
        for operator in [getattr(aten, name)]
        for form in _forms(name)
    },
    torch._C.TensorBase.pow: _power,
    **{form: _of_dimensions(aten.transpose.int, 2) for form in _forms("transpose")},
    **{form: _of_dimensions(aten.unsqueeze.default, 1) for form in _forms("unsqueeze")},
    **{form: _of_dimensions(aten.squeeze.dim, 1) for form in _forms("squeeze")},
    torch._C.TensorBase.view: _of_sizes(aten.view.default),
    torch._C.TensorBase.reshape: _of_sizes(aten.reshape.default),
    torch._C.TensorBase.expand: _of_sizes(aten.expand.default),
    torch._C.TensorBase.mean: _mean,
    torch.cat: _cat,
    functional.linear: _linear,
    torch._C.TensorBase.to: _to,
    torch._C.TensorBase.float: _to_dtype(torch.float32),
    torch._C.TensorBase.long: _to_dtype(torch.int64),
    torch._C.TensorBase.bool: _to_dtype(torch.bool),
    aten.contiguous.default._op: _contiguous,
    functional.scaled_dot_product_attention: _attention,
    torch._C._nn.silu: _unary(aten.silu.default),
    torch._C._nn.gelu: _unary(aten.gelu.default),
    **{form: _binary(aten.matmul.default, None) for form in _forms("matmul")},
}
