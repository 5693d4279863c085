"""Reading: a TorchScript graph as plain Python objects.

torch's nodes are C++ objects that cost a call for every question. A graph is read once; whoever runs it, perhaps many
times in a loop, sees statements with numbers for the values that they take and give.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from tintype.errors import CaptureError, Location
from tintype.ir.node_info import Frame
from tintype.symbolic.location import is_internal


class Source(NamedTuple):
    """A line of the user's program that a statement came from; ``function`` is empty where nobody knows it."""

    filename: str
    line: int
    text: str
    function: str = ""

    def frame(self, function: str) -> Frame:
        return Frame(self.filename, self.line, self.function or function, self.text, None, is_internal(self.filename))


class Statement:
    """One node: ``kind`` is ``aten::add``, ``operator`` its name with the overload, ``aten::add.Tensor``; empty where
    there is no schema. ``value`` is that of a constant."""

    __slots__ = (
        "_frames",
        "blocks",
        "handler",
        "inputs",
        "kind",
        "name",
        "node",
        "operator",
        "outputs",
        "procedure",
        "type",
        "value",
    )

    def __init__(self, node: Any, procedure: Procedure) -> None:
        self.node = node
        self.procedure = procedure
        self.kind: str = node.kind()
        self.inputs: tuple[int, ...] = tuple(value.unique() for value in node.inputs())
        outputs = list(node.outputs())
        self.outputs: tuple[int, ...] = tuple(value.unique() for value in outputs)
        self.type: Any = None
        if outputs:
            self.type = outputs[0].type()
        self.name: str = node.s("name") if self.kind in _NAMED else ""
        self.operator = "" if self.kind.startswith("prim::") and self.kind not in _PRIM_OPERATORS else _operator(node)
        if self.kind == "prim::CreateObject" and "autocast_mode" in str(self.type):
            procedure.has_autocast = True
        self.blocks: tuple[Block, ...] = ()
        if self.kind in _WITH_BLOCKS:
            self.blocks = tuple(Block(block, procedure) for block in node.blocks())
        self.handler: Any = None
        self._frames: tuple[Frame, ...] | None = None
        self.value: Any = None
        if self.kind == "prim::Constant" and self.type.kind() != "FunctionType":
            self.value = outputs[0].toIValue()

    @property
    def source(self) -> Source | None:
        """The innermost line of the user's, or of torch's where there is none."""
        lines = _lines(self.node)
        return next((line for line in lines if not is_internal(line.filename)), lines[0] if lines else None)

    def frames(self) -> tuple[Frame, ...]:
        """The lines as steps of a call stack, innermost first."""
        if self._frames is None:
            self._frames = tuple(line.frame(self.procedure.title) for line in _lines(self.node))
        return self._frames

    def location(self) -> Location | None:
        """The place, for messages."""
        source = self.source
        if source is None:
            return None
        return Location(source.filename, source.line, source.function or self.procedure.title, source.text or None)

    def parts(self) -> Iterator[Statement]:
        """This statement and all in its blocks."""
        yield self
        for block in self.blocks:
            for statement in block.statements:
                yield from statement.parts()


class Block:
    """A list of statements with the values that it takes and gives."""

    __slots__ = ("inputs", "outputs", "statements")

    def __init__(self, block: Any, procedure: Procedure) -> None:
        self.inputs: tuple[int, ...] = tuple(value.unique() for value in block.inputs())
        # read in this order: what later statements take is known when all are there
        self.statements: list[Statement] = [Statement(node, procedure) for node in block.nodes()]
        self.outputs: tuple[int, ...] = tuple(value.unique() for value in block.outputs())
        for statement in self.statements:
            procedure.uses.update(statement.inputs)
        procedure.uses.update(self.outputs)


