"""What ``dynamic_shapes`` says of one argument: from a spec to one entry per dimension of every tensor in it.

A spec follows the structure of its argument: lists and tuples by position, dictionaries by key, objects by the names
of their parts, then for each tensor a dictionary by dimension, a tuple with one entry per dimension, or None; for an
integer or a float the entry itself. Where a container stands, a spec may be shorter:

- ``"auto"``, or a hint such as ``Dim.AUTO``, is that of everything below;
- a dictionary by dimension is that of every tensor below that has those dimensions;
- a dictionary by name, where a list or tuple stands, is that of each of its items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

from tintype import tree
from tintype.errors import InvalidRequestError
from tintype.export.dimensions import Dim, DimHint
from tintype.tree.jagged import EXTREMES, JaggedParts
from tintype.tree.sparse import SparseParts
from tintype.tree.subclasses import holds_sparse

# per dimension of a tensor: a Dim, a hint, a size that must be so, or None for the size of the example
Entry = Dim | DimHint | int | None
# of one leaf; None for a static one
Entries = list[Entry] | None


def match(value: Any, spec: Any, name: str) -> list[Entries]:
    """The entries of each leaf of an argument."""
    found: list[Entries] = []
    _match(value, spec, name, found)
    return found


def is_number(leaf: Any) -> bool:
    """Whether an argument is a number that may vary."""
    return type(leaf) in (int, float)


def _match(value: Any, spec: Any, path: str, found: list[Entries]) -> None:
    """Go through a value and its spec side by side; append the entries of each leaf."""
    parts = _parts(value)
    if type(value) is SparseParts:
        found += _sparse_entries(value, spec, path)
    elif type(value) is JaggedParts:
        found += _jagged_entries(value, spec, path)
    elif parts is not None and _is_for_all(spec, parts) and holds_sparse(value):
        for child in parts.values:
            _match(child, spec, path, found)
    elif spec is None:
        found += [None] * len(tree.leaves(value))
    elif _is_auto(spec) or (parts is not None and isinstance(spec, DimHint)):
        hint = Dim.AUTO if _is_auto(spec) else spec
        found += [_hinted(leaf, hint) for leaf in tree.leaves(value)]
    elif isinstance(value, torch.Tensor):
        found.append(_tensor_entries(value, spec, path))
    elif parts is None:
        found.append(_number_entry(value, spec, path))
    elif _is_for_all(spec, parts):
        _match_everywhere(value, spec, path, found)
    else:
        for key, child, child_spec in zip(parts.keys, parts.values, _child_specs(value, spec, parts, path)):
            _match(child, child_spec, f"{path}{_key_text(key)}", found)


def _is_for_all(spec: Any, parts: _Parts) -> bool:
    """Whether the spec of a container is that of everything below."""
    if spec is None or _is_auto(spec) or isinstance(spec, DimHint):
        return True
    return _is_by_dimension(spec) and not any(key in parts.by_key for key in spec)


def _is_auto(spec: Any) -> bool:
    return isinstance(spec, str) and spec == "auto"


def _hinted(leaf: Any, hint: DimHint) -> Entries:
    """What a hint says of a leaf, which it need not fit: "auto" is as general as it can be."""
    if hint.kind == "STATIC":
        return None
    if isinstance(leaf, torch.Tensor):
        return [hint] * leaf.dim()
    return [hint] if type(leaf) is int and hint.kind == "AUTO" else None


# --- containers ------------------------------------------------------------------------------------------


class _Parts:
    """The parts of a container with the entries of paths that lead to them."""

    def __init__(self, keys: list[Any], values: list[Any]) -> None:
        self.keys = keys
        self.values = values
        # only what can be asked for by key: positions are asked for by order
        self.by_key = {
            _plain_key(key): number for number, key in enumerate(keys) if not isinstance(key, pytree.SequenceKey)
        }

    @property
    def names(self) -> list[Any]:
        return [_plain_key(key) for key in self.keys]


def _parts(value: Any) -> _Parts | None:
    """None for a leaf."""
    node = pytree.SUPPORTED_NODES.get(pytree._get_node_type(value))
    if node is None or isinstance(value, torch.Tensor):
        return None
    if node.flatten_with_keys_fn is None:
        values = list(node.flatten_fn(value)[0])
        return _Parts([pytree.SequenceKey(number) for number in range(len(values))], values)
    pairs = list(node.flatten_with_keys_fn(value)[0])
    return _Parts([key for key, _ in pairs], [item for _, item in pairs])


def _plain_key(key: Any) -> Any:
    return getattr(key, "key", getattr(key, "idx", getattr(key, "name", None)))


def _key_text(key: Any) -> str:
    return str(key) if isinstance(key, pytree.GetAttrKey) else f"[{_plain_key(key)!r}]"


def _child_specs(value: Any, spec: Any, parts: _Parts, path: str) -> list[Any]:
    """The specs of a container's parts."""
    if isinstance(spec, Mapping):
        if not parts.by_key and parts.keys:
            return _specs_of_items(spec, parts, path)
        unknown = [key for key in spec if key not in parts.by_key]
        if unknown:
            raise InvalidRequestError(
                f"{path} has no {unknown[0]!r}, which dynamic_shapes names; it has {parts.names}"
            )
        return [spec.get(name) for name in parts.names]
    if isinstance(spec, (list, tuple)):
        specs = list(spec)
    elif type(spec) is type(value):
        specs = list(pytree.SUPPORTED_NODES[pytree._get_node_type(spec)].flatten_fn(spec)[0])
    else:
        raise InvalidRequestError(
            f"{path} is a {type(value).__name__}, but dynamic_shapes has a {type(spec).__name__} for it",
            remedy="follow the structure of the argument",
        )
    if len(specs) != len(parts.keys):
        raise InvalidRequestError(f"{path} has {len(parts.keys)} parts, but dynamic_shapes has {len(specs)} for it")
    return specs


