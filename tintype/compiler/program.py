"""Recorded runs of a function, merged into one program that decides by guards which of them to repeat.

Runs of one function are equal until a guard has another answer. So they make a tree: a node has items that are done
in turn, and children that begin with guards. A node becomes a Python function. Where no child's guards hold, the
program *misses*: the results so far are handed over to a new capture, which runs the function from its start without
doing again what was done, and goes on from there; writes to objects are taken back before, and happen again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from torch.utils import checkpoint

from tintype.compiler import undoing
from tintype.compiler.sources import LOOKUP_ERRORS, Guard, Raised, Source
from tintype.compiler.trace import SETS_MODE, Call, Item
from tintype.compiler.tree_of_runs import (
    DivergedError,
    KnownError,
    MissedError,
    Node,
    Place,
    common_start,
)
from tintype.compiler.writing import Writer, is_end, sizes_asked
from tintype.errors import TintypeError
from tintype.trace.recording import ThreadState

OTHER = object()  # what a node gives where the next one is to be asked
GONE = object()  # in place of a result that nothing uses any more


class Program:
    """All runs of a function that are known."""

    def __init__(self, hooks: dict[str, Callable[..., Any]]) -> None:
        self._numbers = itertools.count()
        self.root = self._node([], None)
        self._names: dict[Any, str] = {}
        self._constants: dict[int, str] = {}
        # of the sizes that runs ask for, which are handed on: a write may change a tensor's
        self.names_of_sizes: set[str] = set()
        self.functions: dict[Any, str] = {}  # what is asked again and again: the names of the functions
        # the ends of runs that were repeated, noted where there are many
        self.used: set[int] = set()
        self._hooks = hooks
        self.count = 0
        self._grown: list[Node] = []  # those that have got another child since they were written
        self.sets_modes = False
        self.forget_constants()

    @property
    def nodes(self) -> list[Node]:
        return self.root.walk()

    def forget_constants(self) -> None:
        """Let all functions be written anew, with what they need and nothing else."""
        self._constants, self.functions = {}, {}
        for node in self.nodes:
            node.is_stale = True
        self.namespace: dict[str, Any] = {
            **self._hooks,
            **undoing.HELPERS,
            "_lookup": LOOKUP_ERRORS,
            "_Missed": MissedError,
            "_gone": GONE,
            "_other": OTHER,
            "_TintypeError": TintypeError,
            # what torch's checkpoints raise where they have computed all that they need
            "_StopsRecomputing": checkpoint._StopRecomputationError,
            "_Raised": Raised,
            "_modes": ThreadState.now,
            "_used": self.used.add,
        }

    def _node(self, items: list[Item], parent: Node | None) -> Node:
        return Node(items, parent, next(self._numbers))

    # --- the tree ------------------------------------------------------------------------------------------------

    def insert(self, items: list[Item]) -> Node:
        """Add a run; returns the node that is new."""
        node, start = self.root, 0
        while True:
            same = common_start(node.items, items[start:])
            start += same
            if same < len(node.items):
                self._split(node, same)
            if start == len(items):
                raise KnownError("a run is known already, or ends where another goes on")
            child = next((child for child in node.children if child.items[0].key == items[start].key), None)
            if child is None:
                break
            node = child
        firsts = [items[start], *(child.items[0] for child in node.children)]
        is_at_guards = all(isinstance(item, Guard) and item.kind != "assumed" for item in firsts)
        if not is_at_guards or (node.items and is_end(node.items[-1])):
            raise DivergedError(f"two runs of the function differ in what no guard explains: {firsts}")
        new = self._node(items[start:], node)
        steps = (item.step for item in new.items if isinstance(item, Call))
        self.sets_modes = self.sets_modes or any(step == SETS_MODE for step in steps)
        self.names_of_sizes.update(map(self.name_of, sizes_asked(new.items)))
        last = node.children[-1:]
        node.children.insert(0, new)
        node.children.sort(key=_is_general)  # a run that rests on a number before one that serves others too
        self.count += 1
        if node.handed is not None and not node.is_stale and self.names_read(new) & node.seen <= set(node.handed):
            new.parameters = node.handed
            self._grown.append(node)
            return new
        for sibling in (*last, node.children[-1]):  # which of them is the last one to be asked may have changed
            sibling.is_stale = True
        step: Node | None = node
        while step is not None:  # what a node hands down to another depends on what that one needs
            step.is_stale = True
            step = step.parent
        return new

    def names_read(self, node: Node) -> set[str]:
        """The names of all that a node and those below it read."""
        found: set[str] = set()
        for source in node.sources():
            step: Source | None = source
            while step is not None and (name := self.name_of(step)) not in found:
                found.add(name)
                step = step.parent
        return found

    def _split(self, node: Node, position: int) -> None:
        done: set[int] = set()
        for item in node.items[:position]:  # a graph that goes on behind the place is none any more
            if isinstance(item, Call):
                done.add(item.number)
        for item in node.items[:position]:
            if isinstance(item, Call) and item.graph is not None:
                if not done.issuperset(call.number for call in item.graph.calls):
                    item.graph = None
        rest = self._node(node.items[position:], node)
        rest.children, node.handed = node.children, None
        for child in rest.children:
            child.parent = rest
        node.items = node.items[:position]
        node.children = [rest]

    # --- code ----------------------------------------------------------------------------------------------------

    def compiled(self) -> Callable[..., Any]:
        """The program as a function of positional and keyword arguments."""
        self.root.parameters = ["args", "kwargs"]
        self.write(self.root)
        for node in self._grown:
            self.write_ways(node)
        self._grown = []
        function: Callable[..., Any] = self.namespace[self.root.name]
        return function

    def write(self, node: Node) -> None:
        """Write the function of a node, where it has changed."""
        if node.is_stale:
            source = Writer(self, node).function()
            self.namespace["_here"] = Place(node)  # after those below it are written, who have their own
            code = compile(source, f"<tintype {node.name}>", "exec")
            exec(code, self.namespace)  # noqa: S102  (written by us)
            node.is_stale = False

    def write_ways(self, node: Node) -> None:
        """Write the functions of many children, where they have changed."""
        by_value: dict[Any, Callable[..., Any]] = {}
        ways: list[Callable[..., Any]] = []
        for child in node.children:
            self.write(child)
            function, first = self.namespace[child.name], child.value_guard()
            if first is not None and node.place_of_values == first.source.path:
                by_value[(type(first.expected), first.expected)] = function
            else:
                ways.append(function)
        node.by_value, node.ways = by_value, tuple(ways)

    def bind(self, value: Any) -> str:
        """The name of a constant."""
        name = self._constants.get(id(value))
        if name is None:
            name = self._constants[id(value)] = f"k{len(self._constants)}"
            self.namespace[name] = value
        return name

    def name_of(self, source: Source) -> str:
        if source.kind == "value":
            return f"v{source.key}"
        return self._names.setdefault(source.path, f"s{len(self._names)}")


def _is_general(node: Node) -> bool:
    """Whether a run begins with a guard about a number that varies."""
    first = node.items[0]
    return isinstance(first, Guard) and (
        first.kind == "length" or (first.kind == "type" and first.expected in (int, float))
    )
