"""Compiled functions in files: the next process captures nothing, and notices what has changed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

import tintype
from tests.compiler.saved_programs import check_saved, check_threads

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")

OFFSETS = {"first": 1.0}


class Scaled(torch.nn.Module):
    factor = 2

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.norm = torch.nn.LayerNorm(3)
        self.calls = 0
        self.seen: list[float] = []

    def forward(self, x: torch.Tensor, *, extra: bool = False) -> dict[str, Any]:
        y = self.norm(self.linear(x)) * self.factor + OFFSETS["first"]
        if y.sum().item() > 1e9:
            raise ValueError("too large")
        self.seen.append(float(y.dtype is torch.float32))
        with torch.no_grad():
            z = torch.cat([y, y[..., :1]], dim=-1).to(torch.float64)
        return {"y": y, "z": [z, (y.shape[0], None, slice(1, 2))], "extra": extra}


def function(x: torch.Tensor, n: int) -> torch.Tensor:
    y = torch.nn.functional.gelu(x) + x.T.contiguous().T
    for _ in range(n):
        y = y.add_(1).view(-1).reshape(x.shape)
    print("sum", y.dim())
    return y.grad if y.grad is not None else y  # type: ignore[no-any-return]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_runs_are_saved_and_loaded(backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "compiled.ttc"
    model, x = Scaled(), torch.randn(2, 3)
    fast = tintype.compile(model, backend=backend)
    for extra in (False, True):
        fast(x, extra=extra)
    fast.save(file)
    again = tintype.compile.load(file, model)
    model.seen.clear()
    for extra in (False, True, False):
        got, expected = again(x, extra=extra), model(x, extra=extra)
        torch.testing.assert_close((got["y"], got["z"][0]), (expected["y"], expected["z"][0]), rtol=0, atol=0)
        assert got["z"][1] == expected["z"][1] and len(model.seen) == 2
        model.seen.clear()
    assert again._tintype_engine.captures == 0
    model.factor = 3  # an attribute of the object, where none was
    torch.testing.assert_close(again(x)["y"], model(x)["y"])
    assert again._tintype_engine.captures == 1

    fast = tintype.compile(function, backend=backend)
    for n in (0, 2):
        fast(torch.ones(2, 2), n)
    fast.save(file)
    again = tintype.compile.load(file, function)
    capsys.readouterr()
    assert torch.equal(again(torch.ones(2, 2), 2), function(torch.ones(2, 2), 2))
    assert capsys.readouterr().out == "sum 2\nsum 2\n" and again.engine.captures == 0
    again.save(file)  # what was loaded can be saved
    with tintype.set_stance("fail_on_recompile"):
        tintype.compile.load(file, function)(torch.ones(2, 2), 0)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_go_on_from_files(seed: int) -> None:
    problem, how = check_saved(seed, "aot_eager" if seed % 3 == 0 else "eager")
    assert problem is None and how == "saved", (problem, how)


@pytest.mark.parametrize("seed", range(4))
def test_random_calls_of_threads(seed: int) -> None:
    problem = check_threads(seed, "aot_eager" if seed % 2 else "eager")
    assert problem is None, problem


def sized(x: torch.Tensor) -> torch.Tensor:
    return x.view(x.shape[0] * x.shape[1]) * x.shape[0]


def test_sizes_that_were_seen_to_vary_vary_from_the_start(tmp_path: Path) -> None:
    file = tmp_path / "sized.ttc"
    fast = tintype.compile(sized)
    for size in (2, 3, 4):
        fast(torch.ones(size, 2))
    assert fast.engine.captures == 2
    fast.save(file)
    again = tintype.compile.load(file, sized)
    assert again.engine.varying.paths == fast.engine.varying.paths != set()
    with tintype.set_stance("fail_on_recompile"):
        for size in (5, 2, 7):
            assert torch.equal(again(torch.ones(size, 2)), sized(torch.ones(size, 2)))
    tintype.compile(sized, dynamic=False).save(file)
    assert tintype.compile.load(file, sized).engine.options.dynamic is False


def test_options_of_the_backend_are_saved(tmp_path: Path) -> None:
    file = tmp_path / "options.ttc"
    given: list[Any] = []

    @tintype.compile.register_backend(name="keeping options")
    def keeping(graph_module: Any, example_inputs: Any, **options: Any) -> Any:
        given.append(options)
        return graph_module.forward

    fast = tintype.compile(sized, backend="keeping options", options={"level": 3}, mode="quick")
    fast(torch.ones(2, 2))
    fast.save(file)
    tintype.compile.load(file, sized)(torch.ones(2, 2))
    assert len(given) > 1 and all(options == {"options": {"level": 3}, "mode": "quick"} for options in given)


PROGRAM = """
import sys, torch, tintype

def inner(x):
    return x * {factor}

class Model(torch.nn.Module):
    @property
    def width(self):
        return {width}

    def forward(self, x):
        return inner(x) + self.width

