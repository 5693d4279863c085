"""The calls that drive shape rules: torch's own samples for its operators, in several layouts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo import core
from torch.utils._pytree import tree_leaves

from tests.fake.eager_comparison import Comparison, below_autograd
from tests.fake.layouts import LAYOUTS, Layout, applied, unchanged

# For every operator it reads the source of every frame on the stack, to find out which unittest asks for samples; in
# a process with many modules that takes minutes.
core.extract_test_fn = lambda: None

# Samples that take seconds to make or to run, for operators that others cover or that have no rule.
SLOW = frozenset(
    {
        "max_pool2d_with_indices_backward",
        "nn.functional.max_unpool1d",
        "nn.functional.max_unpool3d",
        "nn.functional.multi_head_attention_forward",
        "nn.functional.linear_cross_entropy",
        "grid_sampler_3d",
        "histogramdd",
        "item",
        "lu_unpack",
        "svd_lowrank",
        "pca_lowrank",
        "empty",
        "empty_like",
    }
)


def suitable(dtype: torch.dtype) -> Iterator[Any]:
    """The operators of torch's database that work on a dtype."""
    for operator in op_db:
        name = operator.name
        if name in SLOW or name.startswith(("fft.", "linalg.", "special.", "sparse.", "_refs.")):
            continue
        if dtype in operator.supported_dtypes("cpu"):
            yield operator


def samples(operator: Any, dtype: torch.dtype, most: int, *, requires_grad: bool = False) -> Iterator[Any]:
    """The first samples of an operator."""
    found = operator.sample_inputs("cpu", dtype, requires_grad=requires_grad)
    yield from islice(found, most)


def _geometry(value: Any) -> list[Any]:
    return [leaf.stride() for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def in_layouts(sample: Any, layouts: tuple[Layout, ...]) -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """A sample's arguments in every layout that changes them."""
    seen = []
    for layout in layouts:
        try:
            arguments = applied(layout, (sample.input, sample.args, sample.kwargs))
        except (NotImplementedError, RuntimeError):  # a dtype or a kind of tensor that it doesn't work for
            continue
        geometry = _geometry(arguments)
        if layout is unchanged or geometry not in seen:
            seen.append(geometry)
            yield arguments


def run_below_autograd(comparison: Comparison, dtype: torch.dtype, most: int, layouts: int) -> None:
    """Composite operators whole, as captured programs call them."""
    for operator in suitable(dtype):
        for position, sample in enumerate(samples(operator, dtype, most)):
            chosen = LAYOUTS if position < layouts else (unchanged,)
            for input, args, kwargs in in_layouts(sample, chosen):
                with below_autograd(), comparison:
                    attempt(operator, input, args, kwargs)


def attempt(operator: Any, input: Any, args: Any, kwargs: Any) -> Any:
    """A call that may fail: some samples don't work in another layout, and some never did."""
    try:
        return operator(input, *args, **kwargs)
    except Exception:
        return None


def run_with_gradients(comparison: Comparison, most: int) -> None:
    """Forward and backward, which calls the operators that composite ones consist of."""
    for operator in suitable(torch.float32):
        if not operator.supports_autograd:
            continue
        for sample in samples(operator, torch.float32, most, requires_grad=True):
            for input, args, kwargs in in_layouts(sample, LAYOUTS[:3]):
                with comparison:
                    _differentiate(attempt(operator, input, args, kwargs), (input, args, kwargs))


def _differentiate(result: Any, arguments: Any) -> None:
    results = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    inputs = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if not results or not inputs:
        return
    try:
        torch.autograd.grad(results, inputs, [torch.ones_like(leaf) for leaf in results], allow_unused=True)
    except Exception:
        return
