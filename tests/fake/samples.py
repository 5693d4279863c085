"""The calls that drive shape rules: torch's own samples for its operators, in several layouts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves

from tests.fake.eager_comparison import Comparison, below_autograd
from tests.fake.layouts import LAYOUTS, Layout, applied, unchanged

# Samples that take seconds to make or to run, for operators that others cover or that have no rule.
SLOW = frozenset(
    {
        "max_pool2d_with_indices_backward",
        "nn.functional.max_unpool1d",
        "nn.functional.max_unpool3d",
        "nn.functional.multi_head_attention_forward",
        "nn.functional.linear_cross_entropy",
        "grid_sampler_3d",
        "item",
        "lu_unpack",
        "svd_lowrank",
        "pca_lowrank",
        "empty",
        "empty_like",
    }
)


# Samples that call no operator with a rule, in any dtype of DTYPES: there is nothing to compare.
WITHOUT_RULES = frozenset(
    {
        "_chunk_cat",
        "allclose",
        "argwhere",
        "bincount",
        "broadcast_shapes",
        "byte",
        "cauchy",
        "char",
        "equal",
        "exponential",
        "geometric",
        "hash_tensor",
        "histc",
        "histogramdd",
        "imag",
        "int",
        "isreal",
        "jiterator_2inputs_2outputs",
        "jiterator_4inputs_with_extra_args",
        "jiterator_binary",
        "jiterator_binary_return_by_ref",
        "jiterator_unary",
        "log_normal",
        "nonzero",
        "short",
        "to_sparse",
        "torch._scaled_mm",
        "torch._scaled_mm_v2",
        "torch.ops.aten._efficient_attention_forward",
        "torch.ops.aten._flash_attention_forward",
        "uniform",
        "unique",
        "unique_consecutive",
    }
)

# How many samples of a dtype, and how many of those in every layout.
DTYPES = {
    torch.float32: (14, 4),
    torch.int64: (3, 1),
    torch.bool: (3, 1),
    torch.bfloat16: (3, 1),
    torch.complex64: (3, 1),
}


def sampled() -> dict[str, list[Any]]:
    """The entries of torch's database that drive rules, by the name of the operator."""
    found: dict[str, list[Any]] = {}
    for entry in op_db:
        name = entry.name
        if name in SLOW | WITHOUT_RULES or name.startswith(("fft.", "linalg.", "special.", "sparse.", "_refs.")):
            continue
        shorter = name.removeprefix("nn.functional.").removeprefix("torch.ops.aten.").removesuffix(".default")
        found.setdefault(shorter, []).append(entry)
    return found


def seed() -> None:
    """Start what samples draw from. ``torch.manual_seed`` also writes down a stack for every kind of device."""
    torch.default_generator.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)


def samples(entry: Any, dtype: torch.dtype, most: int, *, requires_grad: bool = False) -> Iterator[Any]:
    """The first samples of an operator, if there are any of that dtype.

    They come from the function behind ``entry.sample_inputs``, which would look for a unittest on the stack and seed
    before every sample: that takes longer than all the rest.
    """
    if dtype in entry.supported_dtypes("cpu"):
        seed()
        yield from islice(entry.sample_inputs_func(entry, "cpu", dtype, requires_grad), most)


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


def run_below_autograd(comparison: Comparison, entry: Any) -> None:
    """Composite operators whole, as captured programs call them."""
    for dtype, (most, layouts) in DTYPES.items():
        for position, sample in enumerate(samples(entry, dtype, most)):
            chosen = LAYOUTS if position < layouts else (unchanged,)
            for input, args, kwargs in in_layouts(sample, chosen):
                with below_autograd(), comparison:
                    attempt(entry, input, args, kwargs)


def attempt(entry: Any, input: Any, args: Any, kwargs: Any) -> Any:
    """A call that may fail: some samples don't work in another layout, and some never did."""
    try:
        return entry(input, *args, **kwargs)
    except Exception:
        return None


def run_with_gradients(comparison: Comparison, entry: Any) -> None:
    """Forward and backward, which calls the operators that composite ones consist of."""
    if not entry.supports_autograd:
        return
    for sample in samples(entry, torch.float32, 2, requires_grad=True):
        for input, args, kwargs in in_layouts(sample, LAYOUTS[:3]):
            with comparison:
                _differentiate(attempt(entry, input, args, kwargs), (input, args, kwargs))


def _differentiate(result: Any, arguments: Any) -> None:
    results = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    inputs = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if not results or not inputs:
        return
    try:
        torch.autograd.grad(results, inputs, [torch.ones_like(leaf) for leaf in results], allow_unused=True)
    except Exception:
        return
