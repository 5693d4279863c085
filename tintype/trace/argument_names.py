"""What the arguments of a call are called: in programs, and in messages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from types import FunctionType, MethodType
from typing import Any

import torch

from tintype.errors import InvalidRequestError
from tintype.ir.names import free_name


def captured_argument_names(root: Any) -> list[str] | None:
    """The names of the arguments of a program that was captured before, None for any other module."""
    return list(root.argument_names) if is_captured_program(root) else None


def is_captured_program(root: Any) -> bool:
    """Whether a module is a program that was captured before."""
    return getattr(type(root), "is_captured_program", False)


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function, or of what it wraps: which parameters there are, and which may be left out."""
    key = _signature_key(function)
    found = None if key is None else _signatures.get(key)
    if found is None:
        found = _signature(function)
        if key is not None:
            if len(_signatures) >= _MOST_SIGNATURES:
                _signatures.clear()
            _signatures[key] = found
    return found


def taken_without_name(function: Callable[..., Any], names: Iterable[str]) -> tuple[str | None, list[str]]:
    """The parameter that takes keyword arguments of any name, and which of some names it takes; all of them, and no
    parameter, where a function does not tell."""
    try:
        parameters = signature_of(function).parameters.values()
    except (TypeError, InvalidRequestError):
        return None, list(names)
    rest = next((parameter.name for parameter in parameters if parameter.kind is parameter.VAR_KEYWORD), None)
    if rest is None:
        return None, []
    named = {parameter.name for parameter in parameters if parameter.kind is not parameter.POSITIONAL_ONLY}
    return rest, [name for name in names if name not in named]


# An export asks for the signature of its model several times, and models are exported several times.
_signatures: dict[tuple[Any, ...], inspect.Signature] = {}
_MOST_SIGNATURES = 100
# Attributes of a function that have a say in its signature.
_SAYS_OTHERWISE = frozenset({"__signature__", "__text_signature__", "_partialmethod", "__partialmethod__"})


def _signature_key(function: Any) -> tuple[Any, ...] | None:
    """What a signature follows from; None for what is no plain function or method."""
    key: list[Any] = []
    while True:
        if type(function) is MethodType:
            key.append(MethodType)
            function = function.__func__
        if type(function) is not FunctionType or len(key) > 50 or not _SAYS_OTHERWISE.isdisjoint(function.__dict__):
            return None
        key += (function.__code__, len(function.__defaults__ or ()), tuple(function.__kwdefaults__ or ()))
        if "__wrapped__" not in function.__dict__:
            return tuple(key)
        function = function.__dict__["__wrapped__"]


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(function)
    except ValueError:  # it says that it wraps itself, or is written in C and says nothing
        pass
    try:
        return inspect.signature(function, follow_wrapped=False)
    except ValueError as error:
        name = getattr(function, "__name__", repr(function))
        raise InvalidRequestError(
            f"the arguments of {name} have no names that Python knows, so nothing can be said about their sizes",
            remedy=f"export a function of your own that calls it: lambda x: {name}(x)",
        ) from error


def argument_names(root: torch.nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> list[str]:
    """The names of the positional arguments of a call, ``args_0`` for those that have none, then keywords."""
    known = captured_argument_names(root)
    if known is not None and len(known) == len(args) + len(kwargs):
        return known
    forward = root.forward
    try:
        parameters = list(signature_of(forward).parameters.values())
    except (TypeError, InvalidRequestError):
        parameters = []
    names: list[str] = []
    # names that we make up must not be those of other arguments
    taken = {*kwargs, *(parameter.name for parameter in parameters)}
    for parameter in parameters:
        if len(names) == len(args):
            break
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [free_name(f"{parameter.name}_{i}", taken) for i in range(len(args) - len(names))]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append(parameter.name)
    names += [free_name(f"args_{i}", taken) for i in range(len(names), len(args))]
    return names + list(kwargs)


def positional_keywords(root: torch.nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[str, ...]:
    """The keyword arguments of a call that could have been given by position after the others, in that order: up to
    the first argument that the call leaves out."""
    if not kwargs:
        return ()
    try:
        parameters = list(signature_of(root.forward).parameters.values())
    except (TypeError, InvalidRequestError):
        return ()
    found = []
    for parameter in parameters[len(args) :]:
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD or parameter.name not in kwargs:
            break
        found.append(parameter.name)
    return tuple(found) if all(p.kind is not p.VAR_POSITIONAL for p in parameters[: len(args)]) else ()
