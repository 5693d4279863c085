"""Words for requests that can't be met: what is given as a model is none, or takes other arguments."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

import torch

from tintype.errors import InvalidRequestError
from tintype.trace.argument_names import signature_of


def not_a_model(given: Any) -> InvalidRequestError:
    """The error for something that is no module, method or function."""
    shown = f"an instance of {type(given).__name__}"
    remedy = "pass a module, a method of one, or a function of tensors"
    if isinstance(given, type):
        shown = f"the class {given.__name__}"
        if issubclass(given, torch.nn.Module):
            remedy = f"make a module of it first: tintype.export({given.__name__}(...), args)"
    elif given is None:
        shown, remedy = "None", f"{remedy}; a function that makes the model may have no return"
    elif isinstance(given, Mapping):
        remedy = "weights are no model: make it, model.load_state_dict(weights), and export that"
    elif isinstance(given, (str, PathLike)):
        shown = repr(str(given))
        remedy = "export the model, not its file; tintype.load reads programs, torch.load and torch.jit.load others"
    elif isinstance(given, (int, float)):
        shown = repr(given)
    elif is_program_of_torch(given):
        shown = "a program of torch.export"
        remedy = "tintype.interop.from_torch(program) makes one of ours of it"
    return InvalidRequestError(f"Expected `mod` to be an instance of `torch.nn.Module`, got {shown}", remedy=remedy)


def is_program_of_torch(given: Any) -> bool:
    """Whether something is what torch.export gives."""
    return type(given).__module__ == "torch.export.exported_program"


def check_function(given: Any) -> None:
    """Raise if something is no function, method or module."""
    if not callable(given) or isinstance(given, type):
        shown = f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
        raise InvalidRequestError(f"expected a function, but got {shown}", remedy="give a function, method or module")


def check_module(given: Any) -> None:
    """Raise if something is no module."""
    if not isinstance(given, torch.nn.Module):
        raise InvalidRequestError(
            f"expected a torch.nn.Module, but got {type(given).__name__}",
            remedy="tintype.aot.function compiles functions",
        )


def wrong_args(given: Any) -> InvalidRequestError:
    """The error for what is no tuple of arguments."""
    remedy = "write (x,) for a single argument"
    if isinstance(given, torch.nn.Module):
        remedy = "the model comes first, then its arguments: tintype.export(model, (x,))"
    elif isinstance(given, Mapping):
        remedy = "arguments by name come third: tintype.export(model, (), {'x': x})"
    elif isinstance(given, (str, PathLike)):
        remedy = "nothing is written by an export: tintype.save(program, path), onnx_program.save(path)"
    return InvalidRequestError(
        f"args must be a tuple of the positional arguments, but got {type(given).__name__}", remedy=remedy
    )


def wrong_kwargs(given: Any) -> InvalidRequestError:
    """The error for what is no dictionary of arguments."""
    remedy = "write {'x': x}; further arguments by position belong into the tuple before"
    if isinstance(given, (str, PathLike)):
        remedy = "nothing is written by an export: tintype.save(program, path), onnx_program.save(path)"
    return InvalidRequestError(
        f"kwargs must be a dictionary of the keyword arguments, but got {type(given).__name__}", remedy=remedy
    )


def wrong_arguments(module: torch.nn.Module, args: Any, kwargs: Any) -> InvalidRequestError | None:
    """The error for a call that the signature of a module does not take; None for one that it does, or that hooks may
    change before the module sees it."""
    if module._forward_pre_hooks or not callable(module.forward):
        return None
    try:
        signature = signature_of(module.forward)
    except (TypeError, ValueError):  # some builtins have none
        return None
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        plain = [each.replace(annotation=each.empty) for each in signature.parameters.values()]
        shown = signature.replace(parameters=plain, return_annotation=signature.empty)
        return WrongArgumentsError(
            f"the arguments are not those of {getattr(module.forward, '__qualname__', 'forward')}{shown}: {error}",
            remedy="give examples of all that have no default: tintype.export(model, args, kwargs), where args is a "
            "tuple by position and kwargs a dictionary by name",
        )
    return None


def module_of_a_program(program: Any, name: str) -> InvalidRequestError:
    """The error for a method of modules that somebody looks for in a program."""
    remedy = f"a program is run by its module: program.module().{name}"
    if name in ("cuda", "cpu", "half", "float", "double", "bfloat16", "type"):
        remedy = "program.to(device, dtype) gives another program"
    elif name == "load_state_dict":
        remedy = "program.with_state(state_dict) gives a program with other weights"
    elif name == "save":
        remedy = "tintype.save(program, path) writes it to a file"
    elif name in ("eval", "train", "training"):
        remedy = (
            "a program does what its model did in the mode that it was exported in: call model.eval() before that"
        )
    return NoSuchMethodError(f"a program is no torch.nn.Module, and has no {name}", remedy=remedy)


class WrongArgumentsError(InvalidRequestError, TypeError):
    """A model was to be called with arguments that it does not take."""


class NoSuchMethodError(InvalidRequestError, AttributeError):
    """Something of ``torch.nn.Module`` that a program does not have."""


class NotCalledError(InvalidRequestError, RuntimeError):
    """A program was called as if it were a module."""
