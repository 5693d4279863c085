"""What may be a copy or a view, as sizes and layouts say, beside conversions and ``out=``."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import tintype
from tintype.errors import CaptureError, InputMismatchError, MutationError, RuntimeAssertionError


def _told_to_write_to_a_row(x: torch.Tensor) -> torch.Tensor:
    row = x[0]
    torch.mul(row, 2, out=row)
    row.contiguous().add_(1)
    return x


def _told_to_write_to_a_column(x: torch.Tensor) -> torch.Tensor:
    column = x[:, 0]
    torch.clamp(column, -1, 1, out=column)
    column.ravel().add_(1)
    return x


def _two_results(x: torch.Tensor) -> torch.Tensor:
    fraction, exponent = x[0], torch.zeros(x.shape[1], dtype=torch.int32)
    torch.frexp(fraction, out=(fraction, exponent))
    fraction.contiguous().add_(1)
    return x


def _contiguous() -> torch.Tensor:
    return torch.arange(12.0).view(4, 3) / 5


def _with_gaps() -> torch.Tensor:
    return (torch.arange(24.0).view(4, 6) / 5)[..., ::2]


def _transposed() -> torch.Tensor:
    return (torch.arange(12.0).view(3, 4) / 5).t()


@pytest.mark.parametrize("function", [_told_to_write_to_a_row, _told_to_write_to_a_column, _two_results])
def test_what_is_written_to_by_out_lies_as_it_did(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Of one dimension, too, of which any order is the same, but not every distance."""
    module = tintype.export(function, (_contiguous(),)).module()
    torch.testing.assert_close(module(_contiguous()), function(_contiguous()))
    for other in (_with_gaps, _transposed):
        try:
            found = module(other())
        except InputMismatchError as error:
            assert "strides" in str(error)
        else:
            torch.testing.assert_close(found, function(other()))


def _converted(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    z = y.float()
    y.mT.contiguous().add_(1)
    return z


def _as_tensor(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    z = torch.as_tensor(y)
    y.mT.contiguous().mT[0].split(1)[0].add_(1)
    return z


def _of_a_view(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    z = y[..., 1:].to(torch.float32)
    y.mT.reshape(-1).add_(1)
    return z


@pytest.mark.parametrize("function", [_converted, _as_tensor, _of_a_view])
@pytest.mark.parametrize("rows", [1, 2])
def test_a_conversion_that_changes_nothing_sees_what_copies_of_other_sizes_write(
    function: Callable[[torch.Tensor], torch.Tensor], rows: int
) -> None:
    """Of one row, ``mT.contiguous()`` is no copy, and what is written to it is written to the argument."""
    example = torch.randn(rows, 3)
    try:
        module = tintype.export(function, (example,), dynamic_shapes=({0: tintype.Dim("rows", max=9)},)).module()
    except MutationError:
        return
    for size in (rows, 1, 2, 5):
        given = torch.randn(size, 3)
        try:
            found = module(given)
        except (InputMismatchError, RuntimeAssertionError):
            assert size != rows
        else:
            torch.testing.assert_close(found, function(given))


class Detaching(torch.nn.Module):
    def __init__(self, is_free: bool) -> None:
        super().__init__()
        self.is_free = is_free

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = (x * 2).detach() if self.is_free else x * 2
        z = y.contiguous()
        z.detach_()
        return (z * x).sum()


def test_joint_graphs_refuse_what_may_take_the_history_of_another_tensor() -> None:
    x = torch.randn(3, requires_grad=True)
    with pytest.raises(CaptureError, match="detach_"):
        tintype.export_joint(Detaching(False), (x,))
    _, _, gradients = tintype.export_joint(Detaching(True), (x,)).module()(x)
    torch.testing.assert_close(gradients["x"], x.detach() * 2)


def test_memory_is_found_again_where_decomposed_writes_lie_otherwise() -> None:
    """What was written to through ``expand`` is found by strides, and what a decomposed write gives has others."""

    def function(x: torch.Tensor) -> torch.Tensor:
        moved = x.movedim(0, -1)
        expanded = moved.unsqueeze(0).expand(3, -1, -1, -1)
        moved[-1] = 0
        expanded.diagonal()[1:] = 2
        return x

    x = torch.arange(27.0).view(3, 3, 3)
    decomposed = tintype.export(function, (x.clone(),)).run_decompositions().module()
    torch.testing.assert_close(decomposed(x.clone()), function(x.clone()))


def test_a_product_may_be_told_where_to_go_in_aot() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        torch.prod(x, 0, out=y)
        return y + 1

    x = torch.rand(3, 2)
    torch.testing.assert_close(tintype.aot.function(function)(x, torch.zeros(2)), function(x, torch.zeros(2)))
