"""Tensors that a model keeps from call to call where a program can't: in attributes that are no buffers.

A program's state is its buffers. A model that keeps a tensor elsewhere (``self.mask = ...``, a hook that stores what
a layer computed) can be a program all the same if that makes no difference: the program computes in each call what
the first one did. Whether it makes one is found out by calling the model twice in one capture. The second call must
compute what the first one did, and what it finds of the first call must be the same for every first call: it may not
depend on what inputs hold, on sizes that vary, on random numbers, or on buffers that are written to.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from tintype import tree
from tintype.errors import TintypeError, raise_all
from tintype.export.lost_state import warn
from tintype.fake.info import Storage
from tintype.fake.tensor import FakeTensor
from tintype.ir.operator_facts import has_effect
from tintype.ir.signature import InputKind
from tintype.symbolic.bridge import from_torch
from tintype.symbolic.expression import Expr
from tintype.trace.capture import Capture
from tintype.trace.captured_graph import CapturedGraph
from tintype.trace.shared_memory import storages_of
from tintype.trace.snapshot import (
    Change,
    contents,
    holds_fake,
    is_of_data,
    is_plain,
    object_attributes,
    put_outside,
    with_plain_sizes,
)
from tintype.transforms.drawn_again import draws
from tintype.transforms.memory import storages_written_by


def settle_kept_tensors(
    captured: CapturedGraph,
    difference: Callable[[Sequence[Change], Sequence[Change]], str | None],
    *,
    forgets: bool = False,
    tell: Callable[[str], None] = warn,
) -> None:
    """Tell of tensors that a program does not keep, or raise if that makes its later calls differ.

    ``difference`` tells why a second call differs from the first, from changes with tensors and those with numbers;
    with ``forgets`` it may."""
    why, kept = None, captured.kept
    if not forgets:
        if any(isinstance(change.after, torch.nn.Module) for change, _ in kept):
            raise_all([error for _, error in kept])
        try:
            numbers = [*captured.plain_changes, *captured.outside_changes]
            why = difference([change for change, _ in kept], numbers)
        except TintypeError:
            why = "a second call can't be captured"
    if why is not None:
        for _, error in kept:
            error.fact += f", and it makes a difference here: {why}"
            error.remedy = f"{error.remedy}; forgets_assignments=True if every call is to be like the first one"
        raise_all([error for _, error in kept])
    kept = [(change, error) for change, error in kept if holds_fake(change.after)]
    if not kept:  # numbers that no later call looks at
        return
    lines = dict.fromkeys(f"\n  - {_place(change)}{_line(error)}" for change, error in kept)
    effect = "in eager mode, later calls may find what earlier ones put there" if forgets else "later calls are alike"
    tell(
        f"the model puts tensors where the captured program does not:{''.join(lines)}\n"
        f"  Every call of the program computes what the model's first call computes; {effect}.\n"
        "  What to do: nothing if nobody but the model looks there; else return the tensors"
    )


def _place(change: Change) -> str:
    owner, name = change.owner, change.name
    if name is None or isinstance(owner, (dict, list, set, collections.deque)):
        return f"a {type(owner).__name__}"
    return f"{name!r} of a {type(owner).__name__}"


def _line(error: TintypeError) -> str:
    return "" if error.location is None else f"  # {error.location}"


class TwoCalls:
    """Calls a program twice with the same arguments, and compares what the calls did."""

    def __init__(self, capture: Capture, kept: Sequence[Change], numbers: Sequence[Change]) -> None:
        self.capture = capture
        self.numbers = numbers
        self.program: Callable[..., Any] = capture.program
        self.kept = kept
        self.values = Values()
        self.difference: str | None = None
        self._described_now: set[int] = set()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        nodes = self.capture.graph.nodes
        outputs = self.program(*args, **kwargs)
        first = self._described(nodes, outputs)
        last = next(reversed(nodes))
        self.values.begin_again(nodes)
        for change in (*self.kept, *self.numbers):
            _leave_plain_sizes(change)
        try:
            again = self.program(*args, **kwargs)
        except Exception as error:  # the user's program may raise anything in its second call
            self.difference = f"a second call raises {type(error).__name__}: {error}"
            return outputs
        later = list(_after(last))
        second = self._described(later, again)
        if first != second:
            self.difference = "a second call, with the same inputs, does something else than the first one"
        else:
            found = [value for node in later for value in node.all_input_nodes]
            found += [leaf.node for leaf in tree.leaves(again) if type(leaf) is FakeTensor and leaf.node is not None]
            self.difference = self._dependence(found)
        return outputs

    def _described(self, nodes: Iterable[Node], outputs: Any) -> Any:
        """What a call did: what it wrote, what it returns, and what it left behind."""
        writes = self.values.add(nodes)
        with tree.containers_of_users():
            leaves, structure = tree.flatten(outputs)
        left = [self._value(_left_in(change)) for change in self.kept]
        return writes, [self._value(leaf) for leaf in leaves], structure, left

    def _value(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.values.described(self.capture.recorder.as_fake(value).node)
        if isinstance(value, dict):
            return [(key, self._value(item)) for key, item in value.items()]
        if isinstance(value, (list, tuple, collections.deque)):
            return [type(value), *map(self._value, value)]
        if _is_number(value):
            return self._number(from_torch(value))
        attributes = object_attributes(value)
        if attributes is not None:
            if id(value) in self._described_now:  # it holds itself
                return type(value)
            self._described_now.add(id(value))
            described = type(value), [(name, self._value(item)) for name, item in attributes.items()]
            self._described_now.discard(id(value))
            return described
        # an object that a call made anew is another one
        return repr(value) if is_plain(value) else id(value)

    def _number(self, number: Any) -> Any:
        """A number by what it is computed from: symbols of data are others in each call."""
        if not isinstance(number, Expr):
            return repr(number)
        values = {
            symbol.name: str(self.values.described(self.capture.recorder.number_node(symbol)))
            for symbol in number.symbols
        }
        return re.sub(r"\w+", lambda word: values.get(word[0], word[0]), str(number))

    def _dependence(self, found: Iterable[Node]) -> str | None:
        """Why what the second call finds of the first is not the same for every first call, or None."""
        writers = self.values.writers
        kinds = {spec.arg.name: spec.kind for spec in (*self.capture.state_specs, *self.capture.input_specs)}
        pending = [node for node in found if self.values.is_left(node)]
        seen: set[Node] = set()
        while pending:
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            storages = storages_of(node)
            if node.op == "placeholder":
                if kinds.get(node.name) is InputKind.USER_INPUT:
                    return "a second call finds what the first one computed from its inputs"
                if any(storage in writers for storage in storages):
                    return "a second call finds what the first one computed from a buffer that is written to"
                continue
            if draws(node):
                return "a second call finds random numbers of the first one"
            if _varies(node):
                return "a second call finds what the first one made for its sizes, which vary"
            pending += [
                value for value in node.all_input_nodes if not (_takes_only_sizes(node) and value is node.args[0])
            ]
            pending += [writer for storage in storages for writer in writers.get(storage, ())]
        return None


class Values:
    """The values of calls, numbered so that two which are computed in the same way have one number."""

    def __init__(self) -> None:
        self._numbers: dict[Node, int] = {}
        self._known: dict[Any, int] = {}
        self._versions: collections.Counter[Storage] = collections.Counter()
        self._repeated: collections.Counter[Any] = collections.Counter()
        self._earlier: set[Node] = set()
        self._given: set[Storage] = set()
        self.writers: dict[Storage, list[Node]] = {}

    def add(self, nodes: Iterable[Node]) -> list[int]:
        """Number the values of a call; returns those of nodes that do more than to compute a value of the call."""
        acting: list[int] = []
        for node in nodes:
            if node.op == "placeholder":  # they come first, those of constants too
                self._given.update(storages_of(node))
                continue
            written = list(storages_written_by(node))
            key: Any = node.op, node.target, repr(map_arg((node.args, node.kwargs), self._text))
            if written or draws(node) or _acts(node):
                self._repeated[key] += 1
                key = key, self._repeated[key]
                if not written or not self._given.isdisjoint(written):
                    acting.append(self._known.setdefault(key, len(self._known)))
            self._numbers[node] = self._number(node, key, written)
            for storage in written:
                self._versions[storage] += 1
                self.writers.setdefault(storage, []).append(node)
        return acting

    def _number(self, node: Node, key: Any, written: list[Storage]) -> int:
        """The number of a node's value; what is written to in place is what it was, in another version."""
        storages = storages_of(node)
        if written and len(storages) == 1 and storages[0] in written:
            for argument in node.all_input_nodes:
                if storages_of(argument) == storages:
                    return self._number_of(argument)
        return self._known.setdefault(key, len(self._known))

    def _number_of(self, node: Node) -> int:
        if node not in self._numbers:  # an input; constants get theirs while the program runs
            self._numbers[node] = self._known.setdefault((node.op, node.target), len(self._known))
        return self._numbers[node]

    def begin_again(self, nodes: Iterable[Node]) -> None:
        """A second call begins, in which inputs and buffers are what they were."""
        for storage in self._given:
            self._versions.pop(storage, None)
        self._earlier = {node for node in nodes if node.op != "placeholder"}
        self._repeated.clear()

    def is_left(self, node: Node) -> bool:
        """Whether a value is a tensor that the first call made, or a number that it took from one."""
        if node not in self._earlier:
            return False
        return is_of_data(node.meta.get("val")) or any(storage not in self._given for storage in storages_of(node))

    def described(self, node: Node) -> tuple[Any, ...]:
        """A value as it is now."""
        return (self._number_of(node), *(self._versions[storage] for storage in storages_of(node)))

    def _text(self, node: Node) -> Any:
        return str(self.described(node))


