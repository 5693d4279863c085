"""Layers of torch's with code of their own are captured, and give eager mode's results."""

from __future__ import annotations

import collections
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import tintype

CAUSAL = nn.Transformer.generate_square_subsequent_mask(5)
PADDING = torch.tensor([[False, False, False, True, True]]).expand(3, 5)


def encoder_layer(**options: Any) -> nn.TransformerEncoderLayer:
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, **options)


def decoder_layer() -> nn.TransformerDecoderLayer:
    return nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)


LAYERS: dict[str, tuple[Callable[[], nn.Module], int, dict[str, Any]]] = {
    "attention": (lambda: nn.MultiheadAttention(8, 2, batch_first=True), 3, {}),
    "attention without weights": (lambda: nn.MultiheadAttention(8, 2), 3, {"need_weights": False}),
    "causal attention": (
        lambda: nn.MultiheadAttention(8, 2, batch_first=True, add_bias_kv=True, add_zero_attn=True),
        3,
        {"attn_mask": CAUSAL, "is_causal": True, "need_weights": False},
    ),
    "attention past padding": (
        lambda: nn.MultiheadAttention(8, 2, batch_first=True),
        3,
        {"key_padding_mask": PADDING, "average_attn_weights": False},
    ),
    "encoder layer": (encoder_layer, 1, {}),
    "encoder layer past padding": (
        lambda: encoder_layer(norm_first=True, activation="gelu"),
        1,
        {"src_key_padding_mask": PADDING},
    ),
    "encoder": (lambda: nn.TransformerEncoder(encoder_layer(), 2), 1, {}),
    "encoder past padding": (
        lambda: nn.TransformerEncoder(encoder_layer(), 2),
        1,
        {"src_key_padding_mask": PADDING},
    ),
    "causal encoder": (
        lambda: nn.TransformerEncoder(encoder_layer(), 2, enable_nested_tensor=False),
        1,
        {"mask": CAUSAL, "is_causal": True},
    ),
    "decoder layer": (decoder_layer, 2, {"tgt_mask": CAUSAL}),
    "decoder": (lambda: nn.TransformerDecoder(decoder_layer(), 2), 2, {}),
    "transformer": (lambda: nn.Transformer(8, 2, 1, 1, 16, batch_first=True), 2, {"tgt_mask": CAUSAL}),
}


def called(layer: Callable[..., Any], count: int, keywords: dict[str, Any], call: int, *, gradients: bool) -> Any:
    """The result, and the gradient by the first input, of one call."""
    rows = (3, 3, 2, 3, 1)[call]
    torch.manual_seed(call)
    inputs = [torch.randn(rows, 5, 8, requires_grad=gradients) for _ in range(count)]
    given = {name: value[:rows] if value is PADDING else value for name, value in keywords.items()}
    with torch.set_grad_enabled(gradients):
        result = layer(*inputs, **given)
        first = result if isinstance(result, torch.Tensor) else result[0]
        return result, torch.autograd.grad(first.square().sum(), inputs[0]) if gradients else None


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", LAYERS)
def test_attention_and_transformers_are_captured(name: str, backend: str) -> None:
    make, count, keywords = LAYERS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for is_training, gradients in ((True, True), (False, True), (False, False)):
            layer = make().train(is_training)
            compiled = tintype.compile(layer, backend=backend)
            for call in range(5):
                found = called(compiled, count, keywords, call, gradients=gradients)
                expected = called(layer, count, keywords, call, gradients=gradients)
                torch.testing.assert_close(found, expected)
            assert "eagerly" not in str(compiled.explain())


@pytest.mark.parametrize("layer", [nn.MultiheadAttention(8, 2), encoder_layer(), decoder_layer()])
def test_layers_are_one_graph(layer: nn.Module) -> None:
    x = torch.randn(3, 5, 8)
    inputs = {"MultiheadAttention": 3, "TransformerEncoderLayer": 1, "TransformerDecoderLayer": 2}
    tintype.compile(layer, fullgraph=True)(*[x] * inputs[type(layer).__name__])


Pair = collections.namedtuple("Pair", "x y", defaults=(3,))


class Typed(NamedTuple):
    tensor: torch.Tensor
    times: int = 2


class OfUser(Pair):
    def area(self) -> Any:
        return self.x * self.y


def powers(x: torch.Tensor) -> Any:
    return x**2, 2**x, 2 / x, x // 2, 2 - x, -x, x @ x.t(), x % 2, 5 // x, 7 % x, (x > 0) & (x > 1), ~(x > 0)


def inplace_operators(x: torch.Tensor) -> Any:
    x = x.clone()
    x **= 2
    x += 1
    x /= 2
    return x, x == 2, abs(x)


def tuples(x: torch.Tensor) -> Any:
    pair = Pair(x, 2)
    first, second = pair
    return first * second, pair._asdict(), Pair(y=2, x=x), Pair._make([x, 1]), pair._replace(y=x), Pair(x, x.shape[0])


def typed_tuples(x: torch.Tensor) -> Any:
    return Typed(x), Typed(tensor=x, times=3)._replace(times=5), OfUser(x, x.shape[0]).area()


def with_autocast(x: torch.Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return x @ x.t()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", [powers, inplace_operators, tuples, typed_tuples, with_autocast])
def test_operators_and_named_tuples_are_saved(function: Callable[..., Any], backend: str, tmp_path: Path) -> None:
    compiled = tintype.compile(function, backend=backend)
    for rows in (2, 2, 3, 4):
        compiled(torch.ones(rows, 2))
    assert "eagerly" not in str(compiled.explain())
    compiled.save(tmp_path / "function.ttc")
    load: Any = vars(tintype.compile)["load"]
    loaded = load(tmp_path / "function.ttc", function)
    for rows in (2, 3, 4, 2):
        assert str(loaded(torch.ones(rows, 2))) == str(function(torch.ones(rows, 2)))
    assert loaded.engine.captures == 0
