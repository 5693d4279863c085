"""What the tests of this room share: an ONNX program beside eager mode, on the example and on other sizes."""

from __future__ import annotations

import copy
from typing import Any

import torch

import tintype


def assert_same(got: Any, expected: Any, tolerance: float = 1e-4) -> None:
    """Values, dtypes, shapes and structure are the same."""
    leaves, structure = torch.utils._pytree.tree_flatten(expected)
    given, other = torch.utils._pytree.tree_flatten(got)
    assert structure == other
    for left, right in zip(given, leaves, strict=True):
        if isinstance(right, torch.Tensor):
            torch.testing.assert_close(left, right.detach(), rtol=tolerance, atol=tolerance, equal_nan=True)
        else:
            assert left == right and type(left) is type(right)


def compared(
    model: Any,
    args: tuple[Any, ...],
    *others: tuple[Any, ...],
    kwargs: Any = None,
    tolerance: float = 1e-4,
    **options: Any,
) -> Any:
    """Export a model and compare it with eager mode on the example and on other inputs; the ONNX program."""
    program = tintype.onnx.export(copy.deepcopy(model), args, kwargs, **options)
    for each in (args, *others):
        with torch.no_grad():
            expected = copy.deepcopy(model)(*copy.deepcopy(each), **(kwargs or {}))
        assert_same(program(*copy.deepcopy(each), **(kwargs or {})), expected, tolerance)
        program.reset()
    return program


def operators(program: Any) -> list[str]:
    """The ONNX operators of a program's main graph."""
    return [node.op_type for node in program.model.graph]
