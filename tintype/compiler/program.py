"""Recorded runs of a function, merged into one program that decides by guards which of them to repeat.

Runs of one function are equal until a guard has another answer. So they make a tree: a node has items that are done
in turn, and children that begin with guards. A node becomes a Python function. Where no child's guards hold, the
program *misses*: the results so far are handed over to a new capture, which runs the function from its start without
doing again what was done, and goes on from there; writes to objects are taken back before, and happen again.
"""

from __future__ import annotations

import collections
import itertools
import operator
from collections.abc import Callable
from typing import Any

from tintype.compiler import undoing
from tintype.compiler.expressions import Expression, values_in
from tintype.compiler.sources import LOOKUP_ERRORS, Guard, Raised, Source
from tintype.compiler.trace import SETS_MODE, Call, Eagerly, Effect, Item, Return
from tintype.compiler.tree_of_runs import (
    KEY_TYPES,
    DivergedError,
    KnownError,
    MissedError,
    Node,
    Place,
    common_start,
)
from tintype.errors import TintypeError
from tintype.trace.recording import ThreadState

# as long as there are no more, none is dropped, and their use is not noted
FEW_RUNS = 8
# from so many children on, a node finds the right one in a table, and is not written anew for another one
MANY_CHILDREN = 5
OTHER = object()  # what a node gives where the next one is to be asked
GONE = object()  # in place of a result that nothing uses any more


INFIX = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.truediv: "/",
    operator.floordiv: "//",
    operator.mod: "%",
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
    operator.eq: "==",
    operator.ne: "!=",
}


class Program:
    """All runs of a function that are known."""

    def __init__(self, hooks: dict[str, Callable[..., Any]]) -> None:
        self._numbers = itertools.count()
        self.root = self._node([], None)
        self._names: dict[Any, str] = {}
        self._constants: dict[int, str] = {}
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
        self._constants = {}
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
        if not is_at_guards or (node.items and _is_end(node.items[-1])):
            raise DivergedError(f"two runs of the function differ in what no guard explains: {firsts}")
        new = self._node(items[start:], node)
        steps = (item.step for item in new.items if isinstance(item, Call))
        self.sets_modes = self.sets_modes or any(step == SETS_MODE for step in steps)
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


def _is_in(item: Item, in_graph: set[int]) -> bool:
    """Whether a graph does what an item does."""
    if isinstance(item, Guard):
        return item.kind == "returned" and item.source.key in in_graph
    return isinstance(item, Call) and item.number in in_graph


def _target(call: Call) -> str:
    return f"v{call.number}"


def _is_general(node: Node) -> bool:
    """Whether a run begins with a guard about a number that varies."""
    first = node.items[0]
    return isinstance(first, Guard) and (
        first.kind == "length" or (first.kind == "type" and first.expected in (int, float))
    )


def _is_end(item: Item) -> bool:
    return isinstance(item, (Return, Eagerly))


