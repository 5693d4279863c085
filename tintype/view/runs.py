"""The calls of a program in the order in which they run, grouped by the modules that make them.

A run is what one module does without a break, with the runs of the modules inside of it among its calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from torch.fx import Graph, Node

from tintype.view.modules import ModuleEntry


@dataclass(eq=False)
class Run:
    """What a module does without a break: calls, and runs of the modules inside of it."""

    entry: ModuleEntry
    parent: Run | None
    items: list[Node | Run] = field(default_factory=list)

    def calls(self) -> Iterator[Node]:
        """All calls of a run, those of inner ones included."""
        for item in self.items:
            if isinstance(item, Node):
                yield item
            else:
                yield from item.calls()


def runs_of(graph: Graph, root: ModuleEntry) -> Run:
    """The run of the whole program; inside of it, in the order of the graph, everything else.

    >>> import torch, tintype
    >>> from tintype.view.modules import module_tree
    >>> ep = tintype.export(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh()), (torch.ones(2),))
    >>> [run.entry.class_name for run in runs_of(ep.graph, module_tree(ep)).items]
    ['ReLU', 'Tanh']
    """
    entries = {node: entry for entry in root.descendants() for node in entry.nodes}
    whole = current = Run(root, None)
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        chain = _chain(entries[node])
        while current.parent is not None and current.entry not in chain:
            current = current.parent
        for entry in chain[chain.index(current.entry) + 1 :]:
            inner = Run(entry, current)
            current.items.append(inner)
            current = inner
        current.items.append(node)
    return whole


def _chain(entry: ModuleEntry) -> list[ModuleEntry]:
    """The modules around a module and itself, the model first."""
    chain = [entry]
    while chain[-1].parent is not None:
        chain.append(chain[-1].parent)
    return chain[::-1]


def foldable(items: Iterable[Node | Run]) -> Iterator[list[Node] | list[Run]]:
    """Items with numbered neighbours that are alike put together; a run must be all that its module does."""
    group: list[Run] = []
    for item in items:
        if isinstance(item, Run) and group and _are_alike(group[0], item):
            group.append(item)
            continue
        if group:
            yield group
            group = []
        if isinstance(item, Run):
            group = [item]
        else:
            yield [item]
    if group:
        yield group


def _are_alike(one: Run, other: Run) -> bool:
    numbered = one.entry.label.isdecimal() and other.entry.label.isdecimal()
    if not numbered or one.entry.likeness != other.entry.likeness:
        return False
    return sum(1 for _ in one.calls()) == one.entry.calls and sum(1 for _ in other.calls()) == other.entry.calls
