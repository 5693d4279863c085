"""Operators of the user's own classes, done by the machine: their methods are interpreted, and noted as read.

The interpreter in C finds such methods by itself and calls them natively, where nobody sees what they read and write.
"""

from __future__ import annotations

import collections
import functools
import operator
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from tintype.compiler.numbers import Number, settled, takes_as_it_is
from tintype.compiler.sources import Source
from tintype.interpret import Frame
from tintype.interpret.frame import NULL
from tintype.interpret.lookup import SpecialMethods, find_in_class
from tintype.interpret.policy import Outcome

if TYPE_CHECKING:
    from tintype.interpret import Machine

Handler = Callable[..., Any]

_BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift", "and", "or", "xor")


def _function(name: str) -> Any:
    return getattr(operator, name + "_" if name in ("and", "or") else name)


# by function: the methods of the left and of the right operand, and the one that changes the left operand
METHODS: dict[Any, tuple[str, str, str | None]] = {}
for _name in _BINARY:
    METHODS[_function(_name)] = (f"__{_name}__", f"__r{_name}__", None)
    METHODS[getattr(operator, "i" + _name)] = (f"__{_name}__", f"__r{_name}__", f"__i{_name}__")
COMPARISONS = {
    getattr(operator, name): (f"__{name}__", f"__{swapped}__")
    for name, swapped in zip(("lt", "le", "gt", "ge", "eq", "ne"), ("gt", "ge", "lt", "le", "eq", "ne"), strict=True)
}
UNARY = {"unary_negative": "__neg__", "unary_positive": "__pos__", "unary_invert": "__invert__"}
_TRUTH = ("unary_not", "to_bool", "pop_jump_if_false", "pop_jump_if_true")
# classes of Python's whose sequences come before the right operand's method in C, but not as methods
_SEQUENCES = (list, tuple, str, bytes, bytearray)


class NotingMethods(SpecialMethods):
    """Special methods; which one a class has is noted when it is used."""

    def of(self, owner: Any) -> FunctionType | None:
        found = super().of(owner)
        if found is not None:
            policy: Any = self.machine.policy
            policy.read_of_class(type(owner), self.name)
        return found


def prepare(machine: Machine) -> None:
    """Let a machine do operators of the user's classes, and tell of the methods that it uses."""
    machine.table = table_with_operators(machine.table)
    for attribute in ("getitem", "setitem", "delitem", "iter", "next"):
        setattr(machine, attribute, NotingMethods(f"__{attribute}__", machine))


_tables: dict[int, tuple[Mapping[str, Handler], Mapping[str, Handler]]] = {}


def table_with_operators(table: Mapping[str, Handler]) -> Mapping[str, Handler]:
    """A table of handlers with ours in front; one for each table, since code is bound to tables once."""
    found = _tables.get(id(table))
    if found is None:
        made = dict(table)
        made["binary_operator"] = functools.partial(binary_operator, table["binary_operator"])
        made["compare"] = functools.partial(compare, table["compare"])
        made["binary_subscript"] = functools.partial(subscript, table["binary_subscript"])
        made["store_subscript"] = functools.partial(store, table["store_subscript"])
        made["store_attribute"] = functools.partial(store_attribute, table["store_attribute"])
        made["contains"] = functools.partial(contains, table["contains"])
        made["before_with"] = functools.partial(before_with, table["before_with"])
        for name, method in UNARY.items():
            made[name] = functools.partial(unary, table[name], method)
        for name in _TRUTH:
            made[name] = functools.partial(truth, table[name])
        found = _tables[id(table)] = (table, made)
    return found[1]


def is_special(machine: Machine, value: Any) -> bool:
    """Whether an object may have operators of its own that are interpreted."""
    policy: Any = machine.policy
    answer: bool = policy.classes_with_operators[type(value)]
    return answer


class ClassesWithOperators(dict[type, bool]):
    """Classes whose operators are looked for; asked once for a class."""

    def __init__(self, is_asked: Callable[[type], bool]) -> None:
        super().__init__()
        self.is_asked = is_asked

    def __missing__(self, kind: type) -> bool:
        answer = self[kind] = self.is_asked(kind)
        return answer


def _with_number(frame: Frame, left: Any, right: Any, name: str, operation: Any) -> bool:
    """A number that varies on the right of one that would take it as it is; False: nothing was done."""
    if not takes_as_it_is(left, right):
        return False
    result = getattr(type(right), name)(right, left)
    frame.stack[-2:] = [operation(left, right.settle()) if result is NotImplemented else result]
    return True


