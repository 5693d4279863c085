"""The guards of torch's programs: conditions on the sizes of inputs that torch checks before it runs a program.

They are Python expressions over the arguments, ``L['x'].size()[0] % 2 == 0``. While such a program is captured they
are asked of the fakes, so that what torch refuses is refused here too. A program may come from a file, so only what
torch writes into a guard is read, and what :mod:`tintype.interop.guards` writes: those speak of ``L['flat_args']``,
and of what a program looked at besides sizes. Such questions are asked again; types of numbers and shared memory are
checked by every program of ours.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import SYMPY_INTERP

from tintype.errors import InvalidRequestError
from tintype.ir.observations import FACTS, SURROUNDINGS, answer_of
from tintype.trace.recorder import active_recorder

_NODES = (
    ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.UAdd, ast.Invert, ast.BinOp,
    ast.operator, ast.Compare, ast.cmpop, ast.Call, ast.Subscript, ast.Constant, ast.Name, ast.Load, ast.Attribute,
    ast.IfExp, ast.Tuple, ast.List, ast.Slice,
)  # fmt: skip
_METHODS = frozenset({"size", "stride", "storage_offset", "item"})
_FUNCTIONS: dict[str, Any] = {
    **SYMPY_INTERP, "math": math, "inf": math.inf, "max": torch.sym_max, "min": torch.sym_min, "abs": abs,
    "float": torch.sym_float, "int": torch.sym_int, "round": round,
}  # fmt: skip


class TheirGuards:
    """The guards of one program, to be asked of its arguments by name."""

    def __init__(self, guards: Sequence[str]) -> None:
        about_sizes = [text for text in guards if not _is_ours(text)]
        self._questions = [found for text in guards if _is_ours(text) and (found := _question(text)) is not None]
        self._guards = [(text, _compiled(text)) for text in about_sizes]
        self.roots = {root for text in about_sizes for root in _roots(text)}

    def __bool__(self) -> bool:
        return bool(self._guards or self._questions)

    def hold(self, arguments: Mapping[str, Any], leaves: Sequence[Any]) -> None:
        """Let the program require what its guards say."""
        for text, code in self._guards:
            # only names of this dictionary, and what _compiled let through
            condition = eval(code, {"__builtins__": {}, **_FUNCTIONS, "L": arguments})  # noqa: S307
            torch._check(condition, lambda text=text: f"Guard failed: {text}")
        recorder = active_recorder()
        for position, fact, given in self._questions:
            if position is not None:
                answer_of(leaves[position], fact, given)
            elif recorder is not None:
                recorder.observer.surroundings(recorder, fact, given, SURROUNDINGS[fact](*given))


def _is_ours(text: str) -> bool:
    return "L['flat_args']" in text or text.startswith(("torch.", "str(torch.", "tuple(torch."))


_PLAIN_QUESTION = re.compile(r"^(?:str\(|tuple\()?(?:L\['flat_args'\]\[(\d+)\]|torch)\.([\w.]+)(?:\((.*?)\))?\)? == ")
_ATTRIBUTE_QUESTION = re.compile(r"^(hasattr|getattr)\(L\['flat_args'\]\[(\d+)\], '(\w+)'")
_TYPE_QUESTION = re.compile(r"^\(type\(L\['flat_args'\]\[(\d+)\]\)( in|\.__module__)")


def _question(text: str) -> tuple[int | None, str, tuple[Any, ...]] | None:
    """What a guard of ours asks: of which input, what, with which arguments."""
    found = _TYPE_QUESTION.match(text)
    if found is not None:
        return int(found[1]), "is_plain" if found[2] == " in" else "tensor_class", ()
    found = _ATTRIBUTE_QUESTION.match(text)
    if found is not None:
        fact, name = found[1], found[3]
        return (int(found[2]), name, ()) if name == "_is_buffer" else (int(found[2]), fact, (name,))
    found = _PLAIN_QUESTION.match(text)
    if found is None:
        return None
    position, fact, arguments = found.groups()
    if fact not in (FACTS if position else SURROUNDINGS):
        return None
    given = tuple(_argument(part.partition("=")[2] or part) for part in (arguments or "").split(", ") if part)
    return int(position) if position else None, fact, given


def _argument(text: str) -> Any:
    prefix, _, name = text.rpartition(".")
    return getattr(torch, name) if prefix == "torch" else ast.literal_eval(text)


def _compiled(text: str) -> Any:
    tree = ast.parse(text, mode="eval")
    for node in ast.walk(tree):
        allowed = isinstance(node, _NODES)
        if isinstance(node, ast.Name):
            allowed = node.id == "L" or node.id in _FUNCTIONS
        elif isinstance(node, ast.Attribute):
            of_math = isinstance(node.value, ast.Name) and node.value.id == "math"
            allowed = node.attr in _METHODS or (of_math and not node.attr.startswith("_"))
        if not allowed:
            raise InvalidRequestError(
                f"the program of torch's has a guard that can't be taken over: {text}",
                remedy="export the model with tintype.export instead",
            )
    return compile(tree, "<guard>", "eval")


def _roots(text: str) -> list[str]:
    """The arguments that a guard speaks of."""
    return [
        str(node.slice.value)
        for node in ast.walk(ast.parse(text, mode="eval"))
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id == "L"
        and isinstance(node.slice, ast.Constant)
    ]
