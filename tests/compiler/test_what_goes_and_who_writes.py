"""Objects that go while a program runs, descriptors that set attributes, and numbers in what libraries hold."""

from __future__ import annotations

import collections
import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import tintype
from tintype.compiler.numbers import Number

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")

BACKENDS = ["eager", "aot_eager"]


def assert_as_eager(make: Callable[[list[Any]], Callable[..., Any]], backend: str, calls: int = 6) -> None:
    """A program that notes what happens in a list does the same at each call, compiled and not."""
    for dynamic in (None, True):
        expected: list[Any] = []
        noted: list[Any] = []
        program = make(expected)
        compiled = tintype.compile(make(noted), backend=backend, dynamic=dynamic)
        for number in range(calls):
            x = torch.ones(2) * number
            torch.testing.assert_close(compiled(x, number), program(x, number))
            assert noted == expected, number
            assert not holds_numbers(noted)


def holds_numbers(value: Any) -> bool:
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(map(holds_numbers, value))
    return isinstance(value, Number)


class Leaving:
    def __init__(self, number: int, noted: list[Any]) -> None:
        self.number, self.noted = number, noted

    def __del__(self) -> None:
        self.noted.append(("gone", self.number))


def deletes(noted: list[Any]) -> Callable[..., Any]:
    def program(x: torch.Tensor, number: int) -> torch.Tensor:
        leaving = Leaving(number + 1, noted)
        del leaving
        several = [Leaving(number, noted), Leaving(2, noted)]
        several.pop()
        noted.append("popped")
        return x * number

    return program


def numbered(noted: list[Any], x: torch.Tensor) -> Iterator[torch.Tensor]:
    try:
        noted.append("begun")
        yield x
        yield x + 1
    finally:
        noted.append("closed")


def leaves_generators(noted: list[Any]) -> Callable[..., Any]:
    def program(x: torch.Tensor, number: int) -> torch.Tensor:
        found = any(True for _ in numbered(noted, x))
        noted.append(found)
        inside = (value for value in numbered(noted, x))
        y = next(inside)
        del inside
        noted.append("left")
        for value in numbered(noted, y):
            y = value
            if number:
                break
        noted.append("broken off")
        return y

    return program


class Doubling:
    def __set__(self, owner: Any, value: int) -> None:
        owner.held = value * 2

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return owner.held + 1

    def __delete__(self, owner: Any) -> None:
        owner.held = -1


class Holder:
    doubled: Any = Doubling()
    held: Any = 0


class ModuleHolder(torch.nn.Module):
    doubled: Any = Doubling()


def sets_by_descriptors(noted: list[Any]) -> Callable[..., Any]:
    holder, module = Holder(), ModuleHolder()

    def program(x: torch.Tensor, number: int) -> torch.Tensor:
        holder.doubled = number
        setattr(module, "doubled", number + 1)  # noqa: B010
        x = x * holder.doubled + module.doubled
        module.doubled += 1
        noted.append((holder.held, module.doubled))
        if number == 3:
            del holder.doubled
        return x + holder.held

    return program


def stacks_of_callbacks(noted: list[Any]) -> Callable[..., Any]:
    def program(x: torch.Tensor, number: int) -> torch.Tensor:
        with contextlib.ExitStack() as stack:
            stack.callback(noted.append, ("left", number))
            noted.append(number)
        return x * number

    return program


@contextlib.contextmanager
def told(noted: list[Any], number: int) -> Iterator[int]:
    noted.append(("in", number))
    try:
        yield number + 1
    except ValueError:
        noted.append("caught")
    finally:
        noted.append(("out", number))


def managers_that_catch(noted: list[Any]) -> Callable[..., Any]:
    def program(x: torch.Tensor, number: int) -> torch.Tensor:
        with told(noted, number) as inner, told(noted, inner) as more:
            if number % 3 == 1:
                raise ValueError(number)
            x = x * more
        return x + 1

    return program


def numbers_as_keys(noted: list[Any]) -> Callable[..., Any]:
    table: dict[Any, Any] = {}
    counted: dict[int, int] = collections.defaultdict(int)

    def program(x: torch.Tensor, number: int) -> torch.Tensor:
        made = {number: "a", (number, number + 1): [number]}
        table.update(made)
        counted[number] += number
        noted[:] = [dict(table), dict(counted), {number, number + 1}, frozenset([number * 2])]
        return x * number

    return program


def namespaces(noted: list[Any]) -> Callable[..., Any]:
    def program(x: torch.Tensor, number: int) -> torch.Tensor:
        held = types.SimpleNamespace(value=number, more={number: (number,)})
        Leaving(number, noted)  # ends the noting
        noted.append(vars(held))
        return x * held.value

    return program


PROGRAMS = [
    deletes,
    leaves_generators,
    sets_by_descriptors,
    stacks_of_callbacks,
    managers_that_catch,
    numbers_as_keys,
    namespaces,
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", PROGRAMS)
def test_it_happens_as_in_eager_mode(make: Callable[[list[Any]], Callable[..., Any]], backend: str) -> None:
    assert_as_eager(make, backend)


def test_what_is_detached_is_no_view() -> None:
    compiled = tintype.compile(lambda x: (x.detach(), x.view(-1)), backend="aot_eager")
    for _ in range(3):
        x = torch.ones(2)
        detached, view = compiled(x)
        assert not detached._is_view() and view._base is x
        detached.add_(1)
        assert x.tolist() == [2, 2]


def test_modes_of_the_user_hear_the_program_alone() -> None:
    heard: list[str] = []

    class Listening(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, classes: Any, args: Any = (), kwargs: Any = None) -> Any:
            heard.append(function.__name__)
            return function(*args, **(kwargs or {}))

    compiled = tintype.compile(lambda x: (x + 1).relu(), backend="aot_eager")
    x = torch.ones(2)
    for _ in range(3):
        with Listening():
            compiled(x)
    assert heard == ["add", "relu"] * 3
