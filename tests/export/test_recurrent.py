"""Recurrent layers with a sequence length that varies stay whole operators, in every stage, and match eager mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import tintype
from tests.export.modes import targets
from tintype import Dim

STAGES = ("training", "functional", "core", "captured again")


def program(stage: str, model: nn.Module, args: Any, shapes: Any) -> tintype.ExportedProgram:
    if stage == "training":
        return tintype.export_for_training(model, args, dynamic_shapes=shapes)
    exported = tintype.export(model, args, dynamic_shapes=shapes)
    if stage == "core":
        return exported.run_decompositions()
    if stage == "captured again":
        return tintype.export(exported.module(), args, dynamic_shapes=shapes)
    return exported


class Recurrent(nn.Module):
    """A layer with an initial state where one is given."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, *state: torch.Tensor) -> Any:
        if not state:
            return self.layer(x)
        return self.layer(x, state if isinstance(self.layer, nn.LSTM) else state[0])


LAYERS = {
    "lstm": (nn.LSTM, {}, "aten.lstm.input"),
    "gru": (nn.GRU, {}, "aten.gru.input"),
    "rnn_tanh": (nn.RNN, {}, "aten.rnn_tanh.input"),
    "rnn_relu": (nn.RNN, {"nonlinearity": "relu"}, "aten.rnn_relu.input"),
    "lstm_projected": (nn.LSTM, {"proj_size": 3}, "aten.lstm.input"),
}
OPTIONS = {
    "plain": {},
    "bidirectional": {"bidirectional": True},
    "batch_first": {"batch_first": True},
    "deep": {"num_layers": 2, "bidirectional": True, "batch_first": True, "bias": False},
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("kind", LAYERS)
def test_any_length_and_batch(kind: str, options: str, stage: str) -> None:
    torch.manual_seed(0)
    cls, more, operator = LAYERS[kind]
    model = Recurrent(cls(4, 5, **more, **OPTIONS[options]))
    first = OPTIONS[options].get("batch_first", False)

    def sequence(length: int, batch: int) -> torch.Tensor:
        return torch.randn(batch, length, 4) if first else torch.randn(length, batch, 4)

    length, batch = Dim("length", min=1), Dim("batch", min=1)
    shapes = {"x": {0: batch, 1: length} if first else {0: length, 1: batch}}
    exported = program(stage, model, (sequence(3, 2),), shapes)
    exported.validate()
    assert targets(exported).count(operator) == 1
    module = exported.module()
    for other in (sequence(3, 2), sequence(1, 1), sequence(11, 4)):
        torch.testing.assert_close(module(other), model(other))


@pytest.mark.parametrize("stage", ["training", "functional", "core"])
@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn_tanh"])
def test_gradients_at_another_length(kind: str, stage: str) -> None:
    torch.manual_seed(0)
    cls, more, _ = LAYERS[kind]
    model = Recurrent(cls(4, 5, **more)).train()
    exported = program(stage, model, (torch.randn(3, 2, 4),), {"x": {0: Dim("length")}})
    x = torch.randn(7, 2, 4)
    expected = torch.autograd.grad(model(x)[0].square().sum(), list(model.parameters()))
    module = exported.module()
    found = torch.autograd.grad(module(x)[0].square().sum(), list(module.parameters()))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("stage", STAGES)
def test_initial_states(stage: str) -> None:
    model = Recurrent(nn.LSTM(4, 5))
    length, batch = Dim("length"), Dim("batch")

    def inputs(steps: int, rows: int) -> tuple[torch.Tensor, ...]:
        return torch.randn(steps, rows, 4), torch.randn(1, rows, 5), torch.randn(1, rows, 5)

    shapes = {"x": {0: length, 1: batch}, "state": ({1: batch}, {1: batch})}
    if stage == "captured again":
        shapes = {"x": {0: length, 1: batch}, "state_0": {1: batch}, "state_1": {1: batch}}
        first = tintype.export(model, inputs(3, 2), dynamic_shapes={"x": shapes["x"], "state": ({1: batch},) * 2})
        exported = tintype.export(first.module(), inputs(3, 2), dynamic_shapes=shapes)
    else:
        exported = program(stage, model, inputs(3, 2), shapes)
    others = inputs(9, 3)
    torch.testing.assert_close(exported.module()(*others), model(*others))


class Packed(nn.Module):
    """Sequences of different lengths through a recurrent layer."""

    def __init__(self, layer: nn.Module, sort: bool) -> None:
        super().__init__()
        self.layer = layer
        self.sort = sort

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        first = self.layer.batch_first
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=first, enforce_sorted=not self.sort)
        output, _ = self.layer(packed)
        return nn.utils.rnn.pad_packed_sequence(output, batch_first=first)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("sort", [True, False])
def test_packed_sequences(options: str, sort: bool, stage: str) -> None:
    torch.manual_seed(0)
    layer = nn.LSTM(4, 5, **OPTIONS[options])
    model = Packed(layer, sort)

    def inputs(lengths: list[int], steps: int) -> tuple[torch.Tensor, torch.Tensor]:
        ordered = lengths if sort else sorted(lengths, reverse=True)
        sizes = (len(lengths), steps) if layer.batch_first else (steps, len(lengths))
        return torch.randn(*sizes, 4), torch.tensor(ordered)

    batch, steps = Dim("batch", min=1), Dim("steps", min=1)
    dims = {0: batch, 1: steps} if layer.batch_first else {0: steps, 1: batch}
    example = inputs([2, 3], 4)
    exported = program(stage, model, example, {"x": dims, "lengths": {0: batch}})
    exported.validate()
    assert targets(exported).count("aten.lstm.data") == 1
    for other in (example, inputs([1], 1), inputs([3, 6, 1, 6], 7)):
        torch.testing.assert_close(exported.module()(*other), model(*other))


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("kind", [nn.GRU, nn.RNN])
def test_packed_sequences_of_other_layers(kind: Any, stage: str) -> None:
    """torch's own layers ask for the number of sequences as a Python number here (``int(batch_sizes[0])``), which is
    that of the example; lengths and steps may be others."""
    torch.manual_seed(0)
    model = Packed(kind(4, 5), sort=True)
    example = torch.randn(4, 2, 4), torch.tensor([3, 2])
    exported = program(stage, model, example, {"x": {0: Dim("steps", min=1)}, "lengths": None})
    longer, shorter = (torch.randn(7, 2, 4), torch.tensor([1, 7])), (torch.randn(1, 2, 4), torch.tensor([1, 1]))
    for other in (example, longer, shorter):
        torch.testing.assert_close(exported.module()(*other), model(*other))
    with pytest.raises(tintype.TintypeError):
        exported.module()(torch.randn(4, 3, 4), torch.tensor([3, 2, 1]))
