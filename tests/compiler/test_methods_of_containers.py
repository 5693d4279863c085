"""Classes of the user's that extend Python's containers: their methods are interpreted, and happen once."""

from __future__ import annotations

import collections
import io
from typing import Any

import pytest
import torch

import tintype

SAID: list[Any] = []


class Numbers(list[Any]):
    def append(self, value: Any) -> None:
        SAID.append(("append", float(value.sum())))
        super().append(value)

    def extend(self, values: Any) -> None:
        SAID.append("extend")
        super().extend(list(values))

    def __setitem__(self, key: Any, value: Any) -> None:
        SAID.append(("set", key))
        super().__setitem__(key, value)

    def __iadd__(self, other: Any) -> Any:
        SAID.append("add")
        return super().__iadd__(other)

    def pop(self, position: Any = -1) -> Any:
        SAID.append("pop")
        return super().pop(position)


class MoreNumbers(Numbers):
    def append(self, value: Any) -> None:
        SAID.append("more")
        super().append(value)


class Table(dict[Any, Any]):
    def __setitem__(self, key: Any, value: Any) -> None:
        SAID.append(("set", key))
        super().__setitem__(key, value)

    def update(self, other: Any) -> None:  # type: ignore[override]
        SAID.append("update")
        super().update(other)

    def setdefault(self, key: Any, value: Any) -> Any:
        SAID.append("default")
        return super().setdefault(key, value)

    def __delitem__(self, key: Any) -> None:
        SAID.append("delete")
        super().__delitem__(key)


class Ordered(collections.OrderedDict[Any, Any]):
    def __setitem__(self, key: Any, value: Any) -> None:
        SAID.append(("set", key))
        super().__setitem__(key, value)

    def move_to_end(self, key: Any, last: bool = True) -> None:
        SAID.append("move")
        super().move_to_end(key, last)


class Counting(collections.defaultdict[Any, Any]):
    def __setitem__(self, key: Any, value: Any) -> None:
        SAID.append(("set", key))
        super().__setitem__(key, value)


class Names(set[Any]):
    def add(self, value: Any) -> None:
        SAID.append("add")
        super().add(value)


class Queue(collections.deque[Any]):
    def append(self, value: Any) -> None:
        SAID.append("append")
        super().append(value)

    def popleft(self) -> Any:
        SAID.append("pop")
        return super().popleft()


class Text(io.StringIO):
    def write(self, text: str) -> int:
        SAID.append(("write", text))
        return super().write(text)


class Asking:
    def __getattr__(self, name: str) -> Any:
        SAID.append(("asked for", name))
        raise AttributeError(name)


class WithDefault:
    total = 5


def append_to_queue(owner: Any, y: Any) -> None:
    owner.append(4)
    owner.popleft()


def change_list(owner: Any, y: Any) -> None:
    owner.extend([y, y])
    owner[0] = y
    owner += [y]
    owner.pop()


def change_table(owner: Any, y: Any) -> None:
    owner["k"] = 3
    owner.update({"z": 1})
    owner.setdefault("q", 4)
    del owner["k"]


def change_ordered(owner: Any, y: Any) -> None:
    owner["c"] = 3
    owner.move_to_end("a")


def count(owner: Any, y: Any) -> None:
    owner["n"] += 1


def set_attribute(owner: Any, y: Any) -> None:
    owner.total = 7


CASES: dict[str, tuple[Any, Any]] = {
    "append": (Numbers, lambda owner, y: owner.append(y)),
    "append twice over": (MoreNumbers, lambda owner, y: owner.append(y)),
    "the base's method by name": (Numbers, lambda owner, y: list.append(owner, y)),
    "list": (lambda: Numbers([1]), change_list),
    "dictionary": (lambda: Table(a=1), change_table),
    "in order": (lambda: Ordered(a=1, b=2), change_ordered),
    "what is missing": (lambda: Counting(int), count),
    "set": (Names, lambda owner, y: owner.add(3)),
    "queue": (lambda: Queue([1, 2]), append_to_queue),
    "text": (Text, lambda owner, y: owner.write("hey")),
    "a class that is asked": (Asking, set_attribute),
    "a class with a default": (WithDefault, set_attribute),
}


def content(owner: Any) -> Any:
    if isinstance(owner, dict):
        return list(type(owner).__mro__[1].items(owner)), list(reversed(owner))
    if isinstance(owner, (list, set, collections.deque)):
        return [item.tolist() if isinstance(item, torch.Tensor) else item for item in owner]
    return owner.getvalue() if isinstance(owner, Text) else dict(vars(owner))


def told(function: Any, make: Any, change: Any) -> list[Any]:
    owner, found = make(), []
    for value in (1.0, 1.0, 5.0, 1.0, 5.0, 5.0):
        SAID.clear()
        if isinstance(owner, (Asking, WithDefault)):
            owner = make()
        result = function(torch.ones(2) * value, owner, change)
        found.append((result.tolist(), list(SAID), content(owner)))
    return found


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("case", CASES)
def test_methods_happen_once(case: str, backend: str) -> None:
    """Also where a run is left in the middle, and what it did is taken back and done again."""

    def program(x: Any, owner: Any, change: Any) -> Any:
        y = x * 2
        change(owner, y)
        return y + 1 if y.sum().item() > 5 else y

    make, change = CASES[case]
    assert told(tintype.compile(program, backend=backend), make, change) == told(program, make, change)
