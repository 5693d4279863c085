"""Recurrent layers in double precision, for which ONNX Runtime's processor has no kernels: a Scan over the steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tintype.onnx.builder import Builder, form_of
from tintype.onnx.libraries import ir
from tintype.onnx.lowerings.formulas import DOUBLE, INT64
from tintype.onnx.subgraphs import scanned

_FIRST = -(1 << 62)


def _turned(op: Builder, rows: Any) -> Any:
    """The steps from the last one to the first."""
    return op.Slice(rows, [-1], [_FIRST], [0], [-1])


def _lstm(op: Builder, given: Any, recurrent: Any, states: Sequence[Any]) -> list[Any]:
    enter, leave, forget, new = op.Split(op.Add(given, recurrent), num_outputs=4, axis=-1)
    cell = op.Add(op.Mul(op.Sigmoid(forget), states[1]), op.Mul(op.Sigmoid(enter), op.Tanh(new)))
    return [op.Mul(op.Sigmoid(leave), op.Tanh(cell)), cell]


def _gru(op: Builder, given: Any, recurrent: Any, states: Sequence[Any]) -> list[Any]:
    keep, reset, new = op.Split(given, num_outputs=3, axis=-1)
    keep_before, reset_before, new_before = op.Split(recurrent, num_outputs=3, axis=-1)
    keep = op.Sigmoid(op.Add(keep, keep_before))
    new = op.Tanh(op.Add(new, op.Mul(op.Sigmoid(op.Add(reset, reset_before)), new_before)))
    return [op.Add(new, op.Mul(keep, op.Sub(states[0], new)))]


def _rnn(op: Builder, given: Any, recurrent: Any, activation: str) -> list[Any]:
    return [op.emit(activation, op.Add(given, recurrent))]


@form_of("LSTM", "GRU", "RNN")
def recurrence(op: Builder, operation: str, values: list[Any], attributes: dict[str, Any]) -> Any:
    rows, weights, recurrences, biases, lengths, *initial = values
    if rows.dtype is not DOUBLE:
        return None
    assert lengths is None and initial, "our recurrent layers have no lengths, and all states"
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    every: list[Any] = []
    finals: list[list[Any]] = [[] for _ in initial]
    for number in range(directions):
        weight, recurrent = (
            op.Transpose(op.Gather(each, op.constant(number, INT64), axis=0), perm=[1, 0])
            for each in (weights, recurrences)
        )
        given = op.MatMul(_turned(op, rows) if number else rows, weight)
        bias: Any = None
        if biases is not None:
            halves = op.Split(op.Gather(biases, op.constant(number, INT64), axis=0), num_outputs=2, axis=0)
            given, bias = op.Add(given, halves[0]), halves[1]
        given.shape = ir.Shape([None, None, None])

        def step(inner: Builder, *state_and_row: Any, weight: Any = recurrent, bias: Any = bias) -> Any:
            *states, row = state_and_row
            from_before = inner.MatMul(states[0], weight)
            from_before = from_before if bias is None else inner.Add(from_before, bias)
            if operation == "RNN":
                made = _rnn(inner, row, from_before, attributes.get("activations", ["Tanh"])[number])  # noqa: B023
            else:
                made = (_lstm if operation == "LSTM" else _gru)(inner, row, from_before, states)
            return *made, made[0]

        start = [op.Gather(state, op.constant(number, INT64), axis=0) for state in initial]
        *last, steps = scanned(op, step, start, [given], 0)
        every.append(op.Unsqueeze(_turned(op, steps) if number else steps, [1]))
        for final, value in zip(finals, last):
            final.append(op.Unsqueeze(value, [0]))
    joined = [op.Concat(*each, axis=0) if directions > 1 else each[0] for each in finals]
    return op.Concat(*every, axis=1) if directions > 1 else every[0], *joined
