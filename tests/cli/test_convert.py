"""``tintype convert``: a TorchScript file becomes a program's file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import tintype
from tests.cli.test_cli import call, refused


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, x: torch.Tensor, steps: int, scale: float = 1.0) -> torch.Tensor:
        for _ in range(steps):
            x = x * 2
        return self.linear(x) * scale

    @torch.jit.export
    def twice(self, y: torch.Tensor) -> torch.Tensor:
        return y * 2


@pytest.fixture
def script(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    torch.jit.save(torch.jit.script(Model()), tmp_path / "model.pt")
    return tmp_path / "model.pt"


def test_convert(script: Path, tmp_path: Path) -> None:
    target = tmp_path / "model.tt"
    told = call(
        "convert", script, target, "--input", "x=4x3:float32", "-i", "steps=2", "-d", "x.0=batch:1:64", "--trust"
    )
    assert "model.tt" in told
    program = tintype.load(target)
    x = torch.randn(7, 3)
    torch.testing.assert_close(program.module()(x, 2, 1.0), torch.jit.load(script)(x, 2))
    assert "batch <= 64" in call("info", target).replace("\n", " ")


def test_a_number_that_varies_and_another_method(script: Path, tmp_path: Path) -> None:
    target = tmp_path / "model.tt"
    call(
        "convert",
        script,
        target,
        "-i",
        "x=4x3:float32",
        "-i",
        "steps=2",
        "-i",
        "scale=0.5",
        "-d",
        "steps=n",
        "--trust",
    )
    x = torch.randn(4, 3)
    torch.testing.assert_close(tintype.load(target).module()(x, 5, 0.5), torch.jit.load(script)(x, 5, 0.5))
    call("convert", script, target, "-i", "y=2:int64", "--method", "twice", "--trust")
    assert tintype.load(target).module()(torch.tensor([3, 4])).tolist() == [6, 8]


@pytest.mark.parametrize(
    "options, message",
    [
        (["-i", "x=4x3:float32"], "--trust"),
        (["--trust"], "the input 'x' of the script, a Tensor, is not described"),
        (["--trust", "-i", "x=4x3:float32"], "the input 'steps'"),
        (["--trust", "-i", "x=4x3:float33"], "no SIZES:DTYPE"),
        (["--trust", "-i", "x=axb:float32"], "no SIZES:DTYPE"),
        (["--trust", "-i", "x"], "expected NAME=SIZES:DTYPE"),
        (["--trust", "-i", "z=2:float32"], "its inputs are x, steps, scale"),
        (["--trust", "-i", "x=4x3:float32", "-i", "steps=2", "-d", "y.0=b"], "there is no --input y"),
        (["--trust", "-i", "x=4x3:float32", "-i", "steps=2", "-d", "x-0"], "expected INPUT.DIMENSION=NAME"),
        (["--trust", "-i", "x=4x5:float32", "-i", "steps=2"], "does not run on these inputs"),
        (["--trust", "-i", "x=4x3:float32", "-i", "steps=1.5"], "takes a int as 'steps'"),
        (["--trust", "-m", "nothing"], "has no method"),
        (["--trust", "-m", "linear"], "its methods are forward, twice"),
        (["--trust", "-i", "x=2x-4"], "no SIZES:DTYPE"),
        (["--trust", "-i", "x=99999999999x9999999", "-i", "steps=1"], "there can be no such tensor"),
    ],
)
def test_refused(script: Path, tmp_path: Path, options: list[str], message: str) -> None:
    target = tmp_path / "model.tt"
    assert message in refused("convert", script, target, *options)
    assert not target.exists()


def test_files_that_are_no_scripts(script: Path, tmp_path: Path) -> None:
    content = script.read_bytes()
    damaged = {"empty": b"", "text": b"something else", "short": content[: len(content) // 2], "zip": content[:4]}
    for name, data in damaged.items():
        (tmp_path / name).write_bytes(data)
        assert "is no TorchScript file" in refused("convert", tmp_path / name, tmp_path / "model.tt", "--trust")
    assert "there is no file" in refused("convert", tmp_path / "missing.pt", tmp_path / "model.tt", "--trust")


class Masked(torch.nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None, flag: bool = False) -> torch.Tensor:
        return x if mask is None else x * mask + float(flag)


def test_the_signature_says_what_a_text_is(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.script(Masked()), tmp_path / "masked.pt")
    target = tmp_path / "masked.tt"
    inputs = ("-i", "x=2x3", "-i", "mask=2x3:bool", "-i", "flag=true")
    call("convert", tmp_path / "masked.pt", target, *inputs, "--trust")
    x, mask = torch.randn(2, 3), torch.rand(2, 3) > 0.5
    torch.testing.assert_close(tintype.load(target).module()(x, mask, True), x * mask + 1)
    call("convert", tmp_path / "masked.pt", target, "-i", "x=2x3", "-i", "mask=None", "--trust")
    torch.testing.assert_close(tintype.load(target).module()(x, None, False), x)


def test_places_that_are_no_target(script: Path, tmp_path: Path) -> None:
    before = script.read_bytes()
    options = ("-i", "x=4x3", "-i", "steps=2", "--trust")
    assert "is no place for the program" in refused("convert", script, script, *options)
    assert "is no place for the program" in refused("convert", script, tmp_path / "missing" / "model.tt", *options)
    assert "becomes a program first" in refused("convert", script, tmp_path / "model.onnx", *options)
    assert script.read_bytes() == before
