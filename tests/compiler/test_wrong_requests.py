"""Requests that are refused, and leave nothing behind."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tintype
from tintype.errors import InvalidRequestError


@pytest.mark.parametrize("backend", ["nope", 3, ("eager",)])
def test_a_stance_that_is_refused_is_not_set(backend: Any) -> None:
    with pytest.raises(InvalidRequestError, match="backend"):
        tintype.set_stance("default", force_backend=backend)
    compiled = tintype.compile(lambda x: x * 2)
    assert compiled(torch.ones(1)).item() == 2


@pytest.mark.parametrize("dim", ["a", 1.5, None, [0, "a"], 2, -3, (0, 5)])
def test_dimensions_of_marks_are_ints(dim: Any) -> None:
    for mark in ("mark_dynamic", "maybe_mark_dynamic", "mark_static"):
        if mark == "mark_static" and dim is None:  # all of them
            continue
        with pytest.raises(InvalidRequestError, match="dimension"):
            getattr(tintype.compile, mark)(torch.ones(2, 3), dim)


@pytest.mark.parametrize("bounds", [{"min": "a"}, {"max": 1.5}, {"min": torch.tensor(1)}, {"min": 3, "max": 2}])
def test_bounds_of_marks_are_ints(bounds: Any) -> None:
    with pytest.raises(InvalidRequestError, match="size"):
        getattr(tintype.compile, "mark_dynamic")(torch.ones(2, 3), 0, **bounds)  # noqa: B009


@pytest.mark.parametrize("dynamic", ["x", 2, [True]])
def test_dynamic_is_a_truth_value(dynamic: Any) -> None:
    with pytest.raises(InvalidRequestError, match="dynamic"):
        tintype.compile(lambda x: x, dynamic=dynamic)
