"""Tensors that consist of others: objects of classes with ``__tensor_flatten__`` and ``__torch_dispatch__``.

At the border of a program such a tensor is a container of the plain tensors that it consists of. It is none for
``torch.utils._pytree``: the class itself would meet its own objects taken apart. So a program's arguments and results
have a :class:`SubclassParts` in the place of each.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree

from tintype.errors import FileFormatError
from tintype.tree import distributed_tensors
from tintype.tree.distributed_tensors import is_distributed
from tintype.tree.flattening import leaves, map_leaves, unflatten
from tintype.tree.jagged import JaggedParts, is_jagged
from tintype.tree.modules import ModuleParts
from tintype.tree.registration import register_container
from tintype.tree.sparse import SparseParts, is_sparse

# Fake tensors are plain ones to us.
_NOT_WRAPPERS = ("torch._subclasses",)


def is_wrapper(kind: Any) -> bool:
    """Whether tensors of a class consist of others and say how operators work on these."""
    return (
        kind is not torch.Tensor
        and kind is not torch.nn.Parameter
        and kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
        and hasattr(kind, "__tensor_flatten__")
        and hasattr(kind, "__tensor_unflatten__")
        and not kind.__module__.startswith(_NOT_WRAPPERS)
    )


def is_whole(value: Any) -> bool:
    """Whether a value is a tensor of such a class that can be made again of other parts: nested ones can't, since
    their offsets must be the very same tensors."""
    return isinstance(value, torch.Tensor) and is_wrapper(type(value)) and not value.is_nested


def plain_parts(tensor: Any, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """The plain tensors that a tensor consists of, with the attributes that lead to them."""
    for name in tensor.__tensor_flatten__()[0]:
        part, place = getattr(tensor, name), f"{path}.{name}" if path else name
        if not isinstance(part, torch.Tensor):  # as the mesh of a tensor of several processes
            continue
        if is_wrapper(type(part)):
            yield from plain_parts(part, place)
        else:
            yield place, part


def wrappers(tensor: Any, path: str) -> Iterator[tuple[str, torch.Tensor]]:
    """A tensor that consists of others, and those of its parts that do, with the attributes that lead to them."""
    yield path, tensor
    if is_wrapper(type(tensor)):
        for name in tensor.__tensor_flatten__()[0]:
            part = getattr(tensor, name)
            if isinstance(part, torch.Tensor) and is_wrapper(type(part)):
                yield from wrappers(part, f"{path}.{name}")


class SubclassParts:
    """The parts of a tensor that consists of others, by name; ``structure`` is what makes a tensor of them again."""

    def __init__(self, parts: dict[str, Any], structure: Any) -> None:
        self.parts = parts
        self.structure = structure

    @staticmethod
    def of(tensor: Any) -> SubclassParts:
        """A tensor taken apart."""
        kind = type(tensor)
        if is_distributed(kind):
            local = {"_local_tensor": as_parts(tensor._local_tensor)}
            described = distributed_tensors.description(tensor)
            return SubclassParts(
                local, (ClassName(distributed_tensors.CLASS_NAME), described, distributed_tensors.geometry(tensor))
            )
        names, context = tensor.__tensor_flatten__()
        parts = {name: as_parts(getattr(tensor, name)) for name in names}
        # most have the size of one of their parts, which may vary
        like = [name for name in names if getattr(tensor, name).shape == tensor.shape]
        geometry: Any = like[0] if like else (tuple(tensor.shape), tuple(tensor.stride()))
        return SubclassParts(parts, (ClassName.of(kind), context, geometry))

    def tensor(self) -> Any:
        """The tensor."""
        name, context, geometry = self.structure
        inner = {part: as_tensor(value) for part, value in self.parts.items()}
        if name == distributed_tensors.CLASS_NAME:
            return distributed_tensors.tensor_of(inner["_local_tensor"], context, geometry)
        like = inner[geometry] if isinstance(geometry, str) else None
        size, stride = (like.shape, like.stride()) if like is not None else geometry
        return class_called(name).__tensor_unflatten__(inner, context, torch.Size(size), tuple(stride))


def _flatten(parts: SubclassParts) -> tuple[dict[str, Any], Any]:
    return parts.parts, parts.structure


register_container(SubclassParts, _flatten, SubclassParts, name="tintype.SubclassParts")


class ClassName(str):
    """The name of a class of tensors. It knows the class, unless it comes from a file: two may have one name."""

    kind: Any = None

    @staticmethod
    def of(kind: type) -> ClassName:
        """The name of a class."""
        name = ClassName(f"{kind.__module__}.{kind.__qualname__}")
        name.kind = kind
        return name

    def __eq__(self, other: object) -> bool:
        kinds = {self.kind, getattr(other, "kind", None)} - {None}
        return str.__eq__(self, other) and len(kinds) < 2

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def class_called(name: str) -> Any:
    """The class of tensors with a name, among those that this process has: nothing is imported."""
    kind = getattr(name, "kind", None) or _class_in_module(name)
    if kind is not None:
        return kind
    if name not in _classes:
        pending: list[Any] = [torch.Tensor]
        while pending:
            kind = pending.pop()
            pending += reversed(kind.__subclasses__())  # of several that have one name, the last is taken
            if is_wrapper(kind):
                _classes[f"{kind.__module__}.{kind.__qualname__}"] = kind
    if name not in _classes:
        raise FileFormatError(
            f"the program takes or returns tensors of the class {name}, which is not there",
            remedy="import the module that defines it before the program is called",
        )
    return _classes[name]


def _class_in_module(name: str) -> Any:
    """The class that the module of a name has now under that name; None if there is none."""
    module, _, kind = name.rpartition(".")
    found = vars(sys.modules[module]).get(kind) if module in sys.modules else None
    return found if isinstance(found, type) and issubclass(found, torch.Tensor) and is_wrapper(found) else None


_classes: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def consists_of_others(tensor: torch.Tensor) -> bool:
    """Whether a tensor is one of a class that says so, or sparse."""
    return is_wrapper(type(tensor)) or is_sparse(tensor)


def as_parts(value: Any, offsets: list[Any] | None = None) -> Any:
    """A leaf as the program takes it; ``offsets`` are those of the nested tensors before it."""
    if not isinstance(value, torch.Tensor):
        return ModuleParts.of(value) if isinstance(value, torch.nn.Module) else value
    if is_wrapper(type(value)):
        if is_jagged(value):
            return JaggedParts.of(value, [] if offsets is None else offsets)
        parts = getattr(value, "sparse_parts", None)  # of a sparse tensor that a program sees while it is captured
        return SubclassParts.of(value) if parts is None else parts
    return SparseParts.of(value) if is_sparse(value) else value


def as_tensor(value: Any, offsets: dict[int, Any] | None = None) -> Any:
    """The opposite."""
    if isinstance(value, JaggedParts):
        return value.tensor({} if offsets is None else offsets)
    if isinstance(value, ModuleParts):
        return value.module()
    return value.tensor() if _are_parts(value) else value


def with_parts(tree: Any) -> Any:
    """A tree with all tensors that consist of others, and modules, taken apart; the tree itself where there are
    none."""
    if not any(map(_is_taken_apart, leaves(tree))):
        return tree
    offsets: list[Any] = []
    return map_leaves(lambda leaf: as_parts(leaf, offsets), tree)


def _is_taken_apart(leaf: Any) -> bool:
    return consists_of_others(leaf) if isinstance(leaf, torch.Tensor) else isinstance(leaf, torch.nn.Module)


def with_tensors(tree: Any) -> Any:
    """The opposite: a tree with tensors in the place of their parts."""
    found, spec = pytree.tree_flatten(tree, is_leaf=_are_parts)
    if not any(map(_are_parts, found)):
        return tree
    offsets: dict[int, Any] = {}
    return unflatten([as_tensor(leaf, offsets) for leaf in found], spec)


_PARTS = (SubclassParts, SparseParts, JaggedParts, ModuleParts)


def _are_parts(value: Any) -> bool:
    return isinstance(value, _PARTS)


def holds_sparse(tree: Any) -> bool:
    """Whether a tree has parts of sparse or nested tensors in it."""
    return any(type(leaf) in (SparseParts, JaggedParts) for leaf in pytree.tree_leaves(tree, is_leaf=_are_parts))


def has_parts(spec: Any) -> bool:
    """Whether a structure has tensors taken apart in it."""
    return spec.type in _PARTS or any(has_parts(child) for child in spec.children())


__all__ = ["as_parts", "has_parts", "is_wrapper", "plain_parts", "with_parts", "with_tensors"]
