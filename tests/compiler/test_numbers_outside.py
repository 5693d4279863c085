"""Numbers that vary are for the capture alone: what the program returns, raises and stores has plain ones."""

from __future__ import annotations

import collections
import functools
import operator
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype
from tintype.compiler.numbers import Number


class Store:
    """Where programs store what they have."""


class Failure(Exception):
    def __init__(self, size: Any) -> None:
        super().__init__("failed")
        self.size = size


class Slots:
    __slots__ = ("__hidden", "size")

    def __init__(self, size: Any) -> None:
        self.size, self.__hidden = size, (size,)


class Pair(tuple[Any, ...]):
    """A tuple with attributes."""


STORE, ITEMS, KEYS = Store(), list[Any](), dict[Any, Any]()
NAMES: Any = None


def unknown() -> None:
    """Nobody looks into it."""
    with open("/dev/null") as file:
        file.read()


def stored_after_giving_up(x: Any) -> Any:
    size = x.shape[0]
    STORE.first = size
    unknown()
    STORE.second, STORE.third = size, (size, size * 2)
    STORE.fourth = STORE.first + 1
    return size


def tuples(x: Any) -> Any:
    STORE.pair, STORE.sizes, STORE.cut = (x.shape[0], [x.shape[1]]), x.shape, slice(0, x.shape[0])
    return STORE.pair[0] * x, STORE.sizes


def changing_inside(x: Any) -> Any:
    STORE.pair = (x.shape[0], [x.shape[1]])
    STORE.pair[1].append(x.shape[0] + 1)
    return x * STORE.pair[1][0] * STORE.pair[1][1]


def set_by_name(x: Any) -> Any:
    setattr(STORE, "sizes", (x.shape,))  # noqa: B010
    kept = x.shape[0]
    total = kept + (setattr(STORE, "other", x.shape[1]) or 1)
    STORE.__dict__["table"] = x.shape
    return total


def globals_and_items(x: Any) -> Any:
    global NAMES
    NAMES = (x.shape[0],)
    KEYS["sizes"], KEYS["nested"] = x.shape, {"a": (x.shape[0],)}
    ITEMS.append((x.shape[0], x.shape))
    return x


def added_to(x: Any) -> Any:
    global ITEMS
    ITEMS += [x.shape[0], (x.shape[1],)]
    return x


def objects(x: Any) -> Any:
    made = Store()
    made.size, made.pair = x.shape[0], Pair((x.shape[0], 1))
    ITEMS.append(made)
    ITEMS.append(Slots(x.shape[0]))
    return x


def functions(x: Any) -> Any:
    size = x.shape[0]

    def with_default(y: Any, n: Any = x.shape[0], *, m: Any = x.shape) -> Any:
        return y * size, n, m

    return with_default, functools.partial(max, x.shape[0], key=with_default), made_by(x).append


def made_by(x: Any) -> Any:
    return [x.shape[0]]


def generators(x: Any) -> Any:
    def count(size: Any) -> Any:
        while size:
            yield size
            size -= 1

    begun = count(x.shape[0])
    next(begun)
    return begun, count(x.shape[1])


def iterators(x: Any) -> Any:
    begun = iter((x.shape[0], x.shape[1]))
    next(begun)
    return [zip((x.shape[0],)), enumerate(x.shape), map(abs, x.shape), begun, reversed(x.shape), iter([x.shape[0]])]


def collected(x: Any) -> Any:
    by_size = collections.defaultdict(list)
    by_size[x.shape[0]].append(x.shape[0])
    ordered = collections.OrderedDict({(x.shape[0],): 1, "b": x.shape})
    return by_size, ordered, collections.deque([x.shape[0]]), {x.shape[0]}, frozenset([x.shape[0]])


def raised(x: Any) -> Any:
    raise Failure(x.shape[0])


def raised_from(x: Any) -> Any:
    try:
        raise Failure(x.shape[0])
    except Failure as error:
        raise ValueError("no") from error


