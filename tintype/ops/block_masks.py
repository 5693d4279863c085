"""Block masks of ``flex_attention`` as inputs of programs.

A ``BlockMask`` holds tensors and a function, and the function may hold tensors too (documents, lengths) as variables
from around it. To a program all of these tensors are inputs; the rest is structure, the same in every call.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

_TENSORS = (
    "kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks", "q_indices",
    "full_q_num_blocks", "full_q_indices", "dq_write_order", "dq_write_order_full", "dq_kv_order",
)  # fmt: skip
_NUMBERS = ("seq_lengths", "BLOCK_SIZE", "dq_kv_order_spt")


def register_block_mask() -> None:
    """Let block masks be inputs of programs: ``tintype.export(model, (q, k, v, block_mask))``.

    Containers are registered for the whole process, with ``torch.utils._pytree``, so this is yours to call; where
    block masks are registered already, nothing happens.

    >>> import torch, tintype
    >>> from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    >>> tintype.register_block_mask()
    >>> def mask_for(lengths):
    ...     return create_block_mask(lambda b, h, q, k: k < lengths[b], 2, None, 4, 4, device="cpu")
    >>> x, mask = torch.ones(2, 1, 4, 8), mask_for(torch.tensor([2, 4]))
    >>> ep = tintype.export(lambda x, mask: flex_attention(x, x, x, block_mask=mask), (x, mask))
    >>> [spec.arg.name for spec in ep.graph_signature.input_specs][-1]
    'mask_lengths'
    >>> ep.module()(x, mask_for(torch.tensor([1, 3]))).shape
    torch.Size([2, 1, 4, 8])
    """
    from torch.nn.attention.flex_attention import BlockMask

    if BlockMask in pytree.SUPPORTED_NODES:
        return

    def unflatten(leaves: Iterable[Any], structure: tuple[Any, ...]) -> Any:
        present, numbers, function = structure
        values = iter(leaves)
        tensors: dict[str, Any] = dict.fromkeys(_TENSORS)
        tensors.update({name: next(values) for name in present})
        mask_mod = function.rebuild(values) if isinstance(function, Skeleton) else function
        return BlockMask(**tensors, **dict(zip(_NUMBERS, numbers, strict=True)), mask_mod=mask_mod)

    pytree.register_pytree_node(BlockMask, _flatten, unflatten, flatten_with_keys_fn=_flatten_with_names)


def _flatten_with_names(mask: Any) -> tuple[list[tuple[Any, Any]], Any]:
    present = [name for name in _TENSORS if getattr(mask, name) is not None]
    named = [(name, getattr(mask, name)) for name in present]
    function = mask.mask_mod
    if isinstance(function, types.FunctionType):
        function = Skeleton(function)
        named += function.tensors(mask.mask_mod)
    structure = (tuple(present), tuple(getattr(mask, name) for name in _NUMBERS), function)
    return [(pytree.GetAttrKey(name), value) for name, value in named], structure


def _flatten(mask: Any) -> tuple[list[Any], Any]:
    named, structure = _flatten_with_names(mask)
    return [value for _, value in named], structure


class Skeleton:
    """A function without the tensors that it holds; two are equal if their code and all else that they hold are."""

    def __init__(self, function: types.FunctionType) -> None:
        self.code = function.__code__
        self.made_of = (function.__globals__, function.__name__, function.__defaults__)
        self.options = function.__kwdefaults__
        self.contents = tuple(_without_tensors(value) for _, value in _variables(function))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Skeleton)
            and self.code == other.code
            and self.contents == other.contents
            and (self.made_of[2], self.options) == (other.made_of[2], other.options)
        )

    def __hash__(self) -> int:
        return hash(self.code)

    def __repr__(self) -> str:
        return f"<{self.made_of[1]}>"

    def tensors(self, function: types.FunctionType) -> list[tuple[str, torch.Tensor]]:
        """The tensors that a function holds, with the names of its variables."""
        return [(name, tensor) for name, value in _variables(function) for tensor in _tensors_in(value)]

    def rebuild(self, tensors: Iterator[Any]) -> types.FunctionType:
        """The function, holding other tensors."""
        cells = tuple(types.CellType(_with_tensors(value, tensors)) for value in self.contents)
        function = types.FunctionType(self.code, *self.made_of, cells)
        function.__kwdefaults__ = self.options
        return function


class _Tensor:
    """The place of a tensor."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Tensor)

    def __hash__(self) -> int:
        return 0


def _variables(function: types.FunctionType) -> list[tuple[str, Any]]:
    cells = function.__closure__ or ()
    return [(name, cell.cell_contents) for name, cell in zip(function.__code__.co_freevars, cells, strict=True)]


def _without_tensors(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _Tensor()
    if isinstance(value, types.FunctionType):
        return Skeleton(value)
    if type(value) in (list, tuple):
        return type(value)(_without_tensors(item) for item in value)
    return value


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, types.FunctionType):
        for _, item in _variables(value):
            yield from _tensors_in(item)
    elif type(value) in (list, tuple):
        for item in value:
            yield from _tensors_in(item)


def _with_tensors(value: Any, tensors: Iterator[Any]) -> Any:
    if isinstance(value, _Tensor):
        return next(tensors)
    if isinstance(value, Skeleton):
        return value.rebuild(tensors)
    if type(value) in (list, tuple):
        return type(value)(_with_tensors(item, tensors) for item in value)
    return value
