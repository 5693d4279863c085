"""Operators of two dtypes: the result is described as eager mode makes it, or the call is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import tintype

DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int8, torch.bool, torch.complex64,
)  # fmt: skip
ROWS = (2, 2)

FUNCTIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "cosine_embedding_loss": lambda a, b: F.cosine_embedding_loss(a.expand(ROWS), a.expand(ROWS) * 2, b),
    "margin_ranking_loss": lambda a, b: F.margin_ranking_loss(a, a * 2, b),
    "hinge_embedding_loss": F.hinge_embedding_loss,
    "poisson_nll_loss": F.poisson_nll_loss,
    "poisson_nll_loss of numbers": lambda a, b: F.poisson_nll_loss(a.abs(), b, log_input=False),
    "soft_margin_loss": F.soft_margin_loss,
    "kl_div": lambda a, b: F.kl_div(a, b, reduction="sum"),
    "triplet_margin_loss": lambda a, b: F.triplet_margin_loss(a.expand(ROWS), a.expand(ROWS), b.expand(ROWS)),
    "gaussian_nll_loss": lambda a, b: F.gaussian_nll_loss(a, b, a.abs() + 0.1),
    "binary_cross_entropy_with_logits": F.binary_cross_entropy_with_logits,
    "multilabel_soft_margin_loss": lambda a, b: F.multilabel_soft_margin_loss(a.expand(ROWS), b.expand(ROWS)),
    "l1_loss": F.l1_loss,
    "mse_loss": F.mse_loss,
    "huber_loss": F.huber_loss,
    "smooth_l1_loss": F.smooth_l1_loss,
    "where": lambda a, b: torch.where(a > 0 if not a.is_complex() else a != 0, a, b),
    "cat": lambda a, b: torch.cat([a, b]),
    "pow": lambda a, b: a.abs() ** b,
    "cosine_similarity": lambda a, b: F.cosine_similarity(a.expand(ROWS), b.expand(ROWS)),
    "pairwise_distance": lambda a, b: F.pairwise_distance(a.expand(ROWS), b.expand(ROWS)),
    "addcmul": lambda a, b: torch.addcmul(a, b, b),
    "a product with a sum": lambda a, b: a * b.sum(),
    "masked_fill": lambda a, b: a.masked_fill(torch.tensor([True, False]), b[0]),
}


def results(function: Callable[..., Any], a: torch.Tensor, b: torch.Tensor) -> Any:
    try:
        return function(a, b)
    except Exception:
        return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_two_dtypes_give(name: str) -> None:
    function, compared = FUNCTIONS[name], 0
    for first, second in itertools.permutations(DTYPES, 2):
        a, b = torch.tensor([1.5, -2.0]).to(first), torch.tensor([1.0, -1.0]).to(second)
        wanted = results(function, a, b)
        if wanted is None:
            continue
        program = tintype.export(function, (a, b))
        (result,) = program.graph.output_node().args[0]  # type: ignore[misc]
        described = result.meta["val"]  # type: ignore[union-attr]
        assert (described.dtype, described.shape) == (wanted.dtype, wanted.shape), f"{first} and {second}"
        found = program.run_decompositions().module()(a, b)
        assert found.dtype is wanted.dtype, f"{first} and {second}, decomposed"
        compared += 1
    assert compared
