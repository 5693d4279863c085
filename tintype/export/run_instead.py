"""Operators that run otherwise than torch's own, which refuse what the operators of the model take.

In a program stands what a model's operators consist of. Where the parts are stricter than the whole, about tensors
without elements and about layouts, they are called in a way that takes all that the whole does. In a capture the
operators are themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from tintype.errors import RuntimeAssertionError
from tintype.fake.tensor import FakeTensor
from tintype.symbolic import Expr
from tintype.symbolic.bridge import from_torch
from tintype.transforms.general_decompositions import general_kron

aten = torch.ops.aten


def _assert_tensor_metadata(
    tensor: torch.Tensor, size: Any = None, stride: Any = None, *rest: Any, **more: Any
) -> None:
    """Strides that mean nothing may be any: those of one element, or of a tensor without elements."""
    if stride is not None and type(tensor) is not FakeTensor:
        if not lies_in_strides(tensor, stride):
            raise RuntimeAssertionError(
                f"Expected a tensor of size {list(tensor.shape)} to have the strides {list(stride)}, but got "
                f"{list(tensor.stride())}: the program rests on how it lies in memory",
                remedy="pass inputs in the layout of the example, export with an example in this layout, or copy "
                "the tensor first: clone(memory_format=torch.contiguous_format)",
            )
        stride = None
    aten._assert_tensor_metadata.default(tensor, size, stride, *rest, **more)


def lies_in_strides(tensor: torch.Tensor, strides: Iterable[int]) -> bool:
    """Whether a tensor has certain strides, where they mean something. In a capture that is asked of the example
    alone: the program that is captured asks again."""
    sizes = [_of_example(size) for size in tensor.shape]
    pairs = zip(map(_of_example, tensor.stride()), map(_of_example, strides), sizes, strict=True)
    return 0 in sizes or not any(stride != wanted and size > 1 for stride, wanted, size in pairs)


def _of_example(number: Any) -> Any:
    if type(number) is int:
        return number
    value = from_torch(number) if isinstance(number, torch.SymInt) else number
    hint = value.environment.hint(value) if isinstance(value, Expr) else value
    return number if hint is None else hint


def _batch_norm_with_statistics(
    tensor: torch.Tensor, weight: Any, bias: Any, mean: torch.Tensor, variance: torch.Tensor, *options: Any
) -> Any:
    """Batch norm when training; no statistics change where there is nothing to learn from."""
    if type(tensor) is FakeTensor or tensor.numel():
        return _with_statistics(tensor, weight, bias, mean, variance, *options)
    return (*_of_nothing(tensor, weight, bias), mean.clone(), variance.clone())


def _batch_norm_without_statistics(tensor: torch.Tensor, weight: Any, bias: Any, *options: Any) -> Any:
    if type(tensor) is FakeTensor or tensor.numel():
        return _without_statistics(tensor, weight, bias, *options)
    return _of_nothing(tensor, weight, bias)


def _batch_norm_in_evaluation(
    tensor: torch.Tensor, weight: Any, bias: Any, mean: Any, variance: Any, *options: Any
) -> Any:
    """The gradient of torch's kernel divides by the number of rows, which ends the process where there are none."""
    if type(tensor) is FakeTensor or tensor.numel():
        return _in_evaluation(tensor, weight, bias, mean, variance, *options)
    result, *_ = _of_nothing(tensor, weight, bias)
    return result, tensor.new_empty(0), tensor.new_empty(0)


def _batch_norm_backward(gradient: torch.Tensor, tensor: torch.Tensor, weight: Any, *options: Any) -> Any:
    """The same gradient, where it is an operator of a joint graph."""
    if type(tensor) is FakeTensor or tensor.numel():
        return _gradient_of_batch_norm(gradient, tensor, weight, *options)
    channels = tensor.new_zeros(tensor.shape[1]) if weight is None else torch.zeros_like(weight)
    found = (torch.empty_like(tensor), channels, channels.clone())
    return tuple(value if is_wanted else None for value, is_wanted in zip(found, options[-1], strict=True))


_with_statistics = aten._native_batch_norm_legit_functional.default._op
_without_statistics = aten._native_batch_norm_legit.no_stats._op
_in_evaluation = aten._native_batch_norm_legit_no_training.default._op
_gradient_of_batch_norm = aten.native_batch_norm_backward.default._op


def _of_nothing(tensor: torch.Tensor, weight: Any, bias: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What batch norm makes of a tensor without elements, so that gradients flow."""
    result = tensor.clone()
    result = result if weight is None else result * weight[0]
    result = result if bias is None else result + bias[0]
    unknown = tensor.new_empty(tensor.shape[1])
    return result, unknown, unknown.clone()


def _group_norm(tensor: torch.Tensor, weight: Any, bias: Any, *options: Any) -> Any:
    """The kernel reads weights as if they were contiguous, which inputs of the program need not be; images of another
    layout than it knows, which only a batch of one may have, it refuses where eager mode copies them."""
    if type(tensor) is FakeTensor:
        return _normalized_groups(tensor, weight, bias, *options)
    return _normalized_groups(_in_known_layout(tensor), _contiguous(weight), _contiguous(bias), *options)


def _group_norm_backward(
    gradient: torch.Tensor, tensor: torch.Tensor, mean: Any, deviation: Any, weight: Any, *options: Any
) -> Any:
    """The same, where the gradient is an operator of a joint graph."""
    if type(tensor) is not FakeTensor:
        weight, tensor = _contiguous(weight), _in_known_layout(tensor)
        gradient = gradient.contiguous(memory_format=suggest_memory_format(tensor))
    return _gradient_of_group_norm(gradient, tensor, mean, deviation, weight, *options)


def _in_known_layout(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.is_contiguous() else tensor.contiguous(memory_format=suggest_memory_format(tensor))


def _contiguous(weight: Any) -> Any:
    return None if weight is None else weight.contiguous()


_normalized_groups = aten.native_group_norm.default._op
_gradient_of_group_norm = aten.native_group_norm_backward.default._op


def _kron(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """In any layouts, as in the program they may be others than in the model."""
    if type(left) is FakeTensor or type(right) is FakeTensor:
        return aten.kron.default(left, right)
    return general_kron(left, right)


def _assert_async(condition: torch.Tensor, message: str = "") -> None:
    """An assertion about data fails with an error of ours, that names the line."""
    if type(condition) is FakeTensor or condition.device.type != "cpu":  # elsewhere it fails later
        aten._assert_async.msg(condition, message)
        return
    try:
        _assert_here(condition, message)
    except RuntimeError as error:
        if not _is_that(error, message):
            raise
        raise RuntimeAssertionError(
            message or "an assertion of the program does not hold for this data",
            remedy="look at the data that the program was called with, or at that line: the model itself fails there",
        ) from error


_assert_here = aten._assert_async.msg._op


def _is_that(error: RuntimeError, message: str) -> bool:
    return str(error).partition("\n")[0] == message.partition("\n")[0]


RUN_INSTEAD: dict[Any, Callable[..., Any]] = {
    aten._assert_async.msg: _assert_async,
    aten._assert_tensor_metadata.default: _assert_tensor_metadata,
    aten._native_batch_norm_legit_functional.default: _batch_norm_with_statistics,
    aten._native_batch_norm_legit.no_stats: _batch_norm_without_statistics,
    aten._native_batch_norm_legit_no_training.default: _batch_norm_in_evaluation,
    aten.native_batch_norm_backward.default: _batch_norm_backward,
    aten.native_group_norm.default: _group_norm,
    aten.native_group_norm_backward.default: _group_norm_backward,
    aten.kron.default: _kron,
}
