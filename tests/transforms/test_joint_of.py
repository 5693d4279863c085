"""The joint graph of a functional graph computes what autograd computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tintype
from tintype.ir.graph import LazyGraphModule
from tintype.transforms.joint import joint_of


def batch_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, None, None, weight, training=True)


def attention(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x.view(1, 1, 3, 4), y.view(1, 1, 3, 4), y.view(1, 1, 3, 4))


def written_slice(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = x.clone()
    z[0] = y[1] * 2
    return z.sin()


PROGRAMS: dict[str, Callable[..., Any]] = {
    "elementwise": lambda x, y: (x.sin() * y, x.exp()),
    "matrix": lambda x, y: F.linear(x, y) @ x,
    "reduction": lambda x, y: F.softmax(x, -1).sum(0) * y.amax(0),
    "attention": attention,
    "batch norm": lambda x, y: batch_norm(x, y[0]),
    "written slice": written_slice,
    "indexing": lambda x, y: x[torch.tensor([0, 2, 0])] * y,
    "integers beside": lambda x, y: (x * y, x.argmax(-1), 3),
    "no_grad": lambda x, y: x * y.detach() + y,
    "complex": lambda x, y: torch.view_as_real(torch.fft.fft(x) * y),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_equal_eager(name: str) -> None:
    function = PROGRAMS[name]
    torch.manual_seed(0)
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    ep = tintype.export(function, (x, y))
    code = ep.graph_module.code
    # constants of the program are inputs of its graph too
    given = [ep.constants[spec.target] if spec.target else None for spec in ep.graph_signature.input_specs]
    state = [value for value in given if value is not None]
    joint = joint_of(ep.graph, ep.context)
    assert ep.graph_module.code == code, "the graph that was given is another one now"

    leaves = [x.requires_grad_(), y.requires_grad_()]
    outputs = torch.utils._pytree.tree_leaves(function(*leaves))
    differentiable = [value for value in outputs if isinstance(value, torch.Tensor) and value.requires_grad]
    tangents = [torch.randn_like(value) for value in differentiable]
    expected = torch.autograd.grad(differentiable, leaves, tangents, allow_unused=True)

    with torch.no_grad():
        results = LazyGraphModule({}, joint.graph)(*state, *leaves, *tangents)
        gradients = LazyGraphModule({}, joint.backward())(*state, *leaves, *tangents)
    for result, output in zip(results[: joint.output_count], outputs, strict=True):
        if isinstance(output, torch.Tensor):
            torch.testing.assert_close(result, output.detach())
        else:
            assert result == output
    assert len(tangents) == len(joint.tangents)
    found = dict(zip(joint.gradients, results[joint.output_count :], strict=True))
    for position, gradient in enumerate(expected):
        if gradient is None:
            assert position + len(state) not in found
        else:
            torch.testing.assert_close(found[position + len(state)], gradient)
    for once, again in zip(results[joint.output_count :], gradients, strict=True):
        torch.testing.assert_close(once, again)


def test_only_what_is_asked_for_has_gradients() -> None:
    ep = tintype.export(lambda x, y: (x * y, y + 1), (torch.ones(3), torch.ones(3)))
    joint = joint_of(ep.graph, ep.context, [False, True], tangents_for=[1])
    assert (joint.tangents, joint.gradients) == ([1], [1])


def test_sizes_that_vary_stay_symbolic() -> None:
    size = tintype.Dim("size")
    ep = tintype.export(
        lambda x: (x.reshape(-1, 2).sum(0) * x.shape[0],), (torch.ones(4, 4),), dynamic_shapes={"x": {0: size}}
    )
    joint = joint_of(ep.graph, ep.context)
    module = LazyGraphModule({}, joint.graph)
    for rows in (4, 6):
        x = torch.randn(rows, 4, requires_grad=True)
        tangent = torch.randn(2)
        (expected,) = torch.autograd.grad(x.reshape(-1, 2).sum(0) * x.shape[0], x, tangent)
        torch.testing.assert_close(module(x, tangent)[1], expected)
