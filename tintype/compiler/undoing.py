"""Writes that can be taken back: a program that misses hands its run over as if only calls had been done."""

from __future__ import annotations

import collections
from types import CellType
from typing import Any

import torch

from tintype.compiler.calls import base_method
from tintype.interpret.handlers.attributes import instance_dictionary
from tintype.interpret.lookup import find_in_class

_GONE = object()
Log = list[tuple[Any, ...]]


def set_attribute(log: Log, owner: Any, name: str, value: Any) -> None:
    log.append((_put_attribute, owner, name, value_of(owner, name)))
    setattr(owner, name, value)


def set_own_attribute(log: Log, owner: Any, name: str, value: Any) -> None:
    log.append((_put_own_attribute, owner, name, instance_value(owner, name)))
    object.__setattr__(owner, name, value)


def set_module_attribute(log: Log, owner: Any, name: str, value: Any) -> None:
    log.append((_put_module_attribute, owner, name, value_of(owner, name)))
    torch.nn.Module.__setattr__(owner, name, value)


def value_of(owner: Any, name: str) -> Any:
    """An attribute that an object has itself, without running code of its class."""
    if isinstance(owner, type):
        return vars(owner).get(name, _GONE)
    if hasattr(type(find_in_class(type(owner), name)), "__set__"):
        return getattr(owner, name, _GONE)
    own = instance_dictionary(owner)
    places = [own, *(own[part] for part in ("_parameters", "_buffers", "_modules") if part in own)]
    tables = places if isinstance(owner, torch.nn.Module) else places[:1]
    return next((table[name] for table in tables if name in table), _GONE)


def instance_value(owner: Any, name: str) -> Any:
    """An attribute, past what the class of the object does about it."""
    try:
        return object.__getattribute__(owner, name)
    except AttributeError:
        return _GONE


def _put_own_attribute(owner: Any, name: str, value: Any) -> None:
    if value is _GONE:
        object.__delattr__(owner, name)
    else:
        object.__setattr__(owner, name, value)


def _put_module_attribute(owner: Any, name: str, value: Any) -> None:
    if value is _GONE:
        torch.nn.Module.__delattr__(owner, name)
    else:
        torch.nn.Module.__setattr__(owner, name, value)


def remove_attribute(log: Log, owner: Any, name: str) -> None:
    log.append((_put_attribute, owner, name, value_of(owner, name)))
    delattr(owner, name)


def _put_attribute(owner: Any, name: str, value: Any) -> None:
    if value is _GONE:
        delattr(owner, name)
    else:
        setattr(owner, name, value)


def set_item(log: Log, owner: Any, key: Any, value: Any) -> None:
    if isinstance(owner, dict):
        log.append((_put_item, owner, key, owner.get(key, _GONE)))
    else:
        log.append((_put_content, owner, content_of(owner)))
    owner[key] = value


def _put_item(owner: dict[Any, Any], key: Any, value: Any) -> None:
    if value is _GONE:
        del owner[key]
    else:
        owner[key] = value


def remove_item(log: Log, owner: Any, key: Any) -> None:
    log.append((_put_content, owner, content_of(owner)))
    del owner[key]


def call_method(log: Log, owner: Any, name: str, *values: Any) -> None:
    log.append((_put_content, owner, content_of(owner)))
    getattr(owner, name)(*values)


def call_base_method(log: Log, owner: Any, name: str, *values: Any) -> None:
    log.append((_put_content, owner, content_of(owner)))
    base_method(type(owner), name)(owner, *values)


def _base_of(owner: Any) -> Any:
    """The class in C that a container is of: its methods run no code of the user's."""
    return next(base for base in _CONTAINERS if isinstance(owner, base))


_CONTAINERS = (collections.OrderedDict, dict, set, collections.deque, list)


def content_of(owner: Any) -> Any:
    base = _base_of(owner)
    return dict(base.items(owner)) if issubclass(base, dict) else list(base.__iter__(owner))


def _put_content(owner: Any, content: Any) -> None:
    base = _base_of(owner)
    base.clear(owner)
    if base is collections.OrderedDict:  # which remembers the order by itself
        for key, item in content.items():
            base.__setitem__(owner, key, item)
    else:
        (base.extend if base in (list, collections.deque) else base.update)(owner, content)


def set_cell(log: Log, cell: CellType, _: None, value: Any) -> None:
    log.append((_put_cell, cell, _cell_content(cell)))
    cell.cell_contents = value


def empty_cell(log: Log, cell: CellType, _: None) -> None:
    log.append((_put_cell, cell, _cell_content(cell)))
    del cell.cell_contents


def _cell_content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _GONE


def _put_cell(cell: CellType, value: Any) -> None:
    if value is _GONE:
        del cell.cell_contents
    else:
        cell.cell_contents = value


def set_in_context(log: Log, variable: Any, value: Any) -> list[Any]:
    """Set a context variable; gives what holds the token for setting it back."""
    token = [variable.set(value)]
    log.append((_reset_context, variable, token))
    return token


def reset_context(log: Log, variable: Any, token: list[Any]) -> None:
    log.append((_set_in_context_again, variable, token, variable.get()))
    variable.reset(token[0])


def _reset_context(variable: Any, token: list[Any]) -> None:
    variable.reset(token[0])


def _set_in_context_again(variable: Any, token: list[Any], value: Any) -> None:
    token[0] = variable.set(value)  # a token can be used once


def take_back(log: Log) -> None:
    """Undo writes, the last one first."""
    for put, *arguments in reversed(log):
        put(*arguments)
    log.clear()


HELPERS = {
    "_attribute": set_attribute,
    "_attribute_gone": remove_attribute,
    "_own_attribute": set_own_attribute,
    "_module_attribute": set_module_attribute,
    "_item": set_item,
    "_item_gone": remove_item,
    "_method": call_method,
    "_base_method": call_base_method,
    "_context": set_in_context,
    "_context_gone": reset_context,
    "_cell": set_cell,
    "_cell_gone": empty_cell,
}
