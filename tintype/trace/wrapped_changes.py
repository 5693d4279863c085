"""Changes of tensors that consist of others, as changes of what they consist of: that is what a program keeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from tintype.trace.snapshot import Change
from tintype.trace.state import ModelState
from tintype.tree.sparse import is_sparse
from tintype.tree.subclasses import is_wrapper, plain_parts


def changes_of_parts(changes: Iterable[Change], state: ModelState) -> list[Change]:
    """Changes, with those of the parts in the place of a change that puts such a tensor where one of the same kind
    was among a model's parameters and buffers."""
    wrapped = {id(tensor) for tensor in state.wrapped.values()}
    if not wrapped:
        return list(changes)
    found: list[Change] = []
    for change in changes:
        before, after = change.before, change.after
        if id(before) not in wrapped or _description(before) != _description(after):
            found.append(change)
            continue
        for (name, old), (_, new) in zip(_parts(before, state), _parts(after, state), strict=True):
            if old is not new:
                found.append(Change(before, name, old, new))
    return found


def _parts(tensor: Any, state: ModelState) -> Iterator[tuple[str, torch.Tensor]]:
    if id(tensor) in state.sparse:
        yield from state.sparse[id(tensor)][1].tensors().items()
    elif hasattr(tensor, "sparse_parts"):
        yield from tensor.sparse_parts.tensors().items()
    else:
        yield from plain_parts(tensor)


def _description(value: Any) -> Any:
    """What two tensors that are exchanged must have in common, besides the sizes of their parts."""
    if not isinstance(value, torch.Tensor):
        return None
    if hasattr(value, "sparse_parts"):  # of a capture
        parts = value.sparse_parts
        return parts.layout, parts.coalesced, tuple(parts.size)
    if is_sparse(value):
        return value.layout, value.layout is torch.sparse_coo and value.is_coalesced(), tuple(value.shape)
    if not is_wrapper(type(value)):
        return None
    names, context = value.__tensor_flatten__()  # type: ignore[attr-defined]
    parts = [_description(getattr(value, name)) for name in names]
    # the sizes of a nested tensor say nothing but which offsets it has
    return type(value), context, None if value.is_nested else tuple(value.shape), parts
