"""Programs as text: Python that runs, with sizes as annotations and source lines as comments."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from tintype.ir.graph import attached, meta_of, output_node, placeholders
from tintype.ir.node_info import NodeMeta
from tintype.ir.signature import ExportGraphSignature
from tintype.symbolic import named_text
from tintype.symbolic.bridge import from_torch

_DTYPES = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16",
    torch.int8: "i8", torch.int16: "i16", torch.int32: "i32", torch.int64: "i64", torch.uint8: "u8",
    torch.bool: "b8", torch.complex64: "c64", torch.complex128: "c128",
}  # fmt: skip

_INFIX: dict[Callable[..., Any], str] = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.floordiv: "//",
    operator.truediv: "/",
    operator.mod: "%",
    operator.pow: "**",
    operator.eq: "==",
    operator.ne: "!=",
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
}


def named_size(number: Any) -> str:
    """A number, by the names that users gave to sizes."""
    return str(number) if isinstance(number, (int, float, bool)) else named_text(from_torch(number))


def describe_value(value: Any, size: Callable[[Any], str] = named_size) -> str:
    """A tensor as ``f32[batch, 3]``, a symbolic number as ``Sym(batch)``, several values in parentheses.

    >>> describe_value(torch.ones(2, 3))
    'f32[2, 3]'
    """
    if isinstance(value, torch.Tensor):
        kind = _DTYPES.get(value.dtype, str(value.dtype).removeprefix("torch."))
        device = "" if value.device.type == "cpu" else f" {value.device}"
        return f"{kind}[{', '.join(map(size, value.shape))}]{device}"
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return f"Sym({size(value)})"
    if isinstance(value, (list, tuple)):
        return f"({', '.join(describe_value(item, size) for item in value)})"
    return type(value).__name__


def spell(value: Any) -> str:
    """An argument as Python source."""
    if isinstance(value, Node):
        return value.name
    if isinstance(value, torch._ops.OpOverload):
        return f"torch.ops.{value}"
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if isinstance(value, tuple):
        return f"({', '.join(spell(item) for item in value)}{',' if len(value) == 1 else ''})"
    if isinstance(value, list):
        return f"[{', '.join(spell(item) for item in value)}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {spell(item)}" for key, item in value.items()) + "}"
    if isinstance(value, slice):
        return f"slice({spell(value.start)}, {spell(value.stop)}, {spell(value.step)})"
    return repr(value)


def spell_call(node: Node) -> str:
    """The expression that computes a node."""
    target: Any = node.target
    if target is operator.getitem:
        return f"{spell(node.args[0])}[{spell(node.args[1])}]"
    if target in _INFIX and len(node.args) == 2:
        return f"{spell(node.args[0])} {_INFIX[target]} {spell(node.args[1])}"
    arguments = [spell(argument) for argument in node.args]
    arguments += [f"{name}={spell(value)}" for name, value in node.kwargs.items()]
    return f"{spell_target(target)}({', '.join(arguments)})"


def spell_target(target: Any) -> str:
    """The function that a node calls, by its importable name."""
    if isinstance(target, torch._ops.OpOverload):
        return f"torch.ops.{target}"
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"torch.ops.higher_order.{target.name()}"
    return f"{target.__module__}.{target.__qualname__}".removeprefix("builtins.").replace("_operator.", "operator.")


def source_comment(meta: NodeMeta) -> str | None:
    """The line of the user's program that a node comes from."""
    frame = meta.origin.user_frame() if meta.origin is not None else None
    if frame is None:
        return None
    return f"# {frame.filename}:{frame.line} in {frame.function}: {frame.source}"


def graph_lines(graph: Graph, *, comments: bool = True) -> Iterator[str]:
    """A graph as the lines of a method."""
    parameters = ", ".join(
        f"{node.name}: {describe_value(node.meta.get('val'))!r}".replace("'", '"') for node in placeholders(graph)
    )
    yield f"def forward(self, {parameters}):" if parameters else "def forward(self):"
    last = None
    for node in graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        comment = source_comment(meta_of(node)) if comments else None
        if comment is not None and comment != last:
            yield f"    {comment}"
            last = comment
        if node.op == "get_attr":
            yield f"    {node.name} = self.{node.target}()"
            continue
        annotation = describe_value(node.meta.get("val"))
        yield f'    {node.name}: "{annotation}" = {spell_call(node)}'
    yield f"    return {spell(output_node(graph).args[0])}"


def _module_lines(graph_module: GraphModule) -> Iterator[str]:
    """A graph as the body of a class: the graphs inside of it as classes, then its method."""
    for name, subgraph in attached(graph_module.graph).items():
        yield f"class {name}(torch.nn.Module):"
        for line in _module_lines(subgraph):
            yield f"    {line}"
        yield ""
    yield from graph_lines(graph_module.graph)


def imports(graph: Graph) -> list[str]:
    """The modules that a graph's text needs besides torch."""
    names = set()
    for node in graph.nodes:
        if node.op == "call_function" and not isinstance(node.target, torch._ops.OperatorBase):
            module = spell_target(node.target).rpartition(".")[0]
            if module and module.partition(".")[0] != "torch" and node.target not in (operator.getitem, *_INFIX):
                names.add(module)
    return sorted(names)


def print_program(
    graph_module: GraphModule, signature: ExportGraphSignature, stage: str, paths: Sequence[str] = ()
) -> str:
    """A program as a Python class, followed by its signature; ``paths`` say where the user's outputs stand in the
    result."""
    lines = ["import torch", *(f"import {name}" for name in imports(graph_module.graph)), "", ""]
    lines.append(f"class Program(torch.nn.Module):  # {stage} stage")
    lines += [f"    {line}" for line in _module_lines(graph_module)]
    lines += ["", "", "# Signature", *(f"# {line}".rstrip() for line in _signature_lines(signature, paths))]
    return "\n".join(lines) + "\n"


def _signature_lines(signature: ExportGraphSignature, paths: Sequence[str]) -> Iterator[str]:
    """The signature, with the place in the result of each of the user's outputs."""
    inputs, heading, outputs = str(signature).partition("# outputs")
    yield from (inputs + heading).splitlines()
    places = iter(paths)
    for line in outputs.splitlines()[1:]:
        path = next(places, "") if line.endswith(": USER_OUTPUT") else ""
        yield f"{line}  # {path}" if path else line
