"""Composite operators for joint graphs, where autograd takes them apart before the recorder gets to see them.

torch's kernels ask sizes that vary for nothing there and go the way that is right in general, also where a size of 0
or 1 is not general. Here they are written so that they hold for those, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tintype.symbolic import Expr
from tintype.symbolic.bridge import from_torch, sym_ite
from tintype.trace.products import PRODUCTS

aten = torch.ops.aten


def _cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    if reduction != "mean" or size_average is not None or reduce is not None:
        return NotImplemented
    return _mean_cross_entropy(input, target, weight, 1, ignore_index, label_smoothing)


def _mean_cross_entropy(
    scores: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:
    """The mean for probabilities is a sum divided by the number of rows, and no number where there are no classes."""
    dim = min(scores.dim() - 1, 1)
    sizes: Any = scores.shape
    classes = sizes[dim] if sizes else 1
    if reduction != 1 or not target.is_floating_point() or not isinstance(classes, torch.SymInt):
        return NotImplemented
    total = aten.cross_entropy_loss.default(scores, target, weight, 2, ignore_index, label_smoothing)
    rows: Any = 1
    for place, size in enumerate(sizes):
        rows = rows if place == dim else rows * size
    return total / sym_ite(classes == 0, 0, rows)


def _over_all(function: Any) -> Callable[..., Any]:
    """The variance of all elements: that over all dimensions has a gradient which asks for no size."""

    def reduce(input: torch.Tensor, *args: Any, **options: Any) -> Any:
        sizes = input.shape
        flags = [argument for argument in args if type(argument) is bool]
        if flags:
            options["unbiased"] = flags[0]
        is_plain = len(args) == len(flags) <= 1 and "dim" not in options and (options.get("correction") or 0) <= 1
        if not is_plain or not any(isinstance(size, torch.SymInt) for size in sizes):
            return NotImplemented
        return function(input, dim=list(range(len(sizes))), **options)

    return reduce


def _differences(input: torch.Tensor, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """Where nothing is left in the example, of which torch's kernel would be a part of less than no elements."""
    if not input.dim() or n != 1 or prepend is not None or append is not None:
        return NotImplemented
    length = from_torch(input.shape[dim])
    if not isinstance(length, Expr) or length.environment.hint(length) != 0:
        return NotImplemented
    places = torch.arange(torch.sym_max(input.shape[dim] - 1, 0), device=input.device)
    return input.index_select(dim, places + 1) - input.index_select(dim, places)


# By the functions of torch that a program calls, and by the operators of one that is captured again.
DIFFERENTIATED: dict[Any, Callable[..., Any]] = {
    torch.nn.functional.cross_entropy: _cross_entropy,
    aten.cross_entropy_loss.default: _mean_cross_entropy,
    **dict.fromkeys((torch.diff, torch.Tensor.diff, aten.diff.default), _differences),
    **PRODUCTS,
    **{
        function: _over_all(function)
        for function in (torch.var, torch.std, torch.var_mean, torch.std_mean, torch.Tensor.var, torch.Tensor.std)
    },
    **{
        overload: _over_all(general)
        for packet in (aten.var, aten.std, aten.var_mean, aten.std_mean)
        for overload, general in ((packet.correction, packet.correction), (packet.default, packet.dim))
    },
}