def _specs_of_items(spec: Mapping[Any, Any], parts: _Parts, path: str) -> list[Any]:
    """A dictionary for a list: by position, or by name for each of its items."""
    if all(isinstance(key, str) for key in spec):
        return [spec] * len(parts.keys)
    unknown = [key for key in spec if key not in range(len(parts.keys))]
    if unknown:
        raise InvalidRequestError(
            f"{path} has {len(parts.keys)} parts, but dynamic_shapes names number {unknown[0]!r} of it"
        )
    return [spec.get(number) for number in range(len(parts.keys))]


def _is_by_dimension(spec: Any) -> bool:
    """Whether a spec is that of a tensor, by dimension."""
    return (
        isinstance(spec, Mapping)
        and bool(spec)
        and all(type(key) is int for key in spec)
        and all(entry is None or _is_auto(entry) or isinstance(entry, (Dim, DimHint, int)) for entry in spec.values())
    )


def _match_everywhere(value: Any, spec: Mapping[int, Any], path: str, found: list[Entries]) -> None:
    """A spec by dimension for every tensor below a container; those with fewer dimensions have what they have."""
    fits: set[int] = set()
    for below, leaf in tree.flatten_with_paths(value)[0]:
        if not isinstance(leaf, torch.Tensor):
            found.append(None)
            continue
        own = {d: entry for d, entry in spec.items() if -leaf.dim() <= d < leaf.dim()}
        fits |= own.keys()
        found.append(_tensor_entries(leaf, own, path + tree.path_text(below)))
    missing = [dimension for dimension in spec if dimension not in fits]
    if missing:
        raise InvalidRequestError(f"no tensor in {path} has the dimension {missing[0]} that dynamic_shapes names")


# --- leaves ----------------------------------------------------------------------------------------------


