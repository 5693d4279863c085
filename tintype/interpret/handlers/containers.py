"""Building, growing, unpacking and formatting."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from sys import getrefcount
from typing import Any

from tintype.interpret.frame import NULL, Frame
from tintype.interpret.handlers.registry import Handler, handler, hooked
from tintype.interpret.native import native_opcode, native_unpack
from tintype.interpret.policy import Outcome

_CONTAINERS = frozenset({list, dict, set, deque})


def popped(stack: list[Any], count: int) -> list[Any]:
    """The last values of the stack, taken off."""
    if not count:
        return []
    values = stack[-count:]
    del stack[-count:]
    return values


@handler
def build_tuple(frame: Frame, count: int) -> None:
    frame.stack.append(tuple(popped(frame.stack, count)))


@handler
def build_list(frame: Frame, count: int) -> None:
    frame.stack.append(popped(frame.stack, count))


@handler
def build_set(frame: Frame, count: int) -> None:
    frame.stack.append(set(popped(frame.stack, count)))


@handler
def build_map(frame: Frame, count: int) -> None:
    values = popped(frame.stack, 2 * count)
    frame.stack.append(dict(zip(values[::2], values[1::2])))


@handler
def build_constant_key_map(frame: Frame, count: int) -> None:
    keys = frame.stack.pop()
    frame.stack.append(dict(zip(keys, popped(frame.stack, count))))


@handler
def build_string(frame: Frame, count: int) -> None:
    frame.stack.append("".join(popped(frame.stack, count)))


@handler
def build_slice(frame: Frame, count: int) -> None:
    frame.stack.append(slice(*popped(frame.stack, count)))


@handler
def list_append(frame: Frame, depth: int) -> None:
    value = frame.stack.pop()
    frame.stack[-depth].append(value)


@handler
def set_add(frame: Frame, depth: int) -> None:
    value = frame.stack.pop()
    frame.stack[-depth].add(value)


@handler
def map_add(frame: Frame, depth: int) -> None:
    value = frame.stack.pop()
    key = frame.stack.pop()
    frame.stack[-depth][key] = value


def telling(make: Handler) -> Handler:
    """A handler that tells of what it has made, which lies on top of the stack."""

    def tell(frame: Frame, argument: Any) -> None:
        make(frame, argument)
        frame.machine.policy.on_create(frame, frame.stack[-1])

    return tell


def told_of_results(table: dict[str, Handler]) -> None:
    """Let operators that give a new container tell of it, as ``items[1:]`` and ``one + other`` do."""
    for name in ("binary_operator", "binary_subscript"):
        table[name] = _telling_of_new(table[name])


def _telling_of_new(plain: Handler) -> Handler:
    def tell(frame: Frame, argument: Any) -> Outcome:
        outcome = plain(frame, argument)
        if outcome is None:
            value = frame.stack[-1]
            # nobody has it but the stack, the variable and the argument
            if type(value) in _CONTAINERS and getrefcount(value) == 3:
                frame.machine.policy.on_create(frame, value)
        return outcome

    return tell


for _maker in (build_list, build_set, build_map, build_constant_key_map):
    hooked("on_create", _maker.__name__)(telling(_maker))


@hooked("on_update", "list_append")
def list_append_hooked(frame: Frame, depth: int) -> None:
    frame.machine.policy.on_update(frame, frame.stack[-depth - 1])
    list_append(frame, depth)


@hooked("on_update", "set_add")
def set_add_hooked(frame: Frame, depth: int) -> None:
    frame.machine.policy.on_update(frame, frame.stack[-depth - 1])
    set_add(frame, depth)


@hooked("on_update", "map_add")
def map_add_hooked(frame: Frame, depth: int) -> None:
    frame.machine.policy.on_update(frame, frame.stack[-depth - 2])
    map_add(frame, depth)


@handler
def list_extend(frame: Frame, depth: int) -> None:
    values = frame.stack.pop()
    if not is_iterable(values):
        raise TypeError(f"Value after * must be an iterable, not {type(values).__name__}")
    frame.stack[-depth].extend(values)


def is_iterable(values: Any) -> bool:
    return hasattr(type(values), "__iter__") or hasattr(type(values), "__getitem__")


@handler
def set_update(frame: Frame, depth: int) -> None:
    values = frame.stack.pop()
    frame.stack[-depth].update(values)


@handler
def dict_update(frame: Frame, depth: int) -> None:
    values = frame.stack.pop()
    if not hasattr(values, "keys"):
        raise TypeError(f"'{type(values).__name__}' object is not a mapping")
    frame.stack[-depth].update(values)


@handler
def dict_merge(frame: Frame, depth: int) -> None:
    values = frame.stack.pop()
    called = frame.stack[-depth - 2]
    if called is NULL:  # where it stands above what is called
        called = frame.stack[-depth - 3]
    merged = frame.stack[-depth]
    if not hasattr(values, "keys"):
        kind = type(values).__name__
        raise TypeError(f"{name_of_callable(called)} argument after ** must be a mapping, not {kind}")
    for key in values.keys():  # noqa: SIM118  (any object with keys() and items will do)
        if key in merged:
            raise TypeError(f"{name_of_callable(called)} got multiple values for keyword argument '{key}'")
        merged[key] = values[key]


def name_of_callable(called: Any) -> str:
    """A callable as messages about its arguments name it."""
    name = getattr(called, "__qualname__", None)
    if not isinstance(name, str):
        return str(called)
    module = getattr(called, "__module__", None)
    return f"{module}.{name}()" if module not in (None, "builtins") else f"{name}()"


@handler
def list_to_tuple(frame: Frame, _: None) -> None:
    frame.stack[-1] = tuple(frame.stack[-1])


@handler
def get_length(frame: Frame, _: None) -> None:
    frame.stack.append(len(frame.stack[-1]))


# Unpacking.


@handler
def unpack_sequence(frame: Frame, count: int) -> None:
    values = frame.stack.pop()
    if (type(values) is not tuple and type(values) is not list) or len(values) != count:
        values = native_unpack(count, None)(values)
    frame.stack += values[::-1]


@handler
def unpack_with_star(frame: Frame, counts: int) -> None:
    values = native_unpack(counts & 255, counts >> 8)(frame.stack.pop())
    frame.stack += values[::-1]


# Formatting.

CONVERSIONS: dict[int, Callable[[Any], str]] = {1: str, 2: repr, 3: ascii}


@handler
def format_value(frame: Frame, how: tuple[int, bool]) -> None:
    conversion, has_specification = how
    specification = frame.stack.pop() if has_specification else ""
    value = frame.stack.pop()
    if conversion:
        value = CONVERSIONS[conversion](value)
    frame.stack.append(format(value, specification))


@handler
def convert_value(frame: Frame, conversion: int) -> None:
    frame.stack[-1] = CONVERSIONS[conversion](frame.stack[-1])


@handler
def format_simply(frame: Frame, _: None) -> None:
    frame.stack[-1] = format(frame.stack[-1], "")


@handler
def format_by_specification(frame: Frame, _: None) -> None:
    specification = frame.stack.pop()
    frame.stack[-1] = format(frame.stack[-1], specification)


# Patterns.

# type.__flags__ says what `case [...]` and `case {...}` take
IS_SEQUENCE = 1 << 5
IS_MAPPING = 1 << 6


@handler
def match_sequence(frame: Frame, _: None) -> None:
    frame.stack.append(bool(type(frame.stack[-1]).__flags__ & IS_SEQUENCE))


@handler
def match_mapping(frame: Frame, _: None) -> None:
    frame.stack.append(bool(type(frame.stack[-1]).__flags__ & IS_MAPPING))


@handler
def match_keys(frame: Frame, _: None) -> None:
    subject, keys = frame.stack[-2:]
    frame.stack.append(native_opcode("MATCH_KEYS", 0, operands=2, kept=2)(subject, keys))


@handler
def match_class(frame: Frame, count: int) -> None:
    names = frame.stack.pop()
    kind = frame.stack.pop()
    frame.stack[-1] = native_opcode("MATCH_CLASS", count, operands=3)(frame.stack[-1], kind, names)
