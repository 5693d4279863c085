"""The graph of a program as data: one record for each node, with tables of what many nodes share.

Graphs inside of a graph (the arms of a ``cond``, the body of a loop) stand right after the call that runs them, each
as a module of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, Node

from tintype.ir.graph import graphs_of, meta_of, subgraph_at
from tintype.ir.node_info import NodeSource
from tintype.ir.printing import describe_value, spell, spell_target
from tintype.ir.signature import InputKind
from tintype.symbolic import Expr, named_text
from tintype.symbolic.bridge import from_torch
from tintype.view.costs import bytes_of, named_arguments, operations_of, operations_of_a_step, sizes_of
from tintype.view.expressions import expression_data
from tintype.view.sources import Lines

if TYPE_CHECKING:
    from tintype.export.program import ExportedProgram
    from tintype.view.modules import ModuleEntry

_KINDS = {
    InputKind.USER_INPUT: "input",
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
    InputKind.CUSTOM_OBJ: "object",
    InputKind.TOKEN: "token",
}


class Table:
    """Things that many records refer to by number; equal ones are there once."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._numbers: dict[Hashable, int] = {}

    def number(self, key: Hashable, row: Any) -> int:
        """The number of a row; ``row`` is called for what is new."""
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.rows)
            self.rows.append(row())
        return found


class GraphData:
    """Gathers the nodes of a program. ``modules`` has the modules of the tree, then those for graphs in the graph."""

    def __init__(self, program: ExportedProgram, root: ModuleEntry, lines: Lines) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.types = Table()
        self.formulas = Table()
        self.inner_graphs: list[dict[str, Any]] = []
        self.symbols: set[Any] = set()
        self._lines = lines
        self._entries = list(root.descendants())
        self._modules = {node: number for number, entry in enumerate(self._entries) for node in entry.nodes}
        self._numbers: dict[Node, int] = {}
        self._specs = {
            node.name: spec
            for node, spec in zip(program.graph.find_nodes(op="placeholder"), program.graph_signature.input_specs)
        }
        self._add_graph(program.graph, None)

    def formula(self, value: Any) -> int:
        """The number of a formula in the table: its text for people, and the form that can be computed."""
        if isinstance(value, Expr):
            self.symbols |= value.symbols
        return self.formulas.number(value, lambda: {"text": named_text(value), "value": expression_data(value)})

    def _add_graph(self, graph: Graph, inside: int | None) -> None:
        for node in graph.nodes:
            if node.op == "get_attr" and subgraph_at(node) is not None:
                continue  # it stands where it is called
            self._numbers[node] = len(self.nodes)
            record = self._record(node, inside)
            self.nodes.append(record)
            if node.op != "call_function":
                continue
            for position, subgraph in graphs_of(node):
                number = len(self._entries) + len(self.inner_graphs)
                label = f"{node.name}: {position}" if isinstance(position, str) else f"{node.name}: graph {position}"
                named = next((a.target for a in node.all_input_nodes if subgraph_at(a) is subgraph), None)
                entry = {"name": f"{node.name}/{named or position}", "label": str(named or label), "graph": True}
                self.inner_graphs.append({**entry, "parent": record["module"]})
                self._add_graph(subgraph.graph, number)

    def _record(self, node: Node, inside: int | None) -> dict[str, Any]:
        module = inside if inside is not None else self._modules.get(node, 0)
        record: dict[str, Any] = {"name": node.name, "kind": self._kind(node, inside), "module": module}
        record["type"] = self._type(node.meta.get("val"))
        inputs = [self._numbers[each] for each in node.all_input_nodes if each in self._numbers]
        if inputs:
            record["inputs"] = inputs
        spec = self._specs.get(node.name) if inside is None and node.op == "placeholder" else None
        if spec is not None and spec.target is not None:
            record["target"] = spec.target
        if node.op == "call_function":
            record["operator"] = spell_target(node.target).removeprefix("torch.ops.")
            record["arguments"] = [[name, self._argument(value)] for name, value in named_arguments(node).items()]
            operations = operations_of(node)
            record["operations"] = None if operations is None else self.formula(operations)
            step = operations_of_a_step(node)
            if step is not None:
                record["step"] = self.formula(step)
        elif node.op == "output":
            record["arguments"] = [["", self._argument(node.args[0])]]
        record.update(self._origin(node))
        return record

    def _kind(self, node: Node, inside: int | None) -> str:
        if node.op == "placeholder":
            return "input" if inside is not None else _KINDS[self._specs[node.name].kind]
        return {"call_function": "call", "output": "output"}.get(node.op, "constant")

    def _origin(self, node: Node) -> dict[str, Any]:
        """Where a node comes from: lines, the nodes of an earlier stage, the step of autograd that it belongs to."""
        meta = meta_of(node)
        found: dict[str, Any] = {}
        if meta.sources:
            found["from"] = [list(pair) for pair in dict.fromkeys(_ancestors(meta.sources))]
        if meta.origin is None:
            return found
        if meta.origin.sequence is not None:
            found["step"] = meta.origin.sequence
        if meta.origin.backward:
            found["backward"] = True
        if node.op == "call_function":
            found.update(self._lines.of(meta.origin))
        return found

    def _type(self, value: Any) -> int:
        return self.types.number(describe_value(value), lambda: self._type_row(value))

    def _type_row(self, value: Any) -> dict[str, Any]:
        symbols = {symbol for number in _numbers_of(value) if isinstance(number, Expr) for symbol in number.symbols}
        self.symbols |= symbols
        row: dict[str, Any] = {"text": describe_value(value)}
        if symbols:
            row["symbols"] = sorted(symbol.name for symbol in symbols)
        size = bytes_of(value)
        if isinstance(size, Expr) or size:
            row["bytes"] = self.formula(size)
        return row

    def _argument(self, value: Any) -> Any:
        """An argument: ``{"node": number}``, a list of arguments, or text as Python spells it."""
        if isinstance(value, Node):
            graph = subgraph_at(value) if value.op == "get_attr" else None
            return {"node": self._numbers[value]} if graph is None else str(value.target)
        if isinstance(value, (list, tuple)) and any(_has_nodes(item) for item in value):
            return [self._argument(item) for item in value]
        return spell(value)


def _has_nodes(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_has_nodes(item) for item in value)
    return isinstance(value, Node)


def _numbers_of(value: Any) -> Iterable[Any]:
    """The sizes of tensors, and symbolic numbers."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _numbers_of(item)
    elif isinstance(value, torch.Tensor):
        yield from sizes_of(value) or ()
    elif isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        yield from_torch(value)


def _ancestors(sources: Iterable[NodeSource]) -> Iterable[tuple[str, str]]:
    """The nodes that a node was made of, by all passes, with their operators."""
    for source in sources:
        yield source.name, source.target
        yield from _ancestors(source.from_node)
