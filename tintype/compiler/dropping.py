"""Runs that nothing has used of late are dropped from a program that knows many."""

from __future__ import annotations

from tintype.compiler.program import Program
from tintype.compiler.tree_of_runs import Node


def drop_unused(program: Program, new: Node) -> None:
    """Drop the runs that were not repeated since this was called last, but for the one that is new.

    Where all of them were, the oldest half goes: what a function keeps alive has a bound.
    """
    ends = [node for node in program.root.walk() if not node.children and node is not new]
    unused = [node for node in ends if node.number not in program.used]
    for node in unused or sorted(ends, key=lambda node: node.number)[: len(ends) // 2]:
        _remove(node)
        program.count -= 1
    program.used.clear()
    program.forget_constants()


def _remove(node: Node) -> None:
    """Take a node out of the tree, and those above it of which nothing is left."""
    while node.parent is not None and not node.children:
        node.parent.children.remove(node)
        node = node.parent
