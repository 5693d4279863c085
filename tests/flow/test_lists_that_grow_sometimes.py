# ruff: noqa: PERF401
"""Lists that only one arm of a branch appends to, in loops whose number of steps varies."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch

import tintype

ROWS = {"x": {0: tintype.Dim("rows")}}
EXAMPLE = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [-1.0, -9.0, -2.0]])
GIVEN = (EXAMPLE, torch.zeros(0, 3), torch.ones(1, 3), -torch.ones(2, 3), torch.arange(12.0).reshape(4, 3) - 6)


def stacked(out, x):
    return torch.stack(out).sum(0) if out else x.sum(0)


def keeps_some(x):
    out = []
    for row in x:
        if row.sum() > 0:
            out.append(row)
    return torch.stack(out) if out else x[:0]


def counts_some(x):
    return len([row for row in x if row.sum() > 0 and row[0] < 5])


def goes_through_some(x):
    out = []
    for row in x:
        if row.sum() <= 0:
            continue
        part = row / row.sum()
        if part.max() > 0.9:
            continue
        out.append(part)
    total = x.new_zeros(3)
    for part in out:
        total = total * 0.5 + part
    return total, len(out)


def appends_differently(x):
    out = []
    for row in x:
        if row.sum() > 0:
            if row[0] > 2:
                out.append(row * 2)
            else:
                out.append(row)
                out.append(-row)
        elif row[1] < 0:
            out.append(row * 10)
    return stacked(out, x), len(out)


def appends_to_several(x):
    first, second, both = [], [], []
    for index, row in enumerate(x):
        if row.sum() > 0:
            first.append(row)
            both.append(row.sum())
        else:
            second.append(row * index)
        both.append(row.max())
    return len(first), stacked(second, x), torch.stack(both).cumsum(0) if both else x.sum(1)


def begins_with_others(x):
    out = [x.new_zeros(3), x.new_ones(3)]
    for row in x:
        if row.sum() > 0:
            out.append(row)
    return torch.stack(out), out[-1]


def carries_beside(x):
    out, best = [], x.new_zeros(())
    for row in x:
        if row.sum() > best:
            best = row.sum()
            out.append(row)
    return best, sum(out, x.new_zeros(3))


def catches(x):
    out = []
    for row in x:
        try:
            if row.sum() < 0:
                raise ValueError
            out.append(row.sin())
        except ValueError:
            pass
    return stacked(out, x)


def within_steps(x):
    out = []
    for row in x:
        for value in row:
            if value > 0:
                out.append(value)
    return torch.stack(out).sum() if out else x.sum()


def without_gradients(x):
    out = []
    with torch.no_grad():
        for row in x:
            if row.sum() > 0:
                out.append(row * 2)
    return stacked(out, x)


def over_a_range(x):
    out = []
    for index in range(int((x > 0).sum())):
        if index % 2 == 0:
            out.append(x.sum(0) * index)
    return stacked(out, x)


def over_masked_rows(x):
    out = []
    for row in x[x.sum(1) > -5]:
        if row.max() > 1:
            out.append(row.cos())
    return stacked(out, x)


FUNCTIONS = [
    keeps_some, counts_some, goes_through_some, appends_differently, appends_to_several, begins_with_others,
    carries_beside, catches, within_steps, without_gradients, over_a_range, over_masked_rows,
]  # fmt: skip


def compare(function: Any, module: Any, given: Any) -> None:
    x, y = given.clone().requires_grad_(), given.clone().requires_grad_()
    torch.manual_seed(0)
    expected, found = function(x), module(y)
    torch.testing.assert_close(found, expected)
    results = [list(r) if isinstance(r, tuple) else [r] for r in (expected, found)]
    pairs = [pair for pair in zip(*results, strict=True) if isinstance(pair[0], torch.Tensor)]
    for one, other in pairs:
        assert one.requires_grad == other.requires_grad
        if one.requires_grad:
            grads = [torch.autograd.grad(r.sum(), i, retain_graph=True)[0] for r, i in ((one, x), (other, y))]
            torch.testing.assert_close(grads[1], grads[0])


@pytest.mark.parametrize("strict", [False, True], ids=["native", "strict"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_like_eager(function: Any, strict: bool) -> None:
    program = tintype.export(function, (EXAMPLE,), dynamic_shapes=ROWS, strict=strict)
    file = io.BytesIO()
    tintype.save(program, file)
    file.seek(0)
    for module in (program.module(), program.run_decompositions().module(), tintype.load(file).module()):
        for given in GIVEN:
            compare(function, module, given)


def test_in_joint_graphs() -> None:
    def loss(x):
        return goes_through_some(x)[0].square().sum() + x.sum()

    joint = tintype.export_joint(loss, (EXAMPLE.clone().requires_grad_(),), dynamic_shapes=ROWS).module()
    for given in GIVEN:
        x = given.clone().requires_grad_()
        expected = loss(x)
        found, _, gradients = joint(x)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(gradients["x"], torch.autograd.grad(expected, x)[0])


def looks_into_it(x):
    out = []
    for row in x:
        if row.sum() > 0 and len(out) < 2:
            out.append(row)
    return stacked(out, x)


def appends_other_dtypes(x):
    out = []
    for row in x:
        if row.sum() > 0:
            out.append(row)
        elif row[0] < -3:
            out.append(row.double())
    return len(out)


def appends_what_was_there_below_no_grad(x):
    whole, out = x.sum(0), []
    with torch.no_grad():
        for row in x:
            if row.sum() > 0:
                out.append(whole)
    return stacked(out, x)


def appends_numbers(x):
    out = []
    for row in x:
        if row.sum() > 0:
            out.append(float(row.sum()))
    return len(out)


@pytest.mark.parametrize(
    "function",
    [looks_into_it, appends_other_dtypes, appends_what_was_there_below_no_grad, appends_numbers],
    ids=lambda function: function.__name__,
)
def test_what_is_refused(function: Any) -> None:
    with pytest.raises(tintype.TintypeError) as caught:
        tintype.export(function, (EXAMPLE.clone().requires_grad_(),), dynamic_shapes=ROWS)
    assert caught.value.location is not None and caught.value.location.filename == __file__


def test_rows_that_there_must_be_are_asserted() -> None:
    def last(x):
        out = [row for row in x if row.sum() > 0]
        return out[-1]

    module = tintype.export(last, (EXAMPLE,), dynamic_shapes=ROWS).module()
    torch.testing.assert_close(module(EXAMPLE), EXAMPLE[1])
    with pytest.raises(RuntimeError, match="list index out of range"):
        module(-torch.ones(2, 3))
