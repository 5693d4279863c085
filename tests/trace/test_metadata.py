"""What nodes say of themselves: their value, the module they come from, the line of the program."""

from __future__ import annotations

import copy
import importlib.util
import pickle
import re
import sys
from pathlib import Path

import torch
from torch import nn
from torch.fx import Node

import tintype
from tests.export.modes import capture


class Leaf(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


class Bar(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.leaf = Leaf()
        self.register_buffer("buffer", torch.randn(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.buffer.sum() + self.leaf(x).sum()


class Foo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bar = Bar()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        y = self.bar.buffer + x
        return (self.bar(x) + y.sum(),)


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linear(x)
        x *= 2.0
        return x


def calls(program: tintype.ExportedProgram) -> list[Node]:
    return [node for node in program.graph.nodes if node.op == "call_function"]


def test_module_stack_names_every_module_from_the_root(mode: str) -> None:
    program = capture(mode, Foo(), (torch.randn(4, 4),))
    stacks = {}
    for node in calls(program):
        stack = node.meta["nn_module_stack"]
        stacks[node.name] = [path for path, _ in stack.values()]
        assert all(isinstance(path, str) and isinstance(kind, str) for path, kind in stack.values())
    linear = stacks["addmm" if mode.endswith("decomposed") else "linear"]
    assert linear == ["", "bar", "bar.leaf", "bar.leaf.linear"]
    assert stacks["add"] == [""]  # y = self.bar.buffer + x
    assert ["", "bar"] in stacks.values()


def test_module_stack_has_the_classes(mode: str) -> None:
    program = capture(mode, Foo(), (torch.randn(4, 4),))
    node = next(node for node in calls(program) if node.name in ("linear", "addmm"))
    kinds = [kind for _, kind in node.meta["nn_module_stack"].values()]
    assert kinds[0].endswith("test_metadata.Foo")
    assert kinds[1].endswith("test_metadata.Bar")
    assert kinds[-1] == "torch.nn.modules.linear.Linear"


def test_stack_trace_shows_the_lines_of_the_program(mode: str) -> None:
    program = capture(mode, InPlace(), (torch.randn(4, 4),))
    multiply = next(node for node in calls(program) if node.name in ("mul", "mul_"))
    assert re.search(r"test_metadata.py.*in forward\n.*x \*= 2.0", multiply.meta["stack_trace"])
    linear = next(node for node in calls(program) if node.name in ("linear", "addmm"))
    assert re.search(r"test_metadata.py.*in forward\n.*x = self.linear\(x\)", linear.meta["stack_trace"])
    assert "_call_impl" not in linear.meta["stack_trace"]
    assert "tintype/" not in linear.meta["stack_trace"]


def test_stack_trace_is_that_of_a_python_traceback(mode: str) -> None:
    program = capture(mode, InPlace(), (torch.randn(4, 4),))
    multiply = next(node for node in calls(program) if node.name in ("mul", "mul_"))
    lines = multiply.meta["stack_trace"].rstrip("\n").split("\n")
    assert re.fullmatch(r'  File ".*test_metadata.py", line \d+, in forward', lines[-2])
    assert lines[-1] == "    x *= 2.0"


def test_every_call_has_a_stack_trace_and_a_value(mode: str) -> None:
    for node in calls(capture(mode, Foo(), (torch.randn(4, 4),))):
        assert node.meta["stack_trace"], node
        assert node.meta["val"].shape is not None
        assert "stack_trace" in node.meta
        assert node.meta.get("nn_module_stack") is not None


def test_torch_fn_and_source_functions(mode: str) -> None:
    program = capture(mode, Foo(), (torch.randn(4, 4),))
    for node in calls(program):
        name, kind = node.meta["torch_fn"]
        assert isinstance(name, str)
        assert isinstance(kind, str)
        assert isinstance(node.meta["source_fn_stack"], list)
    linear = next(node for node in calls(program) if node.name in ("linear", "addmm"))
    assert [name for name, _ in linear.meta["source_fn_stack"]][-2] == "bar.leaf.linear"


def test_torch_fn_names_the_function_the_user_called() -> None:
    """As in the seeds: ("cos_1", "method_descriptor.cos")."""

    class Cosine(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.cos() + nn.functional.gelu(x)

    program = tintype.export(Cosine(), (torch.randn(3),))
    assert {node.name: node.meta["torch_fn"] for node in calls(program)}["cos"] == ("cos_1", "method_descriptor.cos")


def test_source_functions_of_state(mode: str) -> None:
    program = capture(mode, Foo(), (torch.randn(4, 4),))
    signature = program.graph_signature
    for node in program.graph.nodes:
        if node.name in signature.inputs_to_parameters or node.name in signature.inputs_to_buffers:
            assert "source_fn_stack" in node.meta


def test_retracing_keeps_stack_traces_and_module_stacks() -> None:
    value = torch.randn(4, 4)
    program = tintype.export(Foo(), (value,))
    again = tintype.export(program.module(), (value,))
    assert [node.name for node in program.graph.nodes] == [node.name for node in again.graph.nodes]
    for first, second in zip(program.graph.nodes, again.graph.nodes, strict=True):
        for key in ("stack_trace", "nn_module_stack", "torch_fn", "source_fn_stack"):
            assert first.meta.get(key) == second.meta.get(key), (first, key)


def test_module_made_in_forward_is_not_in_the_stack() -> None:
    class Inner(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + x

    class Outer(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Inner()(x) * x

    program = tintype.export(Outer(), (torch.randn(3, 3),))
    (add,) = [node for node in calls(program) if node.target is torch.ops.aten.add.Tensor]
    stack = list(add.meta["nn_module_stack"].values())
    assert len(stack) == 1
    assert "Outer" in stack[0][1]


def test_shared_module_called_twice_has_one_path() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.alias = self.layer

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.alias(self.layer(x))

    program = tintype.export(Twice(), (torch.randn(2, 4),))
    paths = [list(node.meta["nn_module_stack"].values())[-1][0] for node in calls(program)]
    assert paths == ["layer", "layer"]


def test_functions_have_stack_traces_too(mode: str) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    (node,) = calls(capture(mode, function, (torch.randn(3),)))
    assert "return x.sin()" in node.meta["stack_trace"]


def test_names_of_nodes_follow_the_operators(mode: str) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.sin().cos().sin()

    assert [node.name for node in calls(capture(mode, function, (torch.randn(3),)))] == ["sin", "cos", "sin_1"]


def test_metadata_survives_copies_and_pickles() -> None:
    program = tintype.export(InPlace(), (torch.randn(4, 4),))
    node = calls(program)[0]
    copied = copy.deepcopy(node.meta)
    assert copied["stack_trace"] == node.meta["stack_trace"]
    shallow = copy.copy(node.meta)
    shallow["stack_trace"] = "other"
    assert node.meta["stack_trace"] != "other"
    restored = pickle.loads(pickle.dumps({k: node.meta[k] for k in ("stack_trace", "nn_module_stack")}))
    assert restored["nn_module_stack"] == node.meta["nn_module_stack"]


def test_metadata_is_a_dictionary() -> None:
    meta = calls(tintype.export(InPlace(), (torch.randn(4, 4),)))[0].meta
    assert meta.get("nothing") is None
    assert meta.get("nothing", 3) == 3
    assert "nothing" not in meta
    meta["custom"] = 5
    assert meta["custom"] == 5
    assert {"val", "stack_trace", "nn_module_stack", "torch_fn", "source_fn_stack"} <= set(dict(meta)) | set(meta)


def test_code_in_a_folder_named_like_us_is_the_users(tmp_path: Path) -> None:
    """A checkout of a user's project may lie in .../tintype/ or .../torch/: its lines are still the user's."""
    folder = tmp_path / "torch" / "tintype"
    folder.mkdir(parents=True)
    path = folder / "their_model.py"
    path.write_text("import torch\n\n\ndef function(x):\n    return x.sin()\n")
    spec = importlib.util.spec_from_file_location("their_model", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["their_model"] = module
    try:
        spec.loader.exec_module(module)
        program = tintype.export(module.function, (torch.randn(3),))
        assert "their_model.py" in calls(program)[0].meta["stack_trace"]
        assert "their_model.py:5" in program.code
    finally:
        del sys.modules["their_model"]
