"""Recurrent layers as LSTM, GRU and RNN nodes: one for each layer, both directions in it.

ONNX has the gates in another order than torch. Weights are put into that order when the model is made, so that
nothing is left to do when it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tintype.onnx.builder import Builder
from tintype.onnx.errors import LoweringError
from tintype.onnx.libraries import ir
from tintype.onnx.registry import lowering
from tintype.onnx.weights import Weight

aten = torch.ops.aten
_INT64 = ir.DataType.INT64

# Where ONNX's gates stand in torch's weights.
_GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}


def _reordered(op: Builder, weight: Any, operation: str) -> Any:
    """A weight or bias with its gates in ONNX's order: an array where its elements are known, else nodes."""
    order = _GATES[operation]
    if isinstance(weight.const_value, Weight) and "written" not in weight.meta:
        array = weight.const_value.numpy()
        parts = np.split(array, len(order), axis=0)
        return np.concatenate([parts[gate] for gate in order], axis=0)
    if len(order) == 1:
        return weight
    parts = op.Split(weight, num_outputs=len(order), axis=0)
    return op.Concat(*[parts[gate] for gate in order], axis=0)


def _joined(op: Builder, rows: Sequence[Sequence[Any]], dtype: Any) -> Any:
    """Weights of the directions, one after the other."""
    if all(isinstance(each, np.ndarray) for row in rows for each in row):
        return op.constant(np.stack([np.concatenate(list(row), axis=0) for row in rows]), dtype)
    values = []
    for row in rows:
        parts = [op.constant(each, dtype) if isinstance(each, np.ndarray) else each for each in row]
        values.append(op.Unsqueeze(parts[0] if len(parts) == 1 else op.Concat(*parts, axis=0), [0]))
    return values[0] if len(values) == 1 else op.Concat(*values, axis=0)


def _attributes(operation: str, hidden: int, directions: int, activation: str | None) -> dict[str, Any]:
    """What ONNX wants to know of one layer."""
    attributes: dict[str, Any] = {
        "hidden_size": hidden,
        "direction": "bidirectional" if directions == 2 else "forward",
    }
    if operation == "GRU":
        attributes["linear_before_reset"] = 1
    if activation is not None:
        attributes["activations"] = [activation] * directions
    return attributes


def _both_directions(op: Builder, outputs: Any, hidden: int) -> Any:
    """The outputs of both directions beside each other."""
    turned = op.Transpose(outputs, perm=[0, 2, 1, 3])
    return op.Reshape(turned, op.constant([0, 0, 2 * hidden], _INT64))


def _with_filler(op: Builder, tensor: Any, count: Any) -> Any:
    """With so many rows of zeros behind those of the batch."""
    return op.Pad(tensor, op.vector([0, 0, 0, 0, count, 0]), op.constant(0, tensor.dtype))


def _layers(
    op: Builder,
    operation: str,
    tensor: Any,
    states: Sequence[Any],
    weights: Sequence[Any],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    *,
    activation: str | None = None,
) -> Any:
    if train and dropout and layers > 1:
        raise LoweringError("its dropout draws random numbers as ONNX does not; export the model in eval mode")
    directions, each = 2 if bidirectional else 1, 4 if has_biases else 2
    if len(weights) != layers * directions * each:
        raise LoweringError("projections (proj_size) have no form in ONNX")
    dtype = tensor.dtype
    hidden = op.size(states[0], 2)
    sequence = op.Transpose(tensor, perm=[1, 0, 2]) if batch_first else tensor
    batch = op.size(sequence, 1)
    if not isinstance(batch, int):  # ONNX Runtime's own operators end the process where there is nothing in a batch
        filler = op.cast(op.Equal(batch, op.constant(0, _INT64)), _INT64)
        sequence, *states = (_with_filler(op, each, filler) for each in (sequence, *states))
    finals: list[list[Any]] = [[] for _ in states]
    for layer in range(layers):
        starts = [(layer * directions + direction) * each for direction in range(directions)]
        rows = [[_reordered(op, weight, operation) for weight in weights[at : at + each]] for at in starts]
        initial = states
        if layers > 1:
            initial = [op.Slice(state, [layer * directions], [(layer + 1) * directions], [0]) for state in states]
        made = getattr(op, operation)(
            sequence,
            _joined(op, [[row[0]] for row in rows], dtype),
            _joined(op, [[row[1]] for row in rows], dtype),
            _joined(op, [[row[2], row[3]] for row in rows], dtype) if has_biases else None,
            None,
            *initial,
            **_attributes(operation, hidden, directions, activation),
        )
        for final, value in zip(finals, made[1:]):
            final.append(value)
        sequence = _both_directions(op, made[0], hidden) if bidirectional else op.Squeeze(made[0], [1])
    made = [sequence, *(final[0] if layers == 1 else op.Concat(*final, axis=0) for final in finals)]
    if not isinstance(batch, int):
        made = [op.Slice(each, [0], op.as_vector(batch), [1]) for each in made]
    return op.Transpose(made[0], perm=[1, 0, 2]) if batch_first else made[0], *made[1:]


@lowering(aten.lstm.input)
def lstm(op: Builder, tensor: Any, states: Sequence[Any], weights: Sequence[Any], *rest: Any) -> Any:
    return _layers(op, "LSTM", tensor, states, weights, *rest)


@lowering(aten.gru.input)
def gru(op: Builder, tensor: Any, state: Any, weights: Sequence[Any], *rest: Any) -> Any:
    return _layers(op, "GRU", tensor, [state], weights, *rest)


@lowering(aten.rnn_tanh.input)
def rnn_tanh(op: Builder, tensor: Any, state: Any, weights: Sequence[Any], *rest: Any) -> Any:
    return _layers(op, "RNN", tensor, [state], weights, *rest, activation="Tanh")


@lowering(aten.rnn_relu.input)
def rnn_relu(op: Builder, tensor: Any, state: Any, weights: Sequence[Any], *rest: Any) -> Any:
    return _layers(op, "RNN", tensor, [state], weights, *rest, activation="Relu")
