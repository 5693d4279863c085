"""What graphs inside of a program assert is looked at when the ONNX program runs: in branches, loops and scans."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tintype


def positive(number: torch.Tensor, words: str = "a row is not positive") -> None:
    torch._check((number > 0).all().item(), lambda: words)


def checked_while(x: torch.Tensor) -> Any:
    def step(total: torch.Tensor, count: torch.Tensor) -> Any:
        positive(x[count.item()], "a row of the loop")
        return total + x[count.item()], count + 1

    return tintype.while_loop(lambda total, count: count < x.shape[0], step, (torch.zeros(2), torch.tensor(0)))


def checked_map(x: torch.Tensor) -> Any:
    def double(row: torch.Tensor) -> torch.Tensor:
        positive(row)
        return row * 2

    return tintype.map(double, x)


def checked_scan(x: torch.Tensor) -> Any:
    def step(total: torch.Tensor, row: torch.Tensor) -> Any:
        positive(row)
        return total + row, total * row

    return tintype.scan(step, torch.ones(2), x)


def checked_combination(x: torch.Tensor) -> Any:
    def combine(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        positive(right)
        return left + right

    return tintype.associative_scan(combine, x, 0)


def checked_in_branch_of_loop(x: torch.Tensor) -> Any:
    def checked(row: torch.Tensor) -> torch.Tensor:
        positive(row, "a row of a branch")
        return row * 2

    return tintype.map(lambda row: tintype.cond(row.sum() < 5, checked, lambda row: row - 1, (row,)), x)


def checked_loop_in_loop(x: torch.Tensor) -> Any:
    def inner(total: torch.Tensor, number: torch.Tensor) -> Any:
        positive(number, "a number of a row")
        return total + number, total

    return tintype.map(lambda row: tintype.scan(inner, torch.zeros(()), row)[0], x)


def checked_twice(x: torch.Tensor) -> Any:
    def step(total: torch.Tensor, row: torch.Tensor) -> Any:
        positive(row)
        torch._check((row < 100).all().item(), lambda: "a row is too large")
        return total + row, total

    return tintype.scan(step, torch.zeros(2), x)


@pytest.mark.parametrize(("opset", "optimize"), [(18, True), (24, "full")])
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (checked_while, "a row of the loop"),
        (checked_map, "a row is not positive"),
        (checked_scan, "a row is not positive"),
        (checked_combination, "a row is not positive"),
        (checked_in_branch_of_loop, "a row of a branch"),
        (checked_loop_in_loop, "a number of a row"),
        (checked_twice, "a row is not positive"),
    ],
)
def test_what_a_loop_asserts(function: Callable[..., Any], words: str, opset: int, optimize: Any) -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0], [0.5, 0.5]])
    shapes = ({0: tintype.Dim("rows")},)
    program = tintype.onnx.export(function, (x,), dynamic_shapes=shapes, opset=opset, optimize=optimize)
    for rows in (x, x[:2], x[:1]):
        torch.testing.assert_close(program(rows), function(rows))
    program(x[:0])  # no row, of which nothing is asserted
    with pytest.raises(RuntimeError, match=words):
        function(torch.tensor([[1.0, 1.0], [1.0, -2.0], [3.0, 3.0]]))
    said = r"Runtime assertion failed for [^/]*\n  At: .* in positive"
    with pytest.raises(tintype.RuntimeAssertionError, match=said):
        program(torch.tensor([[1.0, 1.0], [1.0, -2.0], [3.0, 3.0]]))
    torch.testing.assert_close(program(x), function(x))


def test_each_of_several_assertions_has_its_line() -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    program = tintype.onnx.export(checked_twice, (x,))
    assert len(program.interface.checks) == 2
    with pytest.raises(tintype.RuntimeAssertionError, match="in step"):
        program(x * 50)
    with pytest.raises(tintype.RuntimeAssertionError, match="in positive"):
        program(-x)


def test_a_loop_that_would_never_end_without_its_assertion() -> None:
    def forever(x: torch.Tensor) -> Any:
        def halve(y: torch.Tensor) -> Any:
            torch._check((y > 0).item(), lambda: "it goes the other way")
            return (y - 1,)

        return tintype.while_loop(lambda y: y != 0, halve, (x,))

    program = tintype.onnx.export(forever, (torch.tensor(3.0),))
    assert program(torch.tensor(5.0))[0] == 0
    with pytest.raises(tintype.RuntimeAssertionError, match="in halve"):
        program(torch.tensor(1.5))


def test_sizes_that_a_step_needs() -> None:
    def function(x: torch.Tensor) -> Any:
        def step(rows: torch.Tensor, row: torch.Tensor) -> Any:
            found = row.nonzero().squeeze(1)
            torch._check(found.shape[0] >= 2, lambda: "a row with fewer than two numbers")
            return rows + found.sum(), rows

        return tintype.scan(step, torch.tensor(0), x)

    x = torch.tensor([[1.0, 0.0, 2.0], [3.0, 1.0, 1.0]])
    program = tintype.onnx.export(function, (x,))
    torch.testing.assert_close(program(x), function(x))
    with pytest.raises(tintype.RuntimeAssertionError, match=">= 2"):
        program(torch.tensor([[1.0, 0.0, 2.0], [0.0, 0.0, 1.0]]))


def test_a_saved_file_has_them(tmp_path: Path) -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    tintype.onnx.export(checked_map, (x,)).save(tmp_path / "checked.onnx")
    loaded = tintype.onnx.load(tmp_path / "checked.onnx")
    torch.testing.assert_close(loaded(x), x * 2)
    with pytest.raises(tintype.RuntimeAssertionError, match="in positive"):
        loaded(-x)
