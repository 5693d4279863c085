"""Operators that write to their arguments, as functional programs call them: results, then the arguments' new values.

A translation of the user's for such an operator returns just that: what the operator returns, then what it leaves in
each argument that it writes to.
"""

from __future__ import annotations

from typing import Any

import torch

from tintype.onnx.builder import Builder
from tintype.onnx.custom import call_translation
from tintype.onnx.errors import LoweringError
from tintype.onnx.lowerings.random_numbers import rrelu_with_noise
from tintype.onnx.registry import lowering
from tintype.ops.auto_functionalized import written_names

aten = torch.ops.aten


def _batch_norm(
    op: Builder,
    tensor: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Normalized by what the batch is like; the running statistics move towards that."""
    rank = len(tensor.shape)
    axes = [each for each in range(rank) if each != 1]
    shape = [1, -1, *([1] * (rank - 2))]
    dtype = tensor.dtype
    if not training:
        mean, variance = running_mean, running_var
        new_mean, new_var = running_mean, running_var
    else:
        count = op.Div(op.cast(op.Size(tensor), dtype), op.cast(op.size(tensor, 1), dtype))
        mean = op.ReduceMean(tensor, axes, keepdims=0)
        centered = op.Sub(tensor, op.Reshape(mean, shape))
        variance = op.ReduceMean(op.Mul(centered, centered), axes, keepdims=0)
        unbiased = op.Div(op.Mul(variance, count), op.Sub(count, op.constant(1, dtype)))
        new_mean = _moved(op, running_mean, mean, momentum)
        new_var = _moved(op, running_var, unbiased, momentum)
    inverse = op.Reciprocal(op.Sqrt(op.Add(op.like(variance, tensor), op.constant(eps, dtype))))
    result = op.Mul(op.Sub(tensor, op.Reshape(op.like(mean, tensor), shape)), op.Reshape(inverse, shape))
    if weight is not None:
        result = op.Mul(result, op.Reshape(op.like(weight, tensor), shape))
    if bias is not None:
        result = op.Add(result, op.Reshape(op.like(bias, tensor), shape))
    nothing = op.constant([], dtype)
    saved = (mean, inverse) if training else (nothing, nothing)
    return result, *saved, new_mean, new_var


def _moved(op: Builder, running: Any, now: Any, momentum: float) -> Any:
    kept = op.Mul(running, op.constant(1 - momentum, running.dtype))
    return op.Add(kept, op.Mul(op.like(now, running), op.constant(momentum, running.dtype)))


def _batch_norm_with_update(
    op: Builder,
    tensor: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    momentum: float,
    eps: float,
) -> Any:
    result, mean, inverse, new_mean, new_var = _batch_norm(
        op, tensor, weight, bias, running_mean, running_var, True, momentum, eps
    )
    reserve = op.constant([], op.program.dtype_of(op.node.meta["val"][3]))
    return result, mean, inverse, reserve, new_mean, new_var


_FORMS = {
    aten.rrelu_with_noise.default: rrelu_with_noise,
    aten._native_batch_norm_legit.default: _batch_norm,
    aten._batch_norm_with_update.default: _batch_norm_with_update,
}


@lowering(torch.ops.higher_order.auto_functionalized)
def auto_functionalized(op: Builder, operator: Any, **arguments: Any) -> Any:
    custom = op.program.shared.translations.get(operator)
    names = [argument.name for argument in operator._schema.arguments]
    values = [arguments[name] for name in names if name in arguments]
    if custom is not None:
        made = call_translation(custom, op, values, {})
        made = list(made) if isinstance(made, (tuple, list)) else [made]
        wanted = len(operator._schema.returns) + len(written_names(operator))
        if len(made) != wanted:
            raise LoweringError(
                f"{operator} writes to {', '.join(written_names(operator))}: its translation must return {wanted} "
                f"values, what it returns and then the new values of these, not {len(made)}"
            )
        return made if operator._schema.returns else [None, *made]
    form = _FORMS.get(operator)
    if form is None:
        raise LoweringError(f"there is no ONNX form of {operator}, which writes to its arguments")
    return form(op, *values)  # type: ignore[operator]
