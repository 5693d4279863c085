"""A list that only grows in a loop whose number of steps varies: what a step appends is a row of the loop's results.

While such a loop is recorded a :class:`GrowingList` stands in the list's place, which takes new items and shows none;
afterwards the rows do (:mod:`tintype.trace.tensor_rows`).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest
from types import FrameType
from typing import Any

import torch

from tintype.errors import Location
from tintype.fake.tensor import FakeTensor
from tintype.flow.ends import Refused, refuse
from tintype.flow.merging import ABSENT, Builder, Merger, NotMergedError
from tintype.flow.references import has_unknown_holder
from tintype.interpret import Frame
from tintype.symbolic.location import is_internal, user_location
from tintype.trace.places import ContentPlace, Place
from tintype.trace.recorder import Recorder
from tintype.tree.subclasses import is_whole


class GrowingList(list[Any]):
    """Holds what one step appends."""

    def __init__(self, before: list[Any], location: Location) -> None:
        super().__init__()
        self.before = before  # items from before the loop
        self.location = location


class SometimesItem:
    """An item that a list has if a flag is true; in the place of a tensor, which is zeros where it has none."""

    __slots__ = ("flag", "given", "value")

    def __init__(self, flag: Any, value: Any, given: Sequence[Any]) -> None:
        self.flag = flag
        self.value = value
        self.given = given  # what it may be that the arm which appended it did not make


_GROWS = {"append", "extend", "__iadd__"}
_HARMLESS = {
    "__init__", "__new__", "__getattribute__", "__class_getitem__", "__hash__", "__doc__", "__init_subclass__",
    "__subclasshook__",
}  # fmt: skip


def _looking(name: str) -> Callable[..., Any]:
    def look(self: GrowingList, *args: Any, **kwargs: Any) -> Any:
        raise refuse(
            "the program looks into a list that grows in a loop whose number of steps varies",
            user_location() or self.location,
            "append to the list and do nothing else with it in the loop; keep what a step needs in a variable",
        )

    look.__name__ = name
    return look


for _name, _value in vars(list).items():
    if callable(_value) and _name not in _GROWS | _HARMLESS:
        setattr(GrowingList, _name, _looking(_name))


def has_grown(place: Place, before: Any, after: Any) -> bool:
    """Whether a step appended tensors to a list and did nothing else to it."""
    if not isinstance(place, ContentPlace) or type(place.owner) is not list or len(after) <= len(before):
        return False
    kept = all(one is other for one, other in zip(before, after, strict=False))
    return kept and all(isinstance(item, torch.Tensor) for item in after)


def is_longer(before: Sequence[Any], after: Sequence[Any]) -> bool:
    """Whether nothing but tensors was appended, if only sometimes."""
    kept = len(after) >= len(before) and all(one is other for one, other in zip(before, after, strict=False))
    return kept and all(_is_item(item) for item in after)


def _is_item(value: Any) -> bool:
    return type(value) is SometimesItem or (isinstance(value, torch.Tensor) and not is_whole(value))


def merged_growth(merger: Merger, contents: Sequence[list[Any]], graphs: Sequence[Any]) -> Builder:
    """What a list has after a branch whose arms appended to it, in their graphs: what only one of them appended, it
    has sometimes."""
    parts: list[Builder] = []
    for items in zip_longest(*contents, fillvalue=ABSENT):
        if all(isinstance(item, torch.Tensor) for item in items):
            parts.append(merger.merge(*items))
        elif all(item is ABSENT or _is_item(item) for item in items):
            parts.append(_sometimes(merger, items, graphs))
        else:
            first, second = contents
            raise NotMergedError(first, second, "append in both arms, or append tensors of one size and dtype")
    return lambda results: [part(results) for part in parts]


def _sometimes(merger: Merger, items: Sequence[Any], graphs: Sequence[Any]) -> Builder:
    values = [item.value if type(item) is SometimesItem else item for item in items]
    device = next(value.device for value in values if value is not ABSENT)
    flags: list[Any] = [
        item.flag
        if type(item) is SometimesItem
        else partial(torch.full, (), item is not ABSENT, dtype=torch.bool, device=device)
        for item in items
    ]
    given = [
        one
        for item, graph in zip(items, graphs, strict=True)
        if item is not ABSENT
        for one in (item.given if type(item) is SometimesItem else (item,))
        if type(one) is not FakeTensor or one.node is None or one.node.graph is not graph
    ]
    flag, value = merger.made(*flags), merger.leaf(*values)
    return lambda results: SometimesItem(flag(results), value(results), given)


def columns_of(items: Sequence[Any]) -> list[Any]:
    """What a step gives of items that it appended: of one that is there sometimes, the flag and the tensor."""
    return [
        column for item in items for column in ((item.flag, item.value) if type(item) is SometimesItem else (item,))
    ]


def holders_in(
    recorder: Recorder, frame: Frame, owner: list[Any], known: Sequence[Any]
) -> list[tuple[list[Any], int]] | None:
    """The variables and places on the stack, of a frame and of those that called it, that hold a list; None if
    somebody else does, too. ``known`` are those that hold it only to know it."""
    stores = _stores_of(frame)
    found: list[tuple[list[Any], int]] = []
    for store in stores:  # no comprehension, which would hold the list itself
        for position, value in enumerate(store):
            if value is owner:
                found.append((store, position))
    value = None
    if found and has_unknown_holder([owner], [*stores, *known], variables=1):
        recorder.origins.forget_ended_calls()
        gc.collect()  # frames of steps that have run
        return None if _is_held_elsewhere([*stores, *known], owner) else found
    return found or None


def _stores_of(frame: Frame | None) -> list[list[Any]]:
    stores: list[list[Any]] = []
    while frame is not None:
        stores += (frame.locals, frame.stack)
        frame = frame.back
    return stores


def _is_held_elsewhere(allowed: Sequence[Any], owner: list[Any]) -> bool:
    mine = set(map(id, allowed))
    for holder in gc.get_referrers(owner):
        if id(holder) in mine or isinstance(holder, Place):
            continue
        if isinstance(holder, FrameType) and is_internal(holder.f_code.co_filename):
            continue
        return True
    return False


def in_place_of(holders: Sequence[tuple[list[Any], int]], value: Any) -> None:
    """Let variables and places on the stack hold something else."""
    for holder, position in holders:
        holder[position] = value


def joined_rows(growing: GrowingList, columns: Sequence[torch.Tensor], sometimes: Sequence[bool]) -> torch.Tensor:
    """All items as the rows of one tensor: those from before the loop, then what each step appended. ``sometimes``
    tells of the items of a step whether a flag comes before them."""
    if not any(sometimes):
        return _below(growing, _one_after_the_other(columns))
    following = iter(columns)
    flags, values = [], []
    for has_flag in sometimes:
        flag = next(following) if has_flag else None
        values.append(next(following))
        flags.append(values[-1].new_ones(values[-1].shape[0], dtype=torch.bool) if flag is None else flag)
    if any(value.shape != values[0].shape or value.dtype != values[0].dtype for value in values):
        raise differ(growing.location)
    rows, kept = _below(growing, _one_after_the_other(values)), _one_after_the_other(flags)
    if growing.before:
        kept = torch.cat([kept.new_ones(len(growing.before)), kept])
    return rows.index_select(0, kept.nonzero().flatten())


def _one_after_the_other(columns: Sequence[torch.Tensor]) -> torch.Tensor:
    return columns[0] if len(columns) == 1 else torch.stack(list(columns), 1).flatten(0, 1)


def _below(growing: GrowingList, rows: torch.Tensor) -> torch.Tensor:
    if not growing.before:
        return rows
    if any(item.shape != rows.shape[1:] or item.dtype != rows.dtype for item in growing.before):
        raise differ(growing.location)
    return torch.cat([torch.stack(growing.before), rows])


def differ(location: Location) -> Refused:
    return refuse(
        "the items of a list that grows in a loop whose number of steps varies differ in size or dtype",
        location,
        "let all items have one size and dtype",
    )
