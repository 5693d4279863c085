"""Tensors without elements, which some of ONNX Runtime's kernels do not survive: each program runs in a process of
its own, so that a crash is a failure of its test."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tintype
from tests.onnx.comparing import assert_same, operators

F = torch.nn.functional
A, B, C = (tintype.Dim(name) for name in "abc")


def attention(x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x, x, x)


def masked(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x, y, y, x[..., 0, None] > y[..., None, :, 0])


def products(x: torch.Tensor, y: torch.Tensor) -> Any:
    sums = torch.einsum("bij,bkj->bik", x, y), torch.einsum("b...,b...->b", x, x)
    return x @ y.mT, *sums, torch.einsum("i...j,i...j->i...", x, x)


def group(x: torch.Tensor) -> torch.Tensor:
    return F.group_norm(x, 2)


def pooled(x: torch.Tensor) -> torch.Tensor:
    return F.adaptive_avg_pool1d(x, 2)


def inside(x: torch.Tensor) -> torch.Tensor:
    rest = x[1:]
    return rest @ rest.mT


def chosen(x: torch.Tensor) -> torch.Tensor:
    rows = x[x[:, 0] > 0]
    return rows @ rows.mT


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], tuple[Any, ...], Any]] = {
    "attention": (
        attention,
        (torch.randn(2, 3, 4, 8),),
        ((0, 3, 4, 8), (2, 3, 0, 8), (1, 3, 1, 8)),
        ({0: A, 2: B},),
    ),
    "masked": (
        masked,
        (torch.randn(2, 3, 4, 8), torch.randn(2, 3, 5, 8)),
        (((0, 3, 4, 8), (0, 3, 5, 8)), ((2, 3, 0, 8), (2, 3, 0, 8)), ((2, 3, 0, 8), (2, 3, 5, 8))),
        ({0: A, 2: B}, {0: A, 2: C}),
    ),
    "products": (
        products,
        (torch.randn(2, 3, 4), torch.randn(2, 5, 4)),
        (((0, 3, 4), (0, 5, 4)), ((2, 0, 4), (2, 0, 4)), ((2, 0, 4), (2, 5, 4)), ((2, 3, 4), (2, 0, 4))),
        ({0: A, 1: B}, {0: A, 1: C}),
    ),
    "groups": (group, (torch.randn(2, 4, 5),), ((0, 4, 5), (3, 4, 5), (0, 4, 0)), ({0: A, 2: B},)),
    "means": (pooled, (torch.randn(2, 3),), ((0, 3), (1, 3)), ({0: A},)),
    "slices": (inside, (torch.randn(4, 3),), ((1, 3), (2, 3)), ({0: A},)),
    "masks": (chosen, (torch.randn(4, 3),), ((0, 3), (9, 3)), ({0: A},)),
    "recurrent": (
        torch.nn.LSTM(3, 4, batch_first=True).eval(),
        (torch.randn(2, 5, 3),),
        ((0, 5, 3), (1, 5, 3)),
        ({0: A},),
    ),
    "gated": (torch.nn.GRU(3, 4, bidirectional=True).eval(), (torch.randn(5, 2, 3),), ((5, 0, 3),), ({1: A},)),
}


def _run(name: str, opset: int, path: str, answers: Any) -> None:
    function, example, sizes, shapes = CASES[name]
    outcome = ""
    try:
        program = tintype.onnx.export(function, example, dynamic_shapes=shapes, opset=opset, verify=False)
        program.save(path)
        loaded = tintype.onnx.load(path)
        for each in sizes:
            others = tuple(torch.randn(size) for size in (each if isinstance(each[0], tuple) else (each,)))
            if name == "masks":
                others = (-others[0].abs(),)
            with torch.no_grad():
                expected = function(*others)
            assert_same(program(*others), expected)
            assert_same(loaded(*others), expected)
    except BaseException as error:
        outcome = f"{type(error).__name__}: {error}"
    answers.put(outcome)


@pytest.mark.parametrize("opset", [20, 24])
@pytest.mark.parametrize("name", CASES)
def test_nothing(name: str, opset: int, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    process = context.Process(target=_run, args=(name, opset, str(tmp_path / "model.onnx"), answers))
    process.start()
    process.join()
    assert process.exitcode == 0, "the process did not survive"
    assert answers.get(timeout=10) == ""


def test_files_and_usual_runs_have_no_choices() -> None:
    function, example, _, shapes = CASES["attention"]
    program = tintype.onnx.export(function, example, dynamic_shapes=shapes)
    program(*example)
    assert "If" not in operators(program)
    assert program._session_for_nothing is None
    program(torch.randn(0, 3, 4, 8))
    assert program._session_for_nothing is not program._session
