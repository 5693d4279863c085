"""The order of keys in dictionaries, and of keyword arguments, matters where the program goes by it, nowhere else."""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype
from tests.export.modes import assert_same
from tests.export.test_observations import ALL, runnable
from tests.serde.programs import edited_json, loaded, saved_bytes
from tintype.errors import FileFormatError, InputMismatchError

A, B, C = torch.tensor([1.0, 2.0]), torch.tensor([5.0, 7.0]), torch.tensor([11.0, 3.0])
TABLE = {"a": 2.0, "b": 3.0, "c": 4.0}


def given() -> dict[str, torch.Tensor]:
    return {"a": A.clone(), "b": B.clone(), "c": C.clone()}


def backwards(values: dict[str, torch.Tensor]) -> Any:
    return type(values)(reversed(list(values.items())))


class Keywords(torch.nn.Module):
    """A model that goes by the order of its keyword arguments."""

    def forward(self, **values: torch.Tensor) -> torch.Tensor:
        return torch.cat(list(values.values()))


class Names(torch.nn.Module):
    """A model that takes keyword arguments of any name, and hands them on."""

    def forward(self, first: torch.Tensor, **values: torch.Tensor) -> torch.Tensor:
        return self.difference(first, **values)

    def difference(self, first: torch.Tensor, **values: torch.Tensor) -> torch.Tensor:
        return first * values["b"] - values["c"]


GO_BY_ORDER: dict[str, Callable[..., Any]] = {
    "items": lambda d: sum(v * i for i, (_, v) in enumerate(d.items())),
    "values": lambda d: torch.cat(list(d.values())),
    "keys": lambda d: d[list(d)[1]] * 2,
    "merged": lambda d: next(iter({**d}.values())),
    "called": lambda d: (lambda **kw: next(iter(kw.values())))(**d),
    "a constant": lambda d: torch.tensor([TABLE[k] for k in d]) + 1,
    "returned": lambda d: d,
    "strides": lambda d: d["a"] * 2 if next(iter(d.values())).is_contiguous() else d["a"],
    "raises": lambda d: d["a"] if next(iter(d)) == "a" else d["nothing"],
    "branches": lambda d: torch.cond(d["a"].sum() > 0, lambda a, b: a - b, lambda a, b: a + b, tuple(d.values())[:2]),
}
GO_BY_NAMES: dict[str, Callable[..., Any]] = {
    "names": lambda d: d["a"] - d["b"] * d["c"],
    "sorted": lambda d: torch.cat([d[key] for key in sorted(d)]),
    "length": lambda d: d["a"] * len(d),
    "present": lambda d: d["a"] if "b" in d else d["c"],
}


@pytest.mark.parametrize("how", ALL)
@pytest.mark.parametrize("name", ["items", "returned", "strides"])
def test_an_order_that_is_looked_at_is_checked_in_every_form(how: str, name: str) -> None:
    function = GO_BY_ORDER[name]
    program = runnable(how, function, (given(),))
    assert_same(program(given()), function(given()))
    with pytest.raises(InputMismatchError, match="order 'a', 'b', 'c'"):
        program(backwards(given()))


@pytest.mark.parametrize("name", GO_BY_ORDER)
def test_all_ways_to_look_at_an_order(name: str) -> None:
    function = GO_BY_ORDER[name]
    program = tintype.export(function, (given(),))
    assert "list(*args[0]) = ('a', 'b', 'c')" in str(program.contract())
    with pytest.raises(InputMismatchError):
        program.module()({"b": B, "a": A, "c": C})


@pytest.mark.parametrize("shapes", [None, "auto"])
@pytest.mark.parametrize("name", GO_BY_NAMES)
def test_keys_come_in_any_order_where_names_count(name: str, shapes: Any) -> None:
    function = GO_BY_NAMES[name]
    program = tintype.export(function, (given(),), dynamic_shapes=shapes)
    assert "list(" not in str(program.contract())
    assert_same(program.module()(backwards(given())), function(given()))


def test_a_guard_on_the_first_size_is_an_order() -> None:
    def by_first(d: dict[str, torch.Tensor]) -> torch.Tensor:
        return d["a"].sum() if next(iter(d.values())).shape[0] > 1 else d["b"].sum()

    program = tintype.export(by_first, ({"a": torch.ones(3), "b": torch.ones(3)},), dynamic_shapes="auto")
    with pytest.raises(InputMismatchError, match="order"):
        program.module()({"b": torch.ones(1), "a": torch.ones(3)})


