"""What programs and refusals say about branches on data."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype
from tests.flow.programs import asserted_on_several_lines
from tintype.errors import CaptureError


def raising(x: Any) -> Any:
    if x.sum() < 0:
        raise ValueError("must be positive")
    return x * 2


def raising_behind_another(x: Any) -> Any:
    if x.sum() > 100:
        x = x - 1
    elif x.sum() < 0:
        text = f"{x.shape[0]}"
        raise ValueError(f"must be positive {text}")
    return x * 2


@pytest.mark.parametrize("function", [asserted_on_several_lines, raising, raising_behind_another])
def test_programs_say_what_is_raised_where_it_stands_on_another_line(function: Callable[[Any], Any]) -> None:
    module = tintype.export(function, (torch.ones(2),)).module()
    with pytest.raises(RuntimeError, match="must be positive") as raised:
        module(-torch.ones(2))
    first = str(raised.value).splitlines()[0]
    assert f"in {function.__name__}: " in first and "must be positive" in first


def test_functions_of_mathematics_are_told_to_compute_with_tensors() -> None:
    def root(x: Any) -> Any:
        return x * math.exp(float(x.sum()))

    with pytest.raises(tintype.DataDependentError, match=r"math\.exp\(\) would need the number itself") as raised:
        tintype.export(root, (torch.ones(2),))
    assert "in root: return x * math.exp(float(x.sum()))" in str(raised.value)
    assert "key or a text" not in str(raised.value)


def test_what_is_needed_outside_of_where_it_is_known_is_told_with_its_line_and_a_remedy() -> None:
    def counting(x: Any) -> Any:
        counts = []

        def arm(x: Any) -> Any:
            counts.append(x.nonzero().shape[0])
            return x * 1

        y = tintype.cond(x.sum() > 0, arm, lambda x: x * 2, (x,))
        return y * counts[0]

    with pytest.raises(tintype.CaptureError) as raised:
        tintype.export(counting, (torch.ones(4),))
    assert "in counting: " in str(raised.value) and "What to do: read it" in str(raised.value)


def test_a_loop_that_makes_its_tensor_shorter_is_captured() -> None:
    def shrinking(x: Any) -> Any:
        while x.numel() > 0 and x[0].sum() > 0:
            x = x[1:]
        return x

    x = torch.tensor([[1.0, 2.0], [3.0, -9.0], [1.0, 1.0]])
    module = tintype.export(shrinking, (x,), dynamic_shapes={"x": {0: tintype.Dim("n")}}).module()
    for given in (x, x[:1], x[1:], torch.ones(5, 2), -x):
        assert torch.equal(module(given), shrinking(given))


def test_what_stands_for_iterators_is_called_one() -> None:
    def nearest(x: Any) -> Any:
        for i in range(x.shape[0]):
            for j in range(i + 1, x.shape[0]):
                if (x[i] - x[j]).norm() < 2:
                    return i, j
        return -1, -1

    with pytest.raises(tintype.CaptureError, match="an iterator") as raised:
        tintype.export(nearest, (torch.randn(4, 2),), dynamic_shapes={"x": {0: tintype.Dim("n")}})
    assert "VaryingIterator" not in str(raised.value)


def test_views_of_one_memory_in_an_arm_are_not_called_inputs() -> None:
    def parts(x: Any) -> Any:
        y = x.clone()
        first, second = y.chunk(2, 1)
        if first.sum() > second.sum():
            first.copy_(second)
        else:
            second.zero_()
        return y

    with pytest.raises(tintype.TintypeError, match="two tensors from around it that share memory") as raised:
        tintype.export(parts, (torch.randn(3, 4),))
    assert "getitem" not in str(raised.value) and "in parts: first.copy_(second)" in str(raised.value)


def doubled_until_large(x: Any) -> Any:
    if x.sum() > 5:
        return x
    return doubled_until_large(x * 2)


def added_in_halves(x: Any) -> Any:
    if x.shape[0] <= 1:
        return x.sum(0)
    half = x.shape[0] // 2
    return added_in_halves(x[:half]) + added_in_halves(x[half:])


def counted_down(x: Any, count: int) -> Any:
    if count == 0:
        return x
    return counted_down(x * 2 if x.sum() > 0 else x - 1, count - 1)


def test_a_function_that_calls_itself_as_often_as_the_data_decide_is_refused_soon() -> None:
    with pytest.raises(CaptureError, match="calls itself in an arm of a branch on data") as raised:
        tintype.export(doubled_until_large, (torch.ones(2),))
    assert "while loop" in str(raised.value) and "test_messages.py" in str(raised.value)


def test_sizes_that_halve_as_often_as_the_data_decide_are_refused_soon() -> None:
    with pytest.raises(CaptureError, match=r"calls itself|formula has"):
        tintype.export(lambda x: added_in_halves(x.nonzero()), (torch.ones(3),))


def test_a_function_that_calls_itself_as_often_as_a_number_says_is_captured() -> None:
    module = tintype.export(lambda x: counted_down(x, 5), (torch.ones(2),)).module()
    for x in (torch.ones(2), -torch.ones(2)):
        assert torch.equal(module(x), counted_down(x, 5))
