"""Pytrees: flattening the inputs and outputs of a program, and naming their leaves.

Users register their own container types with ``torch.utils._pytree`` (as transformers does for ``ModelOutput``), so
that registry is the one used here. The caches of transformers are not in it, though models take and return them by
default: one that turns up is registered then.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.utils._pytree import TreeSpec

from tintype.errors import InvalidRequestError

__all__ = [
    "KeyPath",
    "TreeSpec",
    "flatten",
    "flatten_with_paths",
    "is_cache",
    "leaves",
    "map_leaves",
    "path_name",
    "path_text",
    "register_dataclass",
    "register_namedtuple",
    "unflatten",
    "unflattener",
]

# positions and names of a leaf, outermost first: SequenceKey, MappingKey or GetAttrKey objects
KeyPath = tuple[Any, ...]

leaves = pytree.tree_leaves
map_leaves = pytree.tree_map


def flatten(tree: Any) -> tuple[list[Any], TreeSpec]:
    """Leaves and structure of a tree.

    >>> flatten({"a": [1, 2]})[0]
    [1, 2]
    """
    found, spec = pytree.tree_flatten(tree)
    while _register_caches(found):
        found, spec = pytree.tree_flatten(tree)
    return found, spec


def unflatten(found: Sequence[Any], spec: TreeSpec) -> Any:
    """The tree of leaves and structure.

    >>> unflatten([1, 2, 3], flatten(["a", torch.Size([2, 3])])[1])
    [1, torch.Size([2, 3])]
    """
    return unflattener(spec)(found)


def unflattener(spec: TreeSpec) -> Callable[[Sequence[Any]], Any]:
    """The function that makes trees of one structure. Where torch would make a tuple of a ``torch.Size``, that stays
    one."""
    sizes: list[tuple[int, int]] = []
    simple = _without_sizes(spec, 0, sizes)
    if not sizes:
        return lambda found: pytree.tree_unflatten(found, spec)

    def build(found: Sequence[Any]) -> Any:
        values = list(found)
        for start, end in reversed(sizes):
            values[start:end] = [_size(values[start:end])]
        return pytree.tree_unflatten(values, simple)

    return build


def _without_sizes(spec: TreeSpec, start: int, sizes: list[tuple[int, int]]) -> TreeSpec:
    """The structure with a leaf for every ``torch.Size``, whose places among the leaves are noted."""
    if spec.type is torch.Size:
        sizes.append((start, start + spec.num_leaves))
        return pytree.treespec_leaf()
    before = len(sizes)
    children = []
    for child in spec.children():
        children.append(_without_sizes(child, start, sizes))
        start += child.num_leaves
    return spec if len(sizes) == before else TreeSpec(spec.type, spec.context, children)


def _size(values: Sequence[Any]) -> Any:
    try:
        return torch.Size(values)
    except TypeError:  # something else stands for the numbers
        return tuple(values)


def flatten_with_paths(tree: Any) -> tuple[list[tuple[KeyPath, Any]], TreeSpec]:
    """Leaves of a tree with the path that leads to each.

    >>> leaves, _ = flatten_with_paths({"a": [1, 2]})
    >>> [(path_text(path), leaf) for path, leaf in leaves]
    [("['a'][0]", 1), ("['a'][1]", 2)]
    """
    found, spec = pytree.tree_flatten_with_path(tree)
    while _register_caches([leaf for _, leaf in found]):
        found, spec = pytree.tree_flatten_with_path(tree)
    return found, spec


def path_text(path: KeyPath) -> str:
    """A key path as Python source, to be appended to the name of the root."""
    return pytree.keystr(path)


def path_name(path: KeyPath) -> str:
    """A key path as part of an identifier.

    >>> leaves, _ = flatten_with_paths({"foo": [1]})
    >>> path_name(leaves[0][0])
    'foo_0'
    """
    return "_".join(_entry_name(entry) for entry in path)


def _entry_name(entry: Any) -> str:
    if isinstance(entry, pytree.SequenceKey):
        return str(entry.idx)
    if isinstance(entry, pytree.MappingKey):
        return str(entry.key)
    if isinstance(entry, pytree.GetAttrKey):
        return str(entry.name)
    return str(entry)


def register_dataclass(
    cls: type,
    *,
    field_names: Sequence[str] | None = None,
    drop_field_names: Sequence[str] | None = None,
    serialized_type_name: str | None = None,
    return_none_fields: bool = False,
) -> None:
    """Let a dataclass be an input or output of exported programs: its fields become leaves.

    Fields that are ``None`` are part of the structure, unless ``return_none_fields`` makes them leaves.

    >>> @dataclasses.dataclass
    ... class Point:
    ...     x: int
    ...     y: int
    >>> register_dataclass(Point)
    >>> flatten(Point(1, 2))[0]
    [1, 2]
    """
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise InvalidRequestError(
            f"register_dataclass expects a dataclass, but got {cls!r}",
            remedy="decorate the class with @dataclasses.dataclass",
        )
    names = _fields_to_flatten(cls, field_names, drop_field_names)
    flatten_fields, flatten_with_keys = _flatteners(names, return_none_fields)

    def unflatten_fields(values: Iterable[Any], context: Any) -> Any:
        present, absent = context
        return cls(**dict(zip(present, values, strict=True)), **dict.fromkeys(absent))

    pytree.register_pytree_node(
        cls,
        flatten_fields,
        unflatten_fields,
        serialized_type_name=serialized_type_name or f"{cls.__module__}.{cls.__qualname__}",
        flatten_with_keys_fn=flatten_with_keys,
    )


def register_namedtuple(cls: type, *, serialized_type_name: str | None = None) -> None:
    """Let programs with a named tuple among their inputs or outputs be saved: files refer to it by its name.

    Named tuples can be inputs and outputs without this.

    >>> from collections import namedtuple
    >>> Pair = namedtuple("Pair", ["first", "second"])
    >>> register_namedtuple(Pair, serialized_type_name="example.Pair")
    """
    if not (isinstance(cls, type) and pytree.is_namedtuple_class(cls)):
        raise InvalidRequestError(f"register_namedtuple expects the class of a named tuple, but got {cls!r}")
    if cls not in pytree.SUPPORTED_SERIALIZED_TYPES:
        name = serialized_type_name or f"{cls.__module__}.{cls.__qualname__}"
        pytree._register_namedtuple(cls, serialized_type_name=name)


def _fields_to_flatten(
    cls: type, field_names: Sequence[str] | None, drop_field_names: Sequence[str] | None
) -> list[str]:
    known = [field.name for field in dataclasses.fields(cls) if field.init]
    names = list(field_names) if field_names is not None else known
    dropped = set(drop_field_names or ())
    unknown = [name for name in [*names, *dropped] if name not in known]
    if unknown:
        raise InvalidRequestError(
            f"{cls.__name__} has no constructor field {', '.join(unknown)}; its fields are {', '.join(known)}",
            remedy="name fields of the dataclass that its constructor takes",
        )
    return [name for name in names if name not in dropped]


def _flatteners(names: list[str], keep_none: bool) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def flatten_fields(value: Any) -> tuple[list[Any], Any]:
        present, absent, values = [], [], []
        for name in names:
            field = getattr(value, name)
            if field is None and not keep_none:
                absent.append(name)
            else:
                present.append(name)
                values.append(field)
        return values, [present, absent]

    def flatten_with_keys(value: Any) -> tuple[list[tuple[Any, Any]], Any]:
        values, context = flatten_fields(value)
        keys = [pytree.GetAttrKey(name) for name in context[0]]
        return list(zip(keys, values, strict=True)), context

    return flatten_fields, flatten_with_keys


# --- caches of transformers ------------------------------------------------------------------------------


def _register_caches(found: list[Any]) -> bool:
    """Make containers of the caches, and parts of caches, among leaves; whether there were any."""
    kinds = [kind for kind in set(map(type, found)) if is_cache(kind)]
    for kind in kinds:
        _register_attributes(kind)
    return bool(kinds)


def is_cache(kind: type) -> bool:
    """Whether a class is that of a cache of transformers, or of a part of one."""
    return any(base.__module__ == _CACHES and base.__name__ in _CACHE_CLASSES for base in kind.__mro__)


def cache_type_named(name: str) -> type | None:
    """The class of a cache by its full name, registered now; None unless somebody has imported transformers."""
    module, _, class_name = name.rpartition(".")
    if module != _CACHES or module not in sys.modules:
        return None
    cls = vars(sys.modules[module]).get(class_name)
    if not isinstance(cls, type) or not is_cache(cls):
        return None
    if cls not in pytree.SUPPORTED_NODES:
        _register_attributes(cls)
    return cls


_CACHES = "transformers.cache_utils"
_CACHE_CLASSES = ("Cache", "CacheLayerMixin", "LinearAttentionCacheLayerMixin")


def _register_attributes(cls: type) -> None:
    """Let an object be the container of its attributes: tensors, numbers and containers are its parts, settings
    (flags, dtypes, classes) are its structure."""

    def flatten_attributes(value: Any) -> tuple[list[Any], Any]:
        attributes = sorted(vars(value).items())
        parts = {name: item for name, item in attributes if not isinstance(item, _SETTINGS)}
        return list(parts.values()), (tuple(parts), tuple(pair for pair in attributes if pair[0] not in parts))

    def flatten_with_keys(value: Any) -> tuple[list[tuple[Any, Any]], Any]:
        values, context = flatten_attributes(value)
        return list(zip(map(pytree.GetAttrKey, context[0]), values, strict=True)), context

    def unflatten_attributes(values: Iterable[Any], context: Any) -> Any:
        names, settings = context
        value: Any = object.__new__(cls)
        vars(value).update(zip(names, values, strict=True))
        vars(value).update(settings)
        return value

    pytree.register_pytree_node(
        cls,
        flatten_attributes,
        unflatten_attributes,
        serialized_type_name=f"{cls.__module__}.{cls.__qualname__}",
        flatten_with_keys_fn=flatten_with_keys,
    )


_SETTINGS = (bool, str, type, type(None), torch.dtype, torch.device)
