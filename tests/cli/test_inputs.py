"""Inputs from files and from the command line; two files side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import tintype
from tintype.cli.app import app

runner = CliRunner()


def call(*arguments: object, code: int = 0) -> str:
    result = runner.invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.stdout if code != 1 else result.stderr


class Weighted(torch.nn.Module):
    def forward(self, x: Any, options: Any, flag: Any = True) -> Any:
        y = x * options["scale"] + options["shift"][0]
        return y if flag else -y


X = torch.arange(6.0).reshape(2, 3)
OPTIONS = {"scale": torch.tensor(2.0), "shift": [torch.tensor(1.0)]}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    tintype.save(tintype.export(Weighted(), (X, OPTIONS, True)), tmp_path / "model.tt")
    return tmp_path / "model.tt"


def test_every_kind_of_file(model: Path, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    np.save(tmp_path / "x.npy", X.numpy())
    np.savez(tmp_path / "x.npz", x=X.numpy())
    torch.save(X, tmp_path / "x.pt")
    safetensors.save_file({"x": X}, tmp_path / "x.safetensors")
    (tmp_path / "x.json").write_text(json.dumps(X.tolist()))
    options = 'options={"scale": 2, "shift": [1]}'
    for name in ("x.npy", "x.npz", "x.pt", "x.safetensors", "x.json"):
        assert "from 1 to 11" in call("run", model, "--input", f"x={tmp_path / name}", "--input", options), name
    assert "from 1 to 11" in call("run", model, "--input", tmp_path / "x.npz", "--input", options)


def test_values_on_the_command_line(model: Path) -> None:
    x = "x=[[0, 1, 2], [3, 4, 5]]"
    assert "from 1 to 11" in call("run", model, "-i", x, "-i", 'options={"scale": 2.0, "shift": [1.0]}')
    assert "from 1 to 16" in call("run", model, "--example", "-i", "options_scale=3")
    assert "from 1 to 11" in call("run", model, "--example", "-i", "flag=true")
    assert "to be equal to True, but got False" in call("run", model, "--example", "-i", "flag=False", code=1)


def test_values_that_are_wrong(model: Path, tmp_path: Path) -> None:
    assert "options is a dict of 2: scale, shift" in call("run", model, "-i", "x=1", "-i", "options=3", code=1)
    assert "options.shift is a list of 1" in call("run", model, "-i", 'options={"scale": 1, "shift": []}', code=1)
    assert "the input 'x' is f32[2, 3]" in call("run", model, "--example", "-i", 'x="text"', code=1)
    (tmp_path / "bad.pt").write_bytes(b"nothing")
    assert "is no .pt file of tensors" in call("run", model, "-i", f"x={tmp_path / 'bad.pt'}", code=1)
    assert "expected NAME=VALUE" in call("run", model, "-i", "x", code=1)
    assert "its inputs are x, options, flag, options_scale" in call("run", model, "-i", "y=1", code=1)


def test_modules_are_imported_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_operators.py").write_text(
        "import torch\n"
        "@torch.library.custom_op('cli_inputs::twice', mutates_args=())\n"
        "def twice(x: torch.Tensor) -> torch.Tensor:\n"
        "    return x * 2\n"
        "@twice.register_fake\n"
        "def _(x):\n"
        "    return torch.empty_like(x)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert "No module named 'nowhere_at_all'" in call(
        "run", tmp_path / "model.tt", "--import", "nowhere_at_all", code=1
    )
    import importlib

    operators = importlib.import_module("their_operators")
    tintype.save(tintype.export(lambda x: operators.twice(x), (X,)), tmp_path / "model.tt")
    assert "from 0 to 10" in call("run", tmp_path / "model.tt", "--import", "their_operators", "--example")


def test_compare_and_diff(tmp_path: Path) -> None:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    program = tintype.export(layers, (torch.ones(2, 3),))
    one, core, other = (tmp_path / name for name in ("one.tt", "core.tt", "other.tt"))
    tintype.save(program, one)
    tintype.save(program.run_decompositions(), core)
    tintype.save(program.with_state({"1.bias": torch.ones(2)}, strict=False), other)
    assert "one.tt and core.tt agree" in call("compare", one, core)
    assert "in 1:" in call("compare", one, other, code=3)
    assert "agree" in call("compare", one, other, "--tolerance", 9)
    assert "agree" in call("compare", one, core, "--input", "input=[[1, 2, 3], [4, 5, 6]]")
    assert call("diff", one, one) == "the programs are the same\n"
    shown = call("diff", one, core, code=3)
    assert "- aten.linear.default (2 times)" in shown and "weights: the same" in shown and "addmm_1" in shown
    assert "addmm_1" not in call("diff", one, core, "--no-text", code=3)
    assert "1.bias: other values" in call("diff", one, other, code=3)


def test_values_that_a_program_can_not_take_are_told(tmp_path: Path) -> None:
    embedding = tmp_path / "embedding.tt"
    tintype.save(tintype.export(torch.nn.Embedding(4, 2), (torch.tensor([1, 2]),)), embedding)
    assert "float32[2, 2]" in call("run", embedding, "-i", "input=[1.0, 3]")
    assert "which can't hold 1.5" in call("run", embedding, "-i", "input=[1.5, 2]", code=1)
    assert "and no text: '2x3'" in call("run", embedding, "-i", "input=2x3", code=1)
    told = call("run", embedding, "-i", "input=[1, 9]", code=1)
    assert "embedding.tt can't be run on these inputs: IndexError: index out of range" in told
    assert "token ids must be smaller" in told
