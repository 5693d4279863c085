"""Lists and dictionaries in attributes that a script changes: their tensors and numbers are buffers of the program.

A cache is a list of tensors, a history one of numbers. What is in them lasts from call to call, so a program has a
buffer for every item, ``cache_0`` for ``self.cache[0]``. Their number is what it was: a program can't have more
buffers from call to call, and is refused where the script gives it more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from tintype.errors import StateChangedError
from tintype.interop.torchscript.heap import ScriptDict, ScriptList
from tintype.interop.torchscript.mirror import Mirror, is_kept_number, number_buffer

if TYPE_CHECKING:
    from tintype.interop.torchscript.interpreter import Interpreter
    from tintype.interop.torchscript.reading import Statement

# What changes a list or dictionary.
_CHANGES = frozenset(
    {
        *("aten::_set_item", "aten::append", "aten::extend", "aten::insert", "aten::pop", "aten::Delete"),
        *("aten::clear", "aten::reverse", "aten::remove", "aten::sort", "aten::update", "aten::setdefault"),
        "aten::popitem",
    }
)
# What gives an item, or memory of one.
_PARTS = frozenset(
    {
        *("aten::__getitem__", "aten::select", "aten::slice", "aten::view", "aten::reshape", "aten::transpose"),
        *("aten::permute", "aten::t", "aten::unsqueeze", "aten::squeeze", "aten::narrow", "aten::detach"),
    }
)


class Kept(NamedTuple):
    """The items of an attribute: ``keys`` are those of a dictionary, None for a list; ``names`` are buffers."""

    keys: tuple[Any, ...] | None
    names: tuple[str, ...]


def changed_containers(statements: Iterable[tuple[Statement, Any]]) -> set[tuple[Mirror, str]]:
    """The attributes of modules whose lists and dictionaries are changed, or tensors in them written to."""
    known: dict[tuple[int, int], tuple[Mirror, str]] = {}
    changed: set[tuple[Mirror, str]] = set()
    for statement, subject in statements:
        if not statement.inputs:
            continue
        procedure = id(statement.procedure)
        source = known.get((procedure, statement.inputs[0]))
        if statement.kind == "prim::GetAttr" and isinstance(subject, Mirror):
            known[procedure, statement.outputs[0]] = (subject, statement.name)
        elif statement.kind == "prim::SetAttr" and isinstance(subject, Mirror):
            changed.add((subject, statement.name))
        elif source is not None and statement.kind in _PARTS:
            known[procedure, statement.outputs[0]] = source
        elif source is not None and (statement.kind in _CHANGES or statement.kind.endswith("_")):
            changed.add(source)
    return changed


def keep_container(mirror: Mirror, name: str, registered: set[int]) -> None:
    """Let the items of an attribute be buffers, if it is a list or dictionary of tensors and numbers that are nothing
    else besides: ``registered`` are the parameters and buffers that there are."""
    value = mirror.script.getattr(name)
    if name in mirror.kept or not isinstance(value, (list, dict)) or not value:
        return
    items = list(value.values()) if isinstance(value, dict) else list(value)
    tensors = [id(item) for item in items if isinstance(item, torch.Tensor)]
    is_plain = all(isinstance(item, torch.Tensor) or is_kept_number(item) for item in items)
    if not is_plain or len(set(tensors)) < len(tensors) or registered.intersection(tensors):
        return
    names = []
    for key, item in zip(value if isinstance(value, dict) else range(len(items)), items, strict=True):
        names.append(_free_name(mirror, f"{name}_{key}"))
        mirror._buffers[names[-1]] = item if isinstance(item, torch.Tensor) else number_buffer(item)
        if not isinstance(item, torch.Tensor):
            mirror.kept_numbers.add(names[-1])
    mirror.kept[name] = Kept(tuple(value) if isinstance(value, dict) else None, tuple(names))


def _free_name(mirror: Mirror, name: str) -> str:
    name = "".join(letter if letter.isalnum() else "_" for letter in name)
    while mirror.script.hasattr(name) or name in mirror._buffers:
        name += "_"
    return name


def load(interpreter: Interpreter, mirror: Mirror, name: str) -> Any:
    """The list or dictionary as it is when a run begins."""
    kept = mirror.kept[name]
    items = []
    for buffer_name in kept.names:
        buffer: Any = mirror._buffers[buffer_name]
        items.append(buffer.item() if buffer_name in mirror.kept_numbers else buffer)
    interpreter.kept_items[id(mirror), name] = items
    heap = interpreter.heap
    return heap.list(items) if kept.keys is None else heap.dictionary(zip(kept.keys, items, strict=True))


def write(mirror: Mirror, name: str, before: list[Any], value: Any) -> None:
    """Write back what is in the list or dictionary when the run has ended."""
    kept = mirror.kept[name]
    if isinstance(value, ScriptDict):
        keys, items = tuple(value.content), list(value.content.values())
    else:
        keys, items = None, value.known() if isinstance(value, ScriptList) else []
    if keys != kept.keys or len(items) != len(kept.names):
        raise StateChangedError(
            f"the script changes the attribute {name!r} of {type(mirror).__name__}, which lasts from call to call, "
            "to something with other items than before",
            remedy="let a list or dictionary in an attribute keep its length or keys; pass what grows as an argument "
            "and return it",
        )
    for buffer_name, old, item in zip(kept.names, before, items, strict=True):
        if item is old:
            continue
        if buffer_name in mirror.kept_numbers:
            buffer: Any = mirror._buffers[buffer_name]
            buffer.copy_(torch.scalar_tensor(item, dtype=buffer.dtype, device=buffer.device))
        else:
            mirror._buffers[buffer_name] = item
