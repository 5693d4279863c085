"""Attention of one query in other kernels than the operator's: the same results, whatever the mask is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tests.compiler.test_once import plan_of
from tintype.compiler import one_query
from tintype.compiler.once import Plan

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")

MASKS: dict[str, Callable[[int], torch.Tensor | None]] = {
    "none": lambda keys: None,
    "numbers": lambda keys: torch.randn(2, 3, 1, keys),
    "some keys": lambda keys: torch.where(torch.arange(keys) < keys // 2, 0.0, -torch.inf).expand(2, 3, 1, keys),
    "no key for a row": lambda keys: torch.where(torch.arange(2)[:, None, None, None] < 1, 0.0, -torch.inf).expand(
        2, 3, 1, keys
    ),
    "the least number": lambda keys: torch.full((2, 3, 1, keys), torch.finfo(torch.float32).min),
}


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, scale: float | None = None
) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)


@pytest.fixture
def efficient_on_the_processor() -> Iterator[Any]:
    """The operator of GPUs, which computes what attention is."""
    calls: list[int] = []

    def computed(
        query: Any, key: Any, value: Any, bias: Any, log_sums: bool, dropout: float = 0.0, is_causal: bool = False,
        *, scale: float | None = None,
    ) -> tuple[torch.Tensor, ...]:  # fmt: skip
        calls.append(1)
        found = torch.ops.aten._scaled_dot_product_attention_math(query, key, value, bias, scale=scale)[0]
        lies = found.transpose(1, 2).contiguous().transpose(1, 2)
        return lies, query.new_empty(0), query.new_empty(0), query.new_empty(0)

    library = torch.library.Library("aten", "IMPL")
    try:
        library.impl("_scaled_dot_product_efficient_attention", computed, "CPU")
        yield calls
    finally:
        library._destroy()


@pytest.mark.parametrize("name", list(MASKS))
@pytest.mark.parametrize("scale", [None, 0.3])
def test_masks(name: str, scale: float | None, efficient_on_the_processor: list[int]) -> None:
    def layers(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            found = one_query.EFFICIENT(query, key, value, mask, False, scale=scale)[0]
            query = query + found.transpose(1, 2).reshape(query.shape[0], 1, -1).view(query.shape)
        return query

    mask = MASKS[name](130)
    plan = plan_of(layers, torch.randn(2, 3, 1, 8), torch.randn(2, 3, 130, 8), torch.randn(2, 3, 130, 8))
    assert len(plan.quicker) == 3
    given = torch.randn(2, 3, 1, 8), torch.randn(2, 3, 130, 8), torch.randn(2, 3, 130, 8)
    wanted = layers(*given)
    count = len(efficient_on_the_processor)
    torch.testing.assert_close(plan.applied(layers)(*given), wanted)
    assert len(efficient_on_the_processor) == count


def test_a_mask_that_changes_between_layers(efficient_on_the_processor: list[int]) -> None:
    def layers(query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first = one_query.EFFICIENT(query, key, key, mask, False)[0]
        mask.fill_(-torch.inf)
        return first, one_query.EFFICIENT(query, key, key, mask, False)[0]

    def given() -> tuple[torch.Tensor, ...]:
        return torch.randn(1, 2, 1, 4), torch.randn(1, 2, 200, 4), torch.zeros(1, 2, 1, 200)

    plan = plan_of(layers, *given())
    assert len(plan.quicker) == 2
    values = given()
    found, wanted = plan.applied(layers)(*map(torch.clone, values)), layers(*map(torch.clone, values))
    torch.testing.assert_close(found, wanted)
    assert not found[1].any()


def test_rows_without_keys_are_found_once_for_views_of_one_mask() -> None:
    class Counted(torch.utils._python_dispatch.TorchDispatchMode):
        counts = 0

        def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.counts += operator is torch.ops.aten.all.dim
            return operator(*args, **(kwargs or {}))

    rows, mask = one_query.Rows(), torch.zeros(1, 1, 1, 9)
    with Counted() as counted:
        for _ in range(3):
            rows.without_keys(mask.expand(2, 3, 1, 9))
    assert counted.counts == 1


def test_what_is_no_number_stays(efficient_on_the_processor: list[int]) -> None:
    query, key = torch.randn(1, 2, 1, 4), torch.randn(1, 2, 200, 4)
    query[0, 0] = torch.nan
    found = one_query.attention(query, key, key, torch.zeros(1, 2, 1, 200), 0.5, one_query.Rows())
    assert found[0, 0].isnan().all() and not found[0, 1].isnan().any()


UNCHANGED: dict[str, Callable[..., Any]] = {
    "several queries": lambda q, k: one_query.EFFICIENT(q.expand(1, 2, 3, 4), k, k, None, False),
    "few keys": lambda q, k: one_query.EFFICIENT(q, k[:, :, :100], k[:, :, :100], None, False),
    "for a backward": lambda q, k: one_query.EFFICIENT(q, k, k, None, True),
    "dropout": lambda q, k: one_query.EFFICIENT(q, k, k, None, False, 0.5),
    "causal": lambda q, k: one_query.EFFICIENT(q, k, k, None, False, 0.0, True),
    "double precision": lambda q, k: one_query.EFFICIENT(q.double(), k.double(), k.double(), None, False),
    "heads that lie between keys": lambda q, k: one_query.EFFICIENT(
        q.expand(2, 2, 1, 4), *[k.expand(2, 2, 200, 4).transpose(0, 1).contiguous().transpose(0, 1)] * 2, None, False
    ),
}


@pytest.mark.parametrize("name", list(UNCHANGED))
def test_calls_that_stay_as_they_are(name: str, efficient_on_the_processor: list[int]) -> None:
    plan = plan_of(UNCHANGED[name], torch.randn(1, 2, 1, 4), torch.randn(1, 2, 200, 4))
    assert isinstance(plan, Plan) and not plan.quicker


def test_it_is_what_attention_is() -> None:
    for keys in (128, 1000):
        query, key, value = torch.randn(2, 3, 1, 8), torch.randn(2, 3, keys, 8), torch.randn(2, 3, keys, 5)
        mask = torch.randn(2, 3, 1, keys)
        found = one_query.attention(query, key, value, mask, 8**-0.5, one_query.Rows())
        torch.testing.assert_close(found, attend(query, key, value, mask))
