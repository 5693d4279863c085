"""Sizes that vary do what Python's numbers do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tintype

PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "divmod": lambda x: x * divmod(x.shape[0], 2)[0] + divmod(x.shape[0], 2)[1],
    "divmod of a number": lambda x: x + divmod(20, x.shape[0] + 1)[1],
    "divmod of two": lambda x: x + divmod(x.shape[0], x.shape[1])[0],
    "divmod of a float": lambda x: x * divmod(x.shape[0] / 2, 1.5)[1],
    "np.sqrt": lambda x: x / np.sqrt(x.shape[0]),
    "np.sqrt of a float": lambda x: x * np.sqrt(x.shape[1] * 0.5),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_like_plain_numbers(name: str) -> None:
    function = PROGRAMS[name]
    program = tintype.export(function, (torch.randn(5, 3),), dynamic_shapes="auto")
    for made in (program, program.run_decompositions()):
        for sizes in ((5, 3), (8, 2), (2, 7)):
            x = torch.randn(sizes)
            torch.testing.assert_close(made.module()(x), function(x), check_dtype=False)


@pytest.mark.parametrize("function", [lambda x: x * np.log(x.shape[0]), lambda x: x * np.exp(x.shape[0])])
def test_functions_that_a_program_has_no_operator_for_are_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(tintype.TintypeError, match="can't be computed in a captured program"):
        tintype.export(function, (torch.randn(5),), dynamic_shapes="auto")


def test_nothing_is_left_on_torchs_classes() -> None:
    tintype.export(PROGRAMS["divmod"], (torch.randn(5, 3),), dynamic_shapes="auto")
    assert not hasattr(torch.SymInt, "__divmod__") and not hasattr(torch.SymFloat, "sqrt")
