"""Results that nobody uses: autograd computes no gradients of them, not even from zeros."""

from __future__ import annotations

import itertools

import pytest
import torch

import tintype


def _unused_row_results(x):
    return tintype.scan(lambda c, row: (c.clone(), row.sqrt()), x[0], x)[0]


def _unused_among_rows(x):
    return tintype.scan(lambda c, row: (c * row, (c.sqrt(), c + row)), x[0], x)[1][1]


def _unused_of_branch(x):
    return tintype.cond(x.sum() > -100, lambda x: (x.sqrt(), x * 2), lambda x: (x.cos(), x.sin()), (x,))[1]


def _unused_of_map(x):
    return tintype.map(lambda row: (row.sqrt(), row * 3), x)[1]


FUNCTIONS = [_unused_row_results, _unused_among_rows, _unused_of_branch, _unused_of_map]


def _leaf():
    return torch.tensor([[-1.0, 0.0, 2.0], [1.0, 2.0, 3.0]], requires_grad=True)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__.strip("_"))
def test_of_an_operator(function):
    """The slope of a root is infinite at 0, and zero times that is nan."""
    x, y = _leaf(), _leaf()
    function(x).sum().backward()
    tintype.aot.function(function)(y).sum().backward()
    assert torch.equal(x.grad, y.grad)


@pytest.mark.parametrize("used", [used for used in itertools.product([False, True], repeat=3) if any(used)])
def test_of_the_function(used):
    """Whichever results the caller uses, the gradient is that of eager mode."""

    def function(x):
        return x.sqrt(), torch.cat([x.sqrt() * x, x]), x * 2

    x, y = _leaf(), _leaf()
    for leaf, run in ((x, function), (y, tintype.aot.function(function))):
        sum(result.sum() for result, is_used in zip(run(leaf), used, strict=True) if is_used).backward()
    torch.testing.assert_close(x.grad, y.grad, equal_nan=True)


def test_no_gradient_is_left():
    """An input that only unused results depend on has no gradient."""
    x, y = _leaf(), _leaf()
    first, _ = tintype.aot.function(lambda x, y: (x * 2, y.sqrt()))(x, y)
    first.sum().backward()
    assert y.grad is None and torch.equal(x.grad, torch.full((2, 3), 2.0))


def test_what_is_left_of_a_sum_lies_as_the_sum_did():
    """Autograd looks at the memory of what is left, laid out as what was written to: here a transposed input."""

    def function(x):
        x.fill_diagonal_(1)
        return torch.nn.functional.grid_sample(x[None, None], torch.zeros(1, 2, 2, 2), align_corners=False)

    gradients = []
    for run in (function, tintype.aot.function(function)):
        leaf = torch.arange(12.0).view(3, 4).t().requires_grad_()
        run(leaf * 1).sum().backward()
        gradients.append(leaf.grad)
    assert gradients[0].count_nonzero() == 1
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(
    "result",
    [
        lambda y: torch.fft.fft(y).real,
        lambda y: torch.fft.fft(y).abs(),
        lambda y: torch.view_as_real(torch.complex(y, y)),
        lambda y: y.t().reshape(-1) * 2,
    ],
)
def test_what_is_left_of_a_sum_goes_on(result):
    """Through a sum with what only an unused result needs: here an input that is written to."""

    def function(x):
        y = x.sigmoid()
        x.add_(y)
        return result(y)

    gradients = []
    for run in (function, tintype.aot.function(function)):
        leaf = torch.arange(12.0).view(3, 4).div(7).requires_grad_()
        run(leaf * 1).sum().backward()
        gradients.append(leaf.grad)
    assert gradients[0] is not None
    torch.testing.assert_close(*gradients)
