"""Conditions that repeat: what they say of a size, and the contracts of models that pad and divide."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import tintype
from tintype import Dim
from tintype.export.periodic import congruence_of
from tintype.symbolic import Environment, Expr, Symbol, eq, evaluate, ne


def _random_expression(generator: random.Random, symbol: Symbol, depth: int) -> Any:
    if depth == 0:
        return generator.choice([1, 2, 3]) * symbol + generator.randrange(-3, 8)
    inner = _random_expression(generator, symbol, depth - 1)
    divisor = generator.choice([2, 3, 4, 6])
    made = inner // divisor if generator.random() < 0.5 else inner % divisor
    return generator.choice([1, 2, -1]) * made + generator.choice([0, 1]) * symbol


@pytest.mark.parametrize("seed", range(300))
def test_what_a_condition_says_is_exact(seed: int) -> None:
    generator = random.Random(seed)
    symbol = Environment().backed(24, lower=0)
    left = _random_expression(generator, symbol, generator.randrange(1, 4))
    right = generator.choice([0, 1, left // 2, _random_expression(generator, symbol, 1)])
    condition = generator.choice([eq, ne])(left, right)
    found = congruence_of(condition) if isinstance(condition, Expr) else None
    if found is not None:
        for value in range(400):
            assert evaluate(condition, {symbol: value}) is (value % found.modulus == found.remainder)


def test_something_is_found() -> None:
    size = Environment().backed(32, lower=0)
    assert congruence_of(eq(3 * (size // 2) % 4, 0)) is None  # 0 and 1 of 8
    assert congruence_of(eq(3 * size % 4, 0)) == (4, 0)
    assert congruence_of(eq((2 * size + 2) // 4, 2 * size // 4)) == (2, 0)
    assert congruence_of(eq(size // 2, 3)) is None


class Windows(nn.Module):
    """Windows that are padded where they do not fit, and merged: what Swin does."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            _, _, height, width = image.shape
            bottom, right = (4 - height % 4) % 4, (4 - width % 4) % 4
            if bottom > 0 or right > 0:
                image = functional.pad(image, (0, right, 0, bottom))
            windows = image.reshape(image.shape[0], 3, image.shape[2] // 4, 4, image.shape[3] // 4, 4)
            image = windows.flatten(4).flatten(2, 3).reshape(image.shape[0], 3, height, width)
            image = torch.cat([image[:, :, 0::2, :], image[:, :, 1::2, :]], 1)[:, :3, :, ::2]
        return image


def test_the_contract_of_windows_is_short() -> None:
    example = torch.randn(2, 3, 32, 32)
    program = tintype.export(Windows(), (example,), dynamic_shapes="auto")
    lines = [line.text for line in program.contract() if "shape[0]" not in line.text]
    assert "image.shape[2] % 8 == 0" in lines and "image.shape[3] % 8 == 0" in lines
    assert len(lines) <= 6 and max(map(len, lines)) < 60, lines
    module = program.module()
    for height in range(8, 42):
        image = torch.randn(1, 3, height, 24)
        try:
            found = module(image)
        except tintype.TintypeError:
            assert height % 8, height
            continue
        assert height % 8 == 0
        assert torch.equal(found, Windows()(image))


def test_the_advice_for_windows_works() -> None:
    example = torch.randn(2, 3, 32, 32)
    sizes = {"image": {0: Dim("batch"), 2: Dim("height"), 3: Dim("width")}}
    with pytest.raises(tintype.ConstraintViolationError) as raised:
        tintype.export(Windows(), (example,), dynamic_shapes=sizes)
    assert {name: str(fix) for name, fix in raised.value.suggested_fixes.items() if name in ("height", "width")} == {
        "height": "8*_height",
        "width": "8*_width",
    }
    program = tintype.export(Windows(), (example,), dynamic_shapes=raised.value.suggested)
    image = torch.randn(3, 3, 16, 40)
    assert torch.equal(program.module()(image), Windows()(image))
