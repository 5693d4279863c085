"""``tintype convert``: files of TorchScript and torch.export become programs, and programs become files of others."""

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
        (["--trust", "-i", "x=4x3:float32", "-i", "steps=2", "-d", "y.0=b"], "there is no input 'y'"),
        (["--trust", "-i", "x=4x3:float32", "-i", "steps=2", "-d", "x-0"], "expected INPUT.DIMENSION=SIZE"),
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
    assert "is no place for the program" in refused("convert", script, tmp_path, *options)
    assert script.read_bytes() == before


@pytest.fixture
def program(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    made = tintype.export(
        torch.nn.Linear(3, 2), (torch.ones(4, 3),), dynamic_shapes={"input": {0: tintype.Dim("batch")}}
    )
    tintype.save(made, tmp_path / "model.tt")
    return tmp_path / "model.tt"


def test_to_torch_export_and_back(program: Path, tmp_path: Path) -> None:
    theirs, back = tmp_path / "model.pt2", tmp_path / "back.tt"
    assert "model.pt2: " in call("convert", program, theirs)
    x = torch.randn(7, 3)
    expected = tintype.load(program).module()(x)
    torch.testing.assert_close(torch.export.load(theirs).module()(x), expected)
    call("convert", theirs, back, "--trust")
    torch.testing.assert_close(tintype.load(back).module()(x), expected)


def test_what_torch_export_saved_becomes_a_program(tmp_path: Path) -> None:
    model, x = Masked(), torch.randn(2, 3)
    batch = torch.export.Dim("batch", min=2)
    kwargs = {"mask": torch.ones(2, 3)}
    theirs = torch.export.export(model, (x,), kwargs, dynamic_shapes={"x": {0: batch}, "mask": {0: batch}})
    torch.export.save(theirs, tmp_path / "theirs.pt2")
    call("convert", tmp_path / "theirs.pt2", tmp_path / "ours.tt", "--trust")
    other, mask = torch.randn(5, 3), torch.rand(5, 3)
    torch.testing.assert_close(tintype.load(tmp_path / "ours.tt").module()(other, mask=mask), model(other, mask))


def test_files_of_torch_become_onnx_models_at_once(script: Path, program: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    options = ("-i", "x=4x3", "-i", "steps=2", "--trust")
    call("convert", script, tmp_path / "script.onnx", *options)
    call("convert", program, tmp_path / "model.pt2")
    call("convert", tmp_path / "model.pt2", tmp_path / "model.onnx", "--trust")
    assert (tmp_path / "script.onnx").is_file() and (tmp_path / "model.onnx").is_file()


def test_refused_conversions_of_programs(program: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "model.pt2"
    call("convert", program, theirs)
    assert "--trust" in refused("convert", theirs, tmp_path / "other.tt")
    assert "is a program already" in refused("convert", program, tmp_path / "other.tt")
    assert "leave them out" in refused("convert", program, theirs, "-i", "x=2x3")
    content = theirs.read_bytes()
    for data in (b"", b"something else", content[: len(content) // 2], content[:4]):
        (tmp_path / "bad.pt2").write_bytes(data)
        assert "torch.export.load can't read bad.pt2" in refused(
            "convert", tmp_path / "bad.pt2", tmp_path / "b.tt", "--trust"
        )
    torch.save({"weight": torch.ones(2)}, tmp_path / "weights.pt")
    told = refused("convert", tmp_path / "weights.pt", tmp_path / "b.tt", "--trust")
    assert "weights.pt is a file of torch.save" in told and "attach_weights" in told
    (tmp_path / "weights.pt2").write_bytes((tmp_path / "weights.pt").read_bytes())
    assert "is a file of torch.save" in refused("convert", tmp_path / "weights.pt2", tmp_path / "b.tt", "--trust")
    assert not (tmp_path / "b.tt").exists()


def test_what_takes_longer_than_a_second_says_what_it_does(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tintype.cli import progress

    clock = iter(range(0, 100, 2))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    with progress.progress("reading") as tell:
        tell("writing")
    assert capsys.readouterr().err == "2 s: writing\n"
