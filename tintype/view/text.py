"""``print(program)``: what a program takes and gives, its weights, its contract, and its code by module.

Modules that are alike are written out once, and a module that makes a single call is part of the line of that call.
The whole program as Python that runs is ``program.code``.
"""

from __future__ import annotations

from collections.abc import Iterator
from os.path import basename
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, Node

from tintype.ir.graph import graphs_of, meta_of, output_node, subgraph_at
from tintype.ir.node_info import NodeMeta
from tintype.ir.printing import describe_value, spell, spell_call, spell_target
from tintype.ir.signature import InputKind, OutputKind
from tintype.symbolic import named_text
from tintype.view.modules import ModuleEntry, module_tree
from tintype.view.runs import Run, foldable, runs_of

if TYPE_CHECKING:
    from tintype.export.constraints import ContractLine
    from tintype.export.program import ExportedProgram

_MOST_LINES = 40  # of inputs, of results, and of the contract
_LONGEST_TEXT = 50
_RESULTS = {
    OutputKind.BUFFER_MUTATION: "new value of buffer",
    OutputKind.PARAMETER_MUTATION: "new value of parameter",
    OutputKind.USER_INPUT_MUTATION: "new value of input",
    OutputKind.GRADIENT_TO_PARAMETER: "gradient of parameter",
    OutputKind.GRADIENT_TO_USER_INPUT: "gradient of input",
    OutputKind.TOKEN: "token",
}


def program_text(program: ExportedProgram) -> str:
    """What ``print(program)`` shows.

    >>> import torch, tintype
    >>> batch = tintype.Dim("batch", min=1, max=64)
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3), torch.nn.ReLU())
    >>> ep = tintype.export(model, (torch.ones(4, 3),), dynamic_shapes={"input": {0: batch}})
    >>> print(program_text(ep), end="")
    Program: functional stage, 3 operator calls, 24 parameters and buffers (96 B), 45*batch operations
    <BLANKLINE>
    takes
      input: f32[batch, 3]
    gives
      result: f32[batch, 3]
    asks
      input.shape[0] = batch, 1 <= batch <= 64
    <BLANKLINE>
    Sequential
      linear: f32[batch, 3] = linear(input, weight, bias)  # 0: Linear
      # 1: 1 more like 0
      relu: f32[batch, 3] = relu(linear_1)  # 2: ReLU
      return relu
    """
    root = module_tree(program)
    return "\n".join([_head(program, root), "", *header_lines(program), "", *_Code(program, root).lines()]) + "\n"


def _head(program: ExportedProgram, root: ModuleEntry) -> str:
    weights = f"{root.parameters:,} parameters and buffers ({short_bytes(root.bytes)})"
    unknown = f", and {root.without_formula} calls without a formula" if root.without_formula else ""
    operations = f"{named_text(root.operations)} operations{unknown}"
    return f"Program: {program.stage.value} stage, {root.calls} operator calls, {weights}, {operations}"


def short_bytes(count: float) -> str:
    """A number of bytes as people say it.

    >>> short_bytes(437938176)
    '438 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def header_lines(program: ExportedProgram) -> Iterator[str]:
    """Inputs with their sizes, results by their place, and the contract."""
    sections = {"takes": inputs_of(program), "gives": results_of(program)}
    for title, rows in sections.items():
        if rows:
            yield title
            yield from _shortened([f"{name}: {value}" if value else name for name, value in rows])
    lines = [_asked(line) for line in program.contract()]
    if lines:
        yield "asks"
        yield from _shortened(lines)


def _asked(line: ContractLine) -> str:
    """A line of the contract; where the data decide, with the place that they decide at."""
    if line.kind != "control flow" or line.location is None:
        return line.brief_text()
    return f"{line.text}  # {basename(line.location.filename)}:{line.location.line}"


def _shortened(lines: list[str]) -> Iterator[str]:
    yield from (f"  {line}" for line in lines[:_MOST_LINES])
    if len(lines) > _MOST_LINES:
        yield f"  ... and {len(lines) - _MOST_LINES} more"


def inputs_of(program: ExportedProgram) -> list[tuple[str, str]]:
    """The user's inputs with what they are: ``("x", "f32[batch, 3]")``."""
    specs = program.graph_signature.input_specs
    rows = []
    for node, spec in zip(program.graph.find_nodes(op="placeholder"), specs, strict=True):
        if spec.kind is InputKind.USER_INPUT:
            value = getattr(spec.arg, "value", None)
            constant = hasattr(spec.arg, "value")
            rows.append((spec.arg.name, f"{value!r}, always" if constant else describe_value(node.meta.get("val"))))
    return rows


