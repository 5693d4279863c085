"""Between layouts: from and to strided tensors, and from coordinates to compressed indices and back."""

from __future__ import annotations

from typing import Any

import torch

from tintype.trace.sparse.tensor import SparseTensor, coo, made, makes_sparse, sparse

aten = torch.ops.aten

_BY_COLUMNS = (torch.sparse_csc, torch.sparse_bsc)
_BLOCKS = (torch.sparse_bsr, torch.sparse_bsc)


# --- coordinates -----------------------------------------------------------------------------------------


def coordinates(tensor: Any) -> tuple[Any, Any]:
    """Coordinates (a column per value) and values, whatever the layout; dimensions without coordinates come last."""
    parts = tensor.sparse_parts
    if parts.layout is torch.sparse_coo:
        return parts.indices[0], parts.values
    compressed, plain = parts.indices
    batches = parts.batch_dim
    values = parts.values.flatten(0, batches)
    lines = compressed.shape[-1] - 1
    counts = compressed.diff().reshape(-1)
    # which line of which batch each value is of
    line = torch.repeat_interleave(
        torch.arange(counts.shape[0], device=plain.device), counts, output_size=values.shape[0]
    )
    along, across = line % lines if batches else line, plain.reshape(-1).to(torch.int64)
    leading = _unravelled(line // lines, parts.size[:batches]) if batches else []
    rows, columns = (across, along) if parts.layout in _BY_COLUMNS else (along, across)
    if parts.layout in _BLOCKS:
        rows, columns, leading, values = _elements(rows, columns, leading, values)
    return torch.stack([*leading, rows, columns]), values


def _elements(rows: Any, columns: Any, leading: list[Any], values: Any) -> tuple[Any, Any, list[Any], Any]:
    """The coordinates of the elements of blocks."""
    height, width = values.shape[1], values.shape[2]
    down = torch.arange(height, device=rows.device).view(1, height, 1)
    right = torch.arange(width, device=rows.device).view(1, 1, width)
    shape = (rows.shape[0], height, width)
    rows = (rows.view(-1, 1, 1) * height + down).expand(shape).reshape(-1)
    columns = (columns.view(-1, 1, 1) * width + right).expand(shape).reshape(-1)
    leading = [index.view(-1, 1, 1).expand(shape).reshape(-1) for index in leading]
    return rows, columns, leading, values.flatten(0, 2)


def strides_of(size: Any) -> list[Any]:
    """What one step in each dimension is, where positions are numbered."""
    strides: list[Any] = []
    step: Any = 1
    for extent in reversed(size):
        strides.insert(0, step)
        step = step * extent
    return strides


def raveled(indices: Any, size: Any) -> Any:
    """A number for each column of coordinates."""
    position = torch.zeros(indices.shape[1], dtype=torch.int64, device=indices.device)
    for dimension, step in enumerate(strides_of(size)):
        position = position + indices[dimension] * step
    return position


def _unravelled(position: Any, size: Any) -> list[Any]:
    found = []
    for extent, step in zip(size, strides_of(size), strict=True):
        found.append((position // step) % extent)
    return found


def unraveled(position: Any, size: Any) -> Any:
    """The opposite of :func:`raveled`."""
    rows = _unravelled(position, size)
    return torch.stack(rows) if rows else position.new_empty((0, position.shape[0]))


# --- to strided ------------------------------------------------------------------------------------------


@sparse(aten._to_dense.default)
def to_dense(tensor: Any, dtype: Any = None, masked_grad: Any = None) -> Any:
    """The tensor with its zeros."""
    parts = tensor.sparse_parts
    indices, values = coordinates(tensor)
    dense = torch.zeros(parts.size, dtype=values.dtype, device=values.device)
    dense = put(dense, indices, values, repeats=parts.layout is torch.sparse_coo and not parts.coalesced)
    return dense if dtype is None else dense.to(dtype)


def put(dense: Any, indices: Any, values: Any, *, repeats: bool) -> Any:
    """A strided tensor with values added at coordinates, some of which may come several times."""
    if not indices.shape[0]:
        return dense + values.sum(0)
    places = tuple(indices.unbind(0))
    if repeats and values.dtype is torch.bool:
        return put(dense.to(torch.int32), indices, values.to(torch.int32), repeats=True) > 0
    return dense.index_put(places, values, accumulate=repeats)


# --- to sparse -------------------------------------------------------------------------------------------


@makes_sparse(aten._to_sparse.sparse_dim)
def to_coo_of(tensor: Any, sparse_dim: int) -> Any:
    """Coordinates in the first dimensions."""
    if isinstance(tensor, SparseTensor):
        return NotImplemented
    return _from_strided(tensor, sparse_dim)


@makes_sparse(aten._to_sparse.default)
def to_layout(tensor: Any, *, layout: Any = None, blocksize: Any = None, dense_dim: Any = None) -> Any:
    """Any layout to any other one."""
    layout = torch.sparse_coo if layout is None else layout
    if layout is torch.sparse_coo:
        if isinstance(tensor, SparseTensor):
            return _as_coo(tensor)
        return _from_strided(tensor, tensor.dim() - (dense_dim or 0))
    if layout is tensor.layout and not blocksize:
        return tensor
    if layout in _BLOCKS:
        return _blocks(tensor, blocksize, layout) if blocksize and not dense_dim else NotImplemented
    return _compressed(tensor, layout, dense_dim)


@makes_sparse(aten._to_sparse_csr.default)
def _to_csr(tensor: Any, dense_dim: Any = None) -> Any:
    return to_layout(tensor, layout=torch.sparse_csr, dense_dim=dense_dim)


@makes_sparse(aten._to_sparse_csc.default)
def _to_csc(tensor: Any, dense_dim: Any = None) -> Any:
    return to_layout(tensor, layout=torch.sparse_csc, dense_dim=dense_dim)


@makes_sparse(aten._to_sparse_bsr.default)
def _to_bsr(tensor: Any, blocksize: Any, dense_dim: Any = None) -> Any:
    return to_layout(tensor, layout=torch.sparse_bsr, blocksize=blocksize, dense_dim=dense_dim)


@makes_sparse(aten._to_sparse_bsc.default)
def _to_bsc(tensor: Any, blocksize: Any, dense_dim: Any = None) -> Any:
    return to_layout(tensor, layout=torch.sparse_bsc, blocksize=blocksize, dense_dim=dense_dim)


def _from_strided(tensor: Any, sparse_dim: int) -> Any:
    """The coordinates of what is not zero."""
    mask = tensor != 0
    if sparse_dim < tensor.dim():
        mask = mask.flatten(sparse_dim).any(-1)
    indices = mask.nonzero().t().contiguous()
    values = tensor[tuple(indices.unbind(0))] if sparse_dim else tensor.reshape(1)[mask.nonzero().sum(1)]
    return coo(indices, values, tensor.shape, coalesced=True)


def _as_coo(tensor: Any) -> Any:
    """A compressed tensor by coordinates; the order of a CSR tensor is that of coordinates."""
    parts = tensor.sparse_parts
    if parts.layout is torch.sparse_coo:
        return tensor
    indices, values = coordinates(tensor)
    found = coo(indices, values, parts.size, coalesced=parts.layout is torch.sparse_csr)
    return found if parts.layout is torch.sparse_csr else coalesced(found)


def _compressed(tensor: Any, layout: torch.layout, dense_dim: Any = None) -> Any:
    """CSR and CSC, of anything with one number of rows and one of columns."""
    if not isinstance(tensor, SparseTensor):
        if tensor.dim() != 2 + (dense_dim or 0):
            return NotImplemented  # batches must have as many values each, which only the data tell
        tensor = _from_strided(tensor, 2)
    elif dense_dim or tensor.sparse_parts.batch_dim or tensor.sparse_parts.sparse_dim != 2:
        return NotImplemented
    tensor = coalesced(_as_coo(tensor))
    parts = tensor.sparse_parts
    (indices,), values = parts.indices, parts.values
    if layout is torch.sparse_csr:
        return made(layout, (compressed_lines(indices[0], parts.size[0]), indices[1]), values, parts.size)
    order = raveled(indices.flip(0), (parts.size[1], parts.size[0])).argsort()
    rows, columns = indices[0][order], indices[1][order]
    return made(layout, (compressed_lines(columns, parts.size[1]), rows), values[order], parts.size)


def compressed_lines(lines: Any, count: Any) -> Any:
    """Where each line begins, of values whose lines are in order."""
    return torch.searchsorted(lines, torch.arange(count + 1, device=lines.device))


def _blocks(tensor: Any, blocksize: Any, layout: torch.layout) -> Any:
    """BSR and BSC."""
    if isinstance(tensor, SparseTensor):
        tensor = to_dense(tensor)
    if tensor.dim() != 2:
        return NotImplemented
    (height, width), (rows, columns) = blocksize, tensor.shape
    torch._check(rows % height == 0 and columns % width == 0)
    cut = tensor.reshape(rows // height, height, columns // width, width).transpose(1, 2)
    if layout is torch.sparse_bsc:
        cut = cut.transpose(0, 1)
    across, along = (cut != 0).flatten(2).any(-1).nonzero().unbind(1)
    return made(layout, (compressed_lines(across, cut.shape[0]), along), cut[across, along], tensor.shape)


# --- in order, each place once ---------------------------------------------------------------------------


@sparse(aten._coalesce.default)
def coalesced(tensor: Any) -> Any:
    """Coordinates in their order, each of them once."""
    parts = tensor.sparse_parts
    if parts.coalesced:
        return tensor
    (indices,), values = parts.indices, parts.values
    size = parts.size[: indices.shape[0]]
    places, which = torch.unique(raveled(indices, size), return_inverse=True)
    summed = values.to(torch.int32) if values.dtype is torch.bool else values
    found = torch.zeros((places.shape[0], *values.shape[1:]), dtype=summed.dtype, device=values.device)
    found = found.index_add(0, which, summed)
    if values.dtype is torch.bool:
        found = found > 0
    return coo(unraveled(places, size), found, parts.size, coalesced=True)


@sparse(aten._coalesced_.default)
def _mark_coalesced(tensor: Any, flag: bool) -> Any:
    parts = tensor.sparse_parts
    parts.structure = (parts.structure[0], flag)
    return tensor


# --- from parts ------------------------------------------------------------------------------------------


@makes_sparse(aten._sparse_coo_tensor_unsafe.default, aten.sparse_coo_tensor.indices_size)
def _coo_of(
    indices: Any, values: Any, size: Any, *, dtype: Any = None, is_coalesced: Any = None, **options: Any
) -> Any:
    torch._check(indices.shape[1] == values.shape[0])
    for extent, found in zip(size[indices.shape[0] :], values.shape[1:], strict=True):
        torch._check(extent == found)
    values = values if dtype in (None, values.dtype) else values.to(dtype)
    indices = indices if indices.dtype is torch.int64 else indices.to(torch.int64)
    return coo(indices, values, size, bool(is_coalesced))


@makes_sparse(aten._sparse_coo_tensor_with_dims_and_tensors.default)
def _coo_with_dims(sparse_dim: int, dense_dim: int, size: Any, indices: Any, values: Any, **options: Any) -> Any:
    return _coo_of(indices, values, size, **options)


@makes_sparse(aten.sparse_coo_tensor.indices)
def _coo_of_any_size(indices: Any, values: Any, *, is_coalesced: Any = None, **options: Any) -> Any:
    # a tensor without coordinates has the size 0
    ends = torch.cat([indices.to(torch.int64) + 1, indices.new_zeros((indices.shape[0], 1))], 1).amax(1)
    size = [ends[dimension].item() for dimension in range(indices.shape[0])]
    for extent in size:
        torch._check(extent >= 0)
    return _coo_of(indices, values, (*size, *values.shape[1:]), is_coalesced=is_coalesced)


@makes_sparse(aten.sparse_coo_tensor.size)
def _empty_coo(
    size: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> Any:
    indices = torch.zeros((len(size), 0), dtype=torch.int64, device=device)
    return coo(indices, torch.zeros(0, dtype=dtype, device=device), size, coalesced=True)


@makes_sparse(aten._sparse_coo_tensor_with_dims.default)
def _empty_with_dims(
    sparse_dim: int, dense_dim: int, size: Any, *, dtype: Any = None, device: Any = None, **options: Any
) -> Any:
    indices = torch.zeros((sparse_dim, 0), dtype=torch.int64, device=device)
    return coo(indices, torch.zeros((0, *size[sparse_dim:]), dtype=dtype, device=device), size, coalesced=True)


@makes_sparse(aten._spdiags.default)
def _of_diagonals(diagonals: Any, offsets: Any, shape: Any, layout: torch.layout | None = None) -> Any:
    """Rows of a matrix as diagonals: a value stays in its column, if the diagonal has a place there."""
    rows = diagonals if diagonals.dim() == 2 else diagonals.unsqueeze(0)
    offsets = offsets.reshape(-1, 1)
    torch._check(offsets.shape[0] == rows.shape[0])
    torch._assert_async((offsets == offsets.t()).sum() == offsets.shape[0], "Offset tensor contains duplicate values")
    columns = torch.arange(rows.shape[1], device=rows.device)
    lines = columns - offsets
    there = (lines >= 0) & (lines < shape[0]) & (columns < shape[1])
    diagonal, column = there.nonzero().unbind(1)
    found = coo(torch.stack([lines[diagonal, column], column]), rows[diagonal, column], shape)
    return found if layout in (None, torch.sparse_coo) else to_layout(found, layout=layout)


@makes_sparse(aten._sparse_compressed_tensor_unsafe.default, aten.sparse_compressed_tensor.comp_plain_value_size)
def compressed_of(
    compressed: Any, plain: Any, values: Any, size: Any, *, dtype: Any = None, layout: Any = None, **options: Any
) -> Any:
    """A compressed tensor of its parts; what their sizes have to do with each other is part of the program."""
    batches = compressed.dim() - 1
    along = size[batches + (layout in _BY_COLUMNS)]
    lines = compressed.shape[-1] - 1
    extent = values.shape[batches + 1 + (layout in _BY_COLUMNS)] if layout in _BLOCKS else 1
    torch._check(along == lines * extent)
    torch._check(plain.shape[-1] == values.shape[batches])
    return made(layout, (compressed, plain), values if dtype in (None, values.dtype) else values.to(dtype), size)


def _of_layout(layout: torch.layout) -> Any:
    def make(compressed: Any, plain: Any, values: Any, size: Any, **options: Any) -> Any:
        options["layout"] = layout
        return compressed_of(compressed, plain, values, size, **options)

    return make


for _name, _argument in (("csr", "crow_col"), ("csc", "ccol_row"), ("bsr", "crow_col"), ("bsc", "ccol_row")):
    _layout = getattr(torch, f"sparse_{_name}")
    makes_sparse(
        getattr(getattr(aten, f"sparse_{_name}_tensor"), f"{_argument}_value_size"),
        getattr(aten, f"_sparse_{_name}_tensor_unsafe").default,
    )(_of_layout(_layout))


@makes_sparse(
    aten._validate_sparse_coo_tensor_args.default,
    aten._validate_sparse_compressed_tensor_args.default,
    aten._validate_sparse_csr_tensor_args.default,
)
def _not_looked_at(*args: Any, **options: Any) -> None:
    """Whether indices are within the size is for who indexes with them."""


__all__ = ["coalesced", "coordinates", "put", "raveled", "to_dense", "unraveled"]
