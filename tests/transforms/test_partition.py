"""Partitions: the two graphs compute what the joint graph does, and save as much as they say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tintype
from tintype.errors import InvalidRequestError
from tintype.ir.graph import LazyGraphModule
from tintype.transforms.joint import JointGraph, joint_of
from tintype.transforms.partition import Partition, partition_by_default, partition_by_min_cut

BUDGETS = (1.0, 0.7, 0.4, 0.0)


class Block(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)
        self.dropout = dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.gelu(self.up(self.norm(x)))
        return x + F.dropout(self.down(F.dropout(h, self.dropout)), self.dropout)


def model(dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(Block(dropout), Block(dropout), Block(dropout))


def joint_graph(module: nn.Module, *args: torch.Tensor, **options: Any) -> tuple[JointGraph, list[torch.Tensor]]:
    ep = tintype.export(module, args, **options)
    differentiable = [spec.target is not None for spec in ep.graph_signature.input_specs]
    given = [ep.state_dict[s.target] if s.target else args[0] for s in ep.graph_signature.input_specs]
    return joint_of(ep.graph, ep.context, differentiable), [value.detach() for value in given]


def run(partition: Partition, inputs: list[torch.Tensor], tangents: list[torch.Tensor], seed: int = 0) -> Any:
    torch.manual_seed(seed)
    values = list(LazyGraphModule({}, partition.forward)(*inputs))
    saved = values[partition.output_count :]
    assert len(saved) == partition.saved_tensors + partition.saved_numbers
    torch.manual_seed(seed + 17)  # something else draws in between
    state = torch.get_rng_state()
    gradients = LazyGraphModule({}, partition.backward)(*saved, *tangents)
    assert torch.equal(torch.get_rng_state(), state), "the backward graph leaves its mark on the generator"
    return (*values[: partition.output_count], *gradients), saved


def bytes_held(saved: list[Any]) -> int:
    memories = {
        t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in saved if isinstance(t, torch.Tensor)
    }
    return sum(memories.values())


PARTITIONERS: dict[str, Callable[[JointGraph], Partition]] = {
    "default": partition_by_default,
    **{f"budget {b}": lambda joint, b=b: partition_by_min_cut(joint, b) for b in BUDGETS},
}


@pytest.mark.parametrize("name", PARTITIONERS)
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_both_halves_compute_what_the_whole_does(name: str, dropout: float) -> None:
    x = torch.randn(32, 16)
    joint, inputs = joint_graph(model(dropout), x)
    tangents = [torch.randn(32, 16)]
    torch.manual_seed(0)
    expected = LazyGraphModule({}, joint.graph)(*inputs, *tangents)
    partition = PARTITIONERS[name](joint)
    found, saved = run(partition, inputs, tangents)
    torch.testing.assert_close(found, expected)
    assert bytes_held(saved) == partition.saved_bytes


def test_a_smaller_budget_saves_less() -> None:
    joint, _ = joint_graph(model(0.5), torch.randn(256, 16))
    default = partition_by_default(joint)
    sizes = [partition_by_min_cut(joint, budget) for budget in BUDGETS]
    held = [partition.saved_bytes - partition.input_bytes for partition in (default, *sizes)]
    assert held == sorted(held, reverse=True)
    assert held[1] < 0.8 * held[0]
    for budget, amount in zip(BUDGETS, held[1:], strict=True):
        assert amount <= budget * held[1] or budget == 0.0
    assert held[-1] < 0.1 * held[1]


def test_cheap_operators_run_twice_and_expensive_ones_once() -> None:
    joint, _ = joint_graph(model(), torch.randn(32, 16))
    partition = partition_by_min_cut(joint)
    twice = {name.rstrip("_0123456789") for name in partition.recomputed}
    assert "gelu" in twice and not twice & {"addmm", "mm"}
    assert "addmm" in {name.rstrip("_0123456789") for name in partition_by_min_cut(joint, 0.0).recomputed}


def test_views_are_not_saved() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.exp().t() @ y

    ep = tintype.export(function, (torch.randn(3, 4), torch.randn(3, 2)))
    partition = partition_by_default(joint_of(ep.graph, ep.context))
    results: Any = next(iter(partition.forward.find_nodes(op="output"))).args[0]
    assert [node.name for node in results[partition.output_count :]] == ["y", "exp"]


def test_several_views_at_once_are_made_again() -> None:
    ep = tintype.export(lambda x: torch.stack([a * b for a, b in [x.exp().unbind(0)]]), (torch.randn(2, 3),))
    joint = joint_of(ep.graph, ep.context)
    x, tangent = torch.randn(2, 3), torch.randn(1, 3)
    expected = LazyGraphModule({}, joint.graph)(x, tangent)
    for partitioner in PARTITIONERS.values():
        torch.testing.assert_close(run(partitioner(joint), [x], [tangent])[0], expected)


def test_recomputed_dropout_draws_the_same_numbers() -> None:
    ep = tintype.export(lambda x: F.dropout(x.sin(), 0.5).exp(), (torch.randn(4096),))
    joint = joint_of(ep.graph, ep.context)
    partition = partition_by_min_cut(joint, 0.0)
    assert any("bernoulli" in name for name in partition.recomputed)
    x = torch.randn(4096)
    (output, gradient), _ = run(partition, [x], [torch.ones(4096)], seed=3)
    torch.manual_seed(3)
    leaf = x.clone().requires_grad_()
    expected = F.dropout(leaf.sin(), 0.5).exp()
    torch.testing.assert_close(output, expected.detach())
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.sum(), leaf)[0])


def test_sizes_that_vary_are_saved_as_numbers() -> None:
    shapes = {"x": {0: tintype.Dim("n")}}
    ep = tintype.export(lambda x: F.softmax(x.reshape(-1, 2), 0).sum(0), (torch.randn(4, 6),), dynamic_shapes=shapes)
    joint = joint_of(ep.graph, ep.context)
    for partitioner in PARTITIONERS.values():
        partition = partitioner(joint)
        for rows in (4, 7):
            x, tangent = torch.randn(rows, 6, requires_grad=True), torch.randn(2)
            expected = F.softmax(x.reshape(-1, 2), 0).sum(0)
            (output, gradient), _ = run(partition, [x.detach()], [tangent])
            torch.testing.assert_close(output, expected.detach())
            torch.testing.assert_close(gradient, torch.autograd.grad(expected, x, tangent)[0])


def test_a_budget_is_a_share() -> None:
    joint, _ = joint_graph(model(), torch.randn(2, 16))
    with pytest.raises(InvalidRequestError, match="a share from 0 to 1"):
        partition_by_min_cut(joint, 1.5)


def test_what_an_operator_returns_for_its_backward_is_saved() -> None:
    """Indices of max pooling and statistics of normalization are no outputs, but their operator runs once."""
    x = torch.randn(2, 3, 4, 4)
    ep = tintype.export(lambda x: F.max_pool2d(F.batch_norm(x, None, None, training=True), 2), (x,))
    partition = partition_by_default(joint_of(ep.graph, ep.context))
    assert not partition.recomputed
