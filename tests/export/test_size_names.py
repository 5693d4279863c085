"""Sizes have the names that users gave them wherever people read of them."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import tintype
from tintype.cli.app import app
from tintype.errors import RuntimeAssertionError


def _program() -> tintype.ExportedProgram:
    batch = tintype.Dim("batch", min=2, max=64)
    return tintype.export(
        lambda x: {"logits": x + 1, "rows": [torch.cat([x, x])]},
        (torch.ones(4, 3),),
        dynamic_shapes={"x": {0: batch}},
    )


def test_printed_programs(tmp_path: Path) -> None:
    program = _program()
    path = tmp_path / "model.tt"
    tintype.save(program, path)
    for each in (program, program.run_decompositions(), tintype.load(path)):
        text = each.code
        assert 'x: "f32[batch, 3]"' in text
        assert '"f32[2*batch, 3]"' in text
        assert "s0" not in text
        assert "add: USER_OUTPUT  # logits" in text
        assert "cat: USER_OUTPUT  # rows[0]" in text
    shown = CliRunner().invoke(app, ["info", str(path)]).output
    assert "float32[2*batch, 3]" in shown
    assert "s0" not in shown


def test_symbols_keep_their_own_names() -> None:
    (node,) = [node for node in _program().graph.nodes if node.name == "x"]
    assert str(node.meta["val"].shape) == "torch.Size([s0, 3])"


def test_a_dim_that_is_called_like_a_symbol_is_not_confused_with_it() -> None:
    shapes = {"x": {0: tintype.Dim.AUTO, 1: tintype.Dim("s0")}}
    text = tintype.export(lambda x: x + 1, (torch.ones(4, 3),), dynamic_shapes=shapes).code
    assert 'x: "f32[s0, s1]"' in text


def test_a_size_out_of_range_is_called_by_its_name() -> None:
    with pytest.raises(tintype.InputMismatchError) as caught:
        _program().module()(torch.ones(65, 3))
    lines = str(caught.value).splitlines()
    assert lines[0] == "Expected input at *args[0].shape[0] to be <= 64, but got 65"
    assert "2 <= batch <= 64 (x.shape[0])" in lines[1]


def test_a_runtime_assertion_says_what_and_where() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        torch._check(x.shape[0] != 20)
        return x + 1

    shapes = {"x": {0: tintype.Dim("batch", min=2)}}
    program = tintype.export(
        function, (torch.ones(4),), dynamic_shapes=shapes, prefer_deferred_runtime_asserts_over_guards=True
    )
    file = io.BytesIO()
    tintype.save(program, file)
    for each in (program, program.run_decompositions(), tintype.load(file)):
        with pytest.raises(RuntimeAssertionError) as caught:
            each.module()(torch.ones(20))
        error = caught.value
        assert isinstance(error, (tintype.TintypeError, RuntimeError))
        assert str(error).startswith("Runtime assertion failed for expression Ne(s0, 20)")
        assert "s0 is batch" in str(error)
        assert "sizes for which batch != 20;" in str(error)
        assert error.location is not None
        assert error.location.function == "function"


def test_an_assertion_about_data_says_so() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        count = x.max().item()
        torch._check(count < 5)
        return torch.ones(count)

    program = tintype.export(function, (torch.tensor([1, 2]),))
    with pytest.raises(RuntimeAssertionError) as caught:
        program.module()(torch.tensor([7, 1]))
    assert "is a number that the data decide" in str(caught.value)
    assert caught.value.location is not None
