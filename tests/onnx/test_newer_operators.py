"""Operators that opset 23 brought: Attention with masks, RMSNormalization and RotaryEmbedding of models that write
them out. Programs are not verified when they are exported, so that a wrong one would be seen here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype
from tests.onnx.comparing import assert_same, operators

F = torch.nn.functional
attend = F.scaled_dot_product_attention
nan, inf = float("nan"), float("inf")
BATCH, LENGTH = tintype.Dim("batch"), tintype.Dim("length")


def random(*sizes: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def unverified(
    function: Callable[..., Any], example: tuple[Any, ...], *others: tuple[Any, ...], opset: int = 23, **options: Any
) -> list[str]:
    """Compare a program with eager mode; its operators."""
    program = tintype.onnx.export(function, example, verify=False, opset=opset, **options)
    for inputs in (example, *others):
        with torch.no_grad():
            wanted = function(*inputs)
            half = isinstance(wanted, torch.Tensor) and wanted.dtype is torch.float16
            assert_same(program(*inputs), wanted, 1e-2 if half else 1e-5)
    return operators(program)


# --- attention ---------------------------------------------------------------------------------------------------


def _hidden(*sizes: int) -> torch.Tensor:
    """A mask of which some rows hide everything."""
    mask = random(*sizes) > 0.5
    mask[..., 0] = False
    if sizes[-2] > 1:
        mask[..., 1, :] = False
    return mask


@pytest.mark.parametrize("opset", [20, 23, 24])
@pytest.mark.parametrize("sizes", [(5, 7), (2, 1, 5, 7), (2, 4, 5, 7), (2, 1, 1, 7), (1, 7), (4, 5, 7), (2, 4, 5, 1)])
def test_masks(sizes: tuple[int, ...], opset: int) -> None:
    def model(q: Any, k: Any, mask: Any, numbers: Any) -> Any:
        return attend(q, k, k, mask), F.scaled_dot_product_attention(q, k, k, numbers, scale=2)

    mask = _hidden(*sizes)
    numbers = torch.where(mask, random(*sizes), -inf)
    found = unverified(model, (random(2, 4, 5, 8), random(2, 4, 7, 8), mask, numbers), opset=opset)
    assert found.count("Attention") == (0 if opset < 23 else 2)


@pytest.mark.parametrize("opset", [20, 23, 24])
@pytest.mark.parametrize("length, other", [(5, 5), (3, 7), (7, 3)])
def test_causal_masks_and_shared_heads(length: int, other: int, opset: int) -> None:
    def model(q: Any, k: Any) -> Any:
        return attend(q, k, k, is_causal=True, enable_gqa=True)

    found = unverified(model, (random(2, 4, length, 8), random(2, 2, other, 8)), opset=opset)
    assert ("Attention" in found) == (opset >= 23)


def test_sizes_of_attention_vary() -> None:
    def model(q: Any, mask: Any) -> Any:
        return attend(q, q, q, mask), attend(q, q, q, is_causal=True)

    sizes = ({0: BATCH, 2: LENGTH}, {0: BATCH, 3: LENGTH})
    given = [(random(b, 4, n, 8), random(b, 1, 1, n) > 0) for b, n in ((2, 5), (1, 1), (3, 9))]
    assert unverified(model, *given, dynamic_shapes=sizes).count("Attention") == 2


@pytest.mark.parametrize("opset", [20, 23])
def test_attention_to_nan_is_nan(opset: int) -> None:
    q = random(1, 1, 3, 4)
    q[0, 0, 1] = nan
    unverified(lambda q, mask: attend(q, q, q, mask), (q, torch.eye(3) > 0), opset=opset)


@pytest.mark.parametrize(
    "sizes", [((5, 8), (7, 8)), ((2, 5, 8), (2, 7, 8)), ((2, 4, 5, 8), (1, 4, 7, 8)), ((2, 4, 5, 8), (2, 1, 7, 8))]
)
def test_attention_of_other_shapes_is_no_node(sizes: Any) -> None:
    def model(q: Any, k: Any) -> Any:
        return attend(q, k, k)

    assert "Attention" not in unverified(model, (random(*sizes[0]), random(*sizes[1])))


# --- root mean square normalization ------------------------------------------------------------------------------

WEIGHT = random(6, seed=1)


def _llama(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    wide = x.to(torch.float32)
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
    return weight * wide.to(x.dtype)


NORMALIZATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "llama": _llama,
    "squares": lambda x, w: x * torch.rsqrt((x * x).mean(2, keepdim=True) + 1e-2) * w,
    "square": lambda x, w: (1 + w) * (torch.rsqrt(0.5 + torch.square(x).mean([-1], True)) * x),
    "quotient": lambda x, w: x / torch.sqrt((x**2).mean(-1, keepdim=True) + 1e-6) * w,
}


@pytest.mark.parametrize("name", NORMALIZATIONS)
def test_normalization_that_is_written_out(name: str) -> None:
    function = NORMALIZATIONS[name]
    given = [(random(n, 3, 6), WEIGHT) for n in (2, 0, 1, 5)]
    assert unverified(function, *given, dynamic_shapes=({0: BATCH}, None)).count("RMSNormalization") == 1
    assert "RMSNormalization" not in unverified(function, *given[:1], opset=22)


def test_normalization_in_half_precision() -> None:
    x, weight = (10 * random(2, 3, 6)).half(), WEIGHT.half()
    assert "RMSNormalization" in unverified(_llama, (x, weight))
    unverified(lambda x, w: w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)), (x, weight))


OTHER_NORMALIZATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "another dimension": lambda x, w: x * torch.rsqrt(x.pow(2).mean(1, keepdim=True) + 1e-5) * w,
    "two dimensions": lambda x, w: x * torch.rsqrt(x.pow(2).mean([-1, -2], keepdim=True) + 1e-5) * w,
    "cubes": lambda x, w: x * torch.rsqrt(x.pow(2).pow(2).mean(-1, keepdim=True) + 1e-5) * w,
    "the squares of another": lambda x, w: (x + 1) * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w,
    "added twice": lambda x, w: x * torch.rsqrt(torch.add(x.pow(2).mean(-1, keepdim=True), 1e-1, alpha=2)) * w,
    "scaled by rows": lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w[:3, None],
    "double precision": lambda x, w: (x.double() * torch.rsqrt(x.double().pow(2).mean(-1, True) + 1e-5)) * w.double(),
    "rounded to half": lambda x, w: (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)).half() * w.half(),
}


@pytest.mark.parametrize("name", OTHER_NORMALIZATIONS)
def test_what_only_looks_like_it(name: str) -> None:
    assert "RMSNormalization" not in unverified(OTHER_NORMALIZATIONS[name], (random(2, 3, 6), WEIGHT))


def test_a_part_that_the_user_translates_stays() -> None:
    table = {torch.ops.aten.rsqrt.default: lambda op, x: op.Reciprocal(op.Sqrt(x))}
    found = unverified(_llama, (random(2, 3, 6), WEIGHT), translations=table)
    assert "Reciprocal" in found and "RMSNormalization" not in found


# --- rotary embedding --------------------------------------------------------------------------------------------


def _half(x: torch.Tensor) -> torch.Tensor:
    width = x.shape[-1] // 2
    return torch.cat((-x[..., width:], x[..., :width]), dim=-1)


def _neighbours(x: torch.Tensor) -> torch.Tensor:
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


def _embedded(x: Any, angles: Any, turn: Any = _half, double: Any = None) -> torch.Tensor:
    angles = torch.cat((angles, angles), dim=-1) if double is None else double(angles)
    cosine, sine = (angles.cos() * 0.5).to(x.dtype).unsqueeze(1), (angles.sin() * 0.5).to(x.dtype).unsqueeze(1)
    return (x * cosine) + (turn(x) * sine)


def _interleaved(x: Any, angles: Any) -> torch.Tensor:
    return _embedded(x, angles, _neighbours, lambda each: torch.repeat_interleave(each, 2, dim=-1))


@pytest.mark.parametrize("function", [_embedded, _interleaved])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("one", [True, False])
def test_rotary_embedding(function: Callable[..., Any], dtype: torch.dtype, one: bool) -> None:
    given = [
        (random(batch, 2, length, 8).to(dtype), random(1 if one else batch, length, 4))
        for batch, length in ((2, 5), (1, 1), (0, 3), (3, 0), (4, 7))
    ]
    sizes = ({0: BATCH, 2: LENGTH}, {0: None if one else BATCH, 1: LENGTH})
    assert unverified(function, *given, dynamic_shapes=sizes).count("RotaryEmbedding") == 1
    assert "RotaryEmbedding" not in unverified(function, given[0], opset=22)


def test_a_part_of_each_head_is_rotated() -> None:
    def model(x: Any, angles: Any) -> Any:
        return torch.cat((_embedded(x[..., :4], angles), x[..., 4:]), dim=-1)

    assert "RotaryEmbedding" in unverified(model, (random(2, 3, 5, 8), random(2, 5, 2)))


OTHER_ROTATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "the other way round": lambda x, angles: _embedded(x, angles, lambda x: -_half(x)),
    "no sign": lambda x, angles: _embedded(x, angles, lambda x: torch.cat((x[..., 4:], x[..., :4]), -1)),
    "another tensor": lambda x, angles: _embedded(x, angles, lambda x: _half(x + 1)),
    "uneven parts": lambda x, angles: _embedded(x, angles, lambda x: torch.cat((-x[..., 3:], x[..., :3]), -1)),
    "angles that differ": lambda x, angles: _embedded(x, angles, double=lambda a: torch.cat((a, a + 1), -1)),
    "neighbours for halves": lambda x, angles: _embedded(x, angles, _neighbours),
    "halves for neighbours": lambda x, angles: _embedded(x, angles, double=lambda a: a.repeat_interleave(2, -1)),
    "a factor": lambda x, angles: torch.add(
        x * torch.cat((angles, angles), -1)[:, None], _half(x) * torch.cat((angles, angles), -1)[:, None], alpha=2
    ),
}


@pytest.mark.parametrize("name", OTHER_ROTATIONS)
def test_what_only_looks_like_a_rotation(name: str) -> None:
    assert "RotaryEmbedding" not in unverified(OTHER_ROTATIONS[name], (random(2, 3, 5, 8), random(2, 5, 4)))


def test_a_language_model_has_them_all() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=50,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    tokens = torch.arange(14).view(2, 7)
    sizes = {"input_ids": {0: tintype.Dim("batch", min=2), 1: tintype.Dim("length", min=1)}, "use_cache": None}
    program = tintype.onnx.export(model, (tokens,), {"use_cache": False}, dynamic_shapes=sizes, opset=23)
    found = operators(program)
    assert [found.count(name) for name in ("Attention", "RMSNormalization", "RotaryEmbedding")] == [2, 5, 4]
    other = torch.arange(3).view(3, 1)
    with torch.no_grad():
        wanted = model(other, use_cache=False).logits
    torch.testing.assert_close(program(other, use_cache=False).logits, wanted, rtol=1e-4, atol=1e-4)
