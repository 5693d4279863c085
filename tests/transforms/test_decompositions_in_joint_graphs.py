"""Decompositions return everything that their operator returns, also what only its backward looks at.

A decomposition that gets a statistic wrong (a logsumexp, a saved mean, an index) is right in every program without
gradients and silently wrong in joint graphs. Here the operators of joint graphs run one by one, each beside its
decomposition, on the values they have there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from torch import nn

import tintype
from tintype.transforms.decompose import core_table

aten = torch.ops.aten


class Attention(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.project = nn.Linear(8, 8)
        self.options = options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = k = v = self.project(x).view(2, 3, 2, 4).transpose(1, 2)
        if self.options.get("enable_gqa"):
            k = v = q[:, :1]
        return F.scaled_dot_product_attention(q, k, v, **self.options)


class Layers(nn.Module):
    """Layers one after the other, with a loss."""

    def __init__(self, *layers: Callable[..., Any]) -> None:
        super().__init__()
        self.members = nn.ModuleList(layer for layer in layers if isinstance(layer, nn.Module))
        self.layers = layers
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * self.scale if x.is_floating_point() else x
        for layer in self.layers:
            x = layer(x)
        return x.square().mean() * self.scale


TOKENS = torch.tensor([[1, 2, 3], [0, 4, 2]])
SEQUENCE = torch.linspace(-2, 2, 48).reshape(2, 3, 8).sin()
IMAGE = torch.linspace(-3, 3, 2 * 4 * 8 * 8).reshape(2, 4, 8, 8).sin()
MASK = torch.tensor([[True, False, False], [True, True, False], [True, True, True]])

MODELS: dict[str, tuple[Callable[[], nn.Module], torch.Tensor]] = {
    "attention": (lambda: Layers(Attention()), SEQUENCE),
    "causal attention": (lambda: Layers(Attention(is_causal=True)), SEQUENCE),
    "masked attention": (lambda: Layers(Attention(attn_mask=MASK)), SEQUENCE),
    "biased attention": (lambda: Layers(Attention(attn_mask=MASK.float(), scale=0.3)), SEQUENCE),
    "grouped attention": (lambda: Layers(Attention(enable_gqa=True)), SEQUENCE),
    "encoder layer": (lambda: Layers(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)), SEQUENCE),
    "layer norm": (
        lambda: Layers(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU(), nn.GELU(approximate="tanh")),
        SEQUENCE,
    ),
    "rms norm": (lambda: Layers(nn.RMSNorm(8), nn.SiLU(), nn.Softplus(), nn.ELU()), SEQUENCE),
    "embedding": (lambda: Layers(nn.Embedding(5, 8), nn.Linear(8, 4), nn.LogSoftmax(-1)), TOKENS),
    "cross entropy": (
        lambda: Layers(nn.Linear(8, 5), lambda x: F.cross_entropy(x.flatten(0, 1), TOKENS.flatten())),
        SEQUENCE,
    ),
    "losses": (
        lambda: Layers(
            lambda x: F.smooth_l1_loss(x, x.detach() + 1) + F.huber_loss(x, x.detach() * 2) + F.mse_loss(x, 0 * x),
        ),
        SEQUENCE,
    ),
    "convolution": (
        lambda: Layers(
            nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 6, 1, groups=2)
        ),
        IMAGE,
    ),
    "normalization": (lambda: Layers(nn.GroupNorm(2, 4), nn.InstanceNorm2d(4, affine=True), nn.Hardswish()), IMAGE),
    "batch norm in evaluation": (lambda: Layers(nn.BatchNorm2d(4)).eval(), IMAGE),
    "pooling": (lambda: Layers(nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(3), nn.LeakyReLU(), nn.Sigmoid()), IMAGE),
    "resizing": (
        lambda: Layers(nn.Upsample(scale_factor=2), nn.Upsample(size=5, mode="bilinear"), nn.Hardtanh()),
        IMAGE,
    ),
    "indexing": (
        lambda: Layers(
            lambda x: torch.cat([x.gather(1, TOKENS[..., None].clamp(max=2)), x[:, [0, 2], :1]], 1),
            lambda x: x.cumsum(1).masked_fill(x > 0, 0.5).logsumexp(1) + x.amax(1) + x.std(1) + x.norm(dim=1),
        ),
        SEQUENCE,
    ),
    "padding": (lambda: Layers(nn.ReflectionPad2d(1), nn.ConstantPad2d(1, 2.0), nn.PReLU(), nn.Tanh()), IMAGE),
}


class BesideDecompositions(torch.fx.Interpreter):
    """Runs a graph, and each operator that has a decomposition in both ways."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self.table = core_table()
        self.checked: set[str] = set()

    def run_node(self, n: torch.fx.Node) -> Any:
        result = super().run_node(n)
        decomposition = self.table.get(n.target)
        if n.op != "call_function" or decomposition is None:
            return result
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        other = decomposition(*args, **kwargs)
        if other is NotImplemented:
            return result
        self.checked.add(str(n.target))
        pairs = zip(pytree.tree_leaves(result), pytree.tree_leaves(other), strict=True)
        used = {user.args[1] for user in n.users} if isinstance(result, (tuple, list)) else {0}
        for position, (value, another) in enumerate(pairs):
            if position in used and isinstance(value, torch.Tensor):
                torch.testing.assert_close(
                    another,
                    value,
                    rtol=1e-4,
                    atol=1e-5,
                    msg=lambda m, n=n, p=position: f"{n.target}, result {p}: {m}",
                )
        return result


def inputs_of(joint: tintype.ExportedProgram, x: torch.Tensor) -> list[torch.Tensor]:
    specs = joint.graph_signature.input_specs
    return [x if s.target is None else {**joint.state_dict, **joint.constants}[s.target].detach() for s in specs]


@pytest.mark.parametrize("name", MODELS)
def test_decompositions_return_what_their_operators_do(name: str) -> None:
    build, x = MODELS[name]
    torch.manual_seed(0)
    joint = tintype.export_joint(build(), (x,))
    with torch.no_grad():
        BesideDecompositions(joint.graph_module).run(*inputs_of(joint, x))


@pytest.mark.parametrize("name", MODELS)
def test_gradients_after_decomposition(name: str) -> None:
    build, x = MODELS[name]
    torch.manual_seed(0)
    model = build()
    joint = tintype.export_joint(model, (x,))
    _, expected, _ = joint.module()(x)
    _, found, _ = joint.run_decompositions().module()(x)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_torchs_own_table_does_not_spoil_gradients() -> None:
    model = Layers(Attention())
    joint = tintype.export_joint(model, (SEQUENCE,))
    assert any(node.target is aten._scaled_dot_product_flash_attention_for_cpu.default for node in joint.graph.nodes)
    _, expected, _ = joint.module()(SEQUENCE)
    table = dict(torch._decomp.core_aten_decompositions())
    _, found, _ = joint.run_decompositions(table).module()(SEQUENCE)
    torch.testing.assert_close(found, expected)
