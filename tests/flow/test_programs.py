"""Plain Python programs on inputs that take every way through them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree

import tintype
from tests.export.modes import MODES, capture
from tests.flow.programs import PROGRAMS


def outcome(function: Any, inputs: Any) -> Any:
    """What a call gives, with the gradients of its inputs; an exception is one outcome, whatever its class."""
    values = [value.clone().requires_grad_() if isinstance(value, torch.Tensor) else value for value in inputs]
    try:
        results = pytree.tree_leaves(function(*values))
    except (RuntimeError, ValueError, AssertionError):
        return "raised"
    losses = [result.sum() for result in results if isinstance(result, torch.Tensor) and result.requires_grad]
    if losses:
        sum(losses).backward()
    return results, [value.grad for value in values if isinstance(value, torch.Tensor)]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and torch.allclose(one, other, equal_nan=True)
    if one is None or other is None:  # no gradient, or one of zeros
        tensor = other if one is None else one
        return tensor is None or not tensor.any()
    return type(one) is type(other) and one == other


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_right_on_every_way(name: str, mode: str) -> None:
    function, inputs = PROGRAMS[name]
    module = capture(mode, function, inputs[0])
    if mode == "unflattened":
        module = tintype.unflatten(module)
    else:
        module = module.module()
    for given in inputs:
        assert same(outcome(function, given), outcome(module, given)), given


def test_refuse_is_the_error_of_old() -> None:
    with pytest.raises(tintype.errors.DataDependentError):
        tintype.export(PROGRAMS["has_no_else"][0], (torch.ones(3),), control_flow="refuse")
    with pytest.raises(tintype.errors.InvalidRequestError, match="control_flow"):
        tintype.export(PROGRAMS["has_no_else"][0], (torch.ones(3),), control_flow="other")
