"""What to save from the forward to the backward graph, as a minimum cut.

Every value that the backward graph could start from is a pipe whose width is the memory it takes to save it. Water
runs from what must be computed in the forward graph to what must be computed in the backward graph; the narrowest
cut through all pipes is the cheapest set of values from which the rest can be computed. What must not be computed
again is a source of water itself.
"""

from __future__ import annotations

import operator
from typing import Any

import networkx as nx
import torch
from torch.fx import Node

from tintype.ir.graph import NUMBER_FUNCTIONS, is_pure
from tintype.symbolic.expression import Expr
from tintype.symbolic.sizes import product
from tintype.transforms.emit import info_of
from tintype.transforms.partition import Halves, bytes_of, can_be_saved, is_number, is_random
from tintype.transforms.random_state import STATE_BYTES
from tintype.transforms.views import base_of

aten = torch.ops.aten

_SOURCE, _SINK = "source", "sink"


class MinCut:
    """The choice of saved values for one joint graph."""

    def __init__(self, halves: Halves) -> None:
        self.halves = halves
        # values that gradients need and that don't depend on tangents: each is saved, computed again, or unneeded
        self.candidates = [node for node in halves.nodes if node in halves.backward and self._is_candidate(node)]
        # how much work it is to compute what is not cheap again, for each byte that need not be saved then
        self.prices = {node: _work(node) / max(bytes_of(node), 1) for node in self.candidates if not is_cheap(node)}

    def _is_candidate(self, node: Node) -> bool:
        return node not in self.halves.behind_tangents and node.op != "output"

    def saved(self, budget: float) -> list[Node]:
        """The values to save, for a share of the memory that is saved where only cheap operators run twice."""
        kept = self._cut(0.0)
        if budget >= 1.0:
            return kept
        limit = budget * self._bytes(kept)
        prices = sorted({price for price in self.prices.values() if price < float("inf")})
        low, high = 0, len(prices)  # the number of price classes that are allowed
        best = kept
        while low < high:
            middle = (low + high) // 2
            found = self._cut(prices[middle])
            if self._bytes(found) <= limit:
                best, high = found, middle
            else:
                low = middle + 1
                best = found if self._bytes(found) < self._bytes(best) else best
        return best

    def _bytes(self, saved: list[Node]) -> int:
        """How much memory a choice holds besides inputs: values, and states of generators."""
        values = sum(bytes_of(node) for node in saved if node.op != "placeholder")
        again = self.halves.computed_again(set(saved))
        return values + STATE_BYTES * sum(is_random(node) for node in again if node in self.halves.forward)

    def _cut(self, price: float) -> list[Node]:
        """The cheapest values to save if work up to a price may be done twice."""
        network = nx.DiGraph()
        for node in self.candidates:
            if node.op == "placeholder":
                network.add_edge(_SOURCE, (node, 0))
            elif node not in self.halves.forward and not is_random(node):
                pass  # the forward graph has no use for it: it may be computed in either
            elif self.prices.get(node, 0.0) > price:
                network.add_edge(_SOURCE, (node, 0))
            if can_be_saved(node):
                network.add_edge((node, 0), (node, 1), capacity=self._cost(node))
            else:
                network.add_edge((node, 0), (node, 1))
            for user in node.users:
                if user in self.halves.behind_tangents:
                    if user in self.halves.backward:
                        network.add_edge((node, 1), _SINK)
                elif user in self.halves.backward:
                    network.add_edge((node, 1), (user, 0))
        for gradient in self.halves.gradients:
            if isinstance(gradient, Node) and gradient not in self.halves.behind_tangents:
                network.add_edge((gradient, 1), _SINK)
        if _SINK not in network or _SOURCE not in network:
            return []
        _, (before, _) = nx.minimum_cut(network, _SOURCE, _SINK, flow_func=nx.algorithms.flow.boykov_kolmogorov)
        return [node for node in self.candidates if (node, 0) in before and (node, 1) not in before]

    def _cost(self, node: Node) -> float:
        """What saving a value costs. Inputs are there anyway, but are not to be held for nothing."""
        size = bytes_of(node)
        if node.op == "placeholder":
            return size * _INPUT_SHARE
        return 1 if is_number(node) else size


# Saving an input takes no memory while somebody else holds it, which is nearly always; a small cost remains, so that
# nothing is held for nothing.
_INPUT_SHARE = 0.01


def is_cheap(node: Node) -> bool:
    """Whether an operator may run twice without anybody noticing: it moves each element through the processor a few
    times at most."""
    if node.op != "call_function" or node.target is operator.getitem or node.target in NUMBER_FUNCTIONS:
        return True
    if not isinstance(node.target, torch._ops.OpOverload) or not is_pure(node):
        return False
    return base_of(node) is not None or torch.Tag.pointwise in node.target.tags or node.target in _CHEAP


_CHEAP = frozenset(
    getattr(packet, name)
    for packet in (
        aten.clone,
        aten._to_copy,
        aten._unsafe_view,
        aten.cat,
        aten.stack,
        aten.full,
        aten.full_like,
        aten.zeros,
        aten.zeros_like,
        aten.ones,
        aten.ones_like,
        aten.empty,
        aten.empty_like,
        aten.arange,
        aten.scalar_tensor,
        aten.new_zeros,
        aten.new_ones,
        aten.new_full,
        aten.new_empty,
        aten.constant_pad_nd,
        aten.embedding,
        aten.index,
        aten.index_select,
        aten.gather,
        aten.slice_scatter,
        aten.select_scatter,
        aten.as_strided_scatter,
        aten.tril,
        aten.triu,
        aten.flip,
        aten.repeat,
        aten.roll,
        aten._softmax,
        aten._log_softmax,
        aten._safe_softmax,
        aten.native_layer_norm,
        aten.native_group_norm,
        aten._fused_rms_norm,
        aten.mean,
        aten.sum,
        aten.amax,
        aten.amin,
        aten.logsumexp,
        aten.var_mean,
    )
    for name in packet.overloads()
)


def _work(node: Node) -> float:
    """Roughly the multiplications that an operator does; infinite for what can't run twice."""
    if is_random(node) and bytes_of(node) < 2 * STATE_BYTES:
        return float("inf")  # the state of the generator, which is saved then, is no smaller
    if not is_random(node) and not is_pure(node):
        return float("inf")  # it has an effect, or takes graphs in which something has
    info = info_of(node)
    elements = 1.0
    for value in [node, *node.all_input_nodes]:
        elements = max(elements, bytes_of(value))
    if node.target in _MATRIX_PRODUCTS and info is not None:
        inner: Any = info_of(node.args[_MATRIX_PRODUCTS[node.target]])  # type: ignore[arg-type]
        length = inner.sizes[-1]
        count = product(info.sizes)
        return float(count if not isinstance(count, Expr) else 4096) * float(
            length if not isinstance(length, Expr) else 64
        )
    return elements * 8


# position of the argument whose last size is summed over
_MATRIX_PRODUCTS = {
    aten.mm.default: 0,
    aten.bmm.default: 0,
    aten.addmm.default: 1,
    aten.baddbmm.default: 1,
}