def _after(node: Node) -> Iterator[Node]:
    while (node := node.next).op != "root":
        yield node


def _left_in(change: Change) -> Any:
    """What is now where a tensor was put."""
    owner = change.owner
    if isinstance(owner, (list, set, collections.deque)):
        return list(owner)
    return dict(owner) if change.name is None else contents(owner, change.name)


def _leave_plain_sizes(change: Change) -> None:
    """Let a second call find a size that the first one kept as the number that it was: its own sizes are others."""
    owner = change.owner
    name = None if isinstance(owner, (list, set, collections.deque)) else change.name
    left = change._replace(after=_left_in(change))
    plain = with_plain_sizes(left)
    if plain is not left:
        put_outside(owner, name, plain.after)


def _is_number(value: Any) -> bool:
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def _acts(node: Node) -> bool:
    return has_effect(node.target)


def _varies(node: Node) -> bool:
    """Whether a value is a size that varies, or a tensor of such sizes."""
    value = node.meta.get("val")
    if type(value) is FakeTensor:
        return any(isinstance(size, Expr) for size in value.info.sizes)
    return _is_number(value) and not is_of_data(value)


def _takes_only_sizes(node: Node) -> bool:
    """Whether an operator looks only at the kind and the sizes of its first argument."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    name = node.target._schema.name.partition("::")[2]
    return name.startswith("new_") or name.endswith("_like")
