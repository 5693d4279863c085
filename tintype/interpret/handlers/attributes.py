"""Attributes: properties, descriptors and ``__getattr__`` that are written in Python are interpreted.

A native ``getattr`` is right for every attribute; it only runs such code unseen. So what is remembered of a class is
that an attribute of it needs no care, and nothing goes wrong if that changes later.
"""

from __future__ import annotations

from typing import Any

from tintype.interpret.frame import NULL, Frame
from tintype.interpret.handlers.registry import handler, hooked
from tintype.interpret.lookup import find_in_class
from tintype.interpret.policy import Outcome

PLAIN_LOOKUP = object.__dict__["__getattribute__"]


@handler
def load_attribute(frame: Frame, name: str) -> Outcome:
    stack = frame.stack
    owner = stack[-1]
    if (type(owner), name) in frame.machine.plain_attributes:
        stack[-1] = getattr(owner, name)
        return None
    return load_with_care(frame, stack.pop(), name)


@handler
def load_method(frame: Frame, name: str) -> Outcome:
    stack = frame.stack
    owner = stack[-1]
    stack[-1] = NULL
    if (type(owner), name) in frame.machine.plain_attributes:
        stack.append(getattr(owner, name))
        return None
    return load_with_care(frame, owner, name)


@hooked("on_read_attribute", "load_attribute")
def load_attribute_hooked(frame: Frame, name: str) -> Outcome:
    owner = frame.stack[-1]
    try:
        outcome = load_attribute(frame, name)
    except AttributeError:
        frame.machine.policy.on_read_attribute(frame, owner, name, NULL)
        raise
    if outcome is None:
        frame.stack[-1] = frame.machine.policy.on_read_attribute(frame, owner, name, frame.stack[-1])
    else:
        frame.machine.policy.computes_attribute(frame, owner, name)
    return outcome


@hooked("on_read_attribute", "load_method")
def load_method_hooked(frame: Frame, name: str) -> Outcome:
    owner = frame.stack.pop()
    frame.stack += (NULL, owner)
    return load_attribute_hooked(frame, name)


def load_with_care(frame: Frame, owner: Any, name: str) -> Outcome:
    """Loads an attribute that may be computed by code that is interpreted."""
    machine = frame.machine
    owners_type = type(owner)
    getter = find_getter(frame, owner, owners_type, name)
    if getter is None:
        frame.stack.append(getattr(owner, name))
        return None
    function, arguments = getter
    fallback = find_in_class(owners_type, "__getattr__")
    if fallback is NULL or function is fallback:
        return machine.begin(frame, function, arguments)
    # an AttributeError of a property is a question for __getattr__
    try:
        value = machine.call(function, *arguments)
    except AttributeError:
        value = machine.call(fallback, owner, name)
    frame.stack.append(value)
    return None


def find_getter(frame: Frame, owner: Any, owners_type: type, name: str) -> tuple[Any, list[Any]] | None:
    """The function that computes an attribute, where it is interpreted, and its arguments."""
    machine = frame.machine
    lookup = find_in_class(owners_type, "__getattribute__")
    if lookup is not PLAIN_LOOKUP:
        if machine.interprets(lookup):
            return lookup, [owner, name]
    else:
        found = find_in_class(owners_type, name)
        if found is NULL:
            fallback = find_in_class(owners_type, "__getattr__")
            if machine.interprets(fallback):
                if name in instance_dictionary(owner):
                    return None
                return fallback, [owner, name]
        elif type(found) is property:
            if machine.interprets(found.fget):
                return found.fget, [owner]
        else:
            getter = find_in_class(type(found), "__get__")
            if machine.interprets(getter):
                changes = find_in_class(type(found), "__set__") is not NULL
                changes = changes or find_in_class(type(found), "__delete__") is not NULL
                if not changes and name in instance_dictionary(owner):
                    return None
                return getter, [found, owner, owners_type]
    machine.plain_attributes.add((owners_type, name))
    return None


def instance_dictionary(owner: Any) -> dict[str, Any]:
    try:
        return object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return {}


def find_setter(frame: Frame, owner: Any, name: str, method: str, accessor: str) -> tuple[Any, list[Any]] | None:
    """The interpreted function that an assignment calls, and its arguments but for the value."""
    machine = frame.machine
    owners_type = type(owner)
    whole = find_in_class(owners_type, method)
    if machine.interprets(whole):
        return whole, [owner, name]
    return setter_in_class(frame, owner, name, accessor) if whole is find_in_class(object, method) else None


def setter_in_class(frame: Frame, owner: Any, name: str, accessor: str) -> tuple[Any, list[Any]] | None:
    """The same of what the class has under that name: a property, or a descriptor of the user's."""
    found = find_in_class(type(owner), name)
    if type(found) is property:
        function = getattr(found, accessor)
        return (function, [owner]) if frame.machine.interprets(function) else None
    function = NULL if found is NULL else find_in_class(type(found), _METHODS[accessor])
    return (function, [found, owner]) if frame.machine.interprets(function) else None


# what descriptors have in place of the parts of a property
_METHODS = {"fset": "__set__", "fdel": "__delete__"}


@handler
def store_attribute(frame: Frame, name: str) -> Outcome:
    owner = frame.stack.pop()
    value = frame.stack.pop()
    if (type(owner), name) not in frame.machine.plain_stores:
        setter = find_setter(frame, owner, name, "__setattr__", "fset")
        if setter is not None:
            function, arguments = setter
            return frame.machine.begin(frame, function, [*arguments, value], discarded=True)
        frame.machine.plain_stores.add((type(owner), name))
    setattr(owner, name, value)
    return None


@hooked("on_write_attribute", "store_attribute")
def store_attribute_hooked(frame: Frame, name: str) -> Outcome:
    value, owner = frame.stack[-2:]
    frame.machine.policy.on_write_attribute(frame, owner, name, value)
    return store_attribute(frame, name)


@handler
def delete_attribute(frame: Frame, name: str) -> Outcome:
    owner = frame.stack.pop()
    deleter = find_setter(frame, owner, name, "__delattr__", "fdel")
    if deleter is not None:
        function, arguments = deleter
        return frame.machine.begin(frame, function, arguments, discarded=True)
    delattr(owner, name)
    return None


@hooked("on_write_attribute", "delete_attribute")
def delete_attribute_hooked(frame: Frame, name: str) -> Outcome:
    frame.machine.policy.on_write_attribute(frame, frame.stack[-1], name, NULL)
    return delete_attribute(frame, name)


@handler
def load_super_attribute(frame: Frame, argument: tuple[str, bool, bool]) -> Outcome:
    name, is_method, has_arguments = argument
    stack = frame.stack
    instance = stack.pop()
    owner = stack.pop()
    maker = stack.pop()
    if maker is super:
        proxy = super(owner, instance)
    else:
        proxy = frame.machine.call(maker, *((owner, instance) if has_arguments else ()))
    if is_method:
        stack.append(NULL)
    stack.append(proxy)
    return load_attribute(frame, name)
