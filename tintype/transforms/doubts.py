"""What a program that writes to tensors rests on, where a layout or a size says whether two of them share memory.

``reshape``, ``flatten`` and ``contiguous`` return a view or a copy. As long as nobody writes to the one and then
reads the other, it makes no difference. Where somebody does, a functional program has the answer of the example built
in, and is right for inputs that give the same answer. So it asserts that: the strides of the inputs on which the
layout depends, and the conditions on sizes.

Gradients tell the two apart as well: in a region without gradients a copy has none, while a tensor that
``contiguous`` returns as it is has those that it had (:mod:`tintype.transforms.regions`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import torch
from torch.fx import Graph, Node

from tintype.errors import Location, MutationError
from tintype.fake.info import Storage, TensorInfo, strides_for_format
from tintype.fake.rules.views import GeneralQuestions, infer_size, lies_in, view_strides
from tintype.ir.graph import append_call, base_name, calls_of_any, meta_of
from tintype.ir.node_info import NodeMeta
from tintype.ir.operator_facts import RESHAPES, VIEWS_OR_COPIES
from tintype.symbolic import Expr, Size, eq
from tintype.symbolic.relations import not_
from tintype.symbolic.sizes import only_splits, product
from tintype.trace.numbers import Numbers
from tintype.trace.shared_memory import may_share, storages_of
from tintype.transforms.assertions import AssertionWriter
from tintype.transforms.emit import info_of, location_of
from tintype.transforms.layouts import Layouts

aten = torch.ops.aten


class Doubt:
    """A call of which it is not certain whether it copies: the inputs whose strides decide that, what must be true of
    sizes for the answer that the program was recorded with, and what makes a difference of it."""

    __slots__ = ("call", "conditions", "reason", "sources")

    def __init__(self, call: Node, sources: list[Node], conditions: list[Any], reason: str = "") -> None:
        self.call = call
        self.sources = sources
        self.conditions = conditions
        self.reason = reason or "the program writes to the one and reads the other"


def find_doubts(graph: Graph, written: Collection[Storage]) -> dict[Node, Doubt]:
    """The calls of a graph that may or may not copy, where what they return may share memory that is written to."""
    calls: list[Any] = calls_of_any(graph, VIEWS_OR_COPIES)
    if not calls:
        return {}
    reached = may_share([(call.args[0], call) for call in calls], written)
    layouts = Layouts()
    doubts: dict[Node, Doubt] = {}
    for call in calls:
        if not reached.isdisjoint(storages_of(call)):
            doubt = doubt_about(call, layouts)
            if doubt is not None:
                doubts[call] = doubt
    return doubts


def doubt_about(call: Node, layouts: Layouts, reason: str = "") -> Doubt | None:
    """What it rests on whether a call copies; None if that is certain."""
    base: Any = call.args[0]
    memory_format: Any = call.kwargs.get("memory_format", torch.contiguous_format)
    if call.target is aten.to.dtype:
        memory_format = call.args[4]
    return doubt_between(base, call, None if call.target in RESHAPES else memory_format, layouts, reason)


def doubt_between(base: Node, call: Node, memory_format: Any, layouts: Layouts, reason: str = "") -> Doubt | None:
    """What it rests on whether a value is a copy of another one: in a memory format, or in other sizes."""
    before, after = info_of(base), info_of(call)
    assert before is not None and after is not None
    is_reshaped = memory_format is None
    if is_reshaped and before.storage is after.storage and only_splits(before.sizes, after.sizes):
        return None
    sources = [] if layouts.is_certain(base) else layouts.sources(base)
    conditions: list[Any] = []
    if before.storage is not after.storage:
        conditions = _conditions_of_copy(before, after, memory_format)
    return Doubt(call, sources, conditions, reason) if sources or conditions else None


class _Noted(GeneralQuestions):
    """Answers questions about sizes as rules do, and notes those to which another answer is possible."""

    def __init__(self) -> None:
        self.open: dict[Expr, None] = {}

    def same(self, left: Size, right: Size) -> bool:
        return GeneralQuestions.same(left, right) or self._note(eq(left, right))

    def is_one(self, size: Size) -> bool:
        return GeneralQuestions.is_one(size) or self._note(eq(size, 1))

    def _note(self, condition: Any) -> bool:
        if isinstance(condition, Expr) and condition.environment.known(condition) is None:
            self.open[condition] = None
        return False


def _conditions_of_copy(before: TensorInfo, after: TensorInfo, memory_format: Any) -> list[Any]:
    """What must be true of sizes for a copy to be one: at other sizes there may be a view."""
    noted = _Noted()
    if memory_format is not None:
        is_view = lies_in(before, strides_for_format(before, memory_format), noted)
    else:
        sizes = infer_size(after.sizes, product(before.sizes))
        is_view = view_strides(before.sizes, before.strides, sizes, noted) is not None
    # what the program decided about sizes later on may make a view of it after all
    return [False] if is_view else [not_(condition) for condition in noted.open]


class Doubts:
    """The doubts of one functionalization: which of them a tensor's value rests on, and which the program does."""

    def __init__(self, graph: Graph, written: Collection[Storage], shared: Collection[Node] = ()) -> None:
        self.graph = graph
        # inputs of a graph inside of another that are tensors of that one, and those whose layout this one rests on
        self._shared = shared
        self.outside: dict[Node, Doubt] = {}
        self.of_call = find_doubts(graph, written) if written else {}
        # copies by the example's layout that may share memory in another one
        self._links: dict[Storage, list[tuple[Storage, Doubt]]] = {}
        self._suspected: dict[Storage, dict[Doubt, None]] = {}
        self.relied_on: dict[Doubt, None] = {}
        # the memory that values made again have in the program
        self._made_again: dict[Node, tuple[Storage, ...]] = {}

    def note_copy(self, call: Node) -> None:
        """A call that copies in the example, reached in the program's order."""
        doubt = self.of_call.get(call)
        base: Any = call.args[0]
        (first,), (second,) = storages_of(call), storages_of(base)
        if doubt is not None and first is not second:
            self._links.setdefault(first, []).append((second, doubt))
            self._links.setdefault(second, []).append((first, doubt))

    def note_write(self, storage: Storage) -> None:
        """A write: what may share the memory may have another value now."""
        if storage not in self._links:
            return
        pending: list[tuple[Storage, tuple[Doubt, ...]]] = [(storage, ())]
        seen = {storage}
        while pending:
            current, on_the_way = pending.pop()
            for other, doubt in self._links.get(current, ()):
                if other not in seen:
                    seen.add(other)
                    path = (*on_the_way, doubt)
                    self._suspected.setdefault(other, {}).update(dict.fromkeys(path))
                    pending.append((other, path))

    def note_read(self, node: Node) -> None:
        """A value is used; it must be what it would be in eager mode."""
        if self._suspected:
            for storage in (*storages_of(node), *self._made_again.get(node, ())):
                self.relied_on.update(self._suspected.get(storage, {}))

    def note_made_again(self, call: Node, value: Node) -> None:
        """Another value stands for a call, of which the same may be in doubt."""
        self._made_again[value] = tuple(storages_of(call))

    def note_reads(self, node: Node) -> None:
        """The values that a node takes are used."""
        if self._suspected:
            for argument in node.all_input_nodes:
                self.note_read(argument)

    # --- assertions ----------------------------------------------------------------------------------------

    def write(self, environment: Any) -> list[MutationError]:
        """Assert what the program rests on; returns what can't be.

        How a tensor of another graph lies in memory is that graph's to assert: what comes in may be a copy of it.
        """
        for doubt in self.relied_on:
            self.outside.update({source: doubt for source in doubt.sources if source in self._shared})
            doubt.sources = [source for source in doubt.sources if source not in self._shared]
        return write_doubts(self.graph, self.relied_on, environment)


