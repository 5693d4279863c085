"""Python 3.13: the callable stands below `self`, truth is an opcode of its own, pairs of locals in one opcode."""

from __future__ import annotations

from types import CodeType

from tintype.interpret.versions.decoding import (
    Operation,
    Version,
    forward,
    number,
    plain,
    two_locals,
)
from tintype.interpret.versions.python312 import INSTRUMENTED, SHARED_FROM_312
from tintype.interpret.versions.shared import COMPARISONS, REFUSED


def compare(code: CodeType, argument: int, after: int) -> tuple[Operation, ...]:
    comparison = ("compare", COMPARISONS[argument >> 5])
    return (comparison, ("to_bool", None)) if argument & 16 else (comparison,)


def load_attribute(code: CodeType, argument: int, after: int) -> tuple[Operation, ...]:
    load = ("load_attribute", code.co_names[argument >> 1])
    return (load, ("push_null", None)) if argument & 1 else (load,)


def load_global(code: CodeType, argument: int, after: int) -> tuple[Operation, ...]:
    load = ("load_global", code.co_names[argument >> 1])
    return (load, ("push_null", None)) if argument & 1 else (load,)


def super_attribute(code: CodeType, argument: int, after: int) -> tuple[Operation, ...]:
    load = ("load_super_attribute", (code.co_names[argument >> 2], False, bool(argument & 2)))
    return (load, ("push_null", None)) if argument & 1 else (load,)


VERSION = Version(
    "3.13",
    {
        **SHARED_FROM_312,
        "CALL": number("call_above"),
        "CALL_FUNCTION_EX": number("call_spread_above"),
        "CALL_KW": number("call_above_with_keywords"),
        "COMPARE_OP": compare,
        "CONVERT_VALUE": number("convert_value"),
        "FORMAT_SIMPLE": plain("format_simply"),
        "FORMAT_WITH_SPEC": plain("format_by_specification"),
        # an exhausted iterator is popped, so END_FOR and POP_TOP are passed over
        "FOR_ITER": forward("for_iterator", skipping=2),
        "END_FOR": plain("pop_top"),
        "LOAD_ATTR": load_attribute,
        "LOAD_FAST": number("load_local"),
        "LOAD_FAST_LOAD_FAST": two_locals("load_local", "load_local"),
        "LOAD_GLOBAL": load_global,
        "LOAD_SUPER_ATTR": super_attribute,
        "MAKE_FUNCTION": plain("make_plain_function"),
        "SET_FUNCTION_ATTRIBUTE": number("set_function_attribute"),
        "STORE_FAST_LOAD_FAST": two_locals("store_local", "load_local"),
        "STORE_FAST_STORE_FAST": two_locals("store_local", "store_local"),
        "TO_BOOL": plain("to_bool"),
    },
    internal=frozenset({"ENTER_EXECUTOR", "EXIT_INIT_CHECK", "INTERPRETER_EXIT", "RESERVED"})
    | INSTRUMENTED
    | {"INSTRUMENTED_CALL_KW"},
    refused=REFUSED,
)