def test_each_dictionary_has_its_own_order() -> None:
    def function(first: Any, second: Any) -> Any:
        return torch.cat(list(first["inner"].values())) + second["a"].sum()

    inner = {"inner": given(), "other": C}
    module = tintype.export(function, (inner, given())).module()
    expected = function(inner, given())
    assert_same(module(backwards(inner), backwards(given())), expected)
    with pytest.raises(InputMismatchError, match=r"\*args\[0\]\['inner'\]"):
        module({"inner": backwards(given()), "other": C}, given())


def test_orders_of_keywords_are_checked_beside_containers() -> None:
    """Containers whose order is that of the example are taken apart at once, which says nothing about keywords."""

    class Both(torch.nn.Module):
        def forward(self, table: Any, **values: torch.Tensor) -> torch.Tensor:
            return torch.cat([*table.values(), *values.values()])

    module = tintype.export(Both(), (given(),), {"b": B, "c": C}).module()
    assert_same(module(given(), b=A, c=B), torch.cat([A, B, C, A, B]))
    with pytest.raises(InputMismatchError, match="kwargs"):
        module(given(), c=B, b=A)


LOGGER = logging.getLogger(__name__)


class Layers:
    """A container that has something for each layer, by number."""

    def __init__(self, by_layer: dict[int, torch.Tensor]) -> None:
        self.by_layer = by_layer


tintype.register_container(Layers)


@pytest.mark.direct("the model notes how often it is called")
@pytest.mark.parametrize("how", ALL)
def test_tables_by_number_in_objects_have_the_order_of_a_list(how: str, caplog: pytest.LogCaptureFixture) -> None:
    def function(layers: Layers) -> torch.Tensor:
        LOGGER.warning("called")
        return torch.cat(list(layers.by_layer.values()))

    tintype.export(function, (Layers({0: A, 1: B}),))
    assert len(caplog.records) == 1, "an order that no caller changes is not tried out"
    program = runnable(how, function, (Layers({0: A, 1: B}),))
    assert_same(program(Layers({0: B, 1: A})), torch.cat([B, A]))
    with pytest.raises(InputMismatchError, match="order 0, 1, but got 1, 0"):
        program(Layers({1: B, 0: A}))


@pytest.mark.parametrize("kind", [collections.OrderedDict, lambda pairs: collections.defaultdict(list, pairs)])
def test_other_kinds_of_dictionaries(kind: Callable[..., Any]) -> None:
    pairs = list(given().items())
    module = tintype.export(GO_BY_ORDER["values"], (kind(pairs),)).module()
    assert_same(module(kind(pairs)), torch.cat([A, B, C]))
    with pytest.raises(InputMismatchError, match="order"):
        module(kind(pairs[::-1]))


@pytest.mark.parametrize("how", ALL[:-1])
def test_keyword_arguments(how: str) -> None:
    def program(model: torch.nn.Module, *args: torch.Tensor) -> Callable[..., Any]:
        return runnable(how, model, args, kwargs=given())

    ordered = program(Keywords())
    assert_same(ordered(**given()), Keywords()(**given()))
    with pytest.raises(InputMismatchError, match=r"keys of \*\*kwargs"):
        ordered(**backwards(given()))


def test_keyword_arguments_that_are_handed_on_come_in_any_order() -> None:
    values = {"b": B, "c": C}
    module = tintype.export(Names(), (A,), values).module()
    assert_same(module(A, **backwards(values)), Names()(A, **values))
    assert_same(module(c=C, first=A, b=B), Names()(A, **values))


@pytest.mark.parametrize("entry", [["*args[0]", 0, 1], ["*args[0]", 0, -1], ["*args[0]"], [0, 0], ["x", 0, 0, 0]])
def test_files_name_dictionaries_that_are_there(entry: list[Any]) -> None:
    content = saved_bytes(tintype.export(GO_BY_ORDER["items"], (given(),)))

    def damaged(program: Any) -> Any:
        (observation,) = program["observations"]
        return {**program, "observations": [[*observation[:2], entry, *observation[3:]]]}

    with pytest.raises(FileFormatError):
        loaded(edited_json(content, "program.json", damaged))
