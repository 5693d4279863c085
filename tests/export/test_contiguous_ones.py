"""``contiguous()`` of a contiguous tensor is that tensor: what becomes of the one becomes of the other."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tintype


def result_changed(x: torch.Tensor) -> Any:
    y = x * 2
    z = y.contiguous()
    z.squeeze_(0)
    z.unsqueeze_(-1)
    return y, y.shape[0], z


def argument_changed(x: torch.Tensor) -> Any:
    y = x * 2
    z = y.contiguous()
    y.squeeze_(0)
    return y, z.shape[0], z


def result_detached(x: torch.Tensor) -> Any:
    y = x * 2
    z = y.contiguous()
    z.detach_()
    return y, 1, z


FUNCTIONS = [result_changed, argument_changed, result_detached]
LAYOUTS = [torch.ones(1, 3, 3), torch.ones(1, 3, 3).transpose(1, 2)]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("example", LAYOUTS)
@pytest.mark.parametrize("given", LAYOUTS)
@pytest.mark.parametrize("export", [tintype.export, tintype.export_for_training])
def test_both_get_another_geometry_or_lose_their_history(
    function: Any, example: torch.Tensor, given: torch.Tensor, export: Any
) -> None:
    program = export(function, (example,))
    given = given.clone().requires_grad_()
    for module in (program.module(), program.run_decompositions().module()):
        if given.stride() != example.stride():
            with pytest.raises(tintype.errors.InputMismatchError):
                module(given)
            continue
        for ours, eager in zip(module(given), function(given), strict=True):
            assert type(ours) is type(eager)
            if isinstance(eager, int):
                assert ours == eager
                continue
            assert ours.shape == eager.shape and ours.requires_grad == eager.requires_grad


def test_an_input_gets_no_other_geometry_by_another_name() -> None:
    with pytest.raises(tintype.errors.MutationError):
        tintype.export(lambda x: x.contiguous().squeeze_(0), (LAYOUTS[0],))
    with pytest.raises(tintype.errors.MutationError):
        tintype.export_joint(lambda x: result_changed(x)[0].sum(), (torch.ones(1, 3, requires_grad=True),))
