"""Whether somebody could see a write to what may be an operand or a copy of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tintype.fake.info import Storage
from tintype.ir.graph import placeholders
from tintype.trace.shared_memory import storages_of

if TYPE_CHECKING:
    from tintype.transforms.functionalize import Functionalization


def is_seen_later(functional: Functionalization, frozen: Storage) -> bool:
    """Whether somebody could see a write to the result of a branch in the memory of the operand it may be."""
    if not frozen.sources:
        return True
    return any(_source_is_seen_later(functional, frozen, source) for source in frozen.sources)


def _source_is_seen_later(functional: Functionalization, frozen: Storage, source: Storage) -> bool:
    if any(source in storages_of(node) for node in placeholders(functional.graph)):
        return True
    node = functional.emit.at
    assert node is not None
    while node.op != "output":
        node = node.next
        for argument in node.all_input_nodes:
            for storage in storages_of(argument):
                if storage is source or (source in storage.sources and not _are_apart(storage, frozen)):
                    return True
    return source.frozen and is_seen_later(functional, source)


def _are_apart(storage: Storage, frozen: Storage) -> bool:
    """Whether a write to one of two aliases of some memory is not to be seen in the other one as such."""
    return storage is frozen or (storage.split is not None and storage.split is frozen.split)
