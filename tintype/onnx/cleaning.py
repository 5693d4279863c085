"""Dead code: nodes whose results nobody uses."""

from __future__ import annotations

from collections.abc import Sequence

from tintype.onnx.libraries import ir


def remove_unused(nodes: Sequence[ir.Node], outputs: Sequence[ir.Value]) -> list[ir.Node]:
    """The nodes that outputs are computed from, in order; one pass from the end."""
    wanted = {id(value) for value in outputs}
    kept: list[ir.Node] = []
    for node in reversed(nodes):
        if any(id(output) in wanted or output.uses() for output in node.outputs):
            kept.append(node)
            _trim(node, wanted)
        else:
            detach(node)
    kept.reverse()
    return kept


def _trim(node: ir.Node, wanted: set[int]) -> None:
    """Drop results at the end that nobody uses: an operator that need not compute them may be quicker."""
    if node.op_type not in _OPTIONAL_RESULTS:
        return
    count = len(node.outputs)
    while count > 1 and not node.outputs[count - 1].uses() and id(node.outputs[count - 1]) not in wanted:
        count -= 1
    if count < len(node.outputs):
        node.resize_outputs(count)


_OPTIONAL_RESULTS = frozenset(
    {"LayerNormalization", "MaxPool", "Attention", "Dropout", "BatchNormalization", "LSTM", "GRU", "RNN", "Unique"}
)


def detach(node: ir.Node) -> None:
    """Let a node, and the graphs inside of it, use nothing any more."""
    for position in range(len(node.inputs)):
        node.replace_input_with(position, None)
    for attribute in node.attributes.values():
        if attribute.type is ir.AttributeType.GRAPH:
            for inner in attribute.value:
                detach(inner)
