"""Two things side by side: the first place where their numbers part, and what is different in files."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tintype
from tintype.comparison.differing import diff_programs

aten = torch.ops.aten
X = torch.linspace(-1, 1, 80).reshape(2, 5, 8)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.up(self.norm(x)))
        return x + self.down(hidden)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block() for _ in range(3)])
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        for layer in self.layers:
            x = layer(x)
        return {"logits": self.head(x)}


@pytest.fixture
def model() -> Model:
    torch.manual_seed(0)
    return Model().eval()


@pytest.fixture
def program(model: Model) -> Any:
    return tintype.export(model, (X,))


def with_other_weight(program: Any, name: str = "layers.1.up.weight") -> Any:
    return program.with_state({name: program.state_dict[name].detach() * 1.1}, strict=False)


def test_what_computes_the_same_agrees_step_by_step(model: Model, program: Any, tmp_path: Path) -> None:
    core = program.run_decompositions()
    tintype.save(core, tmp_path / "core.tt")
    training = tintype.export_for_training(model, (X,))
    for other in (program, core, training, tmp_path / "core.tt", program.module(), torch.export.export(model, (X,))):
        found = tintype.compare(model, other, (X,))
        assert found.agree, str(found)
        assert len(found.steps) == 16  # 3 times norm, up, relu, down, add; head
        assert found.first is None
        assert min(found.seconds) > 0


@pytest.mark.parametrize("kind", ["program", "core", "torch", "model"])
def test_the_first_divergence_is_named_by_module_and_line(model: Model, program: Any, kind: str) -> None:
    changed = with_other_weight(program)
    if kind == "torch":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            side: Any = torch.export.export(model, (X,)).run_decompositions()
    else:
        side = {"program": program, "core": program.run_decompositions(), "model": model}[kind]
    found = tintype.compare(side, changed, (X,))
    first = found.first
    assert not found.agree and first is not None
    assert first.module == "layers.1.up"
    assert first.location is not None and "self.up(self.norm(x))" in first.location.source_line()
    assert [output.name for output in found.outputs] == ["logits"]
    text = str(found)
    assert "differ" in text and "in layers.1.up:" in text and "self.up(self.norm(x))" in text
    assert [step.module for step in found.modules()][:3] == ["layers.0.norm", "layers.0.up", "layers.0"]


def test_a_replaced_operator_is_named_on_both_sides(program: Any) -> None:
    def gelu(module: Any) -> None:
        for node in module.graph.nodes:
            if node.target is aten.relu.default and "layers.1" in node.meta["nn_module_stack"]:
                node.target = aten.gelu.default

    found = tintype.compare(program, program.transform(gelu))
    assert found.first is not None
    assert (found.first.operator, found.first.other_operator) == ("aten.relu.default", "aten.gelu.default")


def test_operators_that_only_one_side_has_are_named(program: Any) -> None:
    def without_relu(module: Any) -> None:
        node = next(node for node in module.graph.nodes if node.target is aten.relu.default)
        node.replace_all_uses_with(node.args[0])
        module.graph.erase_node(node)

    found = tintype.compare(program, program.transform(without_relu))
    assert found.first is not None and found.first.module == "layers.0.down"
    assert found.between == ["only a (functional stage) has relu = aten.relu.default"]


def test_nan_is_found(model: Model) -> None:
    broken = Model().eval()
    broken.load_state_dict(model.state_dict())
    with torch.no_grad():
        broken.layers[2].down.weight[0, 0] = float("nan")  # type: ignore[union-attr, index]
    found = tintype.compare(model, broken, (X,))
    assert found.first is not None and found.first.module == "layers.2.down" and found.first.nan == (0, 10)
    assert any("the first nan is in" in note for note in found.notes)
    assert tintype.compare(broken, broken, (X,)).agree


def test_inputs_and_buffers_stay_as_they_are() -> None:
    class Writing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.add_(1)
            self.count.add_(1)
            return nn.functional.dropout(x * self.count)

    model, x = Writing(), torch.ones(8)
    found = tintype.compare(model, tintype.export(model, (x,)), (x,))
    assert found.agree, str(found)
    assert torch.equal(x, torch.ones(8)) and model.count == 0


def test_tolerance_and_dtypes(model: Model) -> None:
    program = tintype.export(model, (X,))
    half = tintype.export(Model().eval().to(torch.bfloat16), (X.bfloat16(),))
    half = half.with_state({name: value.bfloat16() for name, value in model.state_dict().items()})
    close = tintype.compare(lambda x: program.module()(x), lambda x: half.module()(x.bfloat16()), (X,))
    assert close.agree, str(close)
    assert not tintype.compare(program, with_other_weight(program), tolerance=1e-6).agree
    assert tintype.compare(program, with_other_weight(program), tolerance=1.0).agree


def test_what_can_not_be_captured_is_compared_by_its_results() -> None:
    def through_numpy(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() * 2)

    found = tintype.compare(through_numpy, lambda x: x * 2, (X,))
    assert found.agree and not found.steps
    assert "only results were compared" in str(found) and "can't be captured" in str(found)


def test_results_of_other_shapes_and_counts(program: Any) -> None:
    found = tintype.compare(lambda x: x, lambda x: x[:1], (X,))
    assert found.outputs[0].problem == "f32[2, 5, 8] is not f32[1, 5, 8]"
    found = tintype.compare(lambda x: x, lambda x: (x, x), (X,), steps=False)
    assert "1 values on one side and 2" in str(found)


def test_an_onnx_program(program: Any) -> None:
    pytest.importorskip("onnxruntime")
    assert tintype.compare(program, tintype.onnx.export(program)).agree


def test_requests_that_are_wrong(program: Any) -> None:
    with pytest.raises(tintype.TintypeError, match="neither side has an example"):
        tintype.compare(nn.ReLU(), nn.ReLU())
    with pytest.raises(tintype.TintypeError, match="b can't be compared: it is a int"):
        tintype.compare(program, 3)
    with pytest.raises(tintype.TintypeError, match="inputs is a tuple of arguments"):
        tintype.compare(program, program, 3)
    with pytest.raises(tintype.TintypeError, match="to be equal to 8, but got 9"):
        tintype.compare(program, program, torch.ones(2, 5, 9))


def test_the_difference_of_programs(program: Any) -> None:
    assert diff_programs(program, program).same
    core = diff_programs(program, program.run_decompositions())
    assert "- aten.linear.default (7 times)" in core.operators and not core.weights and core.text
    changed = diff_programs(program, with_other_weight(program))
    assert len(changed.weights) == 1 and changed.weights[0].startswith("  layers.1.up.weight: other values")
    assert not changed.operators and not changed.text
    batch = tintype.Dim("batch", max=8)
    varying = tintype.export(Model().eval(), (X,), dynamic_shapes={"x": {0: batch}})
    assert any("batch <= 8" in line for line in diff_programs(program, varying).contract)


def writes(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 0


@pytest.mark.parametrize(
    ("one", "other", "problem"),
    [
        (lambda x: {"a": x}, lambda x: {"b": x}, "what one side returns as a is b on the other"),
        (lambda x: (x, [x]), lambda x: [x, (x,)], "one side returns a tuple where the other returns a list"),
        (lambda x: (x, (x,)), lambda x: ((x, x),), "what one side returns as"),
        (lambda x: x, lambda x: (x,), "what one side returns as result is [0] on the other"),
    ],
)
def test_results_of_another_structure_differ(one: Any, other: Any, problem: str) -> None:
    found = tintype.compare(one, other, (torch.ones(2),))
    assert not found.agree and problem in str(found)
    assert tintype.compare(one, tintype.export(one, (torch.ones(2),)), (torch.ones(2),)).agree


def test_what_only_one_side_writes_differs() -> None:
    given = (torch.ones(2),)
    found = tintype.compare(writes, lambda x: x * 0, given)
    assert not found.agree and "argument [0]: only one side writes to it" in str(found)
    assert torch.equal(given[0], torch.ones(2))
    same = tintype.compare(writes, tintype.export(writes, given), given)
    assert same.agree and [written.name for written in same.written] == ["argument [0]"]


@pytest.mark.filterwarnings("ignore::tintype.TrainingModeWarning")
def test_running_statistics_that_end_up_different_differ() -> None:
    one, other, x = nn.BatchNorm1d(2), nn.BatchNorm1d(2, momentum=0.9), torch.randn(4, 2)
    found = tintype.compare(one, other, (x,))
    assert not found.agree and {"buffer running_mean", "buffer running_var"} <= {
        written.name for written in found.written if written.diverges
    }
    assert torch.equal(one.running_mean, torch.zeros(2))  # type: ignore[arg-type]
    assert tintype.compare(one, tintype.export(one, (x,)), (x,)).agree


def test_a_program_of_another_dtype_gets_the_inputs_in_its_own() -> None:
    model, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()), torch.randn(3, 8)
    program = tintype.export(model, (x,))
    for one, other in ((program, program.to(torch.bfloat16)), (model, program.to(torch.float16))):
        found = tintype.compare(one, other, (x,))
        assert found.agree and len(found.steps) == 2, found
        assert not found.written, found
        assert not tintype.compare(one, other, (x,), tolerance=1e-9).agree
    with pytest.raises(tintype.InputMismatchError, match="does not take these inputs"):
        tintype.compare(program, program, (x.long(),))
