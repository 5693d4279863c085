"""Which tensors require a gradient because something that does was written to them.

``y = torch.zeros(3); y[0] = weight[0]``: from there on ``y``, its other views and what is computed from them require
a gradient. Rules note flags of results as they come; what a write changes is worked out when a program asks, by going
through the graph once, from where the last question ended.
"""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, Node

from tintype.fake.observed import raise_unknown
from tintype.fake.tensor import FakeTensor
from tintype.ir.operator_facts import facts_if_operator, starts_anew
from tintype.ir.regions import GradMode, Region

if TYPE_CHECKING:
    from tintype.trace.modes import Modes

aten = torch.ops.aten

# Functions that autograd takes for constants.
_WITHOUT_DERIVATIVE = re.compile("special_(airy|.*bessel|.*chebyshev|hermite|laguerre|legendre)")


class Attached:
    """Tensors that have their history in common: views of one memory, those behind a ``detach`` apart."""

    __slots__ = ("has_history", "requires_grad", "writes")

    def __init__(self, requires_grad: bool) -> None:
        self.requires_grad = requires_grad
        self.has_history = False  # by a write
        self.writes: list[Node] = []


class WrittenHistories:
    """The histories of one graph that is being recorded."""

    def __init__(self, graph: Graph, modes: Modes) -> None:
        self._graph = graph
        self._modes = modes
        self._start()

    def _start(self) -> None:
        self._attached: dict[Node, Attached] = {}
        self._last: Node = self._graph._root
        self._region: Region = ()
        # views that were made while autograd took no notice: how often their memory had been written to by then
        self._unnoticed: dict[Node, int] = {}

    def of(self, node: Node) -> Attached:
        """The history of a node's value by now."""
        if self._last._erased:
            self._start()
        marks = dict(self._modes.marks)
        while self._last._next is not self._graph._root:
            self._region = marks.get(self._last, self._region)
            self._last = self._last._next
            self._visit(self._last)
        return self._attached.get(node) or Attached(_is_flagged(node))

    def is_unnoticed_view(self, node: Node) -> bool:
        """Whether a node's value is a view that was made while autograd took no notice: it has no history, even if it
        requires a gradient as what it is a view of does. Eager mode refuses to tell once that was written to."""
        attached, writes = self.of(node), self._unnoticed.get(node)
        if writes is not None and attached.requires_grad and len(attached.writes) > writes:
            raise_unknown(
                "asks for the history of a view that was made without gradients and whose memory was written to",
                "make the view where gradients are enabled, or write to a copy",
            )
        return writes is not None

    def _takes_notice(self) -> bool:
        """Whether autograd takes notice of what runs here."""
        settings = [setting for setting in self._region if isinstance(setting, GradMode)]
        return settings[-1].enabled if settings else self._modes.grad

    def _visit(self, node: Node) -> None:
        target: Any = node.target
        sources = [source for source in node.all_input_nodes if source in self._attached]
        has_history = any(self._attached[source].requires_grad for source in sources) and self._takes_notice()
        facts = facts_if_operator(target)
        writes = () if facts is None else facts.writes
        if target is aten.detach_.default:
            self._attached[node] = self._attached[node.args[0]] = Attached(False)  # type: ignore[index]
            return
        for written in _written(node, writes):
            attached = self._attached.setdefault(written, Attached(_is_flagged(written)))
            attached.writes.append(node)
            if has_history and _is_differentiable(written):
                attached.requires_grad = attached.has_history = True
        base = next((source for source in _behind(node) if _share_memory(source, node)), None)
        if base in self._attached and target is not aten.detach.default:
            self._attached[node] = self._attached[base]
            if not self._takes_notice():
                self._unnoticed[node] = len(self._attached[base].writes)
        else:
            self._attached[node] = Attached((has_history and _passes_on(node)) or _is_flagged(node))


def _written(node: Node, writes: tuple[int | str, ...]) -> list[Node]:
    arguments = [node.kwargs.get(where) if isinstance(where, str) else (*node.args, None)[where] for where in writes]
    items = [item for value in arguments for item in (value if isinstance(value, (list, tuple)) else [value])]
    return [item for item in items if isinstance(item, Node)]


def _behind(node: Node) -> list[Node]:
    """What a node's value may be a view of; one of several views is one of what all of them are views of."""
    (several,) = node.all_input_nodes if node.target is operator.getitem else (node,)
    return several.all_input_nodes


def _values(node: Node) -> list[Any]:
    value = node.meta.get("val")
    return [item for item in (value if isinstance(value, (list, tuple)) else [value]) if type(item) is FakeTensor]


def _share_memory(base: Node, node: Node) -> bool:
    storages = [value.info.storage for value in _values(base)]
    return any(value.info.storage in storages for value in _values(node))


def _is_flagged(node: Node) -> bool:
    """Whether a tensor requires a gradient by itself: an input or a weight, or one that the program made so."""
    if node.op == "placeholder":
        return any(value.info.requires_grad for value in _values(node))
    return any(value.has_own_gradient_flag for value in _values(node))


def _passes_on(node: Node) -> bool:
    """Whether what a node computes has a history if its arguments have one."""
    target = node.target
    if target is aten.detach.default or starts_anew(target) or not _is_differentiable(node):
        return False
    name = target.overloadpacket.__name__ if isinstance(target, torch._ops.OpOverload) else ""
    return name != "histc" and not _WITHOUT_DERIVATIVE.match(name)


def _is_differentiable(node: Node) -> bool:
    return any(value.info.dtype.is_floating_point or value.info.dtype.is_complex for value in _values(node))
