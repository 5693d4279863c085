"""Objects that are one at one call and two at the next, containers that change in place, values of other classes."""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import itertools
import operator
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")


class Plain:
    def __init__(self) -> None:
        self.x = 1
        self.items = [1]


def outcome(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    except (ValueError, TypeError, AttributeError, KeyError, IndexError, StopIteration) as error:
        return repr(error)


def state_of(value: Any) -> Any:
    if isinstance(value, Plain):
        return dict(vars(value))
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return repr(value) if not hasattr(value, "__next__") else list(itertools.islice(value, 5))


def plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(map(plain, value))
    return (value.dtype, value.tolist()) if isinstance(value, torch.Tensor) else value


def assert_alike(function: Callable[..., Any], calls: list[Callable[[], tuple[Any, ...]]], backend: str) -> None:
    """Each call of a compiled function gives and leaves what the function itself does."""
    compiled = tintype.compile(function, backend=backend)
    for make in calls:
        expected_arguments, arguments = make(), make()
        expected, found = outcome(function, expected_arguments), outcome(compiled, arguments)
        assert plain(found) == plain(expected)
        assert list(map(state_of, arguments)) == list(map(state_of, expected_arguments))


def appended(a: Any, b: Any) -> Any:
    a.append(1)
    return len(b)


def assigned(a: Any, b: Any) -> Any:
    before = b.x
    a.x = 5
    return before, b.x


def deleted(a: Any, b: Any) -> Any:
    a.x, b.x
    del a.x
    return hasattr(b, "x")


def stored(a: Any, b: Any) -> Any:
    a["k"] = 5
    return b.get("k")


def added_in_place(a: Any, b: Any) -> Any:
    a += [1]
    return sum(b)


def inner(a: Any, b: Any) -> Any:
    a.items.append(3)
    return len(b.items)


def reshaped(a: Any, b: Any) -> Any:
    a.unsqueeze_(0)
    return b.shape[0]


def as_keys(a: Any, b: Any) -> Any:
    found = {a: 1}
    return b in found, len({a, b}), {a: 1, b: 2}[a]


def stored_as_keys(a: Any, b: Any) -> Any:
    def f(value: Any) -> Any:
        return value

    found = {}
    found[a] = 1
    found[b] = 2
    return found[a], dict.fromkeys((a, b), 1).get(a), len({f(key) for key in [a, b]})


def compared(a: Any, b: Any) -> Any:
    return a == b, a != b, [a] == [b], a in [b], [a].count(b), (a is b)


ONE_OR_TWO = [
    *[(appended, list), (stored, dict), (added_in_place, lambda: [1]), (reshaped, lambda: torch.ones(2))],
    (inner, Plain),
    *[(function, Plain) for function in (assigned, deleted, as_keys, stored_as_keys, compared)],
]  # fmt: skip


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("order", [(False, True), (True, False)])
@pytest.mark.parametrize(("function", "make"), ONE_OR_TWO, ids=lambda value: getattr(value, "__name__", ""))
def test_two_arguments_may_be_one_object(function: Any, make: Any, order: Any, backend: str) -> None:
    def arguments(is_one: bool) -> tuple[Any, Any]:
        first = make()
        return first, first if is_one else make()

    assert_alike(function, [lambda one=one: arguments(one) for one in order * 2], backend)  # type: ignore[misc]


GLOBAL = torch.ones(2)


@pytest.mark.parametrize("order", [(False, True), (True, False)])
def test_an_argument_may_be_a_global(order: Any) -> None:
    def is_the_global(x: Any) -> Any:
        return 1 if GLOBAL is x else 2

    def make(is_one: bool) -> Callable[[], tuple[Any, ...]]:
        return lambda: (GLOBAL if is_one else torch.ones(2),)

    assert_alike(is_the_global, [make(is_one) for is_one in order * 2], "eager")


def written_copy(x: Any) -> Any:
    y = x.contiguous()
    y.add_(1)
    return x, y


def compared_conversion(x: Any) -> Any:
    y = x.to(torch.float32)
    return (x + 1 if y is x else x * 2), y.mul(2), y in {x: 1}


def written_conversion(x: Any) -> Any:
    y = x + 1
    z = y.to(torch.float32)
    return z.mul_(3), y


def written_transposed(x: Any) -> Any:
    y = (x * 1).t()
    z = y.contiguous()
    return z.mul_(2), (1 if z is y else 2), y


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("function", [written_copy, compared_conversion, written_conversion, written_transposed])
def test_a_result_may_be_what_went_in(function: Any, order: Any, backend: str) -> None:
    inputs = [lambda: (torch.ones(1, 3),), lambda: (torch.ones(3, 2).t(),), lambda: (torch.ones(2, 3).double(),)]
    assert_alike(function, [inputs[n] for n in (*order, 2, *order, 2)], backend)


def test_a_result_may_be_there_twice() -> None:
    with torch.library._scoped_library("tintype_tests", "FRAGMENT") as library:
        library.define("maybe_twice(Tensor a) -> (Tensor, Tensor)")

        def maybe_twice(a: Any) -> Any:
            doubled = a * 2
            return (doubled, doubled) if a.numel() == 4 else (doubled, doubled + 1)

        library.impl("maybe_twice", maybe_twice, "CompositeExplicitAutograd")

        def program(a: Any) -> Any:
            b, c = torch.ops.tintype_tests.maybe_twice(a)
            return b.mul_(c), c

        assert_alike(program, [lambda n=n: (torch.ones(n),) for n in (4, 4, 6, 6, 4)], "eager")  # type: ignore[misc]


def in_place(kind: str) -> Callable[[Any, Any], Any]:
    function = getattr(operator, kind)

    def program(a: Any, b: Any) -> Any:
        function(a, b)
        return len(a)

    return program


def plus(a: Any, b: Any) -> Any:
    a += b
    return len(a)


def union(a: Any, b: Any) -> Any:
    a |= b
    return len(a)


def times(a: Any, b: Any) -> Any:
    a *= 2
    return len(a)


def without(a: Any, b: Any) -> Any:
    a -= b
    return len(a)


IN_PLACE = [
    (plus, lambda: ([0], [1])),
    (plus, lambda: ([0], (value for value in [1, 2]))),
    (plus, lambda: (collections.deque([0]), [1])),
    (plus, lambda: (bytearray(b"a"), b"c")),
    (union, lambda: ({0}, {1})),
    (union, lambda: ({0: 1}, {1: 2})),
    (times, lambda: ([0], None)),
    (without, lambda: ({0, 1}, {1})),
    (in_place("iadd"), lambda: ([0], [1])),
    (in_place("iconcat"), lambda: ([0], [1])),
    (in_place("delitem"), lambda: ([0, 1], 0)),
    (lambda a, b: operator.setitem(a, 0, b), lambda: ([0], 4)),
]


@pytest.mark.parametrize(("function", "make"), IN_PLACE)
def test_containers_that_operators_change(function: Any, make: Any) -> None:
    assert_alike(function, [make] * 3, "eager")


def started(iterator: Any) -> Any:
    next(iterator)
    return iterator


def numbers() -> Any:
    yield from (1, 2, 3)


CONSUMING = [
    next, list, sum, max, any, lambda a: [value for value in a if value], lambda a: tuple(zip(a, [1, 2])),
    lambda a: a.__next__(), lambda a: next(iter(a)), lambda a: [*a], lambda a: (lambda x, *rest: (x, rest))(*a),
]  # fmt: skip


@pytest.mark.parametrize("function", CONSUMING)
def test_iterators_that_were_there_before(function: Any) -> None:
    def program(a: Any) -> Any:
        return function(a)

    iterators = [lambda: (iter([1, 2, 3]),), lambda: (started(iter([1, 2, 3])),), lambda: (numbers(),)]
    assert_alike(program, [*iterators, lambda: ([4, 5],) if function is list else (iter([7]),), *iterators], "eager")


COUNTER = itertools.count()


def test_a_counter_counts_on() -> None:
    compiled = tintype.compile(lambda x: x + next(COUNTER))
    first = next(COUNTER)
    assert [int(compiled(torch.zeros(()))) for _ in range(3)] == [first + 1, first + 2, first + 3]
    assert compiled.engine.captures == 1


VALUES = [
    (range(3), range(4)), (slice(1, 2), slice(2, 4)), (decimal.Decimal(3), decimal.Decimal("3.0")),
    (datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)), (array.array("i", [1]), array.array("i", [3])),
    ({1: 2}.keys(), {3: 4}.keys()), (bytearray(b"ab"), bytearray(b"cd")), (memoryview(b"ab"), memoryview(b"cd")),
    (types.MappingProxyType({"x": 1}), types.MappingProxyType({"x": 2})), ((1, 2), (1, 3)),
    (type("Number", (int,), {})(3), 4), (types.SimpleNamespace(x=1), types.SimpleNamespace(x=2)),
]  # fmt: skip
LOOKING = [
    *(list, len, str, max, bool, int, sorted, lambda a: f"{a}", lambda a: a == 3, lambda a: 2 in a, lambda a: a[0]),
    *(lambda a: a.index(3), lambda a: a.get("x"), lambda a: [value for value in a if value]),
]