def is_array(value: Any) -> bool:
    """Whether it is an array or a number of NumPy's."""
    return type(value).__module__ == "numpy" and not isinstance(value, type)


def _array_step(frame: Frame, count: int, function: Any, *operands: Any) -> None:
    """NumPy computes for real each time; the result takes the place of so many values on the stack."""
    policy: Any = frame.machine.policy
    name = getattr(function, "__name__", "an operator")
    result = policy.step(function, list(operands), {}, f"{name} of arrays of NumPy's is done for real")
    frame.stack[len(frame.stack) - count :] = [result]


def binary_operator(plain: Handler, frame: Frame, operation: Any) -> Outcome:
    left, right = frame.stack[-2:]
    if _is_of_arrays(frame, left, right):
        _array_step(frame, 2, operation, left, right)
        return None
    if isinstance(right, Number) and operation in METHODS:
        if _with_number(frame, left, right, METHODS[operation][1], operation):
            return None
    if is_special(frame.machine, left) or is_special(frame.machine, right):
        methods = METHODS.get(operation)
        if methods is not None:
            forward, backward, inplace = methods
            done = _binary(frame.machine, left, right, forward, backward, inplace)
            if done is not NotImplemented:
                frame.stack[-2:] = [done]
                return None
    policy: Any = frame.machine.policy
    if policy.changes_container(operation, left):
        frame.stack[-2:] = [policy.call_inplace(operation, left, right)]
        return None
    return plain(frame, operation)


def _is_of_arrays(frame: Frame, left: Any, right: Any) -> bool:
    """Whether NumPy does an operator; tensors come first, which modes hear."""
    if not is_array(left) and not is_array(right):
        return False
    policy: Any = frame.machine.policy
    return (
        policy.capture.reason is None and not isinstance(left, torch.Tensor) and not isinstance(right, torch.Tensor)
    )


def subscript(plain: Handler, frame: Frame, argument: Any) -> Outcome:
    owner, key = frame.stack[-2:]
    policy: Any = frame.machine.policy
    if is_array(owner) and policy.capture.reason is None:
        _array_step(frame, 2, operator.getitem, owner, key)
        return None
    if isinstance(owner, dict) and type(owner) is not dict:
        key = frame.stack[-1] = settled(key)  # which __missing__ puts there as it is
        made = missing_item(frame.machine, owner, key)
        if made is not NULL:
            frame.stack[-2:] = [made]
            return None
    return plain(frame, argument)


def missing_item(machine: Machine, owner: Any, key: Any) -> Any:
    """What a dictionary of a class with ``__missing__`` gives for a key that it has not; NULL: it has it, or there
    is no such method, or one that runs natively."""
    kind = type(owner)
    policy: Any = machine.policy
    missing = find_in_class(kind, "__missing__")
    is_plain = missing is not NULL and find_in_class(kind, "__getitem__") is dict.__dict__["__getitem__"]
    if not is_plain or policy.capture.reason is not None or dict.__contains__(owner, key):
        return NULL
    if machine.interprets(missing):
        policy.on_read_item(None, owner, key, NULL)
        return call_special(machine, owner, "__missing__", missing, key)
    if missing is not collections.defaultdict.__dict__["__missing__"] or owner.default_factory is None:
        return NULL
    policy.on_read_item(None, owner, key, NULL)
    source = policy.capture.sources.get(id(owner))
    if source is not None:
        policy.capture.read(Source("attribute", "default_factory", source), owner.default_factory)
    value = machine.call(owner.default_factory)
    setter = machine.setitem.of(owner)
    if setter is not None:
        machine.call(setter, owner, key, value)
    else:
        dict.__setitem__(owner, key, policy.put_item(owner, key, value))
    return value


def store(plain: Handler, frame: Frame, argument: Any) -> Outcome:
    value, owner, key = frame.stack[-3:]
    policy: Any = frame.machine.policy
    if is_array(owner) and policy.capture.reason is None:
        _array_step(frame, 3, operator.setitem, owner, key, value)
        frame.stack.pop()
        return None
    return plain(frame, argument)


def store_attribute(plain: Handler, frame: Frame, name: str) -> Outcome:
    value, owner = frame.stack[-2:]
    policy: Any = frame.machine.policy
    setter = policy.setter_of_module(frame, owner, name, value)
    if setter is None:
        return plain(frame, name)
    del frame.stack[-2:]
    function, arguments = setter
    return frame.machine.begin(frame, function, [*arguments, value], discarded=True)


