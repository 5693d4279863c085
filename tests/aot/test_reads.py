"""What a compiled function reads besides its arguments: when that changes, it answers as the function itself does."""

from __future__ import annotations

import array
import collections
import contextvars
import copy
import itertools
import operator
import os
import random
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from torch import nn

import tintype
from tintype.errors import CaptureError, InvalidRequestError, StateChangedError, UnsupportedInputError

Function = Callable[[torch.Tensor], torch.Tensor]
# makes a function and what changes something that it reads
Case = Callable[[], tuple[Function, Callable[[], Any]]]
CASES: dict[str, Case] = {}


def case(make: Case) -> Case:
    CASES[make.__name__.replace("_", " ")] = make
    return make


@pytest.mark.parametrize("name", CASES)
def test_a_change_is_noticed(name: str) -> None:
    function, change = CASES[name]()
    compiled = tintype.aot.function(function)
    x = torch.ones(2)
    for act in (lambda: None, lambda: None, change, lambda: None):
        act()
        torch.testing.assert_close(compiled(x), function(x))
    assert len(compiled._order) == 2


class Object:
    """Somebody's object."""


@case
def defaults() -> Any:
    def function(x: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
        return x * factor

    return function, lambda: setattr(function, "__defaults__", (7.0,))


@case
def keyword_defaults_of_a_function_that_is_called() -> Any:
    def inner(x: torch.Tensor, *, factor: float = 1.0) -> torch.Tensor:
        return x * factor

    return lambda x: inner(x), lambda: inner.__kwdefaults__.update(factor=5.0)


@case
def code() -> Any:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    return lambda x: function(x), lambda: setattr(function, "__code__", (lambda x: x * 3).__code__)


@case
def attribute_of_a_function() -> Any:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * getattr(function, "factor", 1.0)

    return function, lambda: setattr(function, "factor", 3.0)


@case
def numpy_array() -> Any:
    values = numpy.array([1.0, 2.0])
    return lambda x: x * float(values[0]), lambda: operator.setitem(values, 0, 5.0)


@case
def numpy_array_of_objects() -> Any:
    values = numpy.array([[1.0], None], dtype=object)
    return lambda x: x * values[0][0], lambda: operator.setitem(values[0], 0, 5.0)


@case
def deque() -> Any:
    values = collections.deque([1, 2])
    return lambda x: x * sum(values), lambda: values.append(7)


@case
def bytes_that_change() -> Any:
    values = bytearray(b"abc")
    return lambda x: x * values[0], lambda: operator.setitem(values, 0, 5)


@case
def array_of_numbers() -> Any:
    values = array.array("d", [1.0])
    return lambda x: x * values[0], lambda: operator.setitem(values, 0, 5.0)


@case
def proxy_of_a_dictionary() -> Any:
    table = {"a": 1.0}
    proxy = types.MappingProxyType(table)
    return lambda x: x * proxy["a"], lambda: table.update(a=5.0)


@case
def dictionary_of_the_users() -> Any:
    class Table(dict[str, float]):
        extra = 1.0

        def __getattr__(self, name: str) -> float:
            return self[name]

        def __iter__(self) -> Iterator[str]:
            raise AssertionError("nobody asked the function to run this")

    table = Table(a=1.0)
    return lambda x: x * table.a * table.extra, lambda: (
        operator.setitem(table, "a", 2.0),
        setattr(Table, "extra", 3.0),
    )


@case
def user_dictionary() -> Any:
    table = collections.UserDict(a=1.0)
    return lambda x: x * table["a"], lambda: operator.setitem(table, "a", 2.0)


@case
def attribute_of_a_tensor() -> Any:
    tensor: Any = torch.ones(2)
    tensor.factor = 1.0
    return lambda x: x * tensor.factor, lambda: setattr(tensor, "factor", 4.0)


@case
def context_variable() -> Any:
    variable = contextvars.ContextVar("variable", default=1.0)
    return lambda x: x * variable.get(), lambda: variable.set(4.0)


@case
def thread_local_value() -> Any:
    local: Any = threading.local()
    local.factor = 1.0
    return lambda x: x * local.factor, lambda: setattr(local, "factor", 4.0)


@case
def weak_reference() -> Any:
    class Holder:
        factor = 1.0

    held = [Holder()]
    reference: Any = weakref.ref(held[0])
    return lambda x: x * (1 if reference() is None else 2), held.clear


@case
def attribute_that_was_not_there() -> Any:
    namespace = types.SimpleNamespace()
    return lambda x: x * 2 if hasattr(namespace, "other") else x, lambda: setattr(namespace, "other", 1)


@case
def attribute_that_was_not_there_and_is_tried() -> Any:
    thing: Any = Object()

    def function(x: torch.Tensor) -> torch.Tensor:
        try:
            return x * thing.factor
        except AttributeError:
            return x

    return function, lambda: setattr(thing, "factor", 3.0)


@case
def attribute_of_a_class_between() -> Any:
    class Base:
        factor = 1.0

    class Derived(Base):
        pass

    thing = Derived()
    return lambda x: x * thing.factor, lambda: setattr(Derived, "factor", 3.0)


@case
def attribute_by_a_computed_name() -> Any:
    thing: Any = Object()
    thing.factor_1 = 1.0
    return lambda x: x * getattr(thing, f"factor_{len(x) - 1}"), lambda: setattr(thing, "factor_1", 3.0)


@case
def attribute_by_a_name_from_elsewhere() -> Any:
    thing: Any = Object()
    thing.factor = 1.0
    names = ["factor"]
    return lambda x: x * getattr(thing, names[0]), lambda: setattr(thing, "factor", 3.0)


@case
def global_that_was_not_there() -> Any:
    namespace: dict[str, Any] = {}
    exec("def function(x):\n try:\n  return x * UNKNOWN\n except NameError:\n  return x", namespace)
    return namespace["function"], lambda: namespace.update(UNKNOWN=3.0)


@case
def builtin_that_is_hidden() -> Any:
    namespace: dict[str, Any] = {}
    exec("def function(x): return x * abs(-2)", namespace)
    return namespace["function"], lambda: namespace.update(abs=lambda value: 9.0)


@case
def module_that_the_function_imports() -> Any:
    settings: Any = types.ModuleType("tintype_test_settings")
    settings.factor = 1.0
    sys.modules["tintype_test_settings"] = settings
    namespace: dict[str, Any] = {}
    exec("def function(x):\n from tintype_test_settings import factor\n return x * factor", namespace)
    return namespace["function"], lambda: setattr(settings, "factor", 3.0)


@case
def bound_method_of_a_container() -> Any:
    get = {"a": 1.0}.get
    return lambda x: x * get("a"), lambda: get.__self__.update(a=3.0)  # type: ignore[attr-defined]


@case
def environment() -> Any:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * float(os.environ.get("TINTYPE_TEST_READS", "1"))

    return function, lambda: os.environ.__setitem__("TINTYPE_TEST_READS", "3")


@case
def environment_by_getenv() -> Any:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * float(os.getenv("TINTYPE_TEST_GETENV", "1"))

    return function, lambda: os.environ.__setitem__("TINTYPE_TEST_GETENV", "3")


@case
def descriptor() -> Any:
    class Constant:
        value = 1.0

        def __get__(self, instance: Any, owner: Any) -> float:
            return self.value

    class Owner:
        factor = Constant()

    owner = Owner()
    return lambda x: x * owner.factor, lambda: setattr(Constant, "value", 3.0)


def test_hooks_on_all_modules() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    compiled = tintype.aot.module(model)
    function = tintype.aot.function(lambda x: model(x) + x[:1])
    x = torch.ones(1, 2)
    compiled(x), function(x)
    hook = nn.modules.module.register_module_forward_hook(lambda module, args, output: output + 1)
    try:
        torch.testing.assert_close(compiled(x), model(x))
        torch.testing.assert_close(function(x), model(x) + x[:1])
        own = compiled.register_forward_hook(lambda module, args, output: None)
        with pytest.raises(InvalidRequestError, match="hooks on all modules"):
            compiled(x)
        own.remove()
    finally:
        hook.remove()
    torch.testing.assert_close(compiled(x), model(x))


# --- what can't be watched -----------------------------------------------------------------------------------


def test_iterators_are_refused() -> None:
    counter = itertools.count(1)
    with pytest.raises(CaptureError, match="gives something else each time"):
        tintype.aot.function(lambda x: x * next(counter))(torch.ones(2))
    holder = types.SimpleNamespace(counter=(n for n in range(3)), other=1)
    with pytest.raises(CaptureError, match="can read from 'counter', a generator"):
        tintype.aot.function(lambda x: x * next(holder.counter))(torch.ones(2))
    assert tintype.aot.function(lambda x: x * holder.other)(torch.ones(1)).item() == 1


# --- functions that change something ------------------------------------------------------------------------


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.seen: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        self.seen.append(self.count)
        return x * self.count


def test_counters_count() -> None:
    model = nn.Sequential(Counting(), nn.ReLU())
    reference = copy.deepcopy(model)
    compiled = tintype.aot.module(model)
    with pytest.warns(UserWarning, match="captured anew each time"):
        for _ in range(5):
            torch.testing.assert_close(compiled(torch.ones(2)), reference(torch.ones(2)))
    assert model[0].seen == reference[0].seen == [1, 2, 3, 4, 5]
    assert not compiled._compiled._order

    def function(x: torch.Tensor) -> torch.Tensor:
        function.calls = getattr(function, "calls", 0) + 1  # type: ignore[attr-defined]
        return x * function.calls  # type: ignore[attr-defined]

    assert [tintype.aot.function(function)(torch.ones(1)).item() for _ in range(3)] == [1, 2, 3]


def test_what_a_function_sets_is_set_each_time() -> None:
    state = types.SimpleNamespace(done=False)

    def function(x: torch.Tensor) -> torch.Tensor:
        state.done = True
        return x * 2

    compiled = tintype.aot.function(function)
    for _ in range(3):
        state.done = False
        compiled(torch.ones(2))
        assert state.done


def test_what_is_made_when_it_is_first_needed() -> None:
    table: dict[int, float] = {}

    def function(x: torch.Tensor) -> torch.Tensor:
        if len(x) not in table:
            table[len(x)] = 1 / len(x)
        return x * table[len(x)]

    compiled = tintype.aot.function(function)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            assert compiled(torch.ones(2)).tolist() == [0.5, 0.5]
    assert len(compiled._order) == 1


def test_generators_of_random_numbers_draw_anew() -> None:
    ours, theirs = random.Random(0), random.Random(0)
    arrays, others = numpy.random.default_rng(0), numpy.random.default_rng(0)
    compiled = tintype.aot.function(lambda x: x * ours.random() + float(arrays.random()))
    for _ in range(3):
        expected = torch.ones(1) * theirs.random() + float(others.random())
        torch.testing.assert_close(compiled(torch.ones(1)), expected)


def test_tensors_are_not_kept() -> None:
    kept: list[Any] = []
    table: dict[str, Any] = {"old": 1}
    state = types.SimpleNamespace(last=None)
    last: Any = None

    def in_cell(x: torch.Tensor) -> torch.Tensor:
        nonlocal last
        last = x * 2
        return last

    keepers: list[Any] = [
        lambda x: kept.append(x * 2),
        lambda x: table.update(new=x * 2),
        lambda x: table.update(old=x * 2),
        lambda x: setattr(state, "last", x * 2),
        lambda x: setattr(state, "other", x * 2),
        in_cell,
    ]
    for keep in keepers:
        with pytest.raises(StateChangedError, match="keeps a tensor that it computed"):
            tintype.aot.function(keep)(torch.ones(2))
        assert kept == [] and table == {"old": 1} and vars(state) == {"last": None} and last is None


class Caching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache = x * getattr(self, "cache", 2)
        return self.cache


@pytest.mark.parametrize(
    "capture", [lambda m, x: tintype.aot.module(m)(x), lambda m, x: tintype.export(m.forward, (x,))]
)
def test_a_model_keeps_no_tensor_without_data(capture: Any) -> None:
    model = Caching()
    with pytest.raises(StateChangedError, match="'cache'"):
        capture(model, torch.ones(2))
    assert "cache" not in vars(model)


# --- the state of a model -----------------------------------------------------------------------------------


def test_parameters_come_and_go() -> None:
    model = nn.Linear(2, 2)
    compiled = tintype.aot.module(model)
    x = torch.ones(1, 2)
    for bias in (model.bias, None, nn.Parameter(torch.ones(2)), None, model.bias):
        model.bias = bias
        torch.testing.assert_close(compiled(x), model(x))


def test_parameters_that_are_no_longer_one() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    compiled = tintype.aot.module(model)
    x = torch.ones(1, 2)
    compiled(x)
    model[1].weight = nn.Parameter(torch.full((2, 2), 3.0))
    torch.testing.assert_close(compiled(x), model(x))
    compiled(x).sum().backward()
    found = [parameter.grad for parameter in model.parameters()]
    expected = torch.autograd.grad(model(x).sum(), list(model.parameters()))
    torch.testing.assert_close(found, list(expected))


def test_attributes_of_parameters() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight: Any = nn.Parameter(torch.ones(2))
            self.weight.factor = 1.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight * self.weight.factor

    model = Model()
    compiled = tintype.aot.module(model)
    x = torch.ones(2)
    torch.testing.assert_close(compiled(x), model(x))
    model.weight.factor = 3.0
    torch.testing.assert_close(compiled(x), model(x))
    model.weight = nn.Parameter(torch.ones(2))
    model.weight.factor = 4.0
    torch.testing.assert_close(compiled(x), model(x))


def test_gradients_of_parameters() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight if self.weight.grad is None else x * self.weight + self.weight.grad

    model = Model()
    compiled = tintype.aot.module(model)
    x = torch.ones(2)
    for gradient in (None, torch.ones(2), torch.full((2,), 3.0), None):
        model.weight.grad = gradient
        torch.testing.assert_close(compiled(x), model(x))


def test_what_is_asked_of_parameters() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight * (2 if self.weight._backward_hooks is None else 3)

    model = Model()
    compiled = tintype.aot.module(model)
    x = torch.ones(2)
    torch.testing.assert_close(compiled(x), model(x))
    model.weight.register_hook(lambda gradient: gradient)
    with pytest.raises(CaptureError, match="_backward_hooks"):
        compiled(x)


def test_arguments_that_are_parameters_and_compared_with_them() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.weight * 2 if x is self.weight else x * 3

    model = Model()
    compiled = tintype.aot.module(model)
    assert compiled(torch.ones(2)).tolist() == [3, 3]
    with pytest.raises(CaptureError, match="compare"):
        compiled(model.weight)
    compiled(nn.Parameter(torch.ones(2)))
    with pytest.raises(UnsupportedInputError, match="compares objects"):
        compiled(model.weight)
    linear = nn.Linear(2, 2)
    torch.testing.assert_close(tintype.aot.module(linear)(linear.weight), linear(linear.weight))


# --- types ---------------------------------------------------------------------------------------------------


def test_types_are_those_of_the_callers_tensors() -> None:
    table = {torch.Tensor: 2.0, nn.Parameter: 3.0}

    def function(x: torch.Tensor) -> Any:
        return x * table.get(type(x), 99.0), x.sin() if type(x) is torch.Tensor else x.cos(), len(type(x).__name__)

    compiled = tintype.aot.function(function)
    for x in (torch.ones(2), nn.Parameter(torch.ones(2)), torch.ones(2)):
        torch.testing.assert_close(compiled(x), function(x))
