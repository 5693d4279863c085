"""State of a model that no dictionary shows is put back after an export, and told where later calls depend on it."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import io
import mmap
import os
import random
import secrets
import uuid
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tintype
from tintype.errors import CaptureError, LostStateWarning, StateChangedError


class Slotted:
    __slots__ = ("items", "n", "unset")

    def __init__(self) -> None:
        self.n = 0
        self.items: list[int] = []


@dataclasses.dataclass(slots=True)
class SlottedData:
    n: int = 0


class Plain:
    def __init__(self) -> None:
        self.n = 0

    def count(self) -> int:
        self.n += 1
        return self.n


class Table(dict):
    def __init__(self) -> None:
        super().__init__()
        self.n = 0


class Items(list):
    n = 0


def counted(holder: Any) -> int:
    holder.n += 1
    return holder.n


def appended(holder: Any) -> int:
    holder.items.append(1)
    return len(holder.items)


def in_closure(holder: Any) -> Callable[[], int]:
    return lambda: counted(holder)


def written(buffer: Any) -> int:
    buffer.write(b"a" if isinstance(buffer, io.BytesIO) else "a")
    return buffer.tell()


def first(memory: Any) -> int:
    memory[0] += 1
    return memory[0]


def in_array(array: Any) -> int:
    array[0].append(1)
    return len(array[0])


GLOBAL = random.Random(0)


def of_global(seeded: Any) -> float:
    return GLOBAL.random()


def seeded_global() -> Any:
    GLOBAL.seed(0)


KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "slots": (Slotted, counted),
    "a list in a slot": (Slotted, appended),
    "slots of a dataclass": (SlottedData, counted),
    "attributes of a dictionary": (Table, counted),
    "attributes of a list": (Items, counted),
    "a partial function": (lambda: functools.partial(counted, Plain()), lambda held: held()),
    "a method": (lambda: Plain().count, lambda held: held()),
    "a closure": (lambda: in_closure(Plain()), lambda held: held()),
    "random.Random": (lambda: random.Random(0), lambda held: held.random()),
    "a generator of NumPy's": (lambda: np.random.default_rng(0), lambda held: float(held.random())),
    "NumPy's random state": (lambda: np.random.RandomState(0), lambda held: float(held.rand())),
    "a global generator": (seeded_global, of_global),
    "text": (io.StringIO, written),
    "bytes": (io.BytesIO, written),
    "a view of memory": (lambda: memoryview(bytearray(2)), first),
    "an array of C's": (lambda: (ctypes.c_int * 2)(), first),
    "mapped memory": (lambda: mmap.mmap(-1, 2), first),
    "a list in an array": (lambda: np.array([[], None], dtype=object), in_array),
}


class Model(torch.nn.Module):
    def __init__(self, held: Any, use: Callable[[Any], Any]) -> None:
        super().__init__()
        self.held = held
        self.use = use

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.use(self.held)


@pytest.mark.parametrize("name", KINDS)
def test_state_that_later_calls_depend_on(name: str) -> None:
    make, use = KINDS[name]
    x = torch.ones(2)
    expected = Model(make(), use)(x)
    model = Model(make(), use)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        program = tintype.export(model, (x,)).module()
    assert [warning.category for warning in found] == [LostStateWarning]
    torch.testing.assert_close(program(x), expected)
    torch.testing.assert_close(model(x), expected)  # its own first call: the export left it as it was


@pytest.mark.parametrize("name", KINDS)
def test_state_that_makes_no_difference(name: str) -> None:
    make, use = KINDS[name]

    def unused(held: Any) -> float:
        use(held)
        return 2.0

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = tintype.export(Model(make(), unused), (torch.ones(2),)).module()
    assert program(torch.ones(2)).tolist() == [2, 2]


DRAWS: dict[str, Callable[[], float]] = {
    "urandom": lambda: os.urandom(1)[0],
    "secrets": lambda: secrets.randbelow(100),
    "SystemRandom": lambda: random.SystemRandom().random(),
    "uuid": lambda: uuid.uuid4().int % 7,
    "default_rng": lambda: float(np.random.default_rng().random()),
    "RandomState": lambda: float(np.random.RandomState().rand()),
}


@pytest.mark.parametrize("name", DRAWS)
def test_numbers_that_nobody_can_draw_again_are_refused(name: str) -> None:
    draw = DRAWS[name]

    def f(x: torch.Tensor) -> torch.Tensor:
        return x * draw()

    with pytest.raises(CaptureError, match="urandom") as caught:
        tintype.export(f, (torch.ones(2),))
    assert caught.value.location is not None
    draw()  # as before


def test_tensors_in_slots() -> None:
    def cached(holder: Any, x: torch.Tensor) -> torch.Tensor:
        if not hasattr(holder, "unset"):
            holder.unset = x * 2
        return holder.unset

    class Caches(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.holder = Slotted()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + cached(self.holder, x)

    model = Caches()
    with pytest.raises(StateChangedError):
        tintype.export(model, (torch.ones(2),))
    assert not hasattr(model.holder, "unset")
    assert model(torch.ones(2)).tolist() == [3, 3]