def _tensor_entries(tensor: torch.Tensor, spec: Any, path: str) -> list[Entry]:
    count = tensor.dim()
    entries: list[Entry] = [None] * count
    if isinstance(spec, DimHint):
        entries = [_entry(spec, path)] * count
    elif isinstance(spec, Mapping):
        for dimension, entry in spec.items():
            if not isinstance(dimension, int) or not -count <= dimension < count:
                raise InvalidRequestError(
                    f"{path} has {count} dimensions, but dynamic_shapes names dimension {dimension!r} of it"
                )
            entries[dimension] = _entry(entry, f"{path}.shape[{dimension}]")
    elif isinstance(spec, (list, tuple)):
        if len(spec) != count:
            raise InvalidRequestError(f"{path} has {count} dimensions, but dynamic_shapes has {len(spec)} for it")
        entries = [_entry(entry, f"{path}.shape[{d}]") for d, entry in enumerate(spec)]
    else:
        raise InvalidRequestError(
            f"{path} is a tensor, but dynamic_shapes has {spec!r} for it",
            remedy="give a dictionary by dimension, a tuple with one entry per dimension, 'auto', or None",
        )
    for dimension, entry in enumerate(entries):
        if isinstance(entry, int) and entry != tensor.shape[dimension]:
            raise InvalidRequestError(
                f"Static shape constraint of {entry} does not match input size of {tensor.shape[dimension]}, for "
                f"{path}.shape[{dimension}]"
            )
    return entries


def _sparse_entries(value: SparseParts, spec: Any, path: str) -> list[Entries]:
    """The entries of a sparse tensor's parts: the spec is that of the tensor. How many values it has may always vary,
    and what else its parts have to do with its size follows from that."""
    size = _size_entries(value.size, spec, path)
    varies: Entry = Dim.AUTO if any(entry is not None for entry in size) else None
    entries: list[Entries] = []
    for name, part in value.tensors().items():
        of_part: list[Entry] = [varies] * part.dim()
        if value.layout is torch.sparse_coo:
            of_part[0] = None if name == "indices" else Dim.AUTO
        if name not in ("crow_indices", "ccol_indices"):
            of_part[1 if name == "indices" else value.batch_dim] = Dim.AUTO
        entries.append(of_part)
    return entries + [None if entry is None else [entry] for entry in size]


def _jagged_entries(value: JaggedParts, spec: Any, path: str) -> list[Entries]:
    """The same for a nested tensor: how long its rows are may always vary."""
    ragged = value.structure[0]
    values = value.parts["values"]
    offsets = value.parts.get("offsets")  # one that has the offsets of another one has as many rows
    rows = None if offsets is None else offsets.shape[0] - 1
    sizes = list(values.shape)
    sizes[ragged - 1] = 0
    of_rows, *others = _size_entries([0 if rows is None else rows, *sizes], spec, path)
    if any(isinstance(entry, Dim) for number, entry in enumerate(others) if number != ragged - 1):
        raise InvalidRequestError(
            f"{path} is a nested tensor: only the number of its rows may vary, and how long they are",
            remedy="name dimension 0 alone",
        )
    of_values: Entries = [Dim.AUTO if number == ragged - 1 else None for number in range(len(others))]
    entries: list[Entries] = [of_values]
    if offsets is not None:
        entries.append([of_rows + 1 if isinstance(of_rows, (Dim, int)) else of_rows])
    if "lengths" in value.parts:
        entries.append([of_rows])
    return entries + [[Dim.AUTO] for name in EXTREMES if name in value.parts]


def _size_entries(size: Sequence[int], spec: Any, path: str) -> list[Entry]:
    """The entries of the size of a tensor that consists of others."""
    if isinstance(spec, Mapping) and any(isinstance(key, str) for key in spec):
        raise InvalidRequestError(
            f"{path} is a tensor, but dynamic_shapes has {spec!r} for it",
            remedy="its sizes are given by dimension; how many values it has varies anyway",
        )
    if spec is None:
        return [None] * len(size)
    if _is_auto(spec) or isinstance(spec, DimHint):
        return [_entry(Dim.AUTO if _is_auto(spec) else spec, path)] * len(size)
    return _tensor_entries(torch.empty(size, device="meta"), spec, path)


