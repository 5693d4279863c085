"""Exports warn of programs that are right and perhaps not what was meant."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tintype
from tests import own_exceptions, sources_stay
from tintype import Dim, RefusedSizesWarning, TrainingModeWarning


def warned_of(export: Callable[[], Any]) -> list[str]:
    """What an export warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        export()
    ours = [warning for warning in caught if issubclass(warning.category, (TrainingModeWarning, RefusedSizesWarning))]
    callers = {
        __file__,
        own_exceptions.__file__,
        sources_stay.__file__,
    }  # which call a program in this suite
    assert all(warning.filename in callers for warning in ours)
    return [str(warning.message) for warning in ours]


class Dropping(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.5)


MODELS = {
    "dropout": (torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5)), "dropout in 1"),
    "batch norm": (torch.nn.Sequential(torch.nn.BatchNorm1d(3)), "batch_norm"),
    "recurrent": (torch.nn.LSTM(3, 3, num_layers=2, dropout=0.5), "lstm"),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_in_training_mode(name: str) -> None:
    model, named = MODELS[name]
    x = torch.randn(2, 3)
    (message,) = warned_of(lambda: tintype.export(model.train(), (x,)))
    assert "the model is in training mode" in message and named in message and "model.eval()" in message
    assert warned_of(lambda: tintype.export(model.eval(), (x,))) == []
    model.train()
    assert warned_of(lambda: tintype.export_for_training(model, (x,))) == []


def test_dropout_in_evaluation_mode() -> None:
    (message,) = warned_of(lambda: tintype.export(Dropping().eval(), (torch.randn(2),)))
    assert "evaluation mode" in message and "training=self.training" in message and "test_advice.py" in message


def test_training_mode_without_a_difference() -> None:
    x = torch.randn(2, 3)
    assert warned_of(lambda: tintype.export(torch.nn.Linear(3, 3), (x,))) == []
    assert warned_of(lambda: tintype.export(torch.nn.Dropout(0.0), (x,))) == []
    assert warned_of(lambda: tintype.export(torch.nn.LSTM(3, 3), (x,))) == []


def test_dropout_in_a_branch() -> None:
    class Branching(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return tintype.cond(x.sum() > 0, lambda x: F.dropout(x, 0.5), lambda x: x + 1, (x,))

    assert len(warned_of(lambda: tintype.export(Branching().eval(), (torch.ones(3),)))) == 1


def test_a_program_that_is_captured_again_was_warned_of_before() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = tintype.export(torch.nn.Dropout(0.5), (torch.ones(3),)).module()
    assert warned_of(lambda: tintype.export(module, (torch.ones(3),))) == []


def padded(x: torch.Tensor) -> torch.Tensor:
    return F.pad(x, (3, 3), mode="reflect")


def exported(dim: Dim, **options: Any) -> Any:
    return tintype.export(padded, (torch.randn(1, 7),), dynamic_shapes={"x": {1: dim}}, **options)


def test_promises_that_the_model_does_not_keep_either() -> None:
    (message,) = warned_of(lambda: exported(Dim("n")))
    assert "n >= 4" in message or "x.shape[1] >= 4" in message
    assert "test_advice.py" in message and "Dim(name, min=" in message
    assert len(warned_of(lambda: exported(Dim("n", min=3, max=9)))) == 1


def test_promises_that_are_kept() -> None:
    assert warned_of(lambda: exported(Dim("n", min=4))) == []
    assert warned_of(lambda: exported(Dim.AUTO)) == []
    assert warned_of(lambda: exported(Dim("n"), prefer_deferred_runtime_asserts_over_guards=True)) == []


def test_that_nothing_is_refused_is_no_promise_without_a_smallest_size() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return x.amax(0)

    def export(dim: Dim) -> Any:
        return tintype.export(model, (torch.randn(3, 2),), dynamic_shapes={"x": {0: dim}})

    assert warned_of(lambda: export(Dim("n"))) == []
    assert warned_of(lambda: export(Dim("n", min=1))) == []


def by_halves(x: torch.Tensor) -> torch.Tensor:
    """A decomposition that looks at a size."""
    return x.clamp(min=0) if x.shape[0] > 3 else x * (x > 0)


@pytest.mark.parametrize("dim", [Dim("n"), Dim.AUTO])
def test_decompositions_that_need_more_of_the_sizes(dim: Any) -> None:
    program = tintype.export(torch.nn.ReLU(), (torch.randn(5),), dynamic_shapes={"input": {0: dim}})
    table = {torch.ops.aten.relu.default: by_halves}
    (message,) = warned_of(lambda: program.run_decompositions(table))
    assert "the decomposed program refuses sizes that the program took" in message
    assert ">= 4" in message and "test_advice.py" in message and "preserve=" in message
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        core = program.run_decompositions(table)
    x = torch.randn(7)
    torch.testing.assert_close(core.module()(x), x.relu())
    with pytest.raises((tintype.RuntimeAssertionError, tintype.InputMismatchError)):
        core.module()(torch.randn(3))
    assert warned_of(program.run_decompositions) == []


def test_a_decomposition_that_the_promise_covers() -> None:
    shapes = {"input": {0: Dim("n", min=4)}}
    program = tintype.export(torch.nn.ReLU(), (torch.randn(5),), dynamic_shapes=shapes)
    assert warned_of(lambda: program.run_decompositions({torch.ops.aten.relu.default: by_halves})) == []
