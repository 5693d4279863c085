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
from tintype.onnx.lowerings.normalization import native_batch_norm_functional
from tintype.onnx.lowerings.random_numbers import rrelu_with_noise
from tintype.onnx.registry import lowering
from tintype.ops.auto_functionalized import written_names

aten = torch.ops.aten


def _batch_norm_with_update(op: Builder, *values: Any) -> Any:
    """Besides what batch norm gives: memory that a GPU reserves for the gradient."""
    result, mean, inverse, new_mean, new_variance = native_batch_norm_functional(op, *values[:5], True, *values[5:])
    reserve = op.constant([], op.program.dtype_of(op.node.meta["val"][3]))
    return result, mean, inverse, reserve, new_mean, new_variance


lowering(aten._batch_norm_with_update_functional.default)(_batch_norm_with_update)

_FORMS = {
    aten.rrelu_with_noise.default: rrelu_with_noise,
    aten._native_batch_norm_legit.default: native_batch_norm_functional,
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
    return form(op, *values)
