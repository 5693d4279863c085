"""Which tensors of a program may have a history in autograd's eyes when it is called.

What the example required gradients for says nothing: inputs are given another time, weights are frozen and unfrozen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch.fx import Graph, Node

from tintype.ir.graph import placeholders
from tintype.ir.operator_facts import starts_anew
from tintype.ir.signature import InputKind, InputSpec
from tintype.transforms.memory import info_of

aten = torch.ops.aten

# Where histories end: autograd sees no more through bits that are taken for other numbers than through these.
_ENDS = frozenset({aten.detach.default, aten.detach_.default, aten.view.dtype})

_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def is_differentiable(node: Node) -> bool:
    """Whether a node's value is one tensor of a kind that gradients flow through."""
    info = info_of(node)
    return info is not None and (info.dtype.is_floating_point or info.dtype.is_complex)


class Histories:
    """The answer node by node, remembered."""

    def __init__(self, graph: Graph, input_specs: Sequence[InputSpec]) -> None:
        kinds = {node: spec.kind for node, spec in zip(placeholders(graph), input_specs, strict=False)}
        without = (InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
        self._without = {node for node, kind in kinds.items() if kind in without}
        self._known: dict[Node, bool] = {}

    def may_exist(self, node: Node) -> bool:
        """Whether a node's value may have a history."""
        pending = [node]
        while pending:
            current = pending[-1]
            sources = self._sources(current)
            unknown = [source for source in sources if source not in self._known]
            if unknown:
                pending += unknown
                continue
            pending.pop()
            self._known[current] = self._settle(current, sources)
        return self._known[node]

    def _sources(self, node: Node) -> Iterable[Node]:
        if node.op != "call_function" or node.target in _ENDS or starts_anew(node.target):
            return ()
        return node.all_input_nodes

    def _settle(self, node: Node, sources: Iterable[Node]) -> bool:
        info = info_of(node)
        if info is not None and not is_differentiable(node):
            return False
        if isinstance(node.meta.get("val"), _NUMBERS):  # of a size nobody remembers where it was read
            return False
        if node.op == "placeholder":
            return info is not None and (info.requires_grad or node not in self._without)
        return any(self._known[source] for source in sources)
