"""The command line: what it prints, and how it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import tintype
from tests.serde.programs import edited, everything, saved_bytes, with_subgraph
from tintype.cli.app import app
from tintype.serde import schema

runner = CliRunner()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    batch = tintype.Dim("batch", min=1, max=64)
    program = tintype.export(module, (torch.ones(4, 3),), dynamic_shapes={"input": {0: batch}})
    tintype.save(program, tmp_path / "model.tt", extra_files={"labels.txt": "cat dog"})
    np.save(tmp_path / "x.npy", np.ones((7, 3), dtype=np.float32))
    return tmp_path / "model.tt"


def call(*arguments: object) -> str:
    result = runner.invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: object) -> str:
    result = runner.invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    return result.stderr


@pytest.mark.parametrize("command", [["-m", "tintype", "--version"], ["-m", "tintype", "info", "--help"]])
def test_the_command_line_as_a_module(command: list[str]) -> None:
    shown = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True).stdout
    assert shown == f"tintype {tintype.__version__}\n" if command[-1] == "--version" else "tintype info" in shown


def test_info(model: Path) -> None:
    text = call("info", model)
    for expected in (
        "functional stage",
        "format 1.1, operator set 1, written by tintype",
        "input    float32[batch, 3]",
        "linear_1    float32[batch, 2]",
        "input.shape[0] = batch, 1 <= batch <= 64",
        "operators (3 calls)",
        "aten.linear.default    2",
        "weights: 4 parameters and buffers, 0 constants, 104 bytes",
        "extra files: labels.txt",
    ):
        assert expected in text, text


def test_info_of_everything(tmp_path: Path) -> None:
    tintype.save(everything(), tmp_path / "model.tt")
    text = call("info", tmp_path / "model.tt")
    assert "(buffer mutation of calls)" in text
    assert "number s0" in text
    assert "2 <= rows <= 64" in text


def test_info_does_not_need_the_operators(tmp_path: Path) -> None:
    def edit(program: schema.Program) -> None:
        program.functions[0] = "torch.ops.unheard.of.default"

    path = tmp_path / "model.tt"
    path.write_bytes(edited(saved_bytes(with_subgraph()), edit))
    assert "unheard.of.default" in call("info", path)
    assert "which is no operator here" in refused("run", path, "--example")


def test_names_from_a_file_do_not_reach_the_terminal(tmp_path: Path) -> None:
    def edit(program: schema.Program) -> None:
        program.functions[0] = "\x1b[31mred [bold]markup[/bold]"

    path = tmp_path / "model.tt"
    path.write_bytes(edited(saved_bytes(with_subgraph()), edit))
    text = call("info", path)
    assert "\x1b" not in text
    assert "?[31mred [bold]markup[/bold]" in text


def test_run(model: Path, tmp_path: Path) -> None:
    text = call("run", model, "--input", f"input={tmp_path / 'x.npy'}", "--output", tmp_path / "out.npz")
    assert text.startswith("result: float32[7, 2] from ")
    expected = tintype.load(model).module()(torch.ones(7, 3)).detach()
    torch.testing.assert_close(torch.from_numpy(np.load(tmp_path / "out.npz")["result"]), expected)


def test_run_on_the_example(model: Path) -> None:
    assert "float32[4, 2]" in call("run", model, "--example")


def test_run_with_structured_results(tmp_path: Path) -> None:
    tintype.save(everything(), tmp_path / "model.tt")
    text = call("run", tmp_path / "model.tt", "--example")
    assert "result['value']: float32[3, 4]" in text
    assert "result['more'][1]: 5" in text
    assert "result['rows'][0]: 3" in text


def test_inputs_that_are_wrong(model: Path, tmp_path: Path) -> None:
    assert "the input 'input', f32[batch, 3], is not given" in refused("run", model)
    assert "no input 'y'; its inputs are input" in refused("run", model, "--input", "y=3")
    assert "expected NAME=VALUE" in refused("run", model, "--input", "input")
    assert "there is no file nowhere.npy" in refused("run", model, "--input", "input=nowhere.npy")
    (tmp_path / "bad.npy").write_bytes(b"nothing")
    assert "is no array of numbers" in refused("run", model, "--input", f"input={tmp_path / 'bad.npy'}")
    np.save(tmp_path / "wide.npy", np.ones((2, 5), dtype=np.float32))
    assert "to be equal to 3, but got 5" in refused("run", model, "--input", f"input={tmp_path / 'wide.npy'}")
    np.save(tmp_path / "object.npy", np.array([{}]), allow_pickle=True)
    assert "is no array of numbers" in refused("run", model, "--input", f"input={tmp_path / 'object.npy'}")


def test_verify(model: Path) -> None:
    assert "all right" in call("verify", model)
    content = bytearray(model.read_bytes())
    at = content.index(b"weights.safetensors") + 400
    content[at] ^= 1
    model.write_bytes(content)
    assert "checksum differs" in refused("verify", model)


@pytest.mark.parametrize("command", ["info", "run", "verify"])
def test_files_that_are_wrong(command: str, tmp_path: Path) -> None:
    assert "there is no file" in refused(command, tmp_path / "nowhere.tt")
    (tmp_path / "empty.tt").touch()
    assert "is empty" in refused(command, tmp_path / "empty.tt")
    (tmp_path / "other.tt").write_bytes(bytes(1000))
    assert "no tintype file" in refused(command, tmp_path / "other.tt")


def test_version() -> None:
    assert f"tintype {tintype.__version__}, file format 1." in call("version")


@pytest.mark.parametrize(
    "call", ["pass", "from tintype.cli.info import print_info; print_info(Path('tests/serde/golden/small-1.0.tt'))"]
)
def test_help_and_info_do_not_load_torch(call: str) -> None:
    """It takes a second, which somebody who looks at a file need not wait."""
    program = f"import sys; from pathlib import Path; from tintype.cli.app import app; {call}; "
    program += "sys.exit('torch' in sys.modules)"
    repository = Path(__file__).resolve().parents[2]
    assert subprocess.run([sys.executable, "-c", program], cwd=repository).returncode == 0


def test_a_file_of_several_programs(model: Path) -> None:
    program = tintype.load(model)
    path = model.with_name("several.tt")
    tintype.save({"plain": program, "core": program.run_decompositions()}, path)
    text = call("info", path)
    for expected in ("2 programs", "format 1.2", "plain: functional stage", "core: core stage", "aten.addmm.default",
                     "weights: 4 parameters and buffers, 0 constants, 104 bytes"):  # fmt: skip
        assert expected in text, text
    assert "all right" in call("verify", path)
    expected = call("run", model, "--input", f"input={model.with_name('x.npy')}")
    for entry in ("plain", "core"):
        assert call("run", path, "--entry", entry, "--input", f"input={model.with_name('x.npy')}") == expected
    assert "holds the programs plain, core" in refused("run", path) and "--entry plain" in refused("run", path)
    assert "no program 'other'" in refused("run", path, "--entry", "other")
    assert "one program, which has no name" in refused("run", model, "--entry", "other")


def test_convert_to_onnx(model: Path) -> None:
    output = model.with_suffix(".onnx")
    text = call("convert", model, output, "--opset", 21)
    assert "ONNX opset 21: 3 nodes, 4 initializers" in text
    assert "verified on other sizes" in text
    x = torch.ones(7, 3)
    expected = tintype.load(model).module()(x)
    torch.testing.assert_close(tintype.onnx.load(output)(x), expected.detach())
    assert "opset 9 is none of those" in refused("convert", model, output, "--opset", 9)
    assert "not verified" in call("convert", model, output, "--no-verify", "--functions")
    assert tintype.onnx.load(output).model.functions
