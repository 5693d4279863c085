"""Memory that tensors of a recorded graph have, or may have in another layout of its inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from torch.fx import Node

from tintype.fake.info import Storage
from tintype.fake.tensor import FakeTensor


def storages_of(node: Node) -> list[Storage]:
    """The storages of the tensors that a node's value consists of."""
    value = node.meta.get("val")
    if type(value) is FakeTensor:
        return [value.info.storage]
    values = value if isinstance(value, (list, tuple)) else ()
    return [item.info.storage for item in values if type(item) is FakeTensor]


def may_share(calls: Iterable[tuple[Node, Node]], written: Collection[Storage]) -> set[Storage]:
    """The storages that may be, in some layout, the same as one that is written to; ``calls`` are what may be views
    of each other."""
    neighbours: dict[Storage, list[Storage]] = {}
    for base, call in calls:
        for first in storages_of(call):
            for second in storages_of(base):
                neighbours.setdefault(first, []).append(second)
                neighbours.setdefault(second, []).append(first)
    reached = set(written)
    pending = list(written)
    while pending:
        new = [storage for storage in neighbours.get(pending.pop(), ()) if storage not in reached]
        reached.update(new)
        pending += new
    return reached
