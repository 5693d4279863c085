"""Functions of nested tensors that torch computes with kernels of its own, in terms of values and offsets."""

from __future__ import annotations

from typing import Any

import torch

from tintype.errors import UnsupportedOperatorError
from tintype.symbolic.location import user_location
from tintype.trace.calls import NOT_HANDLED
from tintype.trace.plan import handle_by
from tintype.tree.jagged import is_jagged, known_lengths

aten = torch.ops.aten


def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Attention within each row; rows are padded to the longest one, and what pads them is masked."""
    tensors = (query, key, value)
    if not any(isinstance(tensor, torch.Tensor) and tensor.is_nested for tensor in tensors):
        return NotImplemented
    if attn_mask is not None or not all(is_jagged(tensor) and tensor._ragged_idx == 2 for tensor in tensors):
        raise UnsupportedOperatorError(
            "scaled_dot_product_attention of nested tensors can't be captured with a mask, or with tensors that are "
            "not jagged in their third dimension",
            location=user_location(),
            remedy="give it three nested tensors of batch, heads, rows and features",
        )
    queries, keys = _Rows(query), _Rows(key)
    allowed = keys.valid[:, None, None, :]
    if is_causal:
        after = torch.arange(queries.longest, device=query.device)[:, None]
        allowed = allowed & (torch.arange(keys.longest, device=query.device) <= after)
    padded = queries.padded(query), keys.padded(key), keys.padded(value)
    options: dict[str, Any] = {"dropout_p": dropout_p, "scale": scale, "enable_gqa": enable_gqa}
    found = torch.nn.functional.scaled_dot_product_attention(*padded, attn_mask=allowed, **options)
    return queries.nested(found, query)


class _Rows:
    """Where the rows of a nested tensor are among its values (heads, all rows one after the other, features)."""

    def __init__(self, tensor: Any) -> None:
        self.offsets = tensor._offsets
        self.longest = tensor._get_max_seqlen()
        torch._check(self.longest >= 0)
        lengths = self.offsets.diff() if tensor._lengths is None else tensor._lengths
        positions = torch.arange(self.longest, device=tensor.device)
        self.valid = positions < lengths[:, None]
        # what pads a row is behind all values
        self.places = torch.where(self.valid, self.offsets[:-1, None] + positions, tensor._values.shape[1])

    def padded(self, tensor: Any) -> Any:
        values = tensor._values
        blank = values.new_zeros((values.shape[0], 1, values.shape[2]))
        return torch.cat([values, blank], 1)[:, self.places].transpose(0, 1)

    def nested(self, padded: Any, like: Any) -> Any:
        """The opposite, with the offsets of a nested tensor."""
        positions = torch.arange(like._values.shape[1], device=padded.device)
        rows = torch.searchsorted(self.offsets, positions, right=True) - 1
        # what lies in a gap between rows is nobody's
        into = (positions - self.offsets[rows]).clamp(max=self.longest - 1)
        values = padded[rows, :, into].transpose(0, 1)
        from torch.nested._internal.nested_tensor import nested_view_from_values_offsets_lengths as make

        return make(values, self.offsets, like._lengths, ragged_idx=2, **known_lengths(like))


def _to_jagged(recorder: Any, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The rows of a padded tensor one after the other."""
    padded, (offsets, *more) = args[0], args[1]
    if more:
        return NOT_HANDLED

    def gather() -> Any:
        total = args[2] if len(args) > 2 else kwargs.get("total_L")
        positions = torch.arange(offsets[-1].item() if total is None else total, device=padded.device)
        rows = torch.searchsorted(offsets, positions, right=True) - 1
        return padded[rows, positions - offsets[rows]]

    return recorder.inside(gather)


handle_by(aten._padded_dense_to_jagged_forward.default, _to_jagged)