def caught(x: Any) -> Any:
    try:
        raise Failure(x.shape)
    except Failure as error:
        STORE.error = error
    return x


def given_up_inside(x: Any) -> Any:
    def key(value: Any) -> Any:
        unknown()
        return value

    STORE.in_order = sorted([x.shape[0], x.shape[1] + 1], key=key)
    return x


def given_up_in_a_generator(x: Any) -> Any:
    def values() -> Any:
        size = x.shape[0]
        yield size
        unknown()
        yield size + 1

    first, *rest = values()
    STORE.values = (first, rest, list(values()))
    return x


def a_layer(x: Any) -> Any:
    STORE.layer = torch.nn.Linear(x.shape[0], 2)
    return x


def from_data(x: Any) -> Any:
    STORE.before = x.sum().item()
    unknown()
    STORE.after = x.sum().item() * 2
    return STORE.before


PROGRAMS: list[Callable[[Any], Any]] = [
    *(stored_after_giving_up, tuples, changing_inside, set_by_name, globals_and_items, added_to, objects, functions),
    *(generators, iterators, collected, raised, raised_from, caught, given_up_inside, given_up_in_a_generator),
    *(a_layer, from_data),
]


def parts_of(value: Any) -> list[Any]:
    """What a value holds."""
    parts: list[Any] = []
    if isinstance(value, dict):
        parts += [*value.keys(), *value.values()]
    elif isinstance(value, (list, tuple, set, frozenset, collections.deque)):
        parts += value
    elif isinstance(value, slice):
        parts += [value.start, value.stop]
    elif isinstance(value, types.FunctionType):
        parts += [cell.cell_contents for cell in value.__closure__ or ()]
        parts += [value.__defaults__, value.__kwdefaults__]
    elif isinstance(value, functools.partial):
        parts += [value.func, value.args, value.keywords]
    elif isinstance(value, BaseException):
        parts += [value.args, value.__cause__]
    elif isinstance(value, types.BuiltinMethodType):
        parts += [value.__self__]
    elif hasattr(value, "__next__"):
        parts += value
    parts += [getattr(value, name) for name in ("size", "_Slots__hidden") if isinstance(value, Slots)]
    return parts + ([vars(value)] if hasattr(value, "__dict__") else [])


def plain_leaves(value: Any, seen: set[int] | None = None) -> list[Any]:
    """All plain values in it, with their classes; numbers that vary are none."""
    seen = set() if seen is None else seen
    assert not issubclass(type(value), Number), "a number that varies was left"
    if isinstance(value, torch.Tensor):
        return [value.tolist()]
    if type(value) in (int, float, bool, str, type(None)):
        return [(type(value), value)]
    if id(value) in seen or isinstance(value, (type, types.ModuleType)):
        return []
    if not isinstance(value, (tuple, slice)):
        seen.add(id(value))
    return [leaf for part in parts_of(value) for leaf in plain_leaves(part, seen)]


def calls_of(function: Any) -> list[Any]:
    global NAMES
    vars(STORE).clear(), ITEMS.clear(), KEYS.clear()
    NAMES = None
    found = []
    for rows in (2, 3, 4, 4):
        torch.manual_seed(0)
        try:
            result = function(torch.ones(rows, rows + 1))
        except (Failure, ValueError) as error:
            result = error.with_traceback(None)
        found.append(plain_leaves([result, vars(STORE), list(ITEMS), KEYS, NAMES]))
    return found


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_what_others_get_has_plain_numbers(program: Any, backend: str) -> None:
    assert calls_of(tintype.compile(program, dynamic=True, backend=backend)) == calls_of(program)


def test_a_number_on_the_stack_stays_when_another_is_set_by_name() -> None:
    compiled = tintype.compile(set_by_name, dynamic=True)
    for rows in (2, 5, 7):
        assert compiled(torch.ones(rows, 9)) == rows + 1 and STORE.other == 9
    assert operator.index(compiled.engine.captures) == 1
