"""Code of the user's that native code calls inside of an arm, and what it writes to."""

from __future__ import annotations

import collections
import queue
from typing import Any

import numpy as np
import pytest
import torch

import tintype

COUNTS: dict[str, int] = {"calls": 0}
TOTAL = 0


class Pair:
    made = 0

    def __init__(self, value: Any) -> None:
        self.value = value
        self.uses = 0

    def __add__(self, other: Any) -> Any:
        self.uses += 1
        return self.value + other

    def __sub__(self, other: Any) -> Any:
        return self.value - other

    def __mul__(self, other: Any) -> Any:
        Pair.made += 1
        return self.value * other

    def __neg__(self) -> Any:
        COUNTS["calls"] += 1
        return -self.value

    def __getitem__(self, index: int) -> Any:
        global TOTAL
        TOTAL += 1
        return self.value

    @property
    def counted(self) -> Any:
        self.uses += 1
        return self.value


class Slotted:
    __slots__ = ("uses",)

    def __init__(self) -> None:
        self.uses = 0

    def __add__(self, other: Any) -> Any:
        self.uses += 1
        return other


def writes_to_its_object(x):
    pair = Pair(x)
    y = x
    if x.sum() > 0:
        y = pair + 1
    return y * pair.uses


def writes_to_a_slot(x):
    slotted = Slotted()
    y = x
    if x.sum() > 0:
        y = slotted + x
    return y * slotted.uses


def writes_to_its_class(x):
    pair = Pair(x)
    if x.sum() > 0:
        x = pair * 2
    return x * Pair.made


def writes_to_a_container_outside(x):
    pair = Pair(x)
    if x.sum() > 0:
        x = -pair
    return x * COUNTS["calls"]


def writes_to_a_global(x):
    pair = Pair(x)
    if x.sum() > 0:
        x = pair[0]
    return x * TOTAL


def sorts_by_a_function(x):
    order = []

    def key(value):
        order.append(value)
        return -value

    if x.sum() > 0:
        first = sorted([1, 2], key=key)[0]
    else:
        first = 2
    return x * first * len(order)


def counts_in_a_closure(x):
    count = 0

    def row(value):
        nonlocal count
        count += 1
        return value * 2

    if x.sum() > 0:
        x = torch.vmap(row)(x)
    return x * count


def reads_a_property_natively(x):
    pair = Pair(x)
    if x.sum() > 0:
        x = getattr(pair, "counted") + 1  # noqa: B009
    return x * pair.uses


def writes_in_a_loop(x):
    pair = Pair(x)
    while x.sum() < 10:
        x = x + (pair + 1)
    return x * pair.uses


def asks_a_lazy_iterator(x):
    seen = []

    def note(value):
        seen.append(value)
        return value

    values = map(note, [1, 2])
    if x.sum() > 0:
        for value in values:
            x = x * value
    return x * len(seen)


WRITING = [
    writes_to_its_object, writes_to_a_slot, writes_to_its_class, writes_to_a_container_outside, writes_to_a_global,
    counts_in_a_closure, reads_a_property_natively, writes_in_a_loop, asks_a_lazy_iterator,
]  # fmt: skip


@pytest.mark.parametrize("function", WRITING, ids=lambda function: function.__name__)
def test_what_is_written_unseen_is_refused_with_the_line(function: Any) -> None:
    with pytest.raises(tintype.CaptureError) as caught:
        tintype.export(function, (torch.ones(3),))
    assert caught.value.location is not None and caught.value.location.filename == __file__


def test_what_a_function_appends_that_native_code_calls_is_captured_with_each_arm() -> None:
    module = tintype.export(sorts_by_a_function, (torch.ones(3),)).module()
    for given in (torch.ones(3), -torch.ones(3)):
        torch.testing.assert_close(module(given), sorts_by_a_function(given))


# a class that has something else where the names of modules are
Odd = type("Odd", (), {"__module__": property(lambda self: "nowhere")})
ODD = [Odd()]

Named = collections.namedtuple("Named", "one two")


def only_reads(x):
    pair = Pair(x)
    held = Named([x], {"k": 1})
    names = {"a", "b"}
    if x.sum() > 0:
        x = pair - len(ODD)
        held.one[0] = sorted([x, x * 2], key=lambda value: value.dim())[0]
        held.two["k"] = held.two["k"]
        names.discard("c")
    else:
        x = torch.vmap(lambda row: row * 2)(x)
    return x, held.one[0], len(names)


def writes_what_is_seen_too(x):
    pair = Pair(x)
    if x.sum() > 0:
        pair.value = x * 2
        x = pair - 1
    return x * pair.value


@pytest.mark.parametrize("function", [only_reads, writes_what_is_seen_too], ids=lambda function: function.__name__)
def test_code_that_writes_to_nothing_is_captured(function: Any) -> None:
    module = tintype.export(function, (torch.ones(3),)).module()
    for x in (torch.ones(3), -torch.ones(3)):
        torch.testing.assert_close(module(x), function(x))


def write_array(x: torch.Tensor) -> torch.Tensor:
    held = np.zeros(2, dtype=np.float32)
    if x.sum() > 0:
        held[0] = 1
    return x * torch.from_numpy(held)


def fill_array(x: torch.Tensor) -> torch.Tensor:
    held = np.zeros(2, dtype=np.float32)
    if x.sum() > 0:
        np.add(held, 1, out=held)
    return x * torch.from_numpy(held)


def write_octets(x: torch.Tensor) -> torch.Tensor:
    held = bytearray(2)
    if x.sum() > 0:
        held[0] = 1
    return x * held[0]


def count_in_array(x: torch.Tensor) -> torch.Tensor:
    held = np.zeros(2)
    for row in x:
        if row.sum() > 0:
            held[0] += 1
    return x * float(held[0])


def put_into_queue(x: torch.Tensor) -> torch.Tensor:
    held: queue.Queue[int] = queue.Queue()
    if x.sum() > 0:
        held.put(1)
    return x * held.qsize()


def return_octets(x: torch.Tensor) -> tuple[torch.Tensor, bytearray]:
    held = bytearray(2)
    if x.sum() > 0:
        held[0] = 1
    return x, held


@pytest.mark.parametrize("function", [write_octets, count_in_array])
def test_memory_that_ends_with_its_function_goes_with_each_arm(function: Any) -> None:
    module = tintype.export(function, (torch.ones(2),)).module()
    for x in (torch.ones(2), -torch.ones(2), torch.tensor([1.0, -3]), torch.tensor([-1.0, 3])):
        assert torch.equal(module(x), function(x))


@pytest.mark.parametrize("function", [write_array, fill_array, return_octets, put_into_queue])
def test_memory_and_objects_that_one_arm_writes_to_are_refused(function: Any) -> None:
    with pytest.raises(tintype.CaptureError, match=r"the content of a .* becomes something else in each arm"):
        tintype.export(function, (torch.ones(2),))


def test_memory_that_both_arms_only_read_is_taken() -> None:
    held = np.ones(2, dtype=np.float32)
    frozen = np.ones(2, dtype=np.float32)
    frozen.flags.writeable = False

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * torch.from_numpy(held) if x.sum() > 0 else x * float(np.max(frozen))

    module = tintype.export(function, (torch.ones(2),)).module()
    for x in (torch.ones(2), -torch.ones(2)):
        assert torch.equal(module(x), function(x))
