"""Recurrent networks: whole sequences and single cells."""

from __future__ import annotations

from collections.abc import Sequence

from tintype.fake.info import TensorInfo
from tintype.fake.rules.elementwise import elementwise
from tintype.fake.rules.registry import rule
from tintype.symbolic import Size
from tintype.symbolic.sizes import contiguous_strides, require_same


def _fresh(sizes: tuple[Size, ...], like: TensorInfo) -> TensorInfo:
    return TensorInfo(sizes, contiguous_strides(sizes), like.dtype, like.device)


def _sequence(input: TensorInfo, features: Size, batch_first: bool, weight: TensorInfo) -> TensorInfo:
    """The output over time. The kernels run with time first and turn the result round where it isn't."""
    if input.dim != 3:
        raise RuntimeError(f"input must have 3 dimensions, got {input.dim}")
    require_same(
        input.sizes[2],
        weight.sizes[1],
        lambda: f"input.size(-1) must be equal to input_size. Expected {weight.sizes[1]}, got {input.sizes[2]}",
    )
    first, second = input.sizes[:2]
    if not batch_first:
        return _fresh((first, second, features), input)
    return TensorInfo((first, second, features), (features, first * features, 1), input.dtype, input.device)


def _state(hidden: TensorInfo) -> TensorInfo:
    return _fresh(hidden.sizes, hidden)


@rule("lstm.input")
def lstm(
    input: TensorInfo,
    hx: Sequence[TensorInfo],
    params: Sequence[TensorInfo],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[TensorInfo, TensorInfo, TensorInfo]:
    hidden, cell = hx
    features = hidden.sizes[-1] * (2 if bidirectional else 1)
    return _sequence(input, features, batch_first, params[0]), _state(hidden), _state(cell)


@rule("gru.input", "rnn_tanh.input", "rnn_relu.input")
def recurrent(
    input: TensorInfo,
    hx: TensorInfo,
    params: Sequence[TensorInfo],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[TensorInfo, TensorInfo]:
    features = hx.sizes[-1] * (2 if bidirectional else 1)
    return _sequence(input, features, batch_first, params[0]), _state(hx)


@rule("lstm.data")
def lstm_packed(
    data: TensorInfo,
    batch_sizes: TensorInfo,
    hx: Sequence[TensorInfo],
    params: Sequence[TensorInfo],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[TensorInfo, TensorInfo, TensorInfo]:
    hidden, cell = hx
    features = hidden.sizes[-1] * (2 if bidirectional else 1)
    return _fresh((data.sizes[0], features), data), _state(hidden), _state(cell)


@rule("gru.data", "rnn_tanh.data", "rnn_relu.data")
def recurrent_packed(
    data: TensorInfo,
    batch_sizes: TensorInfo,
    hx: TensorInfo,
    params: Sequence[TensorInfo],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[TensorInfo, TensorInfo]:
    features = hx.sizes[-1] * (2 if bidirectional else 1)
    return _fresh((data.sizes[0], features), data), _state(hx)


@rule("lstm_cell")
def lstm_cell(
    input: TensorInfo,
    hx: Sequence[TensorInfo],
    w_ih: TensorInfo,
    w_hh: TensorInfo,
    b_ih: TensorInfo | None = None,
    b_hh: TensorInfo | None = None,
) -> tuple[TensorInfo, TensorInfo]:
    hidden, cell = hx
    return _state(hidden), _state(cell)


@rule("gru_cell")
def gru_cell(
    input: TensorInfo,
    hx: TensorInfo,
    w_ih: TensorInfo,
    w_hh: TensorInfo,
    b_ih: TensorInfo | None = None,
    b_hh: TensorInfo | None = None,
) -> TensorInfo:
    # the last step mixes the old state in, elementwise
    return elementwise([hx, _state(hx)], hx.dtype)


@rule("rnn_tanh_cell", "rnn_relu_cell")
def recurrent_cell(
    input: TensorInfo,
    hx: TensorInfo,
    w_ih: TensorInfo,
    w_hh: TensorInfo,
    b_ih: TensorInfo | None = None,
    b_hh: TensorInfo | None = None,
) -> TensorInfo:
    return _state(hx)