def _number_entry(value: Any, spec: Any, path: str) -> Entries:
    """The entry of an integer or a float that varies."""
    if isinstance(spec, DimHint) and spec.kind == "STATIC":
        return None
    if not is_number(value):
        raise InvalidRequestError(
            f"{path} is a {type(value).__name__}, but dynamic_shapes has {spec!r} for it",
            remedy="only sizes of tensors, integers and floats vary: write None",
        )
    if type(spec) is type(value):
        if spec != value:
            raise InvalidRequestError(f"{path} is {value}, but dynamic_shapes says that it is {spec}")
        return None
    if isinstance(spec, DimHint) and (type(value) is int or spec in (Dim.AUTO, Dim.DYNAMIC)):
        return [spec]
    if isinstance(spec, Dim) and type(value) is int:
        return [spec]
    kinds = "a Dim, Dim.AUTO, Dim.DYNAMIC" if type(value) is int else "Dim.AUTO, Dim.DYNAMIC"
    raise InvalidRequestError(
        f"{path} is a {type(value).__name__}, but dynamic_shapes has {spec!r} for it",
        remedy=f"write {kinds}, Dim.STATIC or None",
    )


def _entry(entry: Any, path: str) -> Entry:
    if isinstance(entry, DimHint) and entry.kind == "STATIC":
        return None
    if _is_auto(entry):
        return Dim.AUTO
    if entry is None or isinstance(entry, (Dim, DimHint)) or (isinstance(entry, int) and not isinstance(entry, bool)):
        return entry
    raise InvalidRequestError(
        f"{path}: a size is a Dim, Dim.AUTO, Dim.DYNAMIC, Dim.STATIC, an integer or None, but got {entry!r}",
        remedy=f"write Dim({entry!r})" if isinstance(entry, str) and entry.isidentifier() else None,
    )


# --- specs that we write ---------------------------------------------------------------------------------


def spec_like(value: Any, of_leaf: Callable[[Any], Any]) -> Any:
    """A spec of the structure of a value, with what a function says of each leaf in turn.

    Containers stay what they are, but for objects that are containers of their attributes: None would not be a part
    of those."""
    parts = _parts(value)
    if parts is None:
        return of_leaf(value)
    specs = [spec_like(part, of_leaf) for part in parts.values]
    if tree.holds_attributes(type(value)):
        return dict(zip(parts.names, specs))
    kind = pytree._get_node_type(value)
    return pytree.SUPPORTED_NODES[kind].unflatten_fn(specs, pytree.SUPPORTED_NODES[kind].flatten_fn(value)[1])


def spec_to_copy(arguments: Mapping[str, Any]) -> str:
    """The text of a spec in which everything varies, as short as one can write it."""
    lines = [f"    {name!r}: {_general(value)!r}," for name, value in arguments.items()]
    return "\n".join(["dynamic_shapes={", *lines, "}"])


def _general(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return dict.fromkeys(range(value.dim()), Dim.AUTO) or None
    parts = _parts(value)
    if parts is None:
        return Dim.AUTO if type(value) is int else None
    specs = [_general(part) for part in parts.values]
    if parts.by_key:
        varying = {name: spec for name, spec in zip(parts.names, specs) if spec is not None}
        return varying or None
    if specs and _are_alike(specs):
        return specs[0]
    return specs or None


def _are_alike(specs: Iterable[Any]) -> bool:
    """Whether one of the specs of a list's items can stand for all of them."""
    first, *others = [*specs] or [None]
    return (first is None or isinstance(first, dict)) and all(other == first for other in others)
