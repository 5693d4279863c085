"""bfloat16 on the processor, where ONNX Runtime has no kernels for it: each operator computes in float32, and its
result is rounded, which is what torch does there. Only what runs is changed; files keep their operators."""

from __future__ import annotations

from typing import Any

from tintype.onnx.inlining import inlined
from tintype.onnx.libraries import ir
from tintype.onnx.schemas import schema_of

_NARROW, _WIDE = ir.DataType.BFLOAT16, ir.DataType.FLOAT
# They convert, or hand on what others computed.
_LEFT_ALONE = frozenset({"Cast", "CastLike", "Constant", "Identity", "If", "Loop", "Scan", "Shape"})


def has_bfloat16(model: ir.Model) -> bool:
    """Whether a model has such values."""
    if any(value.dtype is _NARROW for value in (*model.graph.inputs, *model.graph.initializers.values())):
        return True
    nodes = ir.traversal.RecursiveGraphIterator(model.graph)
    return any(value.dtype is _NARROW for node in nodes for value in node.outputs)


def with_wide_operators(model: ir.Model) -> ir.Model:
    """The model itself if it has no bfloat16, else one like it that computes in float32 and rounds."""
    if not has_bfloat16(model):
        return model
    copy = inlined(model.clone())
    _Widening(copy.opset_imports.get("", 0)).graph(copy.graph)
    return copy


class _Widening:
    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.count = 0

    def graph(self, graph: Any) -> None:
        """Let the nodes of a graph, and of those inside of it, compute in float32."""
        wide: dict[ir.Value, ir.Value] = {}  # what was converted in this graph already
        for node in list(graph):
            if node.op_type not in _LEFT_ALONE or node.domain:
                self._node(graph, node, wide)
            for attribute in node.attributes.values():
                if attribute.type is ir.AttributeType.GRAPH:
                    self.graph(attribute.as_graph())

    def _node(self, graph: Any, node: ir.Node, wide: dict[ir.Value, ir.Value]) -> None:
        narrow = [value for value in node.outputs if self._result_dtype(node, value) is _NARROW]
        for place, value in enumerate(node.inputs):
            if value is None or value.dtype is not _NARROW:
                continue
            if value not in wide:
                cast = self._cast(value, _WIDE)
                graph.insert_before(node, cast)
                wide[value] = cast.outputs[0]
            node.replace_input_with(place, wide[value])
        for name, attribute in list(node.attributes.items()):
            if name in ("dtype", "output_dtype") and attribute.as_int() == _NARROW:
                node.attributes[name] = ir.AttrInt64(name, int(_WIDE))
            elif (
                name == "value"
                and attribute.type is ir.AttributeType.TENSOR
                and attribute.as_tensor().dtype is _NARROW
            ):
                array = attribute.as_tensor().numpy().astype("float32")
                node.attributes[name] = ir.AttrTensor(name, ir.tensor(array))
        for value in narrow:
            self._round(graph, node, value)

    def _round(self, graph: Any, node: ir.Node, value: ir.Value) -> None:
        """Convert a result back; who used it uses that, under the same name."""
        value.type = ir.TensorType(_WIDE)  # types are shared with the model that this is a copy of
        cast = self._cast(value, _NARROW)
        ir.convenience.replace_all_uses_with(value, cast.outputs[0], replace_graph_outputs=True)
        cast.replace_input_with(0, value)
        graph.insert_after(node, cast)
        cast.outputs[0].name, value.name = value.name, cast.outputs[0].name

    def _cast(self, value: ir.Value, to: ir.DataType) -> ir.Node:
        self.count += 1
        made = ir.Value(name=f"{value.name}_widened_{self.count}", shape=value.shape, type=ir.TensorType(to))
        return ir.Node("", "Cast", [value], [ir.AttrInt64("to", int(to))], outputs=[made])

    def _result_dtype(self, node: ir.Node, value: ir.Value) -> ir.DataType | None:
        """The dtype of a result: as it is noted, or that of the operand that it has the type of."""
        if value.dtype is not None or node.domain:
            return value.dtype if isinstance(value.type, ir.TensorType) or value.type is None else None
        schema = schema_of(node.op_type, self.opset)
        if schema is None:
            return None
        position = min(node.outputs.index(value), len(schema.outputs) - 1)
        variable, last = schema.outputs[position].variable, len(schema.inputs) - 1
        for place, given in enumerate(node.inputs):
            if given is not None and schema.inputs[min(place, last)].variable == variable:
                value.type = given.type
                return given.dtype
        return None
