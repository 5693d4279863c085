"""Modules made from programs hold state under names that users chose, next to what they need themselves.

What a module needs itself is kept under names with a dot, which no parameter, buffer or submodule can have, and read
through attributes of the class, which nothing in an instance can hide. Constants are plain attributes where that
hides nothing, and lie in a table of their own otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from tintype.errors import InvalidRequestError

_CONSTANTS = "tintype.constants"
# under this name a module of a tree has the names of its state that calls change
CHANGING = "tintype.changing"


class Own:
    """An attribute that belongs to a module itself, whatever its state is called."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.key = f"tintype.{name}"

    def __get__(self, module: Any, owner: Any = None) -> Any:
        if module is None:
            return self
        try:
            return module.__dict__[self.key]
        except KeyError:
            raise AttributeError(self.key) from None

    def __set__(self, module: Any, value: Any) -> None:
        module.__dict__[self.key] = value


class UnlessModels:
    """A method under a name that models use too: state, constants and submodules of that name come first, and then
    the method is called through the class."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__  # where doctest looks for examples

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, module: Any, owner: Any = None) -> Any:
        if module is None:
            return self.function
        for table in tables_of(module):
            if self.name in table:
                return table[self.name]
        return self.function.__get__(module)


class OwnAttributes(torch.nn.Module):
    """A module that can be given its own attributes while it has state of the same names."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(getattr(type(self), name, None), (Own, property)):
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)


def table_of_constant(owner: torch.nn.Module, name: str) -> dict[str, Any]:
    """Where a module has a constant, or is to have it."""
    hidden: dict[str, Any] | None = vars(owner).get(_CONSTANTS)
    return vars(owner) if hidden is None or name not in hidden else hidden


def add_constant(owner: torch.nn.Module, name: str, value: Any) -> None:
    """Give a module a constant."""
    tables = (vars(owner), owner._parameters, owner._buffers, owner._modules)
    if hasattr(type(owner), name) or any(name in table for table in tables):
        vars(owner).setdefault(_CONSTANTS, {})[name] = value
    else:
        vars(owner)[name] = value


def tables_of(owner: torch.nn.Module) -> tuple[dict[str, Any], ...]:
    """What a module holds by name, in the order in which a name is looked up."""
    hidden: dict[str, Any] = vars(owner).get(_CONSTANTS) or {}
    return (owner._parameters, owner._buffers, hidden, owner._modules, vars(owner))


def is_computed(owner: torch.nn.Module, name: str) -> bool:
    """Whether a tool has put something in the place of state that computes it from other state: a parametrization,
    or a hook as those of pruning and of weight norm are, which computes it before its module runs."""
    if any(_hooks_of(owner, name)):
        return name not in owner._parameters
    is_property = isinstance(getattr(type(owner), name, None), property)
    return is_property and not any(name in table for table in tables_of(owner))


def computed(owner: torch.nn.Module, name: str) -> Any:
    """Such a value, as it is now."""
    for hook in _hooks_of(owner, name):
        hook(owner, ())  # a program calls no submodules, so nobody else does
    return getattr(owner, name)


def _hooks_of(owner: torch.nn.Module, name: str) -> Iterator[Any]:
    for hook in owner._forward_pre_hooks.values():
        if name in (getattr(hook, "_tensor_name", None), getattr(hook, "name", None)):
            yield hook


def attribute_of(module: torch.nn.Module, path: str) -> Any:
    """The attribute at a dotted path."""
    owner_path, _, name = path.rpartition(".")
    owner = submodule_at(module, owner_path)
    if is_computed(owner, name):
        return computed(owner, name)
    for table in tables_of(owner):
        if name in table:
            return table[name]
    raise missing_state(path)


def missing_state(path: str) -> InvalidRequestError:
    """The error for state that somebody took away from a module."""
    return InvalidRequestError(
        f"the module has no {path!r} any more, which its program needs", remedy="put it back, or make a new module"
    )


def submodule_at(module: torch.nn.Module, path: str) -> torch.nn.Module:
    """The module at a dotted path; also where a class has an attribute of that name (``graph``, ``code``)."""
    for part in path.split(".") if path else ():
        child = module._modules[part]
        assert child is not None
        module = child
    return module
