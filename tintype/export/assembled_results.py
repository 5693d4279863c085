"""Results of programs that consist of other tensors.

A program computes the parts, which have histories of their own. What the gradient of the whole is, only its class can
tell, from the operators that the program has taken apart: so a whole has a history that refuses to be followed, and
none is lost silently.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from tintype import tree
from tintype.errors import BackwardRefusedError
from tintype.fake.tensor import FakeTensor
from tintype.tree.distributed_tensors import CLASS_NAME
from tintype.tree.subclasses import SubclassParts, with_tensors


def assembled(results: Any) -> Any:
    """Results with tensors in the place of their parts."""
    if torch.is_grad_enabled():
        found, spec = pytree.tree_flatten(results, is_leaf=lambda value: type(value) is SubclassParts)
        results = tree.unflatten([_with_history(value) for value in found], spec)
    return with_tensors(results)


def _with_history(value: Any) -> Any:
    if type(value) is not SubclassParts or value.structure[0] == CLASS_NAME:  # whose part has the gradient
        return value
    parts = [part for part in tree.leaves(value) if isinstance(part, torch.Tensor)]
    if any(type(part) is FakeTensor for part in parts) or not any(part.requires_grad for part in parts):
        return value
    return _Assembled.apply(value, *parts)


class _Assembled(torch.autograd.Function):
    """A tensor made of parts that have a history."""

    @staticmethod
    def forward(ctx: Any, whole: SubclassParts, *parts: torch.Tensor) -> Any:
        tensor = with_tensors(tree.map_leaves(_detached, whole))
        ctx.kind = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
        return tensor

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        raise BackwardRefusedError(
            f"the program returned a {ctx.kind}, which consists of other tensors: its gradients are not known to the "
            "program, which computes with these",
            remedy="let the model return plain tensors, such as a loss; or use tintype.export_joint, which makes a "
            "program with gradients",
        )


def _detached(part: Any) -> Any:
    return part.detach() if isinstance(part, torch.Tensor) else part
