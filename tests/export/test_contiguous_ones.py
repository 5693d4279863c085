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


def norm_of_input_changed(x: torch.Tensor) -> Any:
    y = torch.nn.functional.local_response_norm(x, 2)
    y.unsqueeze_(0)
    return y, x.dim()


def norm_of_product_changed(x: torch.Tensor) -> Any:
    z = x * 1
    y = torch.nn.functional.local_response_norm(z, 2)
    y.transpose_(0, 2)
    return z * 2, y


def product_of_norm_changed(x: torch.Tensor) -> Any:
    z = x * 1
    y = torch.nn.functional.local_response_norm(z, 2)
    z.transpose_(0, 2)
    return z * 2, y


def norm_written(x: torch.Tensor) -> Any:
    z = x * 1
    y = torch.nn.functional.local_response_norm(z, 2)
    y.add_(1)
    return z, y


@pytest.mark.parametrize(
    "function", [norm_of_input_changed, norm_of_product_changed, product_of_norm_changed, norm_written]
)
@pytest.mark.parametrize("export", [tintype.export, tintype.export_for_training])
@pytest.mark.parametrize("example", [0, 3])
def test_a_norm_of_neighbours_is_its_argument_where_there_is_nothing(
    function: Any, export: Any, example: int
) -> None:
    try:
        program = export(function, (torch.randn(2, 2, example),), dynamic_shapes=({2: tintype.Dim.AUTO},))
    except tintype.errors.MutationError:
        assert example == 0 and function is not norm_written
        return
    for module in (program.module(), program.run_decompositions().module()):
        for count in (0, 1, 4):
            given, also_given = torch.randn(2, 2, count), torch.randn(2, 2, count)
            also_given.copy_(given)
            expected = function(also_given)
            try:
                results = module(given)
            except tintype.errors.InputMismatchError:
                assert (count == 0) is not (example == 0) and function is not norm_written
                continue
            torch.testing.assert_close(results, expected)
            assert given.shape == also_given.shape
