"""Where control goes in a code object: successors, joins, loops, and which locals are read later.

Everything is by the index of operations. ``END`` stands for leaving the function.

    >>> def clamp(x, low):
    ...     if x < low:
    ...         x = low
    ...     return x
    >>> flow = flow_of(clamp.__code__)
    >>> branch = next(iter(flow.branches))
    >>> flow.name_of(flow.join_of(branch)), sorted(flow.live_names(flow.join_of(branch)))
    ('load_local', ['x'])
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from functools import cached_property
from types import CodeType
from typing import NamedTuple

from tintype.interpret.decode import Decoded, decode
from tintype.interpret.depths import stack_depths

END = -1

# By the name of their handlers; all others go on to the next operation.
JUMPS = frozenset({"jump"})
BRANCHES = frozenset(
    {"pop_jump_if_false", "pop_jump_if_true", "pop_jump_if_none", "pop_jump_if_not_none", "for_iterator"}
)
# go on, or to their target
OTHER_BRANCHES = frozenset({"send", "send_or_pop"})
LEAVES = frozenset({"return_value"})
RAISES = frozenset({"raise_exception", "reraise"})

READS = frozenset({"load_local", "delete_local", "load_local_and_clear"})
WRITES = frozenset({"store_local", "delete_local", "load_local_and_clear"})


class Loop(NamedTuple):
    """A loop: where it is entered, and the operations in it."""

    header: int
    body: frozenset[int]


class Flow:
    """The control flow of one code object."""

    def __init__(self, code: CodeType, decoded: Decoded) -> None:
        self._code = weakref.ref(code)  # not kept alive: what is known of code goes with it
        self.shared = {*code.co_cellvars, *code.co_freevars}
        self.operations = decoded.operations
        self.names = decoded.names
        count = len(self.operations)
        # whether an operation is the first one of an instruction, whose height is known
        self._begins = [index == 0 or at != decoded.offsets[index - 1] for index, at in enumerate(decoded.offsets)]
        self.successors: list[tuple[int, ...]] = [self.find_successors(index) for index in range(count)]
        # where an exception of an operation goes; END: out of the function
        entries = [decoded.handler_of(index) for index in range(count)]
        self.handlers: list[int] = [END if entry is None else entry.handler for entry in entries]
        self.branches = [index for index in range(count) if self.operations[index][0] in BRANCHES]
        self._joins: list[int | None] | None = None
        self._live: list[int] | None = None
        self._loops: list[Loop] | None = None

    @cached_property
    def depths(self) -> list[int | None]:
        """How high the stack is before every operation; None for one that nothing leads to."""
        code = self._code()
        assert code is not None  # whoever asks about code has it
        return stack_depths(code)

    def height_at(self, indices: Iterable[int]) -> int | None:
        """The stack that is needed to go on at any of some operations; None where the function is left at all."""
        known = [self.depths[index] for index in indices if index != END and self._begins[index]]
        return max((depth for depth in known if depth is not None), default=None)

    def name_of(self, index: int) -> str:
        return self.operations[index][0]

    def find_successors(self, index: int) -> tuple[int, ...]:
        name, argument = self.operations[index]
        if name in JUMPS:
            return (argument,)
        if name in BRANCHES or name in OTHER_BRANCHES:
            return (index + 1, argument)
        if name in LEAVES:
            return (END,)
        if name in RAISES or index + 1 == len(self.operations):
            return ()
        return (index + 1,)

    # Joins.

    def join_of(self, branch: int) -> int | None:
        """The first operation that all ways from here lead to; END: they meet by leaving the function.

        Ways that end in an exception don't count. None: no way leaves the function without one.
        """
        if self._joins is None:
            self._joins = self.find_joins()
        return self._joins[branch]

    def common_join(self, indices: Iterable[int]) -> int | None:
        """The first operation that all ways from several ones lead to, which may be one of them."""
        chains = [self.joins_after(index) for index in indices if not self.only_raises_from(index)]
        if not chains:
            return None
        return next(index for index in chains[0] if all(index in chain for chain in chains))

    def joins_after(self, index: int) -> list[int]:
        """The operation, its join, the join of that, ..., END."""
        chain = [index]
        while chain[-1] != END:
            following = self.join_of(chain[-1])
            assert following is not None
            chain.append(following)
        return chain

    def only_raises_from(self, index: int) -> bool:
        return index != END and self.only_raises(index)

    def stored_in(self, operations: Iterable[int]) -> set[int]:
        """The locals that some operations write."""
        return {self.operations[index][1] for index in operations if self.operations[index][0] in WRITES}

    def reached_from(self, index: int, stops: Iterable[int]) -> set[int]:
        """The operations on the ways from one of them up to others."""
        stops = set(stops)
        found: set[int] = set()
        waiting = [index]
        while waiting:
            index = waiting.pop()
            if index == END or index in found or index in stops:
                continue
            found.add(index)
            waiting += self.successors[index]
            waiting.append(self.handlers[index])
        return found

    def meeting_of(self, starts: Iterable[int], barrier: int) -> int | None:
        """The operation that ways from several ones come to which don't leave the function before; None if there is
        none such. Ways end at ``barrier``: where they come from, in a loop."""
        entries = set(starts)
        while len(entries) > 1:
            common = set.intersection(*(self.ways_from(start, {barrier}) for start in entries))
            found = set()
            for start in entries:
                ways = self.ways_from(start, common | {barrier})
                edges = {target for index in ways for target in self.successors[index]}
                found |= {start} if start in common else edges & common
            if not found or found == entries:
                return None
            entries = found
        return entries.pop()

    def ways_from(self, start: int, stops: set[int]) -> set[int]:
        """The operations from one of them up to others, but for ways of exceptions."""
        found: set[int] = set()
        waiting = [start]
        while waiting:
            index = waiting.pop()
            if index != END and index not in found and index not in stops:
                found.add(index)
                waiting += self.successors[index]
        return found

    def loop_around(self, index: int) -> Loop | None:
        """The innermost loop that an operation is in."""
        return next((loop for loop in reversed(self.loops()) if index in loop.body), None)

    def only_raises(self, index: int) -> bool:
        """Whether the function can't be left from here without an exception of its own."""
        return self.join_of(index) is None

    def find_joins(self) -> list[int | None]:
        """The immediate post-dominator of every operation."""
        count = len(self.operations)
        end = count  # the end as the last index
        forward = [[end if target == END else target for target in targets] for targets in self.successors]
        for index, (name, _) in enumerate(self.operations):
            handler = self.handlers[index]
            if name == "raise_exception" and handler != END:  # what a step raises may be caught in the step
                around = self.loop_around(index)
                forward[index] += [handler] if around is not None and handler in around.body else []
        before: list[list[int]] = [[] for _ in range(count + 1)]
        for index, targets in enumerate(forward):
            for target in targets:
                before[target].append(index)
        order = postorder(end, before)
        rank = {index: position for position, index in enumerate(order)}
        nearest = dominators(end, order, rank, [*forward, []])
        return [
            None if nearest[index] is None else END if nearest[index] == end else nearest[index]
            for index in range(count)
        ]

    # Loops.

    def loops(self) -> list[Loop]:
        """Loops from the outermost to the innermost; ways back to one header are one loop."""
        if self._loops is None:
            self._loops = self.find_loops()
        return self._loops

    def loop_at(self, header: int) -> Loop | None:
        return next((loop for loop in self.loops() if loop.header == header), None)

    def find_loops(self) -> list[Loop]:
        count = len(self.operations)
        # handlers are reached from what they protect
        forward = [
            [target for target in (*self.successors[index], self.handlers[index]) if target != END]
            for index in range(count)
        ]
        before: list[list[int]] = [[] for _ in range(count)]
        for index, targets in enumerate(forward):
            for target in targets:
                before[target].append(index)
        order = postorder(0, forward)
        rank = {index: position for position, index in enumerate(order)}
        nearest = dominators(0, order, rank, before)
        bodies: dict[int, set[int]] = {}
        for index in order:
            for target in forward[index]:
                if is_above(target, index, nearest):
                    body = bodies.setdefault(target, {target})
                    waiting = [index]
                    while waiting:
                        found = waiting.pop()
                        if found not in body:
                            body.add(found)
                            waiting += (source for source in before[found] if source in rank)
        found_loops = [Loop(header, frozenset(body)) for header, body in bodies.items()]
        return sorted(found_loops, key=lambda loop: (-len(loop.body), loop.header))

    # Locals.

    def live_before(self, index: int) -> int:
        """The locals that may be read from here on before they are written, as a set of bits."""
        if self._live is None:
            self._live = self.find_live()
        return 0 if index == END else self._live[index]

    def live_names(self, index: int) -> set[str]:
        """Their names. Variables that functions share are always live."""
        bits = self.live_before(index)
        return {name for slot, name in enumerate(self.names) if bits >> slot & 1 or name in self.shared}

    def find_live(self) -> list[int]:
        count = len(self.operations)
        live = [0] * count
        before: list[list[int]] = [[] for _ in range(count)]
        for index in range(count):
            for target in (*self.successors[index], self.handlers[index]):
                if target != END:
                    before[target].append(index)
        waiting = list(range(count))
        queued = [True] * count
        while waiting:
            index = waiting.pop()
            queued[index] = False
            after = 0
            for target in self.successors[index]:
                after |= 0 if target == END else live[target]
            name, argument = self.operations[index]
            if name in WRITES:
                after &= ~(1 << argument)
            if name in READS:
                after |= 1 << argument
            if self.handlers[index] != END:
                after |= live[self.handlers[index]]
            if after != live[index]:
                live[index] = after
                for source in before[index]:
                    if not queued[source]:
                        queued[source] = True
                        waiting.append(source)
        return live


