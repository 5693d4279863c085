"""Objects that go while a program runs, descriptors that set attributes, and numbers in what libraries hold."""

from __future__ import annotations

import collections
import contextlib
import os
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


class Asked:
    """Tells when it is asked something."""

    def __init__(self, number: int, noted: list[Any]) -> None:
        self.number, self.noted = number, noted

    def __len__(self) -> int:
        self.noted.append("len")
        return self.number % 3

    def __lt__(self, other: Any) -> bool:
        self.noted.append("lt")
        return bool(self.number < other.number)

    def __eq__(self, other: object) -> bool:
        self.noted.append("eq")
        return isinstance(other, Asked) and self.number == other.number

    def __hash__(self) -> int:
        self.noted.append("hash")
        return hash(self.number)


QUESTIONS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: any([a]) or all((b, a)),
    lambda a, b: any(value for value in (a, b)),
    lambda a, b: [value.number for value in sorted([a, b])],
    lambda a, b: [value.number for value in sorted([a, b], key=len)],
    lambda a, b: max([a, b]).number,
    lambda a, b: list(map(len, [a, b])),
    lambda a, b: [value.number for value in filter(None, [a, b])],
    lambda a, b: [a] == [b],
    lambda a, b: {"a": (a, 1)} == {"a": (b, 1)},
    lambda a, b: len(set([a, b])),  # noqa: C405
    lambda a, b: len({value for value in [a, b]}),  # noqa: C416
    lambda a, b: {1: "one"}.get(1) if a else "none",
    lambda a, b: (1 if a else 0, not b, [value.number for value in (a, b) if value]),
]


def asks(question: Callable[[Any, Any], Any]) -> Callable[[list[Any]], Callable[..., Any]]:
    def make(noted: list[Any]) -> Callable[..., Any]:
        def program(x: torch.Tensor, number: int) -> torch.Tensor:
            found = question(Asked(number % 4, noted), Asked(2, noted))
            noted.append(found)
            return x

        return program

    return make


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("number", range(len(QUESTIONS)))
def test_methods_that_native_code_runs_on_items(number: int, backend: str) -> None:
    assert_as_eager(asks(QUESTIONS[number]), backend, 9)


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


def test_the_environment_is_read_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if os.environ.get("TINTYPE_TEST_OF_READS", "0") == "1" else x * 3

    compiled = tintype.compile(program)
    x = torch.ones(2)
    for value in ("0", "1", None, "1", "2"):
        if value is None:
            monkeypatch.delenv("TINTYPE_TEST_OF_READS")
        else:
            monkeypatch.setenv("TINTYPE_TEST_OF_READS", value)
        assert torch.equal(compiled(x), program(x))
    engine: Any = compiled.engine
    assert not engine.given_up and engine.captures <= 4


def test_functions_that_choose_between_two_are_captured() -> None:
    compiled = tintype.compile(lambda x: torch.nn.functional.max_pool2d(x, 2), fullgraph=True)
    x = torch.randn(1, 1, 4, 4)
    for _ in range(2):
        assert torch.equal(compiled(x), torch.nn.functional.max_pool2d(x, 2))
