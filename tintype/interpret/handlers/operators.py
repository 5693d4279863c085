"""Operators, comparisons, items, attributes, truth and branches."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tintype.interpret.frame import NULL, Frame
from tintype.interpret.handlers.registry import handler, hooked
from tintype.interpret.policy import Outcome


@handler
def binary_operator(frame: Frame, operation: Callable[[Any, Any], Any]) -> None:
    stack = frame.stack
    right = stack.pop()
    stack[-1] = operation(stack[-1], right)


UPDATES = frozenset(
    {
        operator.iadd, operator.iand, operator.iconcat, operator.ifloordiv, operator.ilshift, operator.imatmul,
        operator.imod, operator.imul, operator.ior, operator.ipow, operator.irshift, operator.isub,
        operator.itruediv, operator.ixor,
    }
)  # fmt: skip


@hooked("on_update", "binary_operator")
def binary_operator_hooked(frame: Frame, operation: Callable[[Any, Any], Any]) -> None:
    if operation in UPDATES:
        frame.machine.policy.on_update(frame, frame.stack[-2])
    binary_operator(frame, operation)


@handler
def compare(frame: Frame, operation: Callable[[Any, Any], Any]) -> None:
    stack = frame.stack
    right = stack.pop()
    stack[-1] = operation(stack[-1], right)


@handler
def is_operator(frame: Frame, inverted: int) -> None:
    stack = frame.stack
    right = stack.pop()
    stack[-1] = (stack[-1] is right) != bool(inverted)


@handler
def contains(frame: Frame, inverted: int) -> None:
    stack = frame.stack
    container = stack.pop()
    stack[-1] = (stack[-1] in container) != bool(inverted)


@handler
def unary_negative(frame: Frame, _: None) -> None:
    frame.stack[-1] = -frame.stack[-1]


@handler
def unary_positive(frame: Frame, _: None) -> None:
    frame.stack[-1] = +frame.stack[-1]


@handler
def unary_invert(frame: Frame, _: None) -> None:
    # not `~x`, which warns of booleans where the compiler has warned already
    frame.stack[-1] = operator.invert(frame.stack[-1])


# Truth and branches.


@handler
def unary_not(frame: Frame, _: None) -> None:
    frame.stack[-1] = not frame.stack[-1]


@hooked("on_truth", "unary_not")
def unary_not_hooked(frame: Frame, _: None) -> None:
    truth = frame.machine.policy.on_truth(frame, frame.stack[-1])
    frame.stack[-1] = not truth if type(truth) is bool else frame.machine.policy.negated(truth)


@handler
def to_bool(frame: Frame, _: None) -> None:
    frame.stack[-1] = bool(frame.stack[-1])


@hooked("on_truth", "to_bool")
def to_bool_hooked(frame: Frame, _: None) -> None:
    frame.stack[-1] = frame.machine.policy.on_truth(frame, frame.stack[-1])


@handler
def pop_jump_if_false(frame: Frame, target: int) -> int | None:
    return None if frame.stack.pop() else target


@handler
def pop_jump_if_true(frame: Frame, target: int) -> int | None:
    return target if frame.stack.pop() else None


@hooked("on_branch", "pop_jump_if_false")
def pop_jump_if_false_hooked(frame: Frame, target: int) -> Outcome:
    return frame.machine.policy.on_branch(frame, frame.stack.pop(), frame.pc + 1, target)


@hooked("on_branch", "pop_jump_if_true")
def pop_jump_if_true_hooked(frame: Frame, target: int) -> Outcome:
    return frame.machine.policy.on_branch(frame, frame.stack.pop(), target, frame.pc + 1)


@handler
def pop_jump_if_none(frame: Frame, target: int) -> int | None:
    return target if frame.stack.pop() is None else None


@handler
def pop_jump_if_not_none(frame: Frame, target: int) -> int | None:
    return None if frame.stack.pop() is None else target


# Items.


@handler
def binary_subscript(frame: Frame, _: None) -> Outcome:
    stack = frame.stack
    key = stack.pop()
    owner = stack.pop()
    methods = frame.machine.getitem
    if methods[type(owner)] and (method := methods.of(owner)) is not None:
        return frame.machine.begin(frame, method, [owner, key])
    stack.append(owner[key])
    return None


@hooked("on_read_item", "binary_subscript")
def binary_subscript_hooked(frame: Frame, _: None) -> Outcome:
    owner, key = frame.stack[-2:]
    try:
        outcome = binary_subscript(frame, None)
    except LookupError:
        frame.machine.policy.on_read_item(frame, owner, key, NULL)
        raise
    if outcome is None:
        frame.stack[-1] = frame.machine.policy.on_read_item(frame, owner, key, frame.stack[-1])
    return outcome


@handler
def store_subscript(frame: Frame, _: None) -> Outcome:
    stack = frame.stack
    key = stack.pop()
    owner = stack.pop()
    value = stack.pop()
    methods = frame.machine.setitem
    if methods[type(owner)] and (method := methods.of(owner)) is not None:
        return frame.machine.begin(frame, method, [owner, key, value], discarded=True)
    owner[key] = value
    return None


@hooked("on_write_item", "store_subscript")
def store_subscript_hooked(frame: Frame, _: None) -> Outcome:
    value, owner, key = frame.stack[-3:]
    frame.machine.policy.on_write_item(frame, owner, key, value)
    return store_subscript(frame, None)


@handler
def delete_subscript(frame: Frame, _: None) -> Outcome:
    key = frame.stack.pop()
    owner = frame.stack.pop()
    methods = frame.machine.delitem
    if methods[type(owner)] and (method := methods.of(owner)) is not None:
        return frame.machine.begin(frame, method, [owner, key], discarded=True)
    del owner[key]
    return None


@hooked("on_write_item", "delete_subscript")
def delete_subscript_hooked(frame: Frame, _: None) -> Outcome:
    owner, key = frame.stack[-2:]
    frame.machine.policy.on_write_item(frame, owner, key, NULL)
    return delete_subscript(frame, None)