def compare(plain: Handler, frame: Frame, operation: Any) -> Outcome:
    left, right = frame.stack[-2:]
    if _is_of_arrays(frame, left, right):
        _array_step(frame, 2, operation, left, right)
        return None
    if isinstance(right, Number) and operation in COMPARISONS:
        if _with_number(frame, left, right, COMPARISONS[operation][1], operation):
            return None
    if is_special(frame.machine, left) or is_special(frame.machine, right):
        forward, backward = COMPARISONS.get(operation, ("", ""))
        done = _binary(frame.machine, left, right, forward, backward, None, compares=True)
        if done is not NotImplemented:
            frame.stack[-2:] = [done]
            return None
    return plain(frame, operation)


def _binary(
    machine: Machine, left: Any, right: Any, forward: str, backward: str, inplace: str | None, compares: bool = False
) -> Any:
    """What an operator gives; NotImplemented: no method of it is interpreted, or none does it."""
    first, second = type(left), type(right)
    candidates = [] if inplace is None else [(left, right, inplace)]
    pair = [(left, right, forward), (right, left, backward)]
    own = find_in_class(second, backward)
    comes_first = second is not first and issubclass(second, first) and own is not NULL
    if isinstance(left, _SEQUENCES) or (comes_first and (compares or own is not find_in_class(first, backward))):
        pair.reverse()
    if second is first and not compares:
        pair = pair[:1]
    candidates += pair
    found = [find_in_class(type(owner), name) for owner, _, name in candidates]
    if not any(map(machine.interprets, found)):
        return NotImplemented
    for (owner, other, name), method in zip(candidates, found, strict=True):
        if method is NULL or (not machine.interprets(method) and isinstance(owner, _SEQUENCES)):
            continue
        result = call_special(machine, owner, name, method, other)
        if result is not NotImplemented:
            return result
    if forward in ("__eq__", "__ne__"):  # where nobody knows, objects are equal to themselves
        return (left is right) == (forward == "__eq__")
    return NotImplemented


def call_special(machine: Machine, owner: Any, name: str, method: Any, *arguments: Any) -> Any:
    """Call a special method, interpreted where it can be."""
    if machine.interprets(method):
        policy: Any = machine.policy
        policy.read_of_class(type(owner), name)
        return machine.call(method, owner, *arguments)
    return getattr(type(owner), name)(owner, *arguments)


def contains(plain: Handler, frame: Frame, inverted: int) -> Outcome:
    machine = frame.machine
    value, container = frame.stack[-2:]
    method = find_in_class(type(container), "__contains__") if is_special(machine, container) else NULL
    if machine.interprets(method):
        answer = bool(call_special(machine, container, "__contains__", method, value))
        frame.stack[-2:] = [answer != bool(inverted)]
        return None
    return plain(frame, inverted)


def before_with(plain: Handler, frame: Frame, argument: Any) -> Outcome:
    manager = frame.stack[-1]
    if is_special(frame.machine, manager):
        policy: Any = frame.machine.policy
        policy.read_of_class(type(manager), "__enter__")
        policy.read_of_class(type(manager), "__exit__")
    return plain(frame, argument)


def unary(plain: Handler, name: str, frame: Frame, argument: Any) -> Outcome:
    value = frame.stack[-1]
    if is_array(value) and _is_of_arrays(frame, value, None):
        _array_step(frame, 1, getattr(operator, name), value)
        return None
    if is_special(frame.machine, value):
        method = find_in_class(type(value), name)
        if frame.machine.interprets(method):
            frame.stack[-1] = call_special(frame.machine, value, name, method)
            return None
    return plain(frame, argument)


def truth(plain: Handler, frame: Frame, argument: Any) -> Outcome:
    """Operations that ask whether a value is true: they get the answer in its place."""
    machine, value = frame.machine, frame.stack[-1]
    if is_array(value) and _is_of_arrays(frame, value, None):
        _array_step(frame, 1, bool, value)
    if is_special(machine, value):
        for name in ("__bool__", "__len__"):
            method = find_in_class(type(value), name)
            if machine.interprets(method):
                answer = call_special(machine, value, name, method)
                # a number that varies is asked, too
                if type(answer) is bool or (name == "__len__" and isinstance(answer, int)):
                    frame.stack[-1] = bool(answer)
                break
            if method is not NULL:
                break
    return plain(frame, argument)
