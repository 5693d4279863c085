"""The nodes of a program as Python functions: guards, calls, effects and the choice among children."""

from __future__ import annotations

import collections
import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tintype.compiler import guard_code
from tintype.compiler.expressions import Expression, values_in
from tintype.compiler.guard_groups import Block, Group, Step, root_of, roots_among
from tintype.compiler.sources import Guard, Source
from tintype.compiler.trace import Call, Eagerly, Effect, Item, Return
from tintype.compiler.tree_of_runs import KEY_TYPES, Node

if TYPE_CHECKING:
    from tintype.compiler.program import Program

# as long as there are no more runs, none is dropped, and their use is not noted
FEW_RUNS = 8
# from so many children on, a node finds the right one in a table, and is not written anew for another one
MANY_CHILDREN = 5
# of a graph, before they are a tuple
FEW_INPUTS = 8

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


def _is_in(item: Item, in_graph: set[int]) -> bool:
    """Whether a graph does what an item does."""
    if isinstance(item, Guard):
        return item.kind == "returned" and item.source.key in in_graph
    return isinstance(item, Call) and item.number in in_graph


def _target(call: Call) -> str:
    return f"v{call.number}"


def sizes_asked(items: Iterable[Item]) -> list[Source]:
    """The shapes that guards ask for, of which some sizes may vary."""
    guards = [item for item in items if isinstance(item, Guard) and item.kind == "length"]
    return [guard.source for guard in guards if guard.source.is_shape]


def is_end(item: Item) -> bool:
    """Whether nothing comes behind an item."""
    return isinstance(item, (Return, Eagerly))