def postorder(start: int, targets: Sequence[Iterable[int]]) -> list[int]:
    """Nodes that are reached, each after those that it leads to."""
    order: list[int] = []
    seen = {start}
    waiting = [(start, iter(targets[start]))]
    while waiting:
        node, rest = waiting[-1]
        for target in rest:
            if target not in seen:
                seen.add(target)
                waiting.append((target, iter(targets[target])))
                break
        else:
            order.append(node)
            waiting.pop()
    return order


def dominators(
    start: int, order: list[int], rank: dict[int, int], sources: Sequence[Iterable[int]]
) -> list[int | None]:
    """The immediate dominator of every node that is reached from the start; the start's is itself.

    As Cooper, Harvey and Kennedy do it: what two sources have in common is found by climbing from both.
    """
    nearest: list[int | None] = [None] * len(sources)
    nearest[start] = start

    def common(first: int, second: int) -> int:
        while first != second:
            while rank[first] < rank[second]:
                first = nearest[first]  # type: ignore[assignment]
            while rank[second] < rank[first]:
                second = nearest[second]  # type: ignore[assignment]
        return first

    changed = True
    while changed:
        changed = False
        for node in reversed(order):
            if node == start:
                continue
            found: int | None = None
            for source in sources[node]:
                if source in rank and nearest[source] is not None:
                    found = source if found is None else common(source, found)
            if found != nearest[node]:
                nearest[node] = found
                changed = True
    return nearest


def is_above(node: int, below: int, nearest: list[int | None]) -> bool:
    """Whether every way to `below` leads over `node`."""
    current: int | None = below
    while current is not None:
        if current == node:
            return True
        following = nearest[current]
        if following == current:
            return False
        current = following
    return False


def flow_of(code: CodeType) -> Flow:
    """The control flow of a code object, found once."""
    decoded = decode(code)
    if decoded.flow is None:
        decoded.flow = Flow(code, decoded)
    return decoded.flow
