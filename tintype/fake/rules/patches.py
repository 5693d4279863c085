"""Images as columns of patches and back, diagonals as matrices, triangles as indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tintype.fake.info import TensorInfo, fresh
from tintype.fake.promotion import result_type
from tintype.fake.rules.elementwise import common_device
from tintype.fake.rules.factories import target_device
from tintype.fake.rules.memory_format import fresh_in_format_of
from tintype.fake.rules.registry import rule
from tintype.fake.rules.views import wrap_dimension
from tintype.symbolic import Size, ge
from tintype.symbolic.sizes import product, require, require_same


def _positions(
    sizes: Sequence[Size],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> list[Size]:
    """How many positions a window takes along each dimension."""
    return [
        (size + 2 * margin - spread * (kernel - 1) - 1) // step + 1
        for size, kernel, spread, margin, step in zip(sizes, kernel_size, dilation, padding, stride, strict=True)
    ]


@rule("im2col")
def image_to_columns(
    self: TensorInfo,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> TensorInfo:
    if self.dim not in (3, 4):
        raise RuntimeError(f"Expected 3D or 4D (batch mode) tensor, but got input of size {list(self.sizes)}")
    *batch, channels, height, width = self.sizes
    positions = _positions((height, width), kernel_size, dilation, padding, stride)
    for count in positions:
        require(
            ge(count, 1),
            "Given input with spatial size, calculated shape of the array of sliding blocks is too small "
            "(non-positive)",
        )
    return self.fresh((*batch, channels * product(kernel_size), product(positions)))


@rule("col2im")
def columns_to_image(
    self: TensorInfo,
    output_size: Sequence[Size],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> TensorInfo:
    if self.dim not in (2, 3):
        raise RuntimeError(f"Expected 2D or 3D (batch mode) tensor for input, but got {list(self.sizes)}")
    window = product(kernel_size)
    planes = self.sizes[-2]
    require_same(
        planes % window,
        0,
        lambda: (
            "Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got "
            f"input.size(1)={planes} and kernel_size={list(kernel_size)}"
        ),
    )
    return self.fresh((*self.sizes[:-2], planes // window, *output_size))


@rule("max_unpool2d")
def max_unpool2d(self: TensorInfo, indices: TensorInfo, output_size: Sequence[Size]) -> TensorInfo:
    sizes = (*self.sizes[:-2], *output_size)
    return self.fresh(sizes) if self.device.type == "cuda" else fresh_in_format_of(self, sizes)


@rule("channel_shuffle", "native_channel_shuffle")
def channel_shuffle(self: TensorInfo, groups: Size) -> TensorInfo:
    if self.dim < 3:
        raise RuntimeError(f"channel_shuffle expects input with > 2 dims, but got {list(self.sizes)}")
    require_same(self.sizes[1] % groups, 0, "Number of channels must be divisible by groups.")
    return fresh_in_format_of(self, self.sizes)


@rule("diag_embed")
def diagonal_matrix(self: TensorInfo, offset: int = 0, dim1: int = -2, dim2: int = -1) -> TensorInfo:
    first, second = wrap_dimension(dim1, self.dim + 1), wrap_dimension(dim2, self.dim + 1)
    if first == second:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    length = self.sizes[-1] + abs(offset)
    sizes = list(self.sizes[:-1])
    for where in sorted((first, second)):
        sizes.insert(where, length)
    return self.fresh(sizes)


@rule("block_diag")
def block_diagonal(tensors: Sequence[TensorInfo]) -> TensorInfo:
    rows: Size = 0
    columns: Size = 0
    for block in tensors:
        if block.dim > 2:
            raise RuntimeError("torch.block_diag: Input tensors must have 2 or fewer dimensions.")
        sizes = (1, 1, *block.sizes)[-2:]
        rows, columns = rows + sizes[0], columns + sizes[1]
    return fresh((rows, columns), result_type(*tensors), common_device(tensors))


def _triangle_count(row: int, col: int, offset: int) -> int:
    """The number of elements on and below a diagonal."""
    return sum(min(max(i + offset + 1, 0), col) for i in range(row))


@rule("tril_indices")
def lower_triangle_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    **options: Any,
) -> TensorInfo:
    return fresh((2, _triangle_count(row, col, offset)), dtype or torch.int64, target_device(device))


@rule("triu_indices")
def upper_triangle_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: torch.dtype | None = None,
    device: Any = None,
    **options: Any,
) -> TensorInfo:
    count = row * col - _triangle_count(row, col, offset - 1)
    return fresh((2, count), dtype or torch.int64, target_device(device))
