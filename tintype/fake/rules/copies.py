"""Copies of views: what the view shows, in memory of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tintype.fake.info import Storage, TensorInfo
from tintype.fake.rules import parts, views
from tintype.fake.rules.registry import RULES, overload, rule
from tintype.symbolic import Size
from tintype.symbolic.sizes import product

_COPIES_OF_VIEWS = (
    "alias",
    "as_strided",
    "diagonal",
    "expand",
    "permute",
    "select.int",
    "slice.Tensor",
    "split.Tensor",
    "split_with_sizes",
    "squeeze",
    "squeeze.dim",
    "squeeze.dims",
    "t",
    "unbind.int",
    "unfold",
    "unsqueeze",
)


def _materialized(result: Any) -> Any:
    if type(result) is TensorInfo:
        return result.fresh()
    return [part.fresh() for part in result]


def _copying(view: Callable[..., Any]) -> Callable[..., Any]:
    def copy(*arguments: Any, **options: Any) -> Any:
        return _materialized(view(*arguments, **options))

    return copy


for _name in _COPIES_OF_VIEWS:
    _packet, _dot, _variant = _name.partition(".")
    rule(f"{_packet}_copy{_dot}{_variant}")(_copying(RULES[overload(_name)]))


@rule("view_copy")
def view_copy(self: TensorInfo, size: list[Size]) -> TensorInfo:
    return self.fresh(views.infer_size(size, product(self.sizes)))


@rule("narrow_copy")
def narrow_copy(self: TensorInfo, dim: int, start: Size, length: Size) -> TensorInfo:
    return views.slice_tensor(self, dim, start, start + length).fresh()


@rule("unsafe_split.Tensor")
def unsafe_split(self: TensorInfo, split_size: Size, dim: int = 0) -> list[TensorInfo]:
    """Views that promise not to be written to: to a program they are copies, unless somebody breaks the promise."""
    return _detached(self, parts.split(self, split_size, dim))


@rule("unsafe_split_with_sizes")
def unsafe_split_with_sizes(self: TensorInfo, split_sizes: list[Size], dim: int = 0) -> list[TensorInfo]:
    return _detached(self, parts.split_with_sizes(self, split_sizes, dim))


def _detached(source: TensorInfo, parts: list[TensorInfo]) -> list[TensorInfo]:
    split = object()
    return [part.with_storage(Storage(frozen=True, source=source.storage, split=split)) for part in parts]
