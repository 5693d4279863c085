"""``list(tensor)`` of a number of rows that varies: put together again it fixes nothing, else the example's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype
from tests.export.modes import assert_same
from tintype.errors import InputMismatchError


def joined(x: torch.Tensor) -> Any:
    return torch.cat(list(x), dim=0) * 2


def joined_elsewhere(x: torch.Tensor) -> Any:
    rows = list(x.relu())
    return torch.cat(rows, -1), torch.concat(rows, 1), torch.cat(rows)


def stacked(x: torch.Tensor) -> Any:
    rows = list(x + 1)
    return torch.stack(rows), torch.stack(rows, dim=1), torch.stack(rows, -1)


def written_between(x: torch.Tensor) -> Any:
    y = x * 1
    rows = list(y)
    y.add_(1)
    result = torch.cat(rows)
    y.mul_(2)
    result.add_(0.5)
    return result, y


def handed_on(x: torch.Tensor) -> Any:
    holder = {"rows": list(x)}
    return torch.cat(holder["rows"]).sum(0)


ANY_NUMBER = [joined, joined_elsewhere, stacked, written_between, handed_on]


def counted(x: torch.Tensor) -> Any:
    rows = list(x)
    return torch.cat(rows) * len(rows)


def taken_out(x: torch.Tensor) -> Any:
    rows = list(x)
    return rows[0] + rows[-1]


def gone_through(x: torch.Tensor) -> Any:
    rows = list(x)
    return [row * number for number, row in enumerate(rows)]


def added(x: torch.Tensor) -> Any:
    rows = list(x)
    before = torch.cat([x[0]] + rows)  # noqa: RUF005 - that is what is tested
    return before, torch.cat(rows + rows), torch.cat([*rows, *rows])


def changed(x: torch.Tensor) -> Any:
    rows = list(x)
    rows.append(rows[0])
    return torch.cat(rows)


def returned(x: torch.Tensor) -> Any:
    rows = list(x * 2)
    return {"rows": rows, "all": torch.cat(rows)}


def other_functions(x: torch.Tensor) -> Any:
    return torch.vstack(list(x)), torch.block_diag(*list(x)), torch.broadcast_tensors(*list(x))


def unpacked(x: torch.Tensor) -> Any:
    first, second, third = list(x)
    return first * second - third


def truth(x: torch.Tensor) -> Any:
    return x * 2 if list(x) else x


EXAMPLES_NUMBER = [gone_through, added, changed, returned, other_functions, unpacked, truth]


def given(rows: int) -> torch.Tensor:
    return torch.arange(rows * 8.0).reshape(rows, 2, 4)


@pytest.mark.parametrize("export", [tintype.export, tintype.export_for_training])
@pytest.mark.parametrize("function", ANY_NUMBER)
def test_rows_that_are_put_together_are_of_any_number(function: Callable[..., Any], export: Any) -> None:
    program = export(function, (given(3),), dynamic_shapes="auto")
    for rows in (1, 3, 5):
        assert_same(program.module()(given(rows)), function(given(rows)))
    with pytest.raises(InputMismatchError):  # eager mode takes no empty list either
        program.module()(given(0))


@pytest.mark.parametrize("function", [counted, taken_out])
def test_rows_that_are_counted_or_taken_out_are_of_any_number(function: Callable[..., Any]) -> None:
    module = tintype.export(function, (given(3),), dynamic_shapes="auto").module()
    for rows in (1, 3, 6):
        assert_same(module(given(rows)), function(given(rows)))


@pytest.mark.parametrize("function", EXAMPLES_NUMBER)
def test_who_looks_at_rows_has_those_of_the_example(function: Callable[..., Any]) -> None:
    module = tintype.export(function, (given(3),), dynamic_shapes="auto").module()
    result = module(given(3))
    assert_same(result, function(given(3)))
    with pytest.raises(InputMismatchError):
        module(given(4))


def test_lists_that_are_returned_are_lists() -> None:
    result = tintype.export(returned, (given(3),), dynamic_shapes="auto").module()(given(3))
    assert type(result["rows"]) is list


def partly_without_gradients(x: torch.Tensor) -> Any:
    with torch.no_grad():
        fixed = list(x)
    return (torch.cat(list(x * x)) + torch.cat(fixed)).sum()


def test_gradients() -> None:
    function, y = partly_without_gradients, given(5).requires_grad_()
    module = tintype.export(function, (given(3).requires_grad_(),), dynamic_shapes="auto").module()
    (found,), (expected,) = (torch.autograd.grad(call(y), [y]) for call in (module, function))
    assert torch.equal(found, expected)


def in_branches(x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, joined, returned_all, (x,))


def returned_all(x: torch.Tensor) -> Any:
    return returned(x)["all"]


def rows_of_a_branch(x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, doubled_rows, doubled_rows, (x,))


def doubled_rows(x: torch.Tensor) -> Any:
    return list(x * 2)


def test_rows_that_a_branch_returns() -> None:
    module = tintype.export(rows_of_a_branch, (given(3),), dynamic_shapes="auto").module()
    assert_same(module(given(3)), doubled_rows(given(3)))


def test_in_a_branch() -> None:
    module = tintype.export(in_branches, (given(3),), dynamic_shapes="auto").module()
    assert_same(module(given(3)), joined(given(3)))
    assert_same(module(-given(3)), returned_all(-given(3)))


def cached(x: torch.Tensor, cache: dict[str, Any]) -> Any:
    cache["more"] = torch.cat(list(x))
    return {"rows": torch.cat(list(x * 2)), "cache": cache}


def test_given_containers_that_are_returned_beside_rows_stay_what_they_are() -> None:
    example = torch.randn(3, 2), {"value": torch.zeros(1)}
    program = tintype.export(cached, example, dynamic_shapes=({0: tintype.Dim.AUTO}, {"value": None}))
    given, own = {"value": torch.zeros(1)}, {"value": torch.zeros(1)}
    x = torch.randn(5, 2)
    found, wanted = program.module()(x, given), cached(x, own)
    assert found["cache"] is given
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(given, own)
