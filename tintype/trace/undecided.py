"""Results of branches and loops of which only the data decide how they lie in memory, or whether they have a history.

Operators lay them out contiguously; eager mode has what its arms and steps made."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch.fx import Node

from tintype.errors import CaptureError
from tintype.fake.tensor import FakeTensor
from tintype.ir.operator_facts import starts_anew
from tintype.symbolic.location import user_location

# what ``layout_of`` of a tensor is that lies in memory as the data decide
UNDECIDED: Any = "undecided"
ABOUT_LAYOUTS = frozenset({"is_conj", "is_contiguous", "is_neg", "storage_offset", "stride"})
aten = torch.ops.aten
# operators whose result lies in memory as their first argument does, whatever is written to it
_LIKE_THE_FIRST = frozenset(
    {aten.copy_.default, aten.diagonal_scatter.default, aten.select_scatter.default, aten.slice_scatter.default}
)


def note_undecided_layout(value: Any) -> None:
    """In eager mode the data decide how a tensor lies in memory."""
    if type(value) is FakeTensor:
        value.layout_of = UNDECIDED


def note_undecided_history(value: Any) -> None:
    """In eager mode the data decide whether a tensor has a history."""
    if type(value) is FakeTensor:
        value.has_undecided_history = True


class UndecidedAnswers:
    """Looks through graphs for what the answers to questions follow from."""

    def __init__(self, of_one_layout: Collection[Any]) -> None:
        self._of_one_layout = of_one_layout
        self._known: set[tuple[Node, str]] = set()

    def refuse(self, recorder: Any, fake: FakeTensor, fact: str) -> None:
        """Raise for a question whose answer the data decide."""
        pending = [(recorder, fake)]  # a tensor, and a recorder of its graph or within
        while pending:
            recorder, fake = pending.pop()
            node = fake.node
            if node is None or (node, fact) in self._known:
                continue
            self._known.add((node, fact))
            if _is_undecided(fake, fact):
                raise _refusal(fact)
            while node.graph is not recorder.graph and hasattr(recorder, "parent"):
                recorder = recorder.parent
            if fake.layout_of is not None and fake.layout_of is not UNDECIDED:
                pending.append((recorder.parent, fake.layout_of))
            outer = recorder.outer_value(node) if hasattr(recorder, "parent") else None
            if outer is not None:
                pending.append((recorder.parent, outer))
            elif not self._is_settled(fake, fact):
                is_like_first = fact in ABOUT_LAYOUTS and node.target in _LIKE_THE_FIRST
                arguments = node.all_input_nodes[:1] if is_like_first else node.all_input_nodes
                values = (argument.meta.get("val") for argument in arguments)
                pending += [(recorder, value) for value in values if type(value) is FakeTensor]

    def _is_settled(self, fake: FakeTensor, fact: str) -> bool:
        """Whether the answer is the same whatever a tensor was made of."""
        target, info = fake.node.target, fake.info
        if fact not in ABOUT_LAYOUTS:
            return bool(starts_anew(target)) or target is aten.detach.default
        if not info.sizes or target in self._of_one_layout:
            return True
        # strides of sizes that are 1 mean nothing
        is_contiguous = target is aten.contiguous.default and len(fake.node.args) == 1
        return is_contiguous and all(type(size) is int and size != 1 for size in info.sizes)


def _is_undecided(fake: FakeTensor, fact: str) -> bool:
    if fact not in ABOUT_LAYOUTS:  # who has a history and may be what was given may be a leaf
        return fake.has_undecided_history or (
            fact != "requires_grad" and fake.info.requires_grad and fake.is_undecided
        )
    if not fake.info.sizes:
        return False
    return fake.layout_of is UNDECIDED or (fact == "storage_offset" and fake.info.storage.frozen)


def _refusal(fact: str) -> CaptureError:
    if fact in ABOUT_LAYOUTS:
        what, remedy = "how that lies in memory", "ask before the branch, or make the layout certain: x.contiguous()"
    else:
        what, remedy = "whether it has a gradient", "ask before the branch, or detach it: x.detach()"
    return CaptureError(
        f"the program asks ({fact}) about what follows from a branch or a loop on data, which decide {what}",
        location=user_location(),
        remedy=remedy,
    )
