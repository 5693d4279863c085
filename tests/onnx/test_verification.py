"""What is told before anybody gets a wrong program."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tintype
from tests.onnx.comparing import assert_same, compared, operators

BATCH = tintype.Dim("batch", max=64)


def wrong_sine(op: Any, tensor: Any) -> Any:
    return op.Cos(tensor)


def test_a_wrong_translation_is_found_with_its_line() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        return (y.sin() + 1).relu()  # the line that is named

    with pytest.raises(tintype.onnx.OnnxVerificationError) as caught:
        tintype.onnx.export(model, (torch.ones(3),), translations={torch.ops.aten.sin.default: wrong_sine})
    text = str(caught.value)
    assert "first in sin = aten.sin.default" in text
    assert "test_verification.py:23 in model" in text


def test_verification_can_be_left_out() -> None:
    table = {torch.ops.aten.sin.default: wrong_sine}
    program = tintype.onnx.export(torch.sin, (torch.ones(3),), translations=table, verify=False)
    assert "not verified" in str(program.report)
    assert_same(program(torch.ones(3)), torch.ones(3).cos())


def test_what_is_wrong_at_other_sizes_only_is_found() -> None:
    def first_three(op: Any, tensor: Any) -> Any:
        return op.Expand(op.Slice(op.Sin(tensor), [0], [3], [0]), [3])

    with pytest.raises(tintype.TintypeError, match=r"sizes|Runtime|elements|structure"):
        tintype.onnx.export(
            lambda x: x.sin(), (torch.ones(3),), translations={torch.ops.aten.sin.default: first_three},
            dynamic_shapes=({0: BATCH},),
        )  # fmt: skip


def test_the_report_says_what_was_compared() -> None:
    program = tintype.onnx.export(torch.nn.Linear(4, 2), (torch.ones(3, 4),), dynamic_shapes=({0: BATCH},))
    text = str(program.report)
    assert "verified on the example ([3, 4])" in text
    assert "verified on other sizes ([4, 4])" in text
    assert "strict shape inference pass" in text


def test_everything_that_is_missing_is_named_at_once() -> None:
    def model(x: torch.Tensor) -> Any:
        a = torch.linalg.ldl_factor(x)[0]
        b = torch.linalg.eigvals(x)
        return a, b, torch.linalg.eigvals(x + 1)

    with pytest.raises(tintype.onnx.OnnxExportError) as caught:
        tintype.onnx.export(model, (torch.randn(3, 3),))
    text = str(caught.value)
    assert "2 operators of this program can't be said in ONNX" in text
    assert "aten.linalg_eig.default (2 calls)" in text
    assert text.count("test_verification.py:") == 3
    assert "translations=" in text


def test_random_numbers_are_compared_by_kind() -> None:
    program = tintype.onnx.export(lambda x: torch.rand_like(x) + x, (torch.ones(3),))
    assert "random numbers" in str(program.report)
    assert program(torch.ones(3)).shape == (3,)


@torch.library.custom_op("tintype_onnx_tests::scaled", mutates_args=())
def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor


@scaled.register_fake
def _(x: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.empty_like(x)


def test_custom_operators() -> None:
    target = torch.ops.tintype_onnx_tests.scaled.default

    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.tintype_onnx_tests.scaled(x, 3.0) + 1

    with pytest.raises(tintype.onnx.OnnxExportError, match=r"tintype_onnx_tests\.scaled\.default"):
        tintype.onnx.export(model, (torch.ones(3),))
    compared(model, (torch.ones(3),), translations={target: lambda op, x, factor: op.Mul(x, factor)})

    def of_its_own(op: Any, x: Any, factor: float) -> Any:
        return op.call("tintype.tests", "Scaled", [x], {"factor": factor}, 1)[0]

    program = tintype.onnx.export(model, (torch.ones(3),), translations={target: of_its_own}, verify=False)
    assert operators(program) == ["Scaled", "Add"]
    assert program.model.opset_imports["tintype.tests"] == 1


def test_a_translation_may_be_written_with_onnxscript() -> None:
    from onnxscript import opset18

    def double(tensor: Any) -> Any:
        return opset18.Sin(tensor)

    compared(torch.sin, (torch.ones(3),), translations={torch.ops.aten.sin.default: double})


def test_the_callers_modes_are_none_of_its_business() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if torch.is_grad_enabled() else x

    program = tintype.onnx.export(model, (torch.ones(3),))
    with torch.no_grad():
        assert program(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]


def test_optimizing_fully_changes_no_names() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(), torch.nn.LayerNorm(4)).eval()
    plain = compared(model, (torch.randn(2, 4),), (torch.randn(5, 4),), dynamic_shapes=({0: BATCH},))
    full = compared(model, (torch.randn(2, 4),), (torch.randn(5, 4),), dynamic_shapes=({0: BATCH},), optimize="full")
    assert full.input_names == plain.input_names and full.output_names == plain.output_names
    assert len(full.model.graph) <= len(plain.model.graph)


def test_whose_translation_failed_is_said() -> None:
    def broken(op: Any, x: Any) -> Any:
        raise ValueError("half done")

    with pytest.raises(tintype.onnx.OnnxExportError, match="that was given for it failed: ValueError"):
        tintype.onnx.export(lambda x: x.exp(), (torch.ones(2),), translations={torch.ops.aten.exp.default: broken})


def test_a_bug_of_ours_is_called_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from tintype.onnx import registry

    def broken(op: Any, x: Any) -> Any:
        raise KeyError("typo")

    registry.load_lowerings()
    monkeypatch.setitem(registry._OWN, torch.ops.aten.relu.default, [(18, broken)])
    with pytest.raises(tintype.onnx.OnnxExportError, match="a bug of tintype's, please report it"):
        tintype.onnx.export(torch.nn.ReLU(), (torch.ones(2),))


def test_assertions_of_branches_are_kept() -> None:
    def checked(x: torch.Tensor) -> torch.Tensor:
        torch._assert_async(x.min() > -5, "too small")
        return x + 1

    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, checked, lambda x: x - 1, (x,))

    program = tintype.onnx.export(model, (torch.ones(3),))
    assert "not checked" not in str(program.report)
    assert program(torch.tensor([-9.0, 0.0, 1.0])).tolist() == [-10.0, -1.0, 0.0]  # the other branch asserts nothing
    with pytest.raises(tintype.TintypeError, match="too small"):
        program(torch.tensor([-9.0, 20.0, 1.0]))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_other_sizes_keep_the_order_of_offsets(mode: str) -> None:
    model = torch.nn.EmbeddingBag(10, 4, mode=mode)
    sizes = ({0: tintype.Dim("words")}, {0: tintype.Dim("bags", min=1)})
    program = tintype.onnx.export(model, (torch.randint(10, (6,)), torch.tensor([0, 2, 5])), dynamic_shapes=sizes)
    words, offsets = torch.randint(10, (9,)), torch.tensor([0, 3, 3, 7])
    torch.testing.assert_close(program(words, offsets), model(words, offsets))
