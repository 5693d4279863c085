"""What the arguments of a call are called: in programs, and in messages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
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
    """The signature of a function, or of what it wraps."""
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
    if is_captured_program(root):
        program: Any = root
        names = list(program._in_spec.children()[1].context)
        return tuple(program._checks.calling.positional) if names == list(kwargs) else ()
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