class Procedure:
    """A method or function: ``title`` is its name, ``uses`` says how often values are taken."""

    def __init__(self, graph: Any, title: str) -> None:
        self.graph = graph  # owns the nodes
        self.title = title
        self.uses: Counter[int] = Counter()
        self.has_autocast = False
        self.block = self._read()
        if self.has_autocast:
            self.graph = _with_conversions(graph)
            self.uses.clear()
            self.block = self._read()
        self.input_types = [value.type() for value in graph.inputs()]
        self.calls: dict[Any, Procedure] = {}

    def _read(self) -> Block:
        graph = self.graph
        return Block(graph.block() if callable(getattr(graph, "block", None)) else graph, self)

    def statements(self) -> Iterator[Statement]:
        for statement in self.block.statements:
            yield from statement.parts()

    def called(self, statement: Statement, method: str | None = None, owner_type: Any = None) -> Procedure:
        """What a call of a function, or of a method of an object, runs; ``method`` for one that is not named there,
        ``owner_type`` is the class of the object where the statement knows an interface only."""
        key = (id(statement), method, None if owner_type is None else owner_type.qualified_name())
        if key not in self.calls:
            body = _body_of_call(statement.node, method, owner_type)
            self.calls[key] = Procedure(body, method or _called_name(statement))
        return self.calls[key]

    def forked(self, statement: Statement) -> Procedure:
        """What a future computes."""
        key = (id(statement), None, None)
        if key not in self.calls:
            self.calls[key] = Procedure(statement.node.g("Subgraph"), self.title)
        return self.calls[key]


def _with_conversions(graph: Any) -> Any:
    """A graph with the conversions written out that ``torch.autocast`` makes in it: by torch's own pass, which
    decides by the name of an operator, otherwise than eager mode. It sees no calls, so these are written out too."""
    copied = graph.copy()
    torch._C._jit_pass_inline(copied)
    try:
        torch._C._jit_pass_autocast(copied)  # type: ignore[attr-defined]
    except RuntimeError as error:
        first = str(error).strip().splitlines()[0]
        raise CaptureError(f"TorchScript can't tell what torch.autocast does in this script: {first}") from error
    return copied


_NAMED = frozenset({"prim::GetAttr", "prim::SetAttr", "prim::CallMethod"})
_WITH_BLOCKS = frozenset({"prim::If", "prim::Loop"})
# statements of torch's own namespace that are operators with a schema
_PRIM_OPERATORS = frozenset({"prim::max", "prim::min", "prim::abs"})


def _operator(node: Any) -> str:
    schema: str = node.schema()
    return "" if schema == "(no schema)" else schema.partition("(")[0]


_LINE = re.compile(r'File "(.+?)", line (\d+)')
_TRACED_LINE = re.compile(r"^(.+)\((\d+)\): (.+)$", re.MULTILINE)
_MARK = " <--- HERE"
_TRACING = os.path.join("torch", "jit", "_trace.py")


def _lines(node: Any) -> list[Source]:
    """The lines of a node as the file's debug information has them, innermost first: of a scripted program one, of a
    traced one those of Python's stack. The user's own come before those of the file's code."""
    try:
        text, _, _ = node.sourceRange().partition("Serialized   File")
    except RuntimeError:  # read from the file when it is asked for, and the file is damaged there
        return []
    found = _LINE.search(text)
    if found is not None:
        before, mark, _ = text.partition(_MARK)
        lines = before.rsplit("\n", 2)  # the one that is marked, and a line of tildes below it
        return [Source(found[1], int(found[2]), lines[-2].strip() if mark and len(lines) > 1 else "")]
    stack = []
    for filename, line, function in _TRACED_LINE.findall(text):
        if filename.endswith(_TRACING):
            break  # what called torch.jit.trace is no part of the program
        stack.append(Source(filename, int(line), "", function))
    return stack


def _called_name(statement: Statement) -> str:
    if statement.kind == "prim::CallFunction":
        return str(next(statement.node.inputs()).type()).rpartition(".")[2]
    return statement.name


def _body_of_call(node: Any, method: str | None, owner_type: Any) -> Any:
    """The graph of what a node calls, with the calls in it written out.

    torch has no way to ask a function for its graph; it writes functions out where they are called, though.
    """
    graph: Any = torch._C.Graph()
    inputs = []
    for value in node.inputs():
        if value.type().kind() == "FunctionType":
            constant = graph.createClone(value.node(), lambda _: None)
            graph.insertNode(constant)
            inputs.append(constant.output())
        else:  # one for each, also where a value is handed over twice
            inputs.append(graph.addInput())
            inputs[-1].setType(value.type())
    if owner_type is not None:
        inputs[0].setType(owner_type)
    if method == "__exit__":  # is told of an exception, and there is none
        inputs += [graph.insertConstant(None) for _ in range(3)]
    if method is None:
        following = iter(inputs)
        call = graph.createClone(node, lambda _: next(following))
    else:
        call = graph.create("prim::CallMethod", inputs, 1)
        call.s_("name", method)
    graph.insertNode(call)
    for output in call.outputs():
        graph.registerOutput(output)
    torch._C._jit_pass_inline(graph)
    return graph