class Writer:
    """Writes the function of one node."""

    def __init__(self, program: Program, node: Node) -> None:
        self.program = program
        self.node = node
        self.defined = set(node.parameters)
        self.lines: list[str | tuple[int, Block]] = []
        self._block: Block | None = None  # the guards that are being written
        self._fetched_in: dict[str, Block | Group] = {}  # by the names of the variables that their code has
        self._roots: set[Any] = set()
        self._in_guards = False
        # the phases of the stretch that is being written: where each begins among the lines, and whether it is calls
        self._phases: list[tuple[int, bool]] = []
        self._tried: set[int] = set()  # calls whose exceptions are told of where they stand
        self._flags: dict[str, str] = {}
        self._depth = 0
        self.miss = "return _miss(args, kwargs, locals(), _here)"
        # Where nothing is done yet, another run may do: one that rests on less than what this one begins with.
        siblings = [] if node.parent is None else node.parent.children
        self.has_other = node in siblings[:-1] or len(siblings) >= MANY_CHILDREN

    def function(self) -> str:
        """The source of the function, and of those that it shares with others and that were not there before."""
        if self.node is self.program.root:
            self.emit("U = []")
        self.defined.add("U")
        items = self.node.items
        self._check_rest(items)
        self._roots = roots_among(item for item in items if isinstance(item, Guard))
        self._items(items)
        if not items or not is_end(items[-1]):
            self._children()
        self._end_stretch()
        shared, lines = self._with_guards()
        lines = [f"{name} = {value}" for name, value in self._flags.items()] + lines
        if self.node is self.program.root and self.program.sets_modes:
            # an exception leaves the statements that would set them back
            lines = [
                "modes = _modes()",
                "try:",
                *(f"    {line}" for line in lines),
                "except BaseException:",
                "    modes.restore()",
                "    raise",
            ]
        body = "\n".join(f"    {line}" for line in lines)
        # bound when it is written: another thread may run it when others of that name are written
        children = self.node.children if self.node.handed is None else []
        bound = [f"{name}={name}" for name in ("_here", *(child.name for child in children))]
        parameters = ", ".join([*self.node.parameters, *bound])
        return f"{shared}def {self.node.name}({parameters}):\n{body}\n"

    def _items(self, items: list[Item]) -> None:
        in_graph: set[int] = set()
        held: set[int] = set()  # what graphs give
        after_guards = 0
        for position, item in enumerate(items):
            if position < after_guards:
                continue
            if isinstance(item, Guard):
                after_guards = self._guards(position, in_graph)
                continue
            if isinstance(item, Call) and item.graph is not None:
                self._graph(item.graph, position)
                in_graph.update(call.number for call in item.graph.calls)
                held.update(item.graph.outputs)
            if not _is_in(item, in_graph):
                self._item(item, position)
            if isinstance(item, Call):
                gone = [f"v{number} = " for number in item.frees if number not in in_graph or number in held]
                if gone:
                    self._emit_in_stretch(f"{''.join(gone)}_gone")

    def _with_guards(self) -> tuple[str, list[str]]:
        """Functions for what is asked again and again, and the lines with the guards among them."""
        blocks = [line[1] for line in self.lines if not isinstance(line, str)]
        shared, texts = guard_code.written(blocks, self.program.functions, self.program.bind)
        lines: list[str] = []
        in_order = iter(texts)
        for line in self.lines:
            if isinstance(line, str):
                lines.append(line)
            else:
                indent = "    " * line[0]
                lines += [indent + text for text in next(in_order)]
        return shared, lines

    def emit(self, line: str, depth: int = 0) -> None:
        if self._phases:
            self._end_stretch()
        self.lines.append("    " * (depth + self._in_guards + self._depth) + line)

    # Guards, and calls that may raise what the program catches, stand in one `try` as long as nothing else comes in
    # between: a stretch, in which a variable tells whose exception it is. That is less code than a `try` for each.

    def _emit_in_stretch(self, line: str) -> None:
        """A line that may stand in a stretch, whatever comes before and behind it."""
        if self._phases:
            self.lines.append("    " * (1 + self._depth) + line)
        else:
            self.emit(line)

    def _go_on_with(self, is_calls: bool) -> None:
        """The stretch goes on with guards, or with calls; which call it was that raised is told by the results that
        are there."""
        if not self._phases or self._phases[-1][1] is not is_calls:
            if not self._phases:
                self.emit("try:")
            self._phases.append((len(self.lines), is_calls))

    def _end_stretch(self) -> None:
        """Behind the stretch, since exceptions of the program are nobody's answer to a guard."""
        phases, self._phases = self._phases, []
        if not phases:
            return
        if len(phases) > 1:
            for start, is_calls in reversed(phases):
                self.lines.insert(start, "    " * (1 + self._depth) + f"calling = {is_calls}")
            self.emit("except Exception as error:")
            self.emit("if calling: failed = _Raised(error)", 1)
            self.emit("elif not isinstance(error, _lookup): raise", 1)
            self.emit("missed = True", 1)
        elif phases[0][1]:
            self.emit("except Exception as error: failed, missed = _Raised(error), True")
        else:
            self.emit("except _lookup: missed = True")
        self._flags["missed"] = "False"
        if len(phases) > 1 or phases[0][1]:
            self._flags["failed"] = "None"
        self.emit(f"if missed: {self.miss}")

    def _check_rest(self, items: list[Item]) -> None:
        """From which item on nothing can miss any more: writes before it can be taken back."""
        self.safe_from = 0
        if not items or not is_end(items[-1]):
            self.safe_from = len(items)
            return
        for position, item in enumerate(items):
            if isinstance(item, Guard) and item.kind != "assumed":
                self.safe_from = position

    # --- items -----------------------------------------------------------------------------------------------------

    def _item(self, item: Item, position: int) -> None:
        match item:
            case Call():
                self._call(item, position)
            case Effect():
                self._effect(item, position)
            case Return():
                self._note_use()
                self.emit(f"return {self.expression(item.value)}")
            case Eagerly():
                self._note_use()
                self.emit("return _eagerly(*args, **kwargs)")

    def _guards(self, position: int, in_graph: set[int]) -> int:
        """Guards that stand together, from a position on; gives the position behind them."""
        items, end = self.node.items, position
        guards: list[Guard] = []
        while end < len(items):
            item = items[end]
            if not isinstance(item, Guard):
                break
            if item.kind != "assumed" and not _is_in(item, in_graph):
                guards.append(item)
            end += 1
        while guards and guards[0].kind == "returned":
            number = guards.pop(0).source.key
            if number not in self._tried:
                self.emit(f"if type(v{number}) is _Raised: {self.miss}")
        if guards:
            missed = self._miss_at(position)
            if missed == self.miss:
                self._go_on_with(False)
            else:  # nothing is done yet, and another run may do
                self.emit("try:")
            self._block = Block("raise _Missed" if missed == self.miss else missed)
            self.lines.append((1 + self._depth, self._block))
            self._check(guards, self._block)
            self._block = None
            if missed != self.miss:
                self.emit(f"except _lookup: {missed}")
        return end

    def _check(self, guards: list[Guard], block: Block) -> None:
        """Guards, those about one object next to each other: nothing happens in between."""
        groups: dict[Any, Group] = {}
        in_order: list[Guard | Group] = []
        for guard in guards:
            root = root_of(guard, self._roots)
            if root is None:
                in_order.append(guard)
                continue
            group = groups.get(root.path)
            if group is None:
                group = groups[root.path] = Group(root, block)
                in_order.append(group)
            group.guards.append(guard)
        for step in in_order:
            if isinstance(step, Guard):
                block.units.append(self._step(step, block))
                continue
            for guard in step.guards:
                name = self._fetch_within(step, guard.source)
                if sizes_asked([guard]):
                    self._use(name)
                step.steps.append((guard, (name,), ""))
            block.units.append(step)

    def _step(self, guard: Guard, block: Block) -> Step | str:
        """A guard that is about no object, or about several."""
        if guard.kind in ("arguments", "relation"):
            return self.condition(guard)
        if guard.kind == "state":
            return (guard, (), "")
        return (guard, tuple([self._fetch_in(block, source) for source in guard.sources]), "")

    def _fetch_in(self, block: Block, source: Source) -> str:
        """The variable that holds what a source is among guards."""
        if source.kind == "value":
            return f"v{source.key}"
        if source.kind == "constant":
            return self.program.bind(source.key)
        name = self.program.name_of(source)
        if name not in self.defined:
            parent = "" if source.parent is None else self._fetch_in(block, source.parent)
            block.units.append((source, (parent,), name))
            self.defined.add(name)
            self._fetched_in[name] = block
            return name
        found = self._fetched_in.get(name)
        if isinstance(found, Group):
            found.outputs.add(name)
            found = found.block
        if found is not None and found is not block:
            found.outputs.add(name)
        return name

    def _fetch_within(self, group: Group, source: Source) -> str:
        """The variable that holds what a source is in the code of a group."""
        name = self.program.bind(source.key) if source.kind == "constant" else self.program.name_of(source)
        if name in group.own or name in group.outside:
            return name
        if source.kind == "constant" or name in self.defined or source.path == group.root.path:
            group.outside[self._fetch_in(group.block, source)] = None
            return name
        assert source.parent is not None
        parent = self._fetch_within(group, source.parent)
        group.steps.append((source, (parent,), name))
        group.own[name] = None
        self._fetched_in[name] = group
        self.defined.add(name)
        return name

    def _miss_at(self, position: int) -> str:
        if self.has_other and all(isinstance(item, Guard) for item in self.node.items[:position]):
            return "return _other"
        return self.miss

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
        always = ["args", "kwargs", "U"]
        names = sorted(self.defined.difference(always))
        below = set(self.program.names_of_sizes)  # what a run that is taken over has rested on
        if any(name[0] not in "vmc" for name in names):
            below = below.union(*(self.program.names_read(child) for child in children))
        needed = [name for name in names if name[0] in "vmc" or name in below]
        for name in needed:
            self._use(name)
        return [*always, *needed]

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
        if self._block is not None:
            self._fetch_in(self._block, source)
        elif name not in self.defined:
            parent = "" if source.parent is None else self.fetch(source.parent)
            self.emit(f"{name} = {source.code(parent, self.program.bind)}")
            self.defined.add(name)
        self._use(name)
        return name

    def _use(self, name: str) -> None:
        """A variable is used that the code of guards may have: then that gives it back."""
        found = self._fetched_in.get(name)
        if isinstance(found, Group):
            found.outputs.add(name)
            found = found.block
        if found is not None:
            found.outputs.add(name)

    def _call(self, call: Call, position: int) -> None:
        function = self.expression(call.function)
        arguments = [self.expression(argument) for argument in call.arguments]
        arguments += [_keyword(name, self.expression(value)) for name, value in call.keywords.items()]
        line = f"v{call.number} = {function}({', '.join(arguments)})"
        self.defined.add(f"v{call.number}")
        if not call.careful:
            self.emit(line)
        elif self._is_checked(call, position):
            self._go_on_with(True)
            self._emit_in_stretch(line)
            self._tried.add(call.number)
        else:
            self.emit("try:")
            self.emit(line, 1)
            self.emit(f"except Exception as error: v{call.number} = _Raised(error)")

    def _is_checked(self, call: Call, position: int) -> bool:
        """Whether a run in which a call raises is always another one."""
        following = self.node.items[position + 1 : position + 2]
        return any(
            isinstance(item, Guard) and item.kind == "returned" and item.source.key == call.number
            for item in following
        )

    def _graph(self, graph: Any, position: int) -> None:
        inputs = "".join(f"{self.expression(expression)}, " for expression in graph.inputs)
        if len(graph.inputs) > FEW_INPUTS:  # which are written once
            self.emit(f"inputs = ({inputs})")
            inputs, given = "*inputs", "inputs"
        else:
            given = f"({inputs})"
        targets = "".join(f"{_target(call)}, " for call in graph.calls if call.number in graph.outputs)
        assigned = f"{targets}= " if targets else ""
        line = f"{assigned}{self.program.bind(graph.run)}({inputs.removesuffix(', ')})"
        if any(call.writes for call in graph.calls):
            self.emit(line)
        else:  # what the graph raises is raised again by the call that it comes from
            self._flags["again"] = "None"
            name = self.program.bind(graph)
            self.emit("try:")
            self.emit(line, 1)
            passed_on = "_StopsRecomputing" if graph.falls_back else "(_StopsRecomputing, _TintypeError)"
            self.emit(f"except {passed_on}: raise")
            self.emit(f"except Exception: again = {name}")
            self.emit("if again is not None:")
            self.emit(f"done, results = again.one_by_one({given})", 1)
            self.emit("if done is None: return _miss(args, kwargs, {**locals(), **results}, _here)", 1)
            self.emit(f"{assigned}done" if targets else "done = None", 1)
            self.emit("again = results = done = None", 1)
        if given == "inputs":
            self.emit("inputs = None")
        inside = {call.number for call in graph.calls}.difference(graph.outputs)
        gone: list[str] = []
        for call_in_graph in graph.calls:
            name = f"v{call_in_graph.number}"
            if call_in_graph.alias is not None and inside.isdisjoint(values_in(call_in_graph.alias)):
                self.emit(f"{name} = {self.expression(call_in_graph.alias)}")
            elif call_in_graph.number not in graph.outputs:
                gone.append(name)
            self.defined.add(name)
        if gone and position < self.safe_from:  # a miss hands over all results so far
            self.emit(f"{' = '.join(gone)} = _gone")

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
            case (("own_attribute" | "module_attribute"), False):
                self.emit(f"_{effect.kind}([], {owner}, {name}, {value})")
            case "attribute", True:
                self.emit(f"delattr({owner}, {name})")
            case "base_method", _:
                self.emit(f"_base_method([], {', '.join([owner, name, *values])})")
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
