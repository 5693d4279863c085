"""``print(program)``: for people, short, with everything that matters."""

from __future__ import annotations

import re

import pytest
import torch

import tintype
from tests.view.models import encoder_program
from tintype.view.modules import module_tree
from tintype.view.text import short_bytes


def test_expected_text() -> None:
    lines = str(encoder_program()).splitlines()
    assert lines[0].startswith("Program: functional stage, ") and "*batch*half operations" in lines[0]
    start = lines.index("takes")
    assert [re.sub(r"(?<=\S)  #.*", "", line) for line in lines[start:]] == [
        "takes",
        "  tokens: i64[batch, 2*half]",
        "  scale: 1.0, always",
        "gives",
        "  hidden: f32[batch, 2*half, 8]",
        "  mean[0]: f32[batch, 8]",
        "asks",
        "  tokens.shape[0] = batch, 1 <= batch <= 64",
        "  tokens.shape[1] = 2*half, 2 <= half <= 50",
        "",
        "Encoder",
        "  embedding: f32[batch, 2*half, 8] = embedding(weight, tokens)",
        "  layers",
        "    0: Block",
        "      layer_norm: f32[batch, 2*half, 8] = layer_norm(embedding, [8], weight, bias)",
        "      linear: f32[batch, 2*half, 16] = linear(layer_norm, weight, bias)",
        "      gelu: f32[batch, 2*half, 16] = gelu(linear)",
        "      linear_1: f32[batch, 2*half, 8] = linear(gelu, weight, bias)",
        "      add: f32[batch, 2*half, 8] = add(embedding, linear_1)",
        "    # 1 .. 2: 2 more like 0",
        "  linear_6: f32[batch, 2*half, 8] = linear(add_2, weight)",
        "  linear_7: f32[batch, 2*half, 8] = linear(linear_6, weight)",
        "  mul: f32[batch, 2*half, 8] = mul(linear_7, 1.0)",
        "  mean: f32[batch, 8] = mean(mul, [1])",
        "  return mul, mean",
    ]
    assert any(re.search(r"# norm: LayerNorm, models.py:\d+$", line) for line in lines)
    assert "/" not in str(encoder_program()).replace("//", "")  # no paths but names of files


def test_layers_do_not_make_it_longer() -> None:
    assert len(str(encoder_program(3)).splitlines()) == len(str(encoder_program(30)).splitlines())


def test_layers_that_are_wired_otherwise_are_not_folded() -> None:
    class Difference(torch.nn.Module):
        def __init__(self, *, swapped: bool) -> None:
            super().__init__()
            self.swapped = swapped

        def forward(self, x, y):
            x, y = x.sin(), y.cos()
            return y - x if self.swapped else x - y

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(Difference(swapped=n == 1) for n in range(4))

        def forward(self, x, y):
            for layer in self.layers:
                x = layer(x, y)
            return x

    program = tintype.export(Model(), (torch.ones(2), torch.ones(2)))
    layers = module_tree(program).children[0].children
    likeness = [layer.likeness for layer in layers]
    assert likeness[0] == likeness[2] == likeness[3] != likeness[1]
    assert "# 3: 1 more like 2" in str(program)


def test_control_flow_state_and_constants() -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            return tintype.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x * 2, (x,)), 5

    text = str(tintype.export(Counting(), (torch.ones(3),)))
    assert "new value of buffer calls: f32[]" in text and "[1]: 5" in text
    assert "true_graph_0(" in text and "sin(" in text and "cond: the data decide which way it goes" in text


@pytest.mark.parametrize("size", [0, 1])
def test_empty_programs(size: int) -> None:
    text = str(tintype.export(lambda x: x, (torch.ones(size),)))
    assert f"input: f32[{size}]" in text or f"x: f32[{size}]" in text
    assert "0 operator calls" in text


def test_joint_programs_name_gradients() -> None:
    from tests.view.models import joint_program

    assert "gradient of parameter block.wide.weight: f32[16, 8]" in str(joint_program())


def test_bytes() -> None:
    assert [short_bytes(count) for count in (0, 999, 1000, 4_160, 5 * 10**12)] == [
        "0 B",
        "999 B",
        "1 kB",
        "4.16 kB",
        "5 TB",
    ]
