"""Python 3.12: comprehensions are inlined, methods are loaded by LOAD_ATTR, intrinsics, type parameters."""

from __future__ import annotations

from types import CodeType

from tintype.interpret.versions.decoding import (
    Operation,
    Version,
    forward,
    name,
    name_or,
    native,
    number,
    plain,
)
from tintype.interpret.versions.shared import COMPARISONS, REFUSED, SHARED, conversion_of_a_format

# Intrinsics that need their frame; the others are done by the interpreter in C.
INTRINSICS_WITH_FRAMES = {1: "print_expression", 2: "import_star_of_one", 3: "stop_iteration_error"}
ASYNC_GENERATOR_WRAP = 4


def intrinsic_of_one(code: CodeType, argument: int, after: int) -> tuple[Operation, ...]:
    if argument == ASYNC_GENERATOR_WRAP:
        return (("refused", "async def with yield"),)
    if argument in INTRINSICS_WITH_FRAMES:
        return ((INTRINSICS_WITH_FRAMES[argument], None),)
    return (("native", ("CALL_INTRINSIC_1", argument, 1)),)


def return_constant(code: CodeType, argument: int, after: int) -> tuple[Operation, ...]:
    return ("load_constant", code.co_consts[argument]), ("return_value", None)


def super_attribute(code: CodeType, argument: int, after: int) -> tuple[Operation, ...]:
    return (("load_super_attribute", (code.co_names[argument >> 2], bool(argument & 1), bool(argument & 2))),)


# What 3.12 and 3.13 have in common.
SHARED_FROM_312 = {
    **SHARED,
    "BINARY_SLICE": lambda code, argument, after: (("build_slice", 2), ("binary_subscript", None)),
    "CALL_FUNCTION_EX": number("call_spread"),
    "CALL_INTRINSIC_1": intrinsic_of_one,
    "CALL_INTRINSIC_2": native("CALL_INTRINSIC_2", operands=2),
    "CLEANUP_THROW": plain("cleanup_throw"),
    "END_FOR": plain("end_for"),
    "END_SEND": plain("end_send"),
    "LOAD_FAST_AND_CLEAR": number("load_local_and_clear"),
    "LOAD_FAST_CHECK": number("load_local"),
    "LOAD_FROM_DICT_OR_DEREF": number("load_from_dict_or_cell"),
    "LOAD_FROM_DICT_OR_GLOBALS": name("load_from_dict_or_globals"),
    "LOAD_LOCALS": plain("load_locals"),
    "LOAD_SUPER_ATTR": super_attribute,
    "POP_JUMP_IF_FALSE": forward("pop_jump_if_false"),
    "POP_JUMP_IF_NONE": forward("pop_jump_if_none"),
    "POP_JUMP_IF_NOT_NONE": forward("pop_jump_if_not_none"),
    "POP_JUMP_IF_TRUE": forward("pop_jump_if_true"),
    "RETURN_CONST": return_constant,
    "SEND": forward("send"),
    "STORE_SLICE": lambda code, argument, after: (("build_slice", 2), ("store_subscript", None)),
}

INSTRUMENTED = frozenset(
    "INSTRUMENTED_" + opcode
    for opcode in (
        "CALL",
        "CALL_FUNCTION_EX",
        "END_FOR",
        "END_SEND",
        "FOR_ITER",
        "INSTRUCTION",
        "JUMP_BACKWARD",
        "JUMP_FORWARD",
        "LINE",
        "LOAD_SUPER_ATTR",
        "POP_JUMP_IF_FALSE",
        "POP_JUMP_IF_NONE",
        "POP_JUMP_IF_NOT_NONE",
        "POP_JUMP_IF_TRUE",
        "RESUME",
        "RETURN_CONST",
        "RETURN_VALUE",
        "YIELD_VALUE",
    )
)

VERSION = Version(
    "3.12",
    {
        **SHARED_FROM_312,
        "CALL": number("call"),
        "COMPARE_OP": lambda code, argument, after: (("compare", COMPARISONS[argument >> 4]),),
        "FORMAT_VALUE": conversion_of_a_format,
        # an exhausted iterator is popped, so END_FOR is passed over
        "FOR_ITER": forward("for_iterator", skipping=1),
        "KW_NAMES": number("keyword_names"),
        "LOAD_ATTR": name_or("load_attribute", "load_method"),
        "LOAD_CLOSURE": number("load_local"),
        "LOAD_FAST": number("load_local"),
        "LOAD_GLOBAL": name_or("load_global", "null_and_load_global"),
        "MAKE_FUNCTION": number("make_function"),
    },
    internal=frozenset({"INTERPRETER_EXIT", "RESERVED"}) | INSTRUMENTED,
    refused=REFUSED,
)
