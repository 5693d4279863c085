"""Histograms: how many elements lie between edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tintype.fake.info import TensorInfo
from tintype.fake.rules.registry import rule
from tintype.symbolic import Size


@rule("histogram.bin_ct")
def histogram(self: TensorInfo, bins: Size = 100, **options: Any) -> tuple[TensorInfo, TensorInfo]:
    return self.fresh((bins,)), self.fresh((bins + 1,))


@rule("histogram.bins_tensor")
def histogram_between(self: TensorInfo, bins: TensorInfo, **options: Any) -> tuple[TensorInfo, TensorInfo]:
    if bins.dim != 1:
        raise RuntimeError("torch.histogram(): bins tensor should have one dimension, but got a tensor of another")
    return self.fresh((bins.sizes[0] - 1,)), self.fresh(bins.sizes)


def _require_one_per_column(self: TensorInfo, bins: Sequence[Any]) -> None:
    if self.dim < 2:
        raise RuntimeError("torch.histogramdd: input tensor should have at least 2 dimensions")
    if type(self.sizes[-1]) is not int or self.sizes[-1] != len(bins):
        raise RuntimeError(
            f"torch.histogramdd(): expected {self.sizes[-1]} sequences of bin edges for a "
            f"{self.sizes[-1]}-dimensional histogram but got {len(bins)}"
        )


@rule("_histogramdd_bin_edges")
def edges(self: TensorInfo, bins: Sequence[int], **options: Any) -> list[TensorInfo]:
    _require_one_per_column(self, bins)
    return [self.fresh((count + 1,)) for count in bins]


@rule("_histogramdd_from_bin_cts")
def counts(self: TensorInfo, bins: Sequence[int], **options: Any) -> TensorInfo:
    _require_one_per_column(self, bins)
    return self.fresh(tuple(bins))


@rule("_histogramdd_from_bin_tensors")
def counts_between(self: TensorInfo, bins: Sequence[TensorInfo], **options: Any) -> TensorInfo:
    _require_one_per_column(self, bins)
    return self.fresh(tuple(edge.sizes[0] - 1 for edge in bins))
