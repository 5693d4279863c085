"""Truth values that the data decide, compared and searched for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype

EXAMPLES = [torch.tensor(values) for values in ([1.0, 2.0], [-1.0, -2.0], [5.0, 10.0], [-20.0, 8.0])]


def different(x: Any) -> Any:
    return x if bool(x.sum() > 0) != bool(x.max() > 5) else -x


def same(x: Any) -> Any:
    return x if bool(x.sum() > 0) == bool(x.max() > 5) else -x


def compared_with_what_is_known(x: Any) -> Any:
    found = bool(x.sum() > 0)
    if found == True:  # noqa: E712
        x = x + 1
    if found != 1.0:
        x = x * 3
    return x * 2 if found == 2 or found == None else -x  # noqa: E711


@pytest.mark.parametrize("function", [different, same, compared_with_what_is_known])
def test_truth_values_are_compared(function: Callable[[Any], Any]) -> None:
    program = tintype.export(function, (EXAMPLES[0],))
    for known in (program, program.run_decompositions()):
        for x in EXAMPLES:
            assert torch.equal(known.module()(x), function(x))


def test_numbers_that_the_data_decide_fill_tensors_in_decomposed_programs() -> None:
    def filled(x: Any) -> Any:
        return x.new_full((2,), x.sum().item() * 0.5) + x.new_full((2,), x.max().item() * 0.5)

    module = tintype.export(filled, (EXAMPLES[0],)).run_decompositions().module()
    for x in EXAMPLES:
        assert torch.equal(module(x), filled(x))