model = Model()
if sys.argv[2] == "save":
    fast = tintype.compile(model)
    fast(torch.ones(2))
    fast.save(sys.argv[1])
else:
    fast = tintype.compile.load(sys.argv[1], model)
print(fast(torch.ones(2)).tolist(), fast._tintype_engine.captures)
"""


def run(tmp_path: Path, what: str, factor: int, width: int) -> tuple[str, str]:
    script = tmp_path / "model.py"
    script.write_text(textwrap.dedent(PROGRAM.format(factor=factor, width=width)), encoding="utf-8")
    command = [sys.executable, str(script), str(tmp_path / "saved.ttc"), what]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip(), result.stderr


def test_another_process_captures_nothing_and_says_what_changed(tmp_path: Path) -> None:
    assert run(tmp_path, "save", 2, 1) == ("[3.0, 3.0] 1", "")
    assert run(tmp_path, "load", 2, 1) == ("[3.0, 3.0] 0", "")
    output, problems = run(tmp_path, "load", 5, 1)
    assert output == "[6.0, 6.0] 1" and "0 of the 1 saved runs of 'Model' are used" in problems
    assert "__main__.inner has changed" in problems
    output, problems = run(tmp_path, "load", 2, 7)
    assert output == "[9.0, 9.0] 1" and "Model.width has changed" in problems


def test_what_can_not_be_saved_is_named(tmp_path: Path) -> None:
    class Local:
        scale = 3

    fast = tintype.compile(lambda x, local: x * local.scale)
    fast(torch.ones(2), Local())
    with pytest.raises(tintype.UnsavableError, match="Local has no name in a module"):
        fast.save(tmp_path / "local.ttc")
    assert not list(tmp_path.iterdir())

    def own(graph_module: Any, example_inputs: Any) -> Any:
        return graph_module.forward

    fast = tintype.compile(function, backend=own)
    fast(torch.ones(2, 2), 0)
    fast.save(tmp_path / "own.ttc")
    with pytest.raises(tintype.TintypeError, match="backend that is a function"):
        tintype.compile.load(tmp_path / "own.ttc", function)
    again = tintype.compile.load(tmp_path / "own.ttc", function, backend=own)
    assert torch.equal(again(torch.ones(2, 2), 0), function(torch.ones(2, 2), 0)) and again.engine.captures == 0


def saved(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    file = tmp_path / "saved.ttc"
    fast = tintype.compile(function)
    fast(torch.ones(2, 2), 1)
    fast.save(file)
    return file, msgspec.json.decode(file.read_bytes())


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    file, content = saved(tmp_path)
    text = file.read_bytes()
    damaged: list[bytes] = [b"", b"{}", b"[1]", b"PK\x03\x04", text[:-5], text.replace(b'"runs"', b'"walks"')]
    damaged.append(msgspec.json.encode({**content, "version": 99}))
    damaged.append(msgspec.json.encode({**content, "sources": []}))
    damaged.append(msgspec.json.encode({**content, "objects": []}))
    runs: list[dict[str, Any]] = [{"items": [], "codes": []}, {"items": [["call", {}]], "codes": []}]
    runs.append({"items": [], "codes": [77]})
    damaged += [msgspec.json.encode({**content, "runs": [wrong]}) for wrong in runs]
    for wrong in damaged:
        file.write_bytes(wrong)
        with pytest.raises(tintype.FileFormatError):
            tintype.compile.load(file, function)


@pytest.mark.parametrize(
    "target",
    [
        ["name", "os", "system"],
        ["name", "subprocess", "run"],
        ["builtin", "exec"],
        ["builtin", "eval"],
        ["name", "torch.serialization", "load"],
        ["torch", "torch", "load"],
        ["torch", "torch", "from_file"],
        ["operator", "aten::from_file"],
        ["torch", "c", "import_ir_module"],
    ],
)
def test_a_file_can_not_call_what_the_program_does_not(target: list[Any], tmp_path: Path) -> None:
    file, content = saved(tmp_path)
    number = next(n for n, found in enumerate(content["objects"]) if found[-1] == "gelu")
    content["objects"][number] = target
    file.write_bytes(msgspec.json.encode(content))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        again = tintype.compile.load(file, function)
    assert "0 of the 1 saved runs" in str(caught[0].message)
    assert torch.equal(again(torch.ones(2, 2), 1), function(torch.ones(2, 2), 1))


def test_places_are_not_called_either(tmp_path: Path) -> None:
    file, content = saved(tmp_path)
    module = len(content["objects"])
    content["objects"].append(["module", "os"])
    first = len(content["sources"])
    content["sources"] += [
        ["constant", ["object", module], None],
        ["attribute", "getcwd", first],
        ["called", ["tuple"], first + 1],
    ]
    content["runs"][0]["items"].insert(0, ["guard", "value", first + 2, "here", False])
    file.write_bytes(msgspec.json.encode(content))
    with pytest.warns(tintype.StaleRunsWarning, match="does not name 'getcwd'"):
        tintype.compile.load(file, function)
