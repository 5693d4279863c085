"""The functions that a program may call, by name: the only ones that a file can refer to.

A name is looked up in tables; nothing is imported, evaluated or fetched by attribute from a module. Operators of
torch and of the user's libraries are found in torch's own registry, so a file can name only what this process has.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch

from tintype import ops
from tintype.errors import FileFormatError, UnsavableError
from tintype.ir.operators import OPERATORS

_PYTHON_OPERATORS = (
    "abs", "add", "and_", "eq", "floordiv", "ge", "getitem", "gt", "invert", "le", "lshift", "lt", "mod", "mul", "ne",
    "neg", "not_", "or_", "pos", "pow", "rshift", "sub", "truediv", "xor",
)  # fmt: skip
_NUMBER_FUNCTIONS = ("ceil", "floor", "trunc")

# Operators that reach out of the program, to files: no program needs them, and no file may call them.
_REFUSED = frozenset({"aten::from_file"})
_REFUSED_NAMESPACES = frozenset({"image"})  # torchvision's operators on files

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _functions_by_name() -> dict[str, Callable[..., Any]]:
    table: dict[str, Callable[..., Any]] = {
        **{f"operator.{name}": getattr(operator, name) for name in _PYTHON_OPERATORS},
        **{f"math.{name}": getattr(math, name) for name in _NUMBER_FUNCTIONS},
        **{f"torch.{name}": getattr(torch, name) for name in dir(torch) if name.startswith(("sym_", "_sym_"))},
        "round": round,
    }
    for name in ops.__all__:
        function = getattr(getattr(ops, name), name, None)
        if callable(function):
            table[f"tintype.{name}"] = function
    for target in OPERATORS:  # those that only tintype has
        if isinstance(target, FunctionType):
            table[f"tintype.{target.__name__}"] = target
    return table


FUNCTIONS = _functions_by_name()
_NAMES = {function: name for name, function in FUNCTIONS.items()}


def name_of(target: Any) -> str:
    """The name under which a file refers to a function."""
    if isinstance(target, torch._ops.OpOverload):
        if _is_refused(target.name().partition(".")[0]):
            raise UnsavableError(f"{target} reaches out to files, so no program that is saved can call it")
        return f"torch.ops.{target}"
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"torch.ops.higher_order.{target.name()}"
    name = _NAMES.get(target)
    if name is None:
        raise UnsavableError(
            f"the program calls {target!r}, which a file can't refer to",
            remedy="make it a custom operator (torch.library.custom_op)",
        )
    return name


def function_named(name: str) -> Any:
    """The function that a file means."""
    found = FUNCTIONS.get(name)
    if found is None and name.startswith("torch.ops."):
        found = _operator(name.split(".")[2:])
    if found is None:
        raise FileFormatError(
            f"the program calls {name!r}, which is no operator here",
            remedy="import the library that registers the operator before loading the file (on the command line: "
            "--import MODULE); if it was removed from "
            "torch, load the file with the version that saved it",
        )
    return found


def _operator(parts: list[str]) -> Any:
    if parts[:1] == ["higher_order"] and len(parts) == 2:
        return torch._ops._higher_order_ops.get(parts[1])
    if len(parts) != 3 or not all(map(_NAME.fullmatch, parts)):
        return None
    namespace, name, overload = parts
    qualified = f"{namespace}::{name}"
    if _is_refused(qualified):
        raise FileFormatError(f"the program calls {qualified}, which reaches out to files; no program may")
    if overload not in _overloads(qualified):
        return None
    found = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    return found if isinstance(found, torch._ops.OpOverload) else None


def _overloads(qualified: str) -> list[str]:
    try:
        _, overloads = torch._C._jit_get_operation(qualified)
    except RuntimeError:  # no such operator
        return []
    return [overload or "default" for overload in overloads or ()]


def _is_refused(qualified: str) -> bool:
    return qualified in _REFUSED or qualified.partition("::")[0] in _REFUSED_NAMESPACES
