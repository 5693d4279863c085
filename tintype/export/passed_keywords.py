"""Keyword arguments that a program only passes on, to a module that takes them by name.

``def forward(self, **kwargs): return self.model(**kwargs).logits`` can't tell in which order they came, which its
code shows: nothing else has to be tried (see :mod:`tintype.export.key_order`).
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch

from tintype.interpret.decode import decode, local_names
from tintype.interpret.errors import NotInterpretedError
from tintype.trace.argument_names import taken_without_name

_MODULE: Any = torch.nn.Module
_HOOKS: Any = torch.nn.modules.module
# what stands in a call between what is called and the keywords: none of them looks at a dictionary
_ARGUMENTS = frozenset(
    {"build_list", "build_map", "build_tuple", "dict_merge", "list_extend", "list_to_tuple", "load_attribute"}
    | {"load_constant", "load_local", "push_null"}
)
_CALLS = ("call_spread", "call_spread_above")
# functions that see variables which they are not given
_ALL_VARIABLES = frozenset({"_getframe", "currentframe", "dir", "eval", "exec", "locals", "stack", "vars"})
_MOST_CALLS = 8
Operations = list[tuple[str, Any]]


def looked_at(function: Any, names: Collection[str], depth: int = 0) -> list[str]:
    """Those keyword arguments of some names whose order a function, or one that it passes them on to, may see."""
    rest, left = taken_without_name(function, names)
    if len(left) < 2:  # one has no order
        return []
    called = None if rest is None or depth == _MOST_CALLS else _given_to(function, rest)
    if called is None:
        return left
    return list(dict.fromkeys(name for callee in called for name in looked_at(callee, left, depth + 1)))


def _given_to(function: Any, rest: str) -> list[Any] | None:
    """The functions that a method passes its other keyword arguments on to; None where it may look at them."""
    if not isinstance(function, MethodType) or hasattr(function, "__wrapped__"):
        return None
    code = function.__func__.__code__
    if _rest_of(code) != rest:  # its signature is not its own
        return None
    if rest in code.co_cellvars or not _ALL_VARIABLES.isdisjoint(code.co_names):
        return None
    try:
        operations = decode(code).operations
    except NotInterpretedError:  # async code
        return None
    slot = local_names(code).index(rest)
    changed = {argument for name, argument in operations if name.startswith(("store_attribute", "delete_attribute"))}
    if any(name.startswith(("store_local", "delete_local")) and argument == 0 for name, argument in operations):
        return None  # another self
    called = []
    for index, (name, argument) in enumerate(operations):
        if "local" in name and (argument == slot or isinstance(argument, tuple)):
            chain = _called_with(operations, index) if name == "load_local" else None
            callee = None if chain is None or not changed.isdisjoint(chain) else _found(function.__self__, chain)
            if callee is None:
                return None
            called.append(callee)
    return called


def _rest_of(code: CodeType) -> str | None:
    """The parameter of code that takes keyword arguments of any name."""
    if not code.co_flags & inspect.CO_VARKEYWORDS:
        return None
    before = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
    return code.co_varnames[before]


def _called_with(operations: Operations, index: int) -> list[str] | None:
    """The attributes of ``self`` that lead to what is called, where a variable is ``**variable`` of a call."""
    if operations[index + 1] != ("dict_merge", 1):
        return None
    end = index + 1
    while operations[end][0] in _ARGUMENTS:
        end += 1
    start = index
    while start and operations[start - 1][0] in _ARGUMENTS:
        start -= 1
    call = operations[start:end]
    if operations[end][0] not in _CALLS or [name for name, _ in call].count("push_null") != 1:
        return None
    null = next(number for number, (name, _) in enumerate(call) if name == "push_null")
    chain: list[str] = []
    if operations[end][0] == "call_spread":  # what is called stands behind
        steps = iter(call[null + 1 :])
        return list(_attributes(steps)) if next(steps) == ("load_local", 0) else None
    while null and call[null - 1][0] == "load_attribute":
        null -= 1
        chain.insert(0, call[null][1])
    return chain if null and call[null - 1] == ("load_local", 0) else None


def _attributes(steps: Iterator[tuple[str, Any]]) -> Iterator[str]:
    for name, argument in steps:
        if name != "load_attribute":
            return
        yield argument


def _found(owner: Any, chain: list[str]) -> Any:
    """The function that runs when a module, or a method of one, is called; None if that can't be told."""
    for name in chain:
        if not isinstance(owner, _MODULE) or type(owner).__getattr__ is not _MODULE.__getattr__:
            return None
        module = vars(owner)["_modules"].get(name)
        if module is None:
            method = inspect.getattr_static(owner, name, None)
            return MethodType(method, owner) if name == chain[-1] and type(method) is FunctionType else None
        owner = module
    return owner.forward if chain and isinstance(owner, _MODULE) and _runs_forward_alone(owner) else None


def _runs_forward_alone(module: Any) -> bool:
    if type(module).__call__ is not _MODULE.__call__ or module._compiled_call_impl is not None:
        return False
    hooks = (module._forward_pre_hooks, module._forward_hooks)
    return not any((*hooks, _HOOKS._global_forward_pre_hooks, _HOOKS._global_forward_hooks))
