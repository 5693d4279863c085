"""Operations that look into values natively, for policies that want to know of it before it happens."""

from __future__ import annotations

from typing import Any

from tintype.interpret.frame import Frame
from tintype.interpret.handlers.registry import Handler
from tintype.interpret.policy import Outcome

# how many values on top of the stack an operation looks into
OPERANDS = {
    "binary_operator": 2,
    "compare": 2,
    "contains": 2,
    "is_operator": 2,
    "unary_negative": 1,
    "unary_positive": 1,
    "unary_invert": 1,
    "unary_not": 1,
    "to_bool": 1,
    "pop_jump_if_false": 1,
    "pop_jump_if_true": 1,
    "list_extend": 1,
    "set_update": 1,
    "dict_update": 1,
    "dict_merge": 1,
    "list_to_tuple": 1,
    "get_length": 1,
    "unpack_sequence": 1,
    "unpack_with_star": 1,
    "get_iterator": 1,
    "get_yield_from_iterator": 1,
    "match_keys": 2,
    "match_class": 3,
    "convert_value": 1,
    "format_simply": 1,
    "format_by_specification": 2,
    "binary_subscript": 2,
    "store_subscript": 3,
    "delete_subscript": 2,
    "set_add": 1,
    "map_add": 2,
}


def looking(plain: Handler, name: str, count: int) -> Handler:
    """A handler that tells of the values before it does its work."""

    def look(frame: Frame, argument: Any) -> Outcome:
        around = frame.machine.policy.on_operands(frame, name, frame.stack[-count:])
        if around is None:
            return plain(frame, argument)
        with around:
            return plain(frame, argument)

    return look


def looking_by_argument(plain: Handler, name: str) -> Handler:
    """The same where the operation's argument says how many values there are."""

    def look(frame: Frame, argument: Any) -> Outcome:
        count = 1 + bool(argument[1]) if name == "format_value" else 1 + (argument & 1)
        around = frame.machine.policy.on_operands(frame, name, frame.stack[-count:])
        if around is None:
            return plain(frame, argument)
        with around:
            return plain(frame, argument)

    return look


def told_of_operands(table: dict[str, Handler]) -> None:
    """Let the handlers of a table tell of their operands."""
    for name, count in OPERANDS.items():
        table[name] = looking(table[name], name, count)
    for name in ("format_value", "call_spread", "call_spread_above"):
        table[name] = looking_by_argument(table[name], name)
