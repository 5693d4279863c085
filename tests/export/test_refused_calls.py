"""Calls that don't fit: each says which argument is missing or too much; what is clear need not be said again."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch

import tintype
from tintype.errors import InputStructureError

X, Y = torch.ones(2), torch.zeros(2)


def _function(x: torch.Tensor, y: torch.Tensor, flag: bool = True, *, scale: float = 1.0) -> torch.Tensor:
    return (x - 10 * y if flag else x + y) * scale


def _refusal(program: tintype.ExportedProgram, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(InputStructureError) as caught:
        program.module()(*args, **kwargs)
    return str(caught.value)


def test_what_is_missing_or_too_much_is_named() -> None:
    program = tintype.export(_function, (X, Y))
    assert "y is missing" in _refusal(program, X)
    assert "3 arguments are given by position, but the program takes 2" in _refusal(program, X, Y, X)
    assert "no argument 'xx'; did you mean 'x'?" in _refusal(program, X, Y, xx=X)
    assert "x is given twice" in _refusal(program, X, x=X)
    assert "call it as program(x, y)" in _refusal(program)


def test_the_place_where_containers_differ_is_named() -> None:
    program = tintype.export(lambda inputs: inputs["a"] + inputs["b"][0], ({"a": X, "b": [X]},))
    assert "inputs['b'] must be a list of 1, but got a tuple of 1" in _refusal(program, {"a": X, "b": (X,)})
    assert "inputs['b'] is missing" in _refusal(program, {"a": X})
    assert "inputs['c'] is not expected" in _refusal(program, {"a": X, "b": [X], "c": X})


def test_a_flag_that_was_exported_need_not_be_repeated() -> None:
    for program in (
        tintype.export(_function, (X, Y, False)),
        tintype.export(_function, (X,), {"y": Y, "flag": False, "scale": 1.0}),
    ):
        for call in (program, _loaded(program)):
            assert torch.equal(call.module()(X, Y), _function(X, Y, False))
            assert torch.equal(call.module()(X, y=Y, flag=False), _function(X, Y, False))
            with pytest.raises(tintype.TintypeError, match="equal to False, but got True"):
                call.module()(X, Y, flag=True)


def _loaded(program: tintype.ExportedProgram) -> tintype.ExportedProgram:
    file = io.BytesIO()
    tintype.save(program, file)
    loaded = tintype.load(file)
    assert isinstance(loaded, tintype.ExportedProgram)
    return loaded


def test_keywords_of_the_example_take_the_models_own_positions() -> None:
    """Not the order in which the example named them."""
    program = tintype.export(_function, (), {"y": Y, "x": X})
    again = tintype.export(program.module(), (), {"y": Y, "x": X})
    for call in (program, _loaded(program), program.run_decompositions(), again):
        assert torch.equal(call.module()(X, Y), _function(X, Y))
        assert torch.equal(call.module()(y=Y, x=X), _function(X, Y))


def test_what_stands_behind_an_argument_that_was_left_out_has_no_position() -> None:
    def function(x: torch.Tensor, mask: torch.Tensor | None = None, bias: torch.Tensor | None = None) -> Any:
        return x if bias is None else x + bias

    program = tintype.export(function, (X,), {"bias": Y})
    assert "2 arguments are given by position, but the program takes 1" in _refusal(program, X, Y)
