"""``optimize="full"``: onnxscript's optimizer, held to what must not change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tintype.onnx.libraries import ir

# A weight that is stored in few bits stays so: who folds its DequantizeLinear stores it in full.
_KEPT_WHOLE = frozenset({"DequantizeLinear", "QuantizeLinear", "DynamicQuantizeLinear"})
_LARGEST_FOLDED = 8 * 1024


def optimize_fully(model: ir.Model, *, inline: bool = True) -> None:
    """Fold constants and rewrite patterns with onnxscript's optimizer, in place; names of inputs and outputs stay."""
    from onnxscript import optimizer

    names = [[value.name for value in values] for values in (model.graph.inputs, model.graph.outputs)]
    with _state_unknown(model.graph):
        optimizer.optimize_ir(model, should_fold=_should_fold, input_size_limit=_LARGEST_FOLDED, inline=inline)
    for values, kept in zip((model.graph.inputs, model.graph.outputs), names):
        for value, name in zip(values, kept):
            value.name = name


@contextmanager
def _state_unknown(graph: ir.Graph) -> Iterator[None]:
    """Inputs with a default are what calls change: nothing may be computed from the default."""
    defaults = {value: value.const_value for value in graph.inputs if value.name in graph.initializers}
    for value in defaults:
        value.const_value = None
        graph.initializers.pop(value.name or "")
    try:
        yield
    finally:
        for value, default in defaults.items():
            value.const_value = default
            graph.initializers.add(value)


def _should_fold(node: Any) -> bool | None:
    return False if node.op_type in _KEPT_WHOLE else None
