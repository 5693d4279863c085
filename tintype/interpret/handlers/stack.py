"""Constants, locals and the stack."""

from __future__ import annotations

from typing import Any

from tintype.interpret.frame import NULL, Frame
from tintype.interpret.handlers.registry import handler


@handler
def load_constant(frame: Frame, value: Any) -> None:
    frame.stack.append(value)


@handler
def load_local(frame: Frame, index: int) -> None:
    value = frame.locals[index]
    if value is NULL:
        raise unbound_local(frame, index)
    frame.stack.append(value)


def unbound_local(frame: Frame, index: int) -> BaseException:
    if frame.missing is not None and index in frame.missing:
        return frame.missing[index]
    name = frame.decoded.names[index]
    return UnboundLocalError(f"cannot access local variable '{name}' where it is not associated with a value")


@handler
def load_local_and_clear(frame: Frame, index: int) -> None:
    frame.stack.append(frame.locals[index])
    frame.locals[index] = NULL


@handler
def store_local(frame: Frame, index: int) -> None:
    frame.locals[index] = frame.stack.pop()


@handler
def delete_local(frame: Frame, index: int) -> None:
    if frame.locals[index] is NULL:
        raise unbound_local(frame, index)
    frame.locals[index] = NULL


@handler
def pop_top(frame: Frame, _: None) -> None:
    frame.stack.pop()


@handler
def push_null(frame: Frame, _: None) -> None:
    frame.stack.append(NULL)


@handler
def end_for(frame: Frame, _: None) -> None:
    del frame.stack[-2:]


@handler
def end_send(frame: Frame, _: None) -> None:
    del frame.stack[-2]


@handler
def copy(frame: Frame, depth: int) -> None:
    frame.stack.append(frame.stack[-depth])


@handler
def swap(frame: Frame, depth: int) -> None:
    stack = frame.stack
    stack[-1], stack[-depth] = stack[-depth], stack[-1]


@handler
def jump(frame: Frame, target: int) -> int:
    return target