class Writer:
    """Writes the function of one node."""

    def __init__(self, program: Program, node: Node) -> None:
        self.program = program
        self.node = node
        self.defined = set(node.parameters)
        self.lines: list[str] = []
        self._in_guards = False
        self._depth = 0
        self.miss = "return _miss(args, kwargs, locals(), _here)"
        # Where nothing is done yet, another run may do: one that rests on less than what this one begins with.
        siblings = [] if node.parent is None else node.parent.children
        self.has_other = node in siblings[:-1] or len(siblings) >= MANY_CHILDREN

    def function(self) -> str:
        """The source of the function."""
        sets_modes = self.node is self.program.root and self.program.sets_modes
        if self.node is self.program.root:
            self.emit("U = []")
        self.defined.add("U")
        items = self.node.items
        self._check_rest(items)
        in_graph: set[int] = set()
        held: set[int] = set()  # what graphs give
        for position, item in enumerate(items):
            if isinstance(item, Call) and item.graph is not None:
                self._graph(item.graph, position)
                in_graph.update(call.number for call in item.graph.calls)
                held.update(item.graph.outputs)
            if not _is_in(item, in_graph):
                self._item(item, position)
            if isinstance(item, Call):
                for number in item.frees:
                    if number not in in_graph or number in held:
                        self.emit(f"v{number} = _gone")
        if not items or not _is_end(items[-1]):
            self._children()
        if sets_modes:  # an exception leaves the statements that would set them back
            lines = [f"    {line}" for line in self.lines]
            self.lines = [
                "modes = _modes()",
                "try:",
                *lines,
                "except BaseException:",
                "    modes.restore()",
                "    raise",
            ]
        body = "\n".join(f"    {line}" for line in self.lines)
        # bound when it is written: another thread may run it when others of that name are written
        children = self.node.children if self.node.handed is None else []
        bound = [f"{name}={name}" for name in ("_here", *(child.name for child in children))]
        return f"def {self.node.name}({', '.join([*self.node.parameters, *bound])}):\n{body}\n"

    def emit(self, line: str, depth: int = 0) -> None:
        self.lines.append("    " * (depth + self._in_guards + self._depth) + line)

    def _check_rest(self, items: list[Item]) -> None:
        """From which item on nothing can miss any more: writes before it can be taken back."""
        self.safe_from = 0
        if not items or not _is_end(items[-1]):
            self.safe_from = len(items)
            return
        for position, item in enumerate(items):
            if isinstance(item, Guard) and item.kind != "assumed":
                self.safe_from = position

    # --- items -----------------------------------------------------------------------------------------------------

    def _item(self, item: Item, position: int) -> None:
        if isinstance(item, Guard) and item.kind == "assumed":
            return
        if isinstance(item, Guard) and item.kind == "returned" and not self._in_guards:
            self.emit(f"if type(v{item.source.key}) is _Raised: {self.miss}")
            return
        if isinstance(item, Guard):
            if not self._in_guards:
                self.emit("try:")
                self._in_guards = True
            self.emit(f"if not ({self.condition(item)}): {self._miss_at(position, 'raise _Missed')}")
            following = self.node.items[position + 1 : position + 2]
            if not following or not isinstance(following[0], Guard) or following[0].kind == "assumed":
                self._end_guards(position)
            return
        match item:
            case Call():
                self._call(item)
            case Effect():
                self._effect(item, position)
            case Return():
                self._note_use()
                self.emit(f"return {self.expression(item.value)}")
            case Eagerly():
                self._note_use()
                self.emit("return _eagerly(*args, **kwargs)")

    def _end_guards(self, position: int) -> None:
        """Behind the guards, since exceptions of the program are nobody's answer to a guard."""
        self._in_guards = False
        missed = self._miss_at(position)
        if missed == self.miss:
            self.emit("except _lookup: missed = True")
            self.emit("else: missed = False")
            self.emit(f"if missed: {missed}")
        else:
            self.emit(f"except _lookup: {missed}")

    def _miss_at(self, position: int, otherwise: str = "") -> str:
        if self.has_other and all(isinstance(item, Guard) for item in self.node.items[:position]):
            return "return _other"
        return otherwise or self.miss

    def _note_use(self) -> None:
        if self.program.count > FEW_RUNS or self.has_other:
            self.emit(f"_used({self.node.number})")

    def _children(self) -> None:
        node = self.node
        node.handed = None
        node.seen = self.defined | (set() if node.parent is None else node.parent.seen)
        if len(node.children) >= MANY_CHILDREN:
            self._many_children()
            return
        last = node.children[-1] if node.children else None
        for child in node.children:
            first = child.items[0]
            assert isinstance(first, Guard)
            self.emit("try:")
            self._in_guards = True
            before = set(self.defined)
            condition = self.condition(first)
            node.seen = node.seen | self.defined
            parameters = self._handed(child)
            if child.parameters != parameters:
                child.parameters, child.is_stale = parameters, True
            self.program.write(child)
            self.emit(f"passes = {condition}")
            self._in_guards = False
            self.emit("except _lookup: passes = False")
            self._go_on(child.name, parameters, "passes", is_last=child is last)
            self.defined = before | {name for name in self.defined if name in before}
        self.emit(self._miss_at(len(node.items)))

    def _handed(self, *children: Node) -> list[str]:
        """What children are handed: results, and what they read that is at hand."""
        below: set[str] = set().union(*(self.program.names_read(child) for child in children))
        needed = [name for name in sorted(self.defined) if name[0] in "vmc" or name in below]
        return ["args", "kwargs", "U", *(name for name in needed if name not in ("args", "kwargs", "U"))]

    def _go_on(self, function: str, parameters: list[str], condition: str, *, is_last: bool) -> None:
        call = f"{function}({', '.join(parameters)})"
        if is_last:
            self.emit(f"if {condition}: return {call}")
        else:
            self.emit(f"if {condition}:")
            self.emit(f"result = {call}", 1)
            self.emit("if result is not _other: return result", 1)

    def _many_children(self) -> None:
        """Children that are found in tables of the node, to which others are added without writing this anew."""
        node, bind = self.node, self.program.bind
        node.handed = self._handed(*node.children)
        for child in node.children:
            if child.parameters != node.handed:
                child.parameters, child.is_stale = node.handed, True
        values = [guard.source for child in node.children if (guard := child.value_guard()) is not None]
        counts = collections.Counter(source.path for source in values)
        place = max(values, key=lambda source: counts[source.path], default=None)
        node.place_of_values = None if place is None else place.path
        self.program.write_ways(node)
        if place is not None:
            self.emit("try:")
            self._in_guards = True
            found = self.fetch(place)
            key = f"(type({found}), {found})"
            self.emit(f"way = {bind(node)}.by_value.get({key}) if type({found}) in {bind(KEY_TYPES)} else None")
            self._in_guards = False
            self.emit("except _lookup: way = None")
            self._go_on("way", node.handed, "way is not None", is_last=False)
        self.emit(f"for way in {bind(node)}.ways:")
        self._depth += 1
        self._go_on("way", node.handed, "True", is_last=False)
        self._depth -= 1
        self.emit(self._miss_at(len(node.items)))

    def condition(self, guard: Guard) -> str:
        if guard.kind == "relation":
            function, operands, answer = guard.expected
            code = self.computation(function, operands)
            return code if answer else f"not {code}"
        names = [self.fetch(source) for source in guard.sources] if guard.kind not in ("arguments", "state") else [""]
        return guard.condition(names, self.program.bind)

    def fetch(self, source: Source) -> str:
        """The variable that holds what a source is."""
        if source.kind == "value":
            return f"v{source.key}"
        if source.kind == "constant":
            return self.program.bind(source.key)
        name = self.program.name_of(source)
        if name not in self.defined:
            parent = "" if source.parent is None else self.fetch(source.parent)
            self.emit(f"{name} = {source.code(parent, self.program.bind)}")
            self.defined.add(name)
        return name

    def _call(self, call: Call) -> None:
        function = self.expression(call.function)
        arguments = [self.expression(argument) for argument in call.arguments]
        arguments += [_keyword(name, self.expression(value)) for name, value in call.keywords.items()]
        line = f"v{call.number} = {function}({', '.join(arguments)})"
        self.defined.add(f"v{call.number}")
        if call.careful:
            self.emit("try:")
            self.emit(line, 1)
            self.emit(f"except Exception as error: v{call.number} = _Raised(error)")
        else:
            self.emit(line)

    def _graph(self, graph: Any, position: int) -> None:
        inputs = ", ".join(self.expression(expression) for expression in graph.inputs)
        targets = "".join(f"{_target(call)}, " for call in graph.calls if call.number in graph.outputs)
        run = f"{self.program.bind(graph.run)}({inputs})"
        line = f"{targets}= {run}" if targets else run
        if any(call.writes for call in graph.calls):
            self.emit(line)
        else:  # what the graph raises is raised again by the call that it comes from
            self.emit("try:")
            self.emit(line, 1)
            if not graph.falls_back:
                self.emit("except _TintypeError: raise")
            self.emit("except Exception:")
            self._depth += 1
            defined = set(self.defined)
            for position in range(*graph.positions(self.node.items)):
                item = self.node.items[position]
                if isinstance(item, Call):
                    self._call(item)
                elif isinstance(item, Guard) and item.kind == "returned":
                    self.emit(f"if type(v{item.source.key}) is _Raised: {self.miss}")
            self.defined = defined
            self._depth -= 1
        inside = {call.number for call in graph.calls}.difference(graph.outputs)
        for call_in_graph in graph.calls:
            name = f"v{call_in_graph.number}"
            if call_in_graph.alias is not None:
                if position < self.safe_from or inside.isdisjoint(values_in(call_in_graph.alias)):
                    self.emit(f"{name} = {self.expression(call_in_graph.alias)}")
            elif call_in_graph.number not in graph.outputs and position < self.safe_from:
                self.emit(f"{name} = _gone")  # a miss hands over all results so far
            self.defined.add(name)

    def _effect(self, effect: Effect, position: int) -> None:
        owner = self.expression(effect.owner)
        values = [self.expression(value) for value in effect.values]
        if effect.kind == "context":
            self._context(effect, owner, values)
            return
        name = self.expression(effect.name) if effect.kind == "item" else repr(effect.name)
        if position < self.safe_from:
            how = f"_{effect.kind}" if not effect.deletes else f"_{effect.kind}_gone"
            self.emit(f"{how}(U, {', '.join([owner, name, *values])})")
            return
        value = values[0] if values else ""
        match effect.kind, effect.deletes:
            case "attribute", False:
                self.emit(f"setattr({owner}, {name}, {value})")
            case "attribute", True:
                self.emit(f"delattr({owner}, {name})")
            case "item", False:
                self.emit(f"{owner}[{name}] = {value}")
            case "item", True:
                self.emit(f"del {owner}[{name}]")
            case "cell", False:
                self.emit(f"{owner}.cell_contents = {value}")
            case "cell", True:
                self.emit(f"del {owner}.cell_contents")
            case _:
                self.emit(f"{owner}.{effect.name}({', '.join(values)})")

    def _context(self, effect: Effect, variable: str, values: list[str]) -> None:
        """A context variable is set, or set back."""
        token = f"c{effect.name}"
        self.defined.add(token)
        if effect.deletes:
            self.emit(f"_context_gone(U, {variable}, {token})")
        else:
            self.emit(f"{token} = _context(U, {variable}, {values[0]})")

    # --- expressions ---------------------------------------------------------------------------------------------

    def expression(self, expression: Expression) -> str:
        match expression[0]:
            case "constant":
                value = expression[1]
                if value is None or type(value) in (bool, int) or (type(value) is str and len(value) < 200):
                    return repr(value)
                return self.program.bind(value)
            case "value":
                return f"v{expression[1]}"
            case "part":
                return f"{self.expression(expression[1])}[{expression[2]}]"
            case "source":
                return self.fetch(expression[1])
            case "method":
                return f"{self.expression(expression[1])}.{expression[2]}"
            case "number":
                return self.expression(expression[1])
            case "operator":
                return self.computation(expression[1], expression[2])
        if len(expression) == 4:
            name = f"m{expression[3]}"
            if name not in self.defined:
                made = self._make(expression)
                self.emit(f"{name} = {made}")
                self.defined.add(name)
            return name
        return self._make(expression)

    def computation(self, function: Any, operands: tuple[Expression, ...]) -> str:
        """A computation of numbers."""
        parts = [self.expression(operand) for operand in operands]
        sign = INFIX.get(function)
        if sign is not None and len(parts) == 2:
            return f"({parts[0]} {sign} {parts[1]})"
        return f"{self.program.bind(function)}({', '.join(parts)})"

    def _make(self, expression: Expression) -> str:
        how, parts = expression[1], [self.expression(part) for part in expression[2]]
        match how:
            case "list":
                return f"[{', '.join(parts)}]"
            case "tuple":
                return f"({', '.join(parts)}{',' if parts else ''})"
            case "set" | "frozenset" | "slice":
                return f"slice({', '.join(parts)})" if how == "slice" else f"{how}(({', '.join([*parts, ''])}))"
            case "dict":
                pairs = zip(parts[::2], parts[1::2], strict=True)
                return "{" + ", ".join(f"{key}: {value}" for key, value in pairs) + "}"
        return f"{self.program.bind(how)}({', '.join(parts)})"


def _keyword(name: str, value: str) -> str:
    return f"{name}={value}" if name.isidentifier() else f"**{{{name!r}: {value}}}"
