"""Exceptions that Python's own operations raise, which a compiled function catches: another call may see none."""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")


class Box:
    pass


class Narrow:
    __slots__ = ("other",)


class World:
    """What the functions below read and write, anew for each run."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.table: dict[str, Any] = {}
        self.names: set[str] = set()
        self.fixed: Any = (1,)
        self.box = Box()
        self.target: Any = Narrow()
        self.limit = 1
        self.variable: contextvars.ContextVar[int] = contextvars.ContextVar("of the world")
        self.limited = functools.lru_cache(self._limited)
        self.read, self.fill = self._cell()

    def _limited(self, n: int) -> int:
        if n > self.limit:
            raise ValueError(n)
        return n

    @staticmethod
    def _cell() -> tuple[Callable[[], int], Callable[[], None]]:
        def read() -> int:
            return value

        def fill() -> None:
            nonlocal value
            value = 5

        def forget() -> None:
            nonlocal value
            del value

        value = 1
        forget()
        return read, fill


def pops(world: World) -> int:
    try:
        return int(world.items.pop())
    except IndexError:
        return -1


def removes(world: World) -> int:
    try:
        world.names.remove("k")
    except KeyError:
        return -1
    return 1


def deletes_an_item(world: World) -> int:
    try:
        del world.table["k"]
    except KeyError:
        return -1
    return 1


def deletes_an_attribute(world: World) -> int:
    try:
        del world.box.k
    except AttributeError:
        return -1
    return 1


def writes_an_item(world: World) -> int:
    try:
        world.fixed[0] = 4
    except TypeError:
        return -1
    return 1


def writes_an_attribute(world: World) -> int:
    try:
        world.target.k = 4
    except AttributeError:
        return -1
    return 1


def asks_a_cache(world: World) -> int:
    try:
        return int(world.limited(5))
    except ValueError:
        return -1


def asks_a_context_variable(world: World) -> int:
    try:
        return world.variable.get()
    except LookupError:
        return -1


def reads_a_cell(world: World) -> int:
    try:
        return world.read()
    except NameError:
        return -1


def another_limit(world: World) -> None:
    world.limit = 9


def a_list(world: World) -> None:
    world.fixed = [1]


def a_wide_box(world: World) -> None:
    world.target = Box()


CASES: dict[str, tuple[Callable[[World], int], Callable[[World], Any]]] = {
    "pop": (pops, lambda world: world.items.append(3)),
    "remove": (removes, lambda world: world.names.add("k")),
    "del item": (deletes_an_item, lambda world: world.table.update(k=2)),
    "del attribute": (deletes_an_attribute, lambda world: setattr(world.box, "k", 2)),
    "item": (writes_an_item, a_list),
    "attribute": (writes_an_attribute, a_wide_box),
    "cache": (asks_a_cache, another_limit),
    "context variable": (asks_a_context_variable, lambda world: world.variable.set(3)),
    "cell": (reads_a_cell, lambda world: world.fill()),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", list(CASES))
def test_what_raises_once_may_not_raise_again(name: str, backend: str) -> None:
    function, change = CASES[name]
    worlds = World(), World()
    x = torch.ones(2)

    def run(x: torch.Tensor, world: World) -> torch.Tensor:
        return x * 2 + function(world)

    compiled = tintype.compile(run, backend=backend)
    for call in range(6):
        if call in (2, 4):
            for world in worlds:
                change(world)
        assert torch.equal(compiled(x, worlds[0]), run(x, worlds[1])), call
        for attribute in ("items", "table", "names", "fixed"):
            assert getattr(worlds[0], attribute) == getattr(worlds[1], attribute)
        assert vars(worlds[0].box) == vars(worlds[1].box)


def second_size(x: torch.Tensor) -> torch.Tensor:
    try:
        return x * x.size(1)
    except IndexError:
        return x * 100


def length(x: torch.Tensor) -> torch.Tensor:
    try:
        return x * len(x)
    except TypeError:
        return x * 100


def second_stride(x: torch.Tensor) -> torch.Tensor:
    try:
        return x * x.stride(1)
    except IndexError:
        return x * 100


def laid_out(x: torch.Tensor) -> torch.Tensor:
    try:
        return x * (x.is_contiguous(memory_format=torch.channels_last) + 2)
    except RuntimeError:
        return x * 100


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("function", [second_size, length, second_stride, laid_out])
def test_questions_about_tensors_that_raise(
    function: Callable[[torch.Tensor], torch.Tensor], dynamic: bool | None, backend: str
) -> None:
    compiled = tintype.compile(function, backend=backend, dynamic=dynamic)
    for sizes in ((3,), (3,), (3, 2), (), (4, 3), (2,), (1, 2, 3, 4), (), (5, 3, 2, 2)):
        x = torch.ones(sizes)
        assert torch.equal(compiled(x), function(x)), sizes


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_size_that_is_not_there_raises_eager_modes_error(dynamic: bool | None) -> None:
    compiled = tintype.compile(lambda x: x * x.size(-1), dynamic=dynamic)
    compiled(torch.ones(3))
    compiled(torch.ones(4))
    with pytest.raises(IndexError, match="Dimension specified as -1 but tensor has no dimensions"):
        compiled(torch.ones(()))