def results_of(program: ExportedProgram) -> list[tuple[str, str]]:
    """The results by their place, and what a call writes to."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    places = iter(program.output_paths())
    rows = []
    for spec in program.graph_signature.output_specs:
        if hasattr(spec.arg, "value"):
            value = repr(spec.arg.value)
        else:
            value = describe_value(values.get(spec.arg.name))
        if spec.kind in _RESULTS:
            rows.append((f"{_RESULTS[spec.kind]} {spec.target}", value))
        else:
            rows.append((next(places, ""), value))
    return rows


class _Code:
    """Writes the calls of a program, grouped by module."""

    def __init__(self, program: ExportedProgram, root: ModuleEntry) -> None:
        self.program = program
        self.root = root
        self._targets = {
            spec.arg.name: spec.target
            for spec in program.graph_signature.input_specs
            if spec.target is not None and spec.kind is not InputKind.USER_INPUT
        }
        self._place = ""

    def lines(self) -> Iterator[str]:
        yield self.root.class_name or "the program"
        yield from self._run(runs_of(self.program.graph, self.root), 1)
        yield f"  return {self._result()}"

    def _result(self) -> str:
        results: Any = output_node(self.program.graph).args[0]
        kinds = [spec.kind for spec in self.program.graph_signature.output_specs]
        shown = [
            spell(result)
            for result, kind in zip(results, kinds)
            if kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
        ]
        return ", ".join(shown) or "nothing"

    def _run(self, run: Run, depth: int) -> Iterator[str]:
        """The items of a run; of neighbours that are alike the first one."""
        indent = "  " * depth
        for alike in foldable(run.items):
            first = alike[0]
            if isinstance(first, Node):
                yield from self._call(first, run.entry, depth, "")
                continue
            inner, path = first.entry, [first.entry.label]
            while (below := _only_run(first)) is not None:  # modules that only hold one are one line with it
                first = below
                path.append(first.entry.label)
            label = _with_class(".".join(path), first.entry)
            if len(first.items) == 1 and isinstance(first.items[0], Node):
                yield from self._call(first.items[0], first.entry, depth, label)
            else:
                yield f"{indent}{label}"
                yield from self._run(first, depth + 1)
            others = [each.entry.label for each in alike[1:] if isinstance(each, Run)]
            if others:
                shown = others[0] if len(others) == 1 else f"{others[0]} .. {others[-1]}"
                yield f"{indent}# {shown}: {len(others)} more like {inner.label}"

    def _call(self, node: Node, entry: ModuleEntry, depth: int, module: str) -> Iterator[str]:
        indent = "  " * depth
        value = node.meta.get("val")
        annotation = "" if value is None else f": {describe_value(value)}"
        notes = [note for note in (module, self._line(meta_of(node))) if note]
        comment = f"  # {', '.join(notes)}" if notes else ""
        yield f"{indent}{node.name}{annotation} = {self._spelled(node, entry)}{comment}"
        for _, subgraph in graphs_of(node):
            yield from self._inner(node, subgraph.graph, depth + 1)

    def _inner(self, call: Node, graph: Graph, depth: int) -> Iterator[str]:
        """A graph that a call takes."""
        indent = "  " * depth
        name = next((str(each.target) for each in call.all_input_nodes if _refers(each, graph)), "graph")
        parameters = ", ".join(
            f"{node.name}: {describe_value(node.meta.get('val'))}" for node in graph.find_nodes(op="placeholder")
        )
        yield f"{indent}{name}({parameters})"
        for node in graph.nodes:
            if node.op == "call_function":
                yield from self._call(node, self.root, depth + 1, "")
        yield f"{indent}  return {spell(output_node(graph).args[0])}"

    def _spelled(self, node: Node, entry: ModuleEntry) -> str:
        """A call as people say it: operators without namespace and overload, weights by their name in the module."""
        if not isinstance(node.target, (torch._ops.OpOverload, torch._ops.HigherOrderOperator)):
            return spell_call(node)  # of numbers, and items of results
        around = f"{entry.path}." if entry.path else ""

        def named(each: Node) -> Any:
            name = self._targets.get(each.name)
            return _Name(name.removeprefix(around)) if name is not None and each.op == "placeholder" else each

        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), named)
        args, kwargs = torch.fx.node.map_aggregate((args, kwargs), _without_its_end)
        given = [spell(argument) for argument in args] + [f"{key}={spell(value)}" for key, value in kwargs.items()]
        return f"{short_operator(node.target)}({', '.join(given)})"

    def _line(self, meta: NodeMeta) -> str:
        """The line that a call comes from, if it is another one than that of the call before."""
        found = meta.origin.user_line() if meta.origin is not None else None
        place = "" if found is None else f"{basename(found[0])}:{found[1]}"
        if place == self._place:
            return ""
        self._place = place
        return place


def _without_its_end(argument: Any) -> Any:
    """A text among arguments, such as what an assertion says: as much of it as a line has room for."""
    is_long = type(argument) is str and len(argument) > _LONGEST_TEXT
    return f"{argument[:_LONGEST_TEXT]}..." if is_long else argument


def _only_run(run: Run) -> Run | None:
    """What a run consists of, if that is one inner run."""
    only = run.items[0] if len(run.items) == 1 else None
    return only if isinstance(only, Run) else None


def _with_class(label: str, entry: ModuleEntry) -> str:
    return f"{label}: {entry.class_name}" if entry.class_name else label


class _Name:
    """Text that is spelled as it is."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def short_operator(target: Any) -> str:
    """An operator as people say it: ``linear`` for ``aten.linear.default``."""
    name = spell_target(target).removeprefix("torch.ops.")
    space, _, rest = name.partition(".")
    if space in ("aten", "higher_order"):
        return rest.partition(".")[0]
    return name.removesuffix(".default")


def _refers(node: Node, graph: Graph) -> bool:
    found = subgraph_at(node) if node.op == "get_attr" else None
    return found is not None and found.graph is graph
