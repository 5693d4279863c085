"""The commands that look at programs, change them and make them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import tintype
from tests.cli.test_cli import refused
from tintype.cli.app import app

runner = CliRunner()
REPOSITORY = Path(__file__).resolve().parents[2]


def call(*arguments: object, code: int = 0) -> str:
    result = runner.invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, f"{result.exit_code}\n{result.output}\n{result.exception!r}"
    return result.stderr if code == 1 else result.stdout


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(4, 8)
        self.down = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([Block() for _ in range(3)])
        self.head = torch.nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> dict[str, object]:
        for layer in self.layers:
            x = layer(x)
        return {"logits": self.head(x), "hidden": [x]}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    program = tintype.export(Model(), (torch.ones(3, 4),), dynamic_shapes={"x": {0: tintype.Dim("batch")}})
    tintype.save(program, tmp_path / "model.tt")
    return tmp_path / "model.tt"


def test_info_for_machines(model: Path) -> None:
    found = json.loads(call("info", model, "--json"))
    program = found["programs"][""]
    assert program["inputs"] == {"x": "float32[batch, 4]"}
    assert program["operators"]["aten.linear.default"] == 7
    assert program["stage"] == "functional" and "head.bias" in program["state"]
    assert program["contract"] and found["torch"] == str(torch.__version__)


def test_info_names_the_places_of_outputs(model: Path) -> None:
    text = call("info", model)
    assert "float32[batch, 2]  logits" in text and "float32[batch, 4]  hidden[0]" in text


def test_the_tree_folds_what_is_alike(model: Path) -> None:
    text = call("tree", model)
    assert "0 .. 2 (3 alike, each): 4 operators, 76 parameters and buffers" in text
    assert text.count("up:") == 1 and "head: 1 operators" in text
    assert "up:" not in call("tree", model, "--depth", 1)


def test_a_part_of_a_program(model: Path) -> None:
    assert "def forward" in call("show", model)
    text = call("show", model, "--module", "layers.1.*", "--op", "linear")
    assert text.count("aten.linear.default") == 2 and "layers.1.up" in text and "def forward" not in text
    assert "no operator of the program is there" in call("show", model, "--module", "nowhere", code=1)


def test_weights(model: Path, tmp_path: Path) -> None:
    assert "head.weight: f32[2, 4]" in call("weights", "ls", model)
    assert "mean" in call("weights", "ls", model, "--statistics")
    rows = json.loads(call("weights", "ls", model, "--json"))
    assert {"name": "head.bias", "type": "f32[2]", "bytes": 8} in rows
    torch.save({name: torch.zeros_like(value) for name, value in Model().state_dict().items()}, tmp_path / "w.pt")
    output = tmp_path / "new.tt"
    call("weights", "replace", model, tmp_path / "w.pt", "--output", output)
    assert float(tintype.load(output).module()(torch.ones(1, 4))["logits"].abs().sum()) == 0
    torch.save({"head.bias": torch.zeros(3)}, tmp_path / "w.pt")
    assert "needs head.bias as torch.float32 [2]" in call(
        "weights", "replace", model, tmp_path / "w.pt", "--output", output, code=1
    )


def test_decompose_and_bench(model: Path, tmp_path: Path) -> None:
    call("decompose", model, tmp_path / "core.tt")
    assert "aten.addmm.default" in call("info", tmp_path / "core.tt")
    assert "ms at best" in call("bench", model, "--calls", 2)
    assert json.loads(call("bench", model, "--calls", 3, "--json"))["calls"] == 3


MODULE = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)

    def forward(self, x, scale=1.0):
        return self.layer(x).relu() * scale

class Refused(torch.nn.Module):
    def forward(self, x):
        return x * x.numpy().sum()

@torch.library.custom_op("cli_commands::rows", mutates_args=())
def rows(x: torch.Tensor) -> torch.Tensor:
    return x.sum(0)

@rows.register_fake
def _(x):
    return torch.empty_like(x)

class Wrong(torch.nn.Module):
    def forward(self, x):
        return rows(x)

def text():
    return "no model"
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"cli_models_{tmp_path.name}"
    source = MODULE.replace("cli_commands", name)
    (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    return name


def test_export(module: str, tmp_path: Path) -> None:
    text = call("export", f"{module}:Net", "net.tt", "-i", "x=2x3:float32", "-d", "x.0=batch:1:64")
    assert "batch <= 64" in text and "agree" in text
    assert "float32[5, 2]" in call("run", "net.tt", "-i", f"x={json.dumps([[1.0] * 3] * 5)}")
    assert "agree" in call("export", f"{module}:Net", "auto.tt", "-i", "x=2x3:float32", "-d", "auto")
    for source, message in (
        (f"{module}:Nothing", "has no 'Nothing'"),
        (f"{module}:text", "returned a str"),
        ("nowhere_at_all:Net", "No module named"),
        ("Net", "is no model"),
        ("hf:nowhere", "no config.json"),
    ):
        assert message in call("export", source, "x.tt", "-i", "x=2x3:float32", code=1)
    assert "an export needs inputs" in call("export", f"{module}:Net", "x.tt", code=1)


def test_programs_of_the_command_line_are_called_by_position_too(module: str) -> None:
    call("export", f"{module}:Net", "net.tt", "-i", "x=2x3:float32", "-d", "x.0=batch")
    call("convert", "net.tt", "net.pt2")
    assert tintype.load("net.tt").module()(x=torch.ones(4, 3)).shape == (4, 2)
    assert torch.export.load("net.pt2").module()(torch.ones(4, 3)).shape == (4, 2)


def test_check(module: str) -> None:
    assert "can be exported" in call("check", f"{module}:Net", "-i", "x=2x3:float32")
    assert "1. [data-dependent]" in call("check", f"{module}:Refused", "-i", "x=2x3:float32", code=3)
    text = call("check", f"{module}:Wrong", "-i", "x=2x3:float32", code=3)
    assert "rows.default gives f32[3], but its fake kernel says f32[2, 3]" in text


def test_export_of_a_folder(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=100
    )
    transformers.BertModel(config).save_pretrained(tmp_path / "bert")
    text = call(
        "export",
        f"hf:{tmp_path / 'bert'}",
        tmp_path / "bert.tt",
        "-i",
        "input_ids=2x8:int64",
        "-d",
        "input_ids.0=batch",
    )
    assert "agree" in text and "(2 alike, each)" in call("tree", tmp_path / "bert.tt")


def test_every_command_is_documented() -> None:
    page = (REPOSITORY / "docs" / "command_line.md").read_text(encoding="utf-8")
    for command in app.registered_commands:
        name = command.name or command.callback.__name__  # type: ignore[union-attr]
        assert f"`tintype {name}" in page, name


USERS_CODE = """
import torch
def model(): return torch.nn.Linear(3, 2)
def broken(): raise RuntimeError("no weights here")
def needs(width): return torch.nn.Linear(width, 2)
def nothing(): pass
"""
MISTAKES = {
    "info modle.tt": ("there is no file modle.tt", "did you mean model.tt?"),
    "info inside": ("inside is a folder", "name a file"),
    "tree text.tt": ("no tintype file", "save the program again"),
    "show model.tt --module nothing.*": ("no operator", "tintype tree"),
    "run model.tt": ("the input 'input'", "--example"),
    "run model.tt -i x=1": ("no input 'x'", ""),
    "run model.tt -i input=[1,2": ("[1,2 is no JSON", "brackets"),
    "run model.tt -i input=missing.npy": ("there is no file missing.npy", ".npz"),
    "run model.tt --example -o inside": ("inside is no place", "results.npz"),
    "run model.tt --example -o nowhere/x.npz": ("is no place", "results.npz"),
    "run model.tt --example --import not_there": ("--import not_there: No module", "can be imported"),
    "run model.tt --example --import wrong_syntax": ("wrong_syntax.py:1", "mend this"),
    "run model.tt --example --import divides": ("ZeroDivisionError", "divides.py:1"),
    "export shop:model n.tt": ("needs inputs", "--input x=2x3:float32"),
    "export shop:model n.tt -i x=2x3": ("(input): missing a required argument: 'input'", ""),
    "export shop:model n.tt -i input=2x5": ("shapes cannot be multiplied", "give inputs"),
    "export shop:model n.tt -i input=2x3:flot32": ("no SIZES:DTYPE", "float32"),
    "export shop:model n.tt -i input=2x3 -d input.7=b": ("2 dimensions", ""),
    "export shop:model inside -i input=2x3": ("inside is a folder", "model.tt"),
    "export shop:modle n.tt": ("shop has no 'modle'", "did you mean 'model'?"),
    "export shop:nothing n.tt": ("returned a NoneType", ""),
    "export shop:broken n.tt": ("no weights here", "shop.py:4 in broken"),
    "export shop:needs n.tt": ("missing 1 required positional argument: 'width'", "without arguments"),
    "export shop.py:model n.tt": ("a module is wanted", "write shop:model"),
    "export divides:model n.tt": ("ZeroDivisionError", "divides.py:1"),
    "check shop:model -i input=2x3 --page nowhere/p.html": ("no folder nowhere", "make it"),
    "decompose model.tt nowhere/n.tt": ("there is no folder", "make it"),
    "view model.tt -o inside": ("inside is a folder", "page.html"),
    "weights replace model.tt inside -o n.tt": ("no safetensors files", ""),
    "weights replace model.tt w.safetensors -o n.tt": ("no file w.safetensors", ""),
    "compare model.tt modle.tt": ("no file modle.tt", "model.tt"),
    "weights replace model.tt w.pt -o n.tt": ("no file w.pt", "mistake"),
    "convert modle.tt n.onnx": ("no file modle.tt", "did you mean model.tt?"),
    "convert model.onnx n.tt": ("model.onnx is an ONNX model", "export the model again"),
    "compare model.tt other.tt": ("other.tt does not take these inputs", "program(x, y)"),
    "info text.tt": ("text.tt is no tintype file", "save the program again"),
    "explain nothing": ("no error 'nothing'", "lists all"),
}


@pytest.mark.parametrize("line", MISTAKES)
def test_mistakes_on_the_command_line(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ends with 1 and a few lines of text that say what to do."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("shop", "wrong_syntax", "divides"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    Path("shop.py").write_text(USERS_CODE)
    Path("wrong_syntax.py").write_text("def model(:\n")
    Path("divides.py").write_text("1 / 0\n")
    Path("inside").mkdir()
    Path("text.tt").write_text("hello")
    Path("model.onnx").write_bytes(b"\x08\x08")
    tintype.save(tintype.export(torch.nn.Linear(3, 2), (torch.ones(2, 3),)), "model.tt")
    tintype.save(tintype.export(lambda x, y: x + y, (torch.ones(2), torch.ones(2))), "other.tt")
    message = refused(*line.split())
    for part in MISTAKES[line]:
        assert part in message, message
    assert message.startswith("tintype: ") and not Path("n.tt").exists()


@pytest.mark.parametrize("line", ["inf model.tt", "info", "info x --jsn", "bench x --calls 0", "tree x --depth -1"])
def test_command_lines_that_nobody_understands_end_with_2(line: str) -> None:
    assert runner.invoke(app, line.split()).exit_code == 2


def test_results_are_written_under_the_name_that_was_given(tmp_path: Path) -> None:
    tintype.save(tintype.export(torch.nn.Linear(3, 2), (torch.ones(2, 3),)), tmp_path / "model.tt")
    call("run", tmp_path / "model.tt", "--example", "-o", tmp_path / "results")
    assert (tmp_path / "results").is_file() and not (tmp_path / "results.npz").exists()


def test_errors_are_explained_by_their_class_too() -> None:
    assert call("explain", "DataDependentError") == call("explain", "data-dependent")


def test_modules_beside_a_program_can_be_imported(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "operators_beside.py").write_text("value = 3\n")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    call("run", model, "--example", "--import", "operators_beside")
    assert vars(sys.modules.pop("operators_beside"))["value"] == 3 and sys.path == before


def test_how_many_weights_were_replaced(model: Path, tmp_path: Path) -> None:
    torch.save({"head.weight": torch.zeros(2, 4)}, tmp_path / "w.pt")
    output = tmp_path / "other.tt"
    text = call("weights", "replace", model, tmp_path / "w.pt", "--output", output)
    assert text.endswith("1 of 14 parameters and buffers are other ones\n")
