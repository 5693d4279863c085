"""What people do wrong in their first week: each mistake is told with what was expected, and what to do."""

from __future__ import annotations

import dataclasses
import io
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tintype
from tintype import Dim

MODEL = nn.Linear(3, 2).eval()
X = torch.ones(4, 3)


class Flagged(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor | None = None, *, scale: float = 1.0) -> torch.Tensor:
        return a * scale if b is None else a + b


@dataclasses.dataclass
class Data:
    value: torch.Tensor


@pytest.fixture(scope="module")
def program() -> tintype.ExportedProgram:
    return tintype.export(MODEL, (X,))


@pytest.fixture
def folder(tmp_path: Path, program: tintype.ExportedProgram, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    tintype.save(program, "model.tt")
    Path("text.tt").write_text("hello")
    Path("empty.tt").write_text("")
    Path("inside").mkdir()
    torch.save(MODEL.state_dict(), "weights.pt")
    yield tmp_path


def told(mistake: Callable[[], Any], fact: str, remedy: str, *kinds: type[BaseException]) -> None:
    with pytest.raises(tintype.TintypeError) as caught:
        mistake()
    assert fact in caught.value.fact, caught.value
    assert remedy in (caught.value.remedy or ""), caught.value
    assert isinstance(caught.value, kinds) or not kinds


def exported(*args: Any, **kwargs: Any) -> Callable[[], Any]:
    return lambda: tintype.export(*args, **kwargs)


EXPORTS: dict[str, tuple[Callable[[], Any], str, str]] = {
    "a tensor for args": (exported(MODEL, X), "args must be a tuple", "(x,)"),
    "a list for args": (exported(MODEL, [X]), "but got list", "(x,)"),
    "a list for kwargs": (exported(MODEL, (X,), [X]), "kwargs must be a dictionary", "{'x': x}"),
    "swapped": (exported((X,), MODEL), "but got Linear", "the model comes first"),
    "a dictionary for args": (exported(MODEL, {"input": X}), "but got dict", "(model, (), {"),
    "a file to write": (lambda: tintype.onnx.export(MODEL, (X,), "m.onnx"), "but got str", "onnx_program.save(path)"),
    "a file to write, of a program": (
        lambda: tintype.onnx.export(tintype.export(MODEL, (X,)), "m.onnx"),
        "but got str",
        "onnx_program.save(path)",
    ),
    "an example of size 1": (
        exported(lambda x: x + 1 if x.shape[0] == 1 else x, (X[:1],), dynamic_shapes=({0: Dim("n")},)),
        "with an example of 2 or more, it may vary",
        "",
    ),
    "a dataclass": (exported(lambda d: d.value, (Data(X),)), "a Data is not", "tintype.register_dataclass(Data)"),
    "a dataclass from a function": (exported(lambda x: Data(x), (X,)), "returns a Data", "register_dataclass(Data)"),
    "sizes that differ": (
        exported(Flagged(), (X, X[:1]), dynamic_shapes={"a": {0: Dim("n")}, "b": {0: Dim("n")}}),
        "b.shape[0] size to be equal to n, where n = 4, but got 1",
        "share a Dim",
    ),
    "no argument": (exported(MODEL, ()), "forward(input): missing a required argument: 'input'", "(model, args"),
    "one argument too many": (exported(MODEL, (X, X)), "too many positional arguments", "args is a tuple"),
    "an argument it has not": (exported(MODEL, (X,), {"by": 2}), "unexpected keyword argument 'by'", "kwargs"),
    "a keyword by position": (exported(Flagged(), (X, X, 2.0)), "(a, b=None, *, scale=1.0)", "dictionary by name"),
    "a class": (exported(nn.Linear, (X,)), "got the class Linear", "Linear(...)"),
    "a number": (exported(3, (X,)), "got 3", "pass a module"),
    "nothing": (exported(None, (X,)), "got None", "no return"),
    "a path": (exported("model.pt", (X,)), "got 'model.pt'", "tintype.load"),
    "weights": (exported(MODEL.state_dict(), (X,)), "an instance of OrderedDict", "load_state_dict"),
    "a program": (lambda: tintype.export(tintype.export(MODEL, (X,)), (X,)), "already", "program.module()"),
    "a generator": (exported(lambda g: next(g), ((t for t in [X]),)), "a generator is not", "make a list"),
    "a set": (exported(lambda s: s, ({1},)), "a set is not", "make a list"),
    "an array": (exported(MODEL, (np.ones((4, 3)),)), "a ndarray is not", "torch.as_tensor"),
    "another object": (exported(MODEL, (object(),)), "a object is not", "register_dataclass"),
    "strict of text": (exported(MODEL, (X,), strict="yes"), "strict is True or False", "interprets every line"),
    "control flow": (exported(MODEL, (X,), control_flow="yes"), "'auto' or 'refuse'", "'auto'"),
    "text for a size": (exported(MODEL, (X,), dynamic_shapes={"input": {0: "b"}}), "a size is", "write Dim('b')"),
    "a name it has not": (exported(MODEL, (X,), dynamic_shapes={"x": {0: Dim("b")}}), "'x'", "'input': {0"),
    "Dim itself": (exported(MODEL, (X,), dynamic_shapes={"input": {0: Dim}}), "a size is a Dim", "Dim.AUTO"),
    "a dimension it has not": (exported(MODEL, (X,), dynamic_shapes={"input": {5: Dim("b")}}), "2 dimensions", "{0"),
    "True for sizes": (exported(MODEL, (X,), dynamic_shapes=True), "but got bool", "dynamic_shapes={"),
    "another word": (exported(MODEL, (X,), dynamic_shapes="dynamic"), "'dynamic'", "'auto'"),
    "two meanings of a name": (
        exported(Flagged(), (X, X), dynamic_shapes={"a": {0: Dim("n")}, "b": {0: Dim("n", max=9)}}),
        "different definitions",
        "one Dim object",
    ),
    "an example out of range": (
        exported(MODEL, (X,), dynamic_shapes={"input": {0: Dim("b", min=5)}}),
        "4 not in range [5, inf] of Dim('b', min=5), for input.shape[0]",
        "give an example that fits",
    ),
    "no name": (lambda: Dim("my batch"), "Python identifier", 'Dim("batch")'),
    "bounds that cross": (lambda: Dim("b", min=5, max=2), "min 5 is greater than max 2", "change places"),
    "a smallest size below 0": (lambda: Dim("b", min=-1), "no size is less than 0", "min=0"),
    "a size that is left out": (
        exported(Flagged(), (X,), dynamic_shapes={"a": {0: Dim("n")}, "b": None}),
        "names 'b', but the arguments are 'a'",
        "the example leaves b out",
    ),
    "a program of torch": (
        lambda: tintype.export(torch.export.export(MODEL, (X,)), (X,)),
        "got a program of torch.export",
        "tintype.interop.from_torch",
    ),
    "no steps and rows": (
        exported(lambda x: tintype.scan(lambda c, row: c + row, torch.zeros(3), x), (X,)),
        "but returned a tensor",
        "(carry, output)",
    ),
    "programs without names": (lambda: tintype.modules(tintype.export(MODEL, (X,))), "programs by name", "prefill"),
    "half a Dim": (lambda: Dim("b") // 2, "b can't be divided", "2*part"),
    "half a Dim again": (lambda: Dim("b") / 2, "b can't be divided", "2*part"),
    "a product of Dims": (lambda: Dim("b") * Dim("c"), "combined with integers only", "common root"),
    "numpy inside": (exported(lambda x: torch.from_numpy(x.numpy()), (X,)), "numpy()", "custom operator"),
    "numpy's random numbers": (exported(lambda x: x * np.random.rand(), (X,)), "numpy.random.rand", "torch.rand"),
    "no loss": (lambda: tintype.export_joint(MODEL, (X,)), "one floating-point number", "loss_index"),
    "no fitting error": (lambda: tintype.suggest_dynamic_shapes(ValueError()), "ConstraintViolationError", "text"),
    "no backend": (lambda: tintype.compile(MODEL, backend="inductr")(X), "no backend 'inductr'", "inductor"),
    "no inputs to compare": (lambda: tintype.compare(MODEL, MODEL), "example", "(x,)"),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPORTS)
def test_requests(name: str) -> None:
    told(*EXPORTS[name])


def test_the_models_own_exceptions_say_where(program: tintype.ExportedProgram) -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x @ torch.ones(3, 3, dtype=torch.float64)

    with pytest.raises(RuntimeError) as caught:
        tintype.export(forward, (X,))
    assert not isinstance(caught.value, tintype.TintypeError)
    (note,) = caught.value.__notes__
    assert "test_first_mistakes.py" in note and "return x @ torch.ones" in note and "model(*args" in note


USES: dict[str, tuple[Callable[[Any], Any], str, str, type[BaseException]]] = {
    "no argument": (lambda p: p.module()(), "input is missing", "program(input)", ValueError),
    "too many": (lambda p: p.module()(X, X), "2 arguments are given by position", "program(input)", ValueError),
    "a typing error": (lambda p: p.module()(inptu=X), "did you mean 'input'?", "program(input)", ValueError),
    "another dtype": (lambda p: p.module()(X.double()), "torch.float32", "program.to(torch.float64)", RuntimeError),
    "another kind of dtype": (lambda p: p.module()(X.long()), "torch.float32", "export the program", RuntimeError),
    "another device": (lambda p: p.module()(X.to("meta")), "args[0].device to be cpu", ".to('cpu')", RuntimeError),
    "another size": (lambda p: p.module()(X[:2]), "[0].shape[0] to be equal to 4", "dynamic_shapes", RuntimeError),
    "other dimensions": (lambda p: p.module()(X[0]), "2 dimensions", "tensor of the size", RuntimeError),
    "an array": (lambda p: p.module()(X.numpy()), "to be a tensor, but got ndarray", "size [4, 3]", RuntimeError),
    "a list": (lambda p: p.module()([X]), "a list of 1", "program(input)", ValueError),
    "called directly": (lambda p: p(X), "Unable to call ExportedProgram", "program.module()", RuntimeError),
    "forward": (lambda p: p.forward(X), "no forward", "program.module().forward", AttributeError),
    "cuda": (lambda p: p.cuda(), "no cuda", "program.to", AttributeError),
    "eval": (lambda p: p.eval(), "no eval", "model.eval() before", AttributeError),
    "load_state_dict": (lambda p: p.load_state_dict({}), "no load_state_dict", "with_state", AttributeError),
    "eval of the module": (lambda p: p.module().eval(), "mode", "export again", NotImplementedError),
    "pickle": (pickle.dumps, "can't be pickled", "tintype.save", ValueError),
    "a list of operators": (lambda p: p.run_decompositions([]), "but got list", "default_decompositions", ValueError),
    "no edit": (lambda p: p.transform(None), "but got NoneType", "def edit", ValueError),
    "no match": (lambda p: p.rewrite(torch.ops.aten.relu.default, torch.sin), "nowhere", "print", ValueError),
    "no weights": (lambda p: p.with_state({"weight": MODEL.weight}), "bias", "strict=False", ValueError),
    "another shape": (lambda p: p.with_state({"weight": X, "bias": X}), "[2, 3]", "another model", ValueError),
    "no device": (lambda p: p.to("gpu"), "gpu", 'program.to("cuda"', ValueError),
    "swapped weights": (lambda p: tintype.attach_weights({}, p), "a program first", "(program, weights)", ValueError),
    "a model for weights": (lambda p: tintype.attach_weights(p, MODEL), "but got Linear", "state_dict()", ValueError),
    "another replacement": (
        lambda p: p.rewrite(torch.ops.aten.linear.default, lambda x: x),
        "takes (x), but is called with what the pattern is given",
        "the operator's",
        ValueError,
    ),
    "save": (lambda p: p.save("x.tt"), "has no save", "tintype.save(program, path)", AttributeError),
    "a number to compile": (lambda p: tintype.aot.function(3), "but got int", "method or module", ValueError),
    "a class to compile": (lambda p: tintype.aot.function(Data), "the class Data", "function", ValueError),
    "a function for a module": (lambda p: tintype.aot.module(len), "torch.nn.Module", "aot.function", ValueError),
    "our own program": (lambda p: tintype.interop.from_torch(p), "one of tintype's", "to_torch", ValueError),
    "no torch program": (lambda p: tintype.interop.from_torch(3), "but got a int", "torch.export", ValueError),
}  # fmt: skip


@pytest.mark.parametrize("name", USES)
def test_uses_of_a_program(name: str, program: tintype.ExportedProgram) -> None:
    mistake, fact, remedy, kind = USES[name]
    told(lambda: mistake(program), fact, remedy, kind)


def test_what_no_program_has_is_not_there(program: tintype.ExportedProgram) -> None:
    assert not hasattr(program, "forward") and not hasattr(program, "nothing") and not hasattr(program, "__torch__")
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        program.nothing


FILES: dict[str, tuple[Callable[[Any], Any], str, str, type[BaseException]]] = {
    "a model": (lambda p: tintype.save(MODEL, "m.tt"), "but got Linear", "tintype.export", ValueError),
    "swapped": (lambda p: tintype.save("m.tt", p), "but got str", "program comes first", ValueError),
    "a module": (lambda p: tintype.save(p.module(), "m.tt"), "the module of one", "save the program", ValueError),
    "save to a folder": (lambda p: tintype.save(p, "inside"), "inside is a folder", "model.tt", ValueError),
    "no such folder": (lambda p: tintype.save(p, "nowhere/m.tt"), "there is no folder", "make it", ValueError),
    "a mistyped name": (lambda p: tintype.load("modle.tt"), "no file modle.tt", "mean model.tt?", FileNotFoundError),
    "a mistyped folder": (lambda p: tintype.load("there/m.tt"), "no folder there", "mistake", FileNotFoundError),
    "a folder": (lambda p: tintype.load("inside"), "inside is a folder", "name a file", IsADirectoryError),
    "this folder": (lambda p: tintype.load("."), ". is a folder", "empty.tt", IsADirectoryError),
    "read, not mapped": (lambda p: tintype.load("modle.tt", mmap=False), "no file", "model.tt", FileNotFoundError),
    "text": (lambda p: tintype.load("text.tt"), "text.tt is no tintype file", "save the program again", ValueError),
    "nothing": (lambda p: tintype.load("empty.tt"), "empty.tt is empty", "save it again", ValueError),
    "weights": (lambda p: tintype.load("weights.pt"), "a file of torch.save", "attach_weights", ValueError),
    "no file": (lambda p: tintype.load(None), "but got NoneType", "open(path", ValueError),
    "bytes": (lambda p: tintype.load(Path("model.tt").read_bytes()), "the content of one", "BytesIO", ValueError),
    "text mode": (lambda p: tintype.load(io.StringIO("x")), "for text", "open(path", ValueError),
    "a program for weights": (
        lambda p: tintype.attach_weights(p, "model.tt"),
        "model.tt is a program of tintype's, not a safetensors file",
        "tintype.load('model.tt').state_dict",
        ValueError,
    ),
    "a checkpoint": (
        lambda p: tintype.attach_weights(p, "weights.pt"),
        "weights.pt is a file of torch.save, not a safetensors file",
        "torch.load('weights.pt', weights_only=True)",
        ValueError,
    ),
    "text for weights": (lambda p: tintype.attach_weights(p, "text.tt"), "text.tt", "", ValueError),
    "no weights": (lambda p: tintype.attach_weights(p, "weights.safetensor"), "no file", "", FileNotFoundError),
    "a file to compare": (lambda p: tintype.compare(p, "modle.tt", (X,)), "no file", "model.tt", FileNotFoundError),
    "a page": (lambda p: p.view("inside"), "inside is a folder", "page.html", ValueError),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_files(name: str, program: tintype.ExportedProgram, folder: Path) -> None:
    mistake, fact, remedy, kind = FILES[name]
    told(lambda: mistake(program), fact, remedy, kind)
    assert not list(folder.glob(".tintype*")) and not (folder / "m.tt").exists()


def test_python_suggests_names() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import tintype; tintype.exprot"], capture_output=True, text=True, timeout=120
    )
    assert "has no attribute 'exprot'. Did you mean: 'export'?" in done.stderr


def test_uses_that_need_another_program_or_device(program: tintype.ExportedProgram) -> None:
    told(lambda: program.view(against=MODEL), "against is a program", "export it first")
    told(lambda: program.to("xpu:7"), "there is no device xpu:7 here", "a file loads on any machine")
    with pytest.raises(RuntimeError) as caught:
        tintype.compare(program, nn.Linear(5, 5), (X,))
    assert any("b (Linear)" in note or note.startswith("b ") for note in caught.value.__notes__)
