"""Python 3.11."""

from __future__ import annotations

from tintype.interpret.versions.decoding import (
    Decoder,
    Target,
    Version,
    backward,
    dropped,
    forward,
    name,
    name_or,
    native,
    number,
    plain,
)
from tintype.interpret.versions.shared import COMPARISONS, REFUSED, SHARED, conversion_of_a_format


def keeping(branch: str) -> Decoder:
    """A branch that keeps its value where it jumps, as later versions write it."""
    return lambda code, argument, after: (("copy", 1), (branch, Target(after + 2 * argument)), ("pop_top", None))


VERSION = Version(
    "3.11",
    {
        **SHARED,
        "CALL": number("call"),
        "CALL_FUNCTION_EX": number("call_spread"),
        "COMPARE_OP": lambda code, argument, after: (("compare", COMPARISONS[argument]),),
        "FORMAT_VALUE": conversion_of_a_format,
        "FOR_ITER": forward("for_iterator"),
        "IMPORT_STAR": plain("import_star"),
        "JUMP_IF_FALSE_OR_POP": keeping("pop_jump_if_false"),
        "JUMP_IF_TRUE_OR_POP": keeping("pop_jump_if_true"),
        "KW_NAMES": number("keyword_names"),
        "LIST_TO_TUPLE": plain("list_to_tuple"),
        "LOAD_ATTR": name("load_attribute"),
        "LOAD_CLASSDEREF": number("load_class_cell"),
        "LOAD_CLOSURE": number("load_local"),
        "LOAD_FAST": number("load_local"),
        "LOAD_GLOBAL": name_or("load_global", "null_and_load_global"),
        "LOAD_METHOD": name("load_method"),
        "MAKE_FUNCTION": number("make_function"),
        "POP_JUMP_BACKWARD_IF_FALSE": backward("pop_jump_if_false"),
        "POP_JUMP_BACKWARD_IF_NONE": backward("pop_jump_if_none"),
        "POP_JUMP_BACKWARD_IF_NOT_NONE": backward("pop_jump_if_not_none"),
        "POP_JUMP_BACKWARD_IF_TRUE": backward("pop_jump_if_true"),
        "POP_JUMP_FORWARD_IF_FALSE": forward("pop_jump_if_false"),
        "POP_JUMP_FORWARD_IF_NONE": forward("pop_jump_if_none"),
        "POP_JUMP_FORWARD_IF_NOT_NONE": forward("pop_jump_if_not_none"),
        "POP_JUMP_FORWARD_IF_TRUE": forward("pop_jump_if_true"),
        "PRECALL": dropped,
        "PREP_RERAISE_STAR": native("PREP_RERAISE_STAR", operands=2),
        "PRINT_EXPR": plain("print_expression", "pop_top"),
        "SEND": forward("send_or_pop"),
        "UNARY_POSITIVE": plain("unary_positive"),
    },
    internal=frozenset(),
    refused={**REFUSED, "ASYNC_GEN_WRAP": "async def with yield"},
)