def write_doubts(graph: Graph, doubts: Iterable[Doubt], environment: Any) -> list[MutationError]:
    """Assert what doubts rest on; returns what can't be."""
    problems: list[MutationError] = []
    asserted: set[Node] = set()
    conditions: dict[Any, str] = {}
    for doubt in doubts:
        for source in doubt.sources:
            if source._erased or info_of(source) is None:  # one of several results, say of a loop
                problems.append(_unknown_layout(doubt))
            elif source not in asserted:
                asserted.add(source)
                assert_layout(graph, source, meta_of(doubt.call))
        for condition in doubt.conditions:
            conditions.setdefault(condition, _text(doubt, condition))
            if environment.hint(condition) is not True:
                problems.append(_other_answer(doubt, condition))
    if conditions and not problems:
        AssertionWriter(graph, environment).write_conditions(list(conditions.items()))
    return problems


def assert_layout(graph: Graph, source: Node, reason: NodeMeta) -> None:
    """Let a program check that a tensor lies in memory as in the example, for the sake of a node with this origin."""
    info = info_of(source)
    assert info is not None
    place = source
    while place.op == "placeholder" and place.next.op == "placeholder":
        place = place.next
    with graph.inserting_before(place.next):
        strides: list[Any] = list(info.strides)
        if any(isinstance(stride, Expr) for stride in strides):
            numbers = Numbers(graph)
            numbers.define_all()
            strides = [numbers.node(s, reason.origin) if isinstance(s, Expr) else s for s in strides]
        call = append_call(
            graph, aten._assert_tensor_metadata.default, (source, None, strides), {}, "_assert_tensor_metadata"
        )
    call.meta = NodeMeta({"val": None}, reason.origin)


def asserted_layouts(graph: Graph) -> Iterator[tuple[Node, tuple[Size, ...], Location | None]]:
    """The tensors whose strides a program checks, those strides, and the line that makes it so."""
    for node in graph.find_nodes(op="call_function", target=aten._assert_tensor_metadata.default):
        source, *expected = node.args
        info = info_of(source)
        if len(expected) > 1 and expected[1] is not None and info is not None:
            yield source, info.strides, location_of(node)


def _text(doubt: Doubt, condition: Any) -> str:
    location = location_of(doubt.call)
    where = "" if location is None else f" ({location})"
    name = _name(doubt.call)
    return f"{condition}: at other sizes {name}() returns a view instead of a copy{where}, and {doubt.reason}"


def _name(call: Node) -> str:
    return base_name(call.target)


def _unknown_layout(doubt: Doubt) -> MutationError:
    call = doubt.call
    if call.target is aten.as_strided.default:
        return MutationError(
            "what as_strided() looks at depends on the layout of its argument, which is not known before the program "
            f"runs, and {doubt.reason}",
            location=location_of(call),
            remedy="call clone(memory_format=torch.contiguous_format) before as_strided()",
        )
    return MutationError(
        f"whether {_name(call)}() copies or returns a view depends on the layout of its argument, which is not known "
        f"before the program runs, and {doubt.reason}",
        location=location_of(call),
        remedy=f"say which it is: clone() before {_name(call)}(), or view()",
    )


def _other_answer(doubt: Doubt, condition: Any) -> MutationError:
    call = doubt.call
    where = "at no size that the program takes" if condition is False else f"where {condition}"
    return MutationError(
        f"whether {_name(call)}() copies or returns a view depends on sizes that may vary: it is a copy {where}, "
        f"which is not so in the example, and {doubt.reason}",
        location=location_of(call),
        remedy=f"say which it is: clone() before {_name(call)}(), or view(); or export with other sizes",
    )
