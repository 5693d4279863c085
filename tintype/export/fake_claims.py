"""What the fake kernel of an operator of the user's says of its results, held against the results.

A program was captured by what fake kernels say. One that says something else than its operator does makes programs
that are wrong where sizes or dtypes decide something, and nothing else would notice it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from tintype.errors import WrongFakeWarning
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import location_of
from tintype.ir.printing import describe_value
from tintype.symbolic.location import levels_to_the_user

_TORCHS = frozenset({"aten", "prims", "prim", "quantized", "_c10d_functional", "c10d_functional", "torchbind"})


def is_of_the_user(target: Any) -> bool:
    """Whether an operator is one that torch does not bring along."""
    return isinstance(target, torch._ops.OpOverload) and target.namespace not in _TORCHS


def held_against_claims(function: Callable[..., Any], node: Node) -> Callable[..., Any]:
    """The function of a node, with a warning at the first result that is not what the node's value says."""
    claims = _tensors(node.meta.get("val"))
    if not claims:
        return function
    waiting = [True]

    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if waiting and not torch.compiler.is_compiling():
            given = _tensors(result)
            if len(given) != len(claims) or not all(map(agrees, claims, given)):
                waiting.clear()
                _warn(node, result)
        return result

    return call


def agrees(claim: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether a tensor has the dtype, the number of dimensions and the fixed sizes of a fake one."""
    return (
        claim.dtype is value.dtype
        and claim.dim() == value.dim()
        and all(said == size for said, size in zip(claim.shape, value.shape) if isinstance(said, int))
    )


def _tensors(value: Any) -> list[torch.Tensor]:
    values = value if isinstance(value, (list, tuple)) else [value]
    return [each for each in values if isinstance(each, (torch.Tensor, FakeTensor))]


def _warn(node: Node, result: Any) -> None:
    place = location_of(node)
    shown = (_text(result), _text(node.meta["val"]))
    warnings.warn(
        f"[{WrongFakeWarning.id}] {node.target} gives {shown[0]}, but its fake kernel says {shown[1]}"
        + (f"\n  At: {place}" if place else "")
        + "\n  What to do: mend the function that was given to register_fake, and export again: what the program "
        "decided by sizes and dtypes may be wrong",
        WrongFakeWarning,
        stacklevel=levels_to_the_user(),
    )


def _text(value: Any) -> str:
    several = isinstance(value, (list, tuple))
    return f"({', '.join(map(describe_value, value))})" if several else describe_value(value)
