"""Sizes that decide what a program does: what it is captured with is a guard, an assertion or a refusal.

Every program is compared with eager mode at sizes 0 to 7: it gives what eager mode gives, or it raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tintype
from tests.export.size_comparison import Outcome, compare, outcomes
from tintype import Dim
from tintype.errors import MutationError


def squeezed(x: torch.Tensor) -> torch.Tensor:
    y = x.squeeze(0)
    return y.sum() * y.dim()


def squeezed_everywhere(x: torch.Tensor) -> torch.Tensor:
    return torch.ones(x.squeeze().dim() + 2)


def squeezed_in_place(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y.squeeze_(0)
    return y * y.dim()


def written_through_squeeze(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y.squeeze(0).add_(1)
    return y


def squeezed_dims(x: torch.Tensor) -> torch.Tensor:
    return x.squeeze((0, 1)) + 1


@pytest.mark.parametrize(
    "function", [squeezed, squeezed_everywhere, squeezed_in_place, written_through_squeeze, squeezed_dims]
)
def test_squeeze_of_a_size_that_varies_is_a_guard(function: Callable[..., Any]) -> None:
    found = outcomes(function, ["n", 3], examples=(0, 1, 2, 5))
    assert Outcome.WRONG not in found
    # what was captured with more rows is right for any number of rows but one
    program = tintype.export(function, (torch.ones(5, 3),), dynamic_shapes={"x": {0: Dim("n", min=1)}})
    assert torch.equal(program.module()(torch.ones(7, 3)), function(torch.ones(7, 3)))
    with pytest.raises(RuntimeError, match="s0 >= 2"):
        program.module()(torch.ones(1, 3))


def test_squeeze_of_a_promised_size_is_refused_for_one() -> None:
    with pytest.raises(tintype.ConstraintViolationError, match="n = 1"):
        tintype.export(squeezed, (torch.ones(1, 3),), dynamic_shapes={"x": {0: Dim("n")}})


def test_squeeze_of_a_size_that_data_decide_is_asserted() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.nonzero().squeeze()

    module = tintype.export(function, (torch.ones(3),)).module()
    assert torch.equal(module(torch.tensor([1.0, 0, 1])), torch.tensor([0, 2]))
    with pytest.raises(RuntimeError, match="squeeze"):
        module(torch.tensor([0.0, 0, 1]))


def tried_view(x: torch.Tensor) -> torch.Tensor:
    try:
        return x.view(2, -1).sum(0)
    except RuntimeError:
        return x + 1


def tried_add(x: torch.Tensor) -> torch.Tensor:
    try:
        return x + torch.ones(3)
    except RuntimeError:
        return x.sum()


def tried_position(x: torch.Tensor) -> torch.Tensor:
    try:
        return x[3]
    except IndexError:
        return x * 2


def tried_maximum(x: torch.Tensor) -> torch.Tensor:
    try:
        return x.max()
    except RuntimeError:
        return x.sum()


def tried_padding(x: torch.Tensor) -> torch.Tensor:
    try:
        return F.pad(x[None], (2, 2), mode="reflect")
    except RuntimeError:
        return x * 2


def tried_convolution(x: torch.Tensor) -> torch.Tensor:
    try:
        return F.conv1d(x[None, None], torch.ones(1, 1, 3))
    except RuntimeError:
        return x * 2


def tried_item(x: torch.Tensor) -> torch.Tensor:
    try:
        return x * x.item()
    except RuntimeError:
        return x * 2


def tried_topk(x: torch.Tensor) -> torch.Tensor:
    try:
        return x.topk(3).values
    except RuntimeError:
        return x * 2


def tried_division(x: torch.Tensor) -> torch.Tensor:
    try:
        return x * (6 // (x.shape[0] - 3))
    except ZeroDivisionError:
        return x - 1


@pytest.mark.parametrize(
    "function",
    [
        tried_view,
        tried_add,
        tried_position,
        tried_maximum,
        tried_padding,
        tried_convolution,
        tried_item,
        tried_topk,
        tried_division,
    ],
)
def test_a_failure_that_the_program_expects_is_a_guard(function: Callable[..., Any]) -> None:
    found = outcomes(function, ["n"], examples=(0, 1, 2, 3, 4))
    assert Outcome.WRONG not in found
    assert Outcome.FOREIGN not in found


@pytest.mark.parametrize("example", [3, 5])
def test_a_division_by_zero_that_the_program_expects(example: int) -> None:
    module = tintype.export(tried_division, (torch.ones(example),), dynamic_shapes={"x": {0: Dim.AUTO}}).module()
    assert torch.equal(module(torch.ones(example)), tried_division(torch.ones(example)))


def test_an_expected_failure_in_a_branch_is_asserted_there() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return tintype.cond(x.sum() > 0, lambda y: tried_view(y)[:1], lambda y: y[:1] - 1, (y,))

    program = tintype.export(function, (torch.ones(2), torch.ones(3)), dynamic_shapes={"x": None, "y": {0: Dim.AUTO}})
    module = program.module()
    assert torch.equal(module(torch.ones(2), torch.ones(5)), function(torch.ones(2), torch.ones(5)))
    assert torch.equal(module(-torch.ones(2), torch.ones(4)), function(-torch.ones(2), torch.ones(4)))
    with pytest.raises(RuntimeError, match="assertion"):
        module(torch.ones(2), torch.ones(4))


def test_a_problem_of_the_capture_can_not_be_expected() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        try:
            return x.resize_(7)
        except Exception:
            return x + 1

    with pytest.raises(tintype.TintypeError, match="resizes"):
        tintype.export(function, (torch.ones(3),))


def test_a_branch_on_data_can_not_be_expected_to_fail() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        try:
            return x + 1 if x.nonzero().shape[0] > 2 else x - 1
        except Exception:
            return x * 2

    with pytest.raises(tintype.TintypeError, match="data-dependent"):
        tintype.export(function, (torch.ones(3),), control_flow="refuse")


class Weighted(torch.nn.Module):
    def __init__(self, size: int, write: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.register_buffer("weight", torch.arange(float(size)))
        self.write = write

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.write(x, self.weight)


def added(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y += weight
    return y


def copied(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.copy_(weight)
    return y


def assigned(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[:] = weight
    return y


def interpolated(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.lerp_(weight, 0.5)
    return y


def multiplied_out(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    torch.mul(x, weight, out=y)
    return y


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("write", [added, copied, assigned, interpolated, multiplied_out])
def test_writing_decides_sizes_as_computing_does(write: Callable[..., torch.Tensor], size: int) -> None:
    model = Weighted(size, write)
    found = outcomes(model, ["n"], examples=(1, 2, 3, 5))
    assert Outcome.WRONG not in found
    assert Outcome.FOREIGN not in found
    fixed = tintype.export(model, (torch.ones(3),), dynamic_shapes={"x": {0: Dim.AUTO}})
    assert torch.equal(fixed.module()(torch.ones(3)), model(torch.ones(3)))
    if size == 3:
        with pytest.raises(tintype.ConstraintViolationError, match="n = 3"):
            tintype.export(model, (torch.ones(3),), dynamic_shapes={"x": {0: Dim("n")}})


def test_an_empty_tensor_given_for_a_result_becomes_it() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty(0)
        torch.mul(x, 2, out=y)
        return y + 1

    for export in (tintype.export, tintype.export_for_training):
        assert torch.equal(export(function, (torch.ones(3),)).module()(torch.ones(3)), torch.full((3,), 3.0))
        with pytest.raises(MutationError, match="put a result of size"):
            export(function, (torch.ones(3),), dynamic_shapes={"x": {0: Dim.AUTO}})


SIZED: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "expand": (lambda x: x.expand(5, -1) + 1, ["n", 3]),
    "broadcast_tensors": (lambda x: torch.broadcast_tensors(x, torch.ones(5)), ["n"]),
    "mse_loss": (lambda x: F.mse_loss(x, torch.ones(3)), ["n"]),
    "einsum": (lambda x: torch.einsum("ij,ij->i", x, torch.ones(5, 3)), ["n", 3]),
    "average": (lambda x: F.adaptive_avg_pool2d(x[None], 1), ["n", 3]),
    "item": (lambda x: torch.ones(2) * x.item(), ["n"]),
    "first": (lambda x: x[0], ["n"]),
    "maximum": (lambda x: x.max(), ["n"]),
    "argmax": (lambda x: x.argmax(), ["n"]),
    "median": (lambda x: x.median(0), ["n", 3]),
    "kthvalue": (lambda x: x.kthvalue(2).values, ["n"]),
    "legacy cat": (lambda x: torch.cat([x, torch.ones(2, 3)]), ["n"]),
    "stack": (lambda x: torch.stack([x, torch.ones(3)]), ["n"]),
    "crop": (lambda x: F.pad(x, (-2, -1)), ["n"]),
    "reflect": (lambda x: F.pad(x[None], (2, 1), mode="reflect"), ["n"]),
    "circular": (lambda x: F.pad(x[None], (2, 1), mode="circular"), ["n"]),
    "pooling": (lambda x: F.max_pool1d(x[None], 3), ["n"]),
    "convolution": (lambda x: F.conv1d(x[None, None], torch.ones(1, 1, 3), stride=2), ["n"]),
    "interpolate": (lambda x: F.interpolate(x[None, None], scale_factor=0.5), ["n"]),
    "half": (lambda x: x[: x.shape[0] // 2], ["n"]),
    "rows of two": (lambda x: x.view(-1, 2), ["n"]),
    "windows": (lambda x: x.unfold(0, 3, 2), ["n"]),
    "topk": (lambda x: x.topk(2), ["n"]),
    "split": (lambda x: x.split(2), ["n"]),
    "chunk": (lambda x: x.chunk(2), ["n"]),
    "halves": (lambda x: x.split(x.shape[0] // 2), ["n"]),
    "sections": (lambda x: x.tensor_split(3), ["n"]),
    "parts": (lambda x: x.split([x.shape[0] // 2, x.shape[0] - x.shape[0] // 2]), ["n"]),
    "rows": (lambda x: list(x), ["n", 2]),
    "same size": (lambda x: x * 2 if x.is_same_size(torch.ones(3)) else x - 1, ["n"]),
}


@pytest.mark.parametrize("name", SIZED)
def test_an_operator_that_depends_on_sizes(name: str) -> None:
    function, shape = SIZED[name]
    found = outcomes(function, shape, examples=(0, 1, 2, 3, 5))
    assert Outcome.WRONG not in found
    assert Outcome.FOREIGN not in found


def test_chunk_in_two_is_general() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2)
        return first.sum() - second.sum()

    program = tintype.export(function, (torch.ones(5),), dynamic_shapes={"x": {0: Dim("n", min=2)}})
    for size in (2, 3, 8):
        value = torch.randn(size)
        torch.testing.assert_close(program.module()(value), function(value))


def test_pieces_of_a_promised_size_are_bounded() -> None:
    with pytest.raises(tintype.ConstraintViolationError, match="min=5, max=6"):
        tintype.export(lambda x: x.split(2), (torch.ones(5),), dynamic_shapes={"x": {0: Dim("n")}})


def test_a_size_that_follows_from_a_later_input() -> None:
    """x.shape[0] == max(0, y.shape[0] - 1) + 1 tells nothing of y before y is there."""

    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[1:] = y[:-1]
        return x

    program = tintype.export(
        function, (torch.ones(3), torch.ones(3)), dynamic_shapes={"x": {0: Dim.AUTO}, "y": {0: Dim.AUTO}}
    )
    compare(program.module(), function, (torch.randn(5), torch.randn(5)))
    with pytest.raises(RuntimeError):
        program.module()(torch.randn(5), torch.randn(6))


@pytest.mark.parametrize("export", [tintype.export, tintype.export_for_training])
def test_an_assertion_on_a_multiple_comes_after_what_computes_it(export: Callable[..., Any]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        first, second = y.split(y.shape[0] // 2)
        first.mul_(second)
        return y

    program = export(function, (torch.ones(4),), dynamic_shapes={"x": {0: 2 * Dim("half")}})
    program.validate()
    for size in (2, 4, 10):
        compare(program.module(), function, (torch.randn(size),))