@pytest.mark.parametrize("pair", VALUES, ids=lambda pair: type(pair[0]).__name__)
def test_values_of_other_classes_are_looked_at(pair: Any) -> None:
    for function in LOOKING:

        def program(a: Any, function: Any = function) -> Any:
            return function(a)

        for order in ((0, 1), (1, 0)):
            assert_alike(program, [lambda n=n: (pair[n],) for n in order * 2], "eager")  # type: ignore[misc]


def test_an_exception_is_raised_once() -> None:
    calls: list[Any] = []

    def program(name: str) -> str:
        calls.append(name)
        if name == "b":
            raise ValueError(name)
        return name

    compiled = tintype.compile(program)
    for name in ("a", "a", "b", "b", "c"):
        assert outcome(compiled, (name,)) == (name if name != "b" else "ValueError('b')")
    assert calls == ["a", "a", "b", "b", "c"]


def test_one_tensor_for_two_inputs_of_a_graph() -> None:
    def program(a: Any, b: Any) -> Any:
        return (a * 2 + b).sin()

    compiled = tintype.compile(program, backend="aot_eager")
    compiled(torch.ones(3), torch.ones(3))
    x = torch.ones(3)
    for _ in range(3):
        assert torch.equal(compiled(x, x), program(x, x))
        assert torch.equal(compiled(x, x + 1), program(x, x + 1))


def test_the_dictionary_of_an_object_is_replaced() -> None:
    def program(a: Any) -> Any:
        a.__dict__ = {"x": 8}
        return a.x

    assert_alike(program, [lambda: (Plain(),)] * 3, "eager")
