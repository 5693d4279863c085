"""A source prints what a user would write, and reads what is there."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tintype
from tintype import tree
from tintype.errors import MutationError
from tintype.ir.sources import (
    Argument,
    Attribute,
    Cell,
    Global,
    Item,
    Source,
    named_input,
    part_at,
    place_in_call,
    size_of,
    state_source,
    variables_of,
)
from tintype.ir.writing import Writer

OFFSETS = torch.ones(3)


def scaled_by(scale: list[float]) -> Any:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * scale[0] + OFFSETS

    return function


def read_by_code(source: Source, arguments: dict[str, Any]) -> Any:
    writer = Writer()
    writer.line(f"return {source.code(writer, {name: f'_{name}' for name in arguments})}")
    return writer.build("read", f"({', '.join(f'_{name}' for name in arguments)})")(*arguments.values())


MODEL = torch.nn.Sequential(torch.nn.Linear(2, 3))
X = Argument("x")
# a source, what it prints, the argument and what is there
CASES: list[tuple[Source, str, Any, Any]] = [
    (X, "x", 3, 3),
    (Item(X, 0), "x[0]", [5], 5),
    (Item(Item(X, "a"), -1), "x['a'][-1]", {"a": [1, 2]}, 2),
    (Item(X, (1, 2)), "x[(1, 2)]", {(1, 2): 7}, 7),
    (Item(X, torch.float32), "x[torch.float32]", {torch.float32: 7}, 7),
    (Attribute(X, "imag"), "x.imag", 3, 0),
    (Attribute(X, "class"), "getattr(x, 'class')", type("A", (), {"class": 1}), 1),
    (Attribute(Attribute(X, "0"), "weight"), "x[0].weight", MODEL, MODEL[0].weight),
    (size_of(X, 1), "x.shape[1]", torch.ones(2, 3), 3),
    (size_of(Item(X, "a"), 0), "x['a'].shape[0]", {"a": torch.ones(2)}, 2),
]


@pytest.mark.parametrize(("source", "text", "argument", "value"), CASES, ids=[case[1] for case in CASES])
def test_arguments_and_their_parts(source: Source, text: str, argument: Any, value: Any) -> None:
    assert str(source) == text
    assert source.read({"x": argument}) is value or source.read({"x": argument}) == value
    assert read_by_code(source, {"x": argument}) is value or read_by_code(source, {"x": argument}) == value
    parts = [*source.parts()]
    assert source.root == X and parts[0] == X and parts[-1] is source


def test_variables_of_a_function() -> None:
    scale = [2.0]
    function = scaled_by(scale)
    cell, table = variables_of(function)
    assert (str(cell), str(table)) == ("scale", "OFFSETS")
    assert isinstance(cell, Cell) and isinstance(table, Global)
    for source, value in ((cell, scale), (table, OFFSETS)):
        assert source.read({}) is value and read_by_code(source, {}) is value
    assert read_by_code(Item(cell, 0), {}) == 2.0


def test_sources_are_equal_where_they_are_the_same_place() -> None:
    one, other = scaled_by([1.0]), scaled_by([1.0])
    assert [*variables_of(one)] == [*variables_of(one)]
    first, second = [*variables_of(one)], [*variables_of(other)]
    assert first[0] != second[0] and first[1] == second[1]  # cells of their own, one module
    assert len({Item(X, 0), Item(Argument("x"), 0), Attribute(X, "a"), Argument("y")}) == 3


def test_places_of_inputs() -> None:
    call = (([1, {"a": 2}],), {"y": (3,)})
    paths = [path for path, _ in tree.flatten_with_paths(call)[0]]
    assert [str(place_in_call(path)) for path in paths] == ["*args[0][0]", "*args[0][1]['a']", "**kwargs['y'][0]"]
    assert [str(named_input(path, ["x", "y"])) for path in paths] == ["x[0]", "x[1]['a']", "y[0]"]
    assert [named_input(path, ["x", "y"]).read({"x": call[0][0], "y": call[1]["y"]}) for path in paths] == [1, 2, 3]
    assert part_at(X, ()) is X


def test_state_is_part_of_the_model() -> None:
    source = state_source("0.weight")
    assert str(source) == "self[0].weight" and source.read({"self": MODEL}) is MODEL[0].weight


# --- who has one -----------------------------------------------------------------------------------------


def test_sizes_of_a_program_know_where_they_come_from() -> None:
    class Model(torch.nn.Module):
        def forward(self, inputs: dict[str, torch.Tensor], y: torch.Tensor) -> torch.Tensor:
            return inputs["a"] + y

    x = torch.ones(4)
    program = tintype.export(Model(), ({"a": x}, x), dynamic_shapes={"inputs": {"a": {0: "auto"}}, "y": {0: "auto"}})
    sizes = program.dynamic_sizes
    assert [size.source for size in sizes] == [size_of(Item(Argument("inputs"), "a"), 0), size_of(Argument("y"), 0)]
    (symbol,) = sizes[0].expression.symbols
    assert symbol.source == sizes[0].source
    assert "inputs['a'].shape[0]" in str(program.contract())


CACHE = torch.zeros(3)


def test_a_constant_is_called_what_the_user_calls_it() -> None:
    kept = torch.zeros(3)

    class WritesGlobal(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            CACHE.add_(1)
            return x + CACHE

    class WritesClosure(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            kept.add_(1)
            return x + kept

    for model, name in ((WritesGlobal(), "CACHE"), (WritesClosure(), "kept")):
        with pytest.raises(MutationError, match=f"writes to the constant {name}\\b"):
            tintype.export(model, (torch.ones(3),))
