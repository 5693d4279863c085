"""Opcodes that mean the same in every version."""

from __future__ import annotations

import operator
from types import CodeType
from typing import Any

from tintype.interpret.versions.decoding import (
    Decoder,
    backward,
    constant,
    dropped,
    forward,
    name,
    number,
    plain,
)

# The order of the numbers that BINARY_OP is given.
BINARY_OPERATORS = (
    operator.add,
    operator.and_,
    operator.floordiv,
    operator.lshift,
    operator.matmul,
    operator.mul,
    operator.mod,
    operator.or_,
    operator.pow,
    operator.rshift,
    operator.sub,
    operator.truediv,
    operator.xor,
    operator.iadd,
    operator.iand,
    operator.ifloordiv,
    operator.ilshift,
    operator.imatmul,
    operator.imul,
    operator.imod,
    operator.ior,
    operator.ipow,
    operator.irshift,
    operator.isub,
    operator.itruediv,
    operator.ixor,
)
COMPARISONS = (operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge)


def binary(code: CodeType, argument: int, after: int) -> tuple[tuple[str, Any], ...]:
    return (("binary_operator", BINARY_OPERATORS[argument]),)


def conversion_of_a_format(code: CodeType, argument: int, after: int) -> tuple[tuple[str, Any], ...]:
    return (("format_value", (argument & 3, bool(argument & 4))),)


SHARED: dict[str, Decoder] = {
    "BEFORE_WITH": plain("before_with"),
    "BINARY_OP": binary,
    "BINARY_SUBSCR": plain("binary_subscript"),
    "BUILD_CONST_KEY_MAP": number("build_constant_key_map"),
    "BUILD_LIST": number("build_list"),
    "BUILD_MAP": number("build_map"),
    "BUILD_SET": number("build_set"),
    "BUILD_SLICE": number("build_slice"),
    "BUILD_STRING": number("build_string"),
    "BUILD_TUPLE": number("build_tuple"),
    "CACHE": dropped,
    "CHECK_EG_MATCH": plain("check_group_match"),
    "CHECK_EXC_MATCH": plain("check_exception_match"),
    "CONTAINS_OP": number("contains"),
    "COPY": number("copy"),
    "COPY_FREE_VARS": number("copy_free_variables"),
    "DELETE_ATTR": name("delete_attribute"),
    "DELETE_DEREF": number("delete_cell"),
    "DELETE_FAST": number("delete_local"),
    "DELETE_GLOBAL": name("delete_global"),
    "DELETE_NAME": name("delete_name"),
    "DELETE_SUBSCR": plain("delete_subscript"),
    "DICT_MERGE": number("dict_merge"),
    "DICT_UPDATE": number("dict_update"),
    "EXTENDED_ARG": dropped,
    "GET_ITER": plain("get_iterator"),
    "GET_LEN": plain("get_length"),
    "GET_YIELD_FROM_ITER": plain("get_yield_from_iterator"),
    "IMPORT_FROM": name("import_from"),
    "IMPORT_NAME": name("import_name"),
    "IS_OP": number("is_operator"),
    "JUMP_BACKWARD": backward("jump"),
    "JUMP_BACKWARD_NO_INTERRUPT": backward("jump"),
    "JUMP_FORWARD": forward("jump"),
    "LIST_APPEND": number("list_append"),
    "LIST_EXTEND": number("list_extend"),
    "LOAD_ASSERTION_ERROR": plain("load_assertion_error"),
    "LOAD_BUILD_CLASS": plain("load_build_class"),
    "LOAD_CONST": constant("load_constant"),
    "LOAD_DEREF": number("load_cell"),
    "LOAD_NAME": name("load_name"),
    "MAKE_CELL": number("make_cell"),
    "MAP_ADD": number("map_add"),
    "MATCH_CLASS": number("match_class"),
    "MATCH_KEYS": plain("match_keys"),
    "MATCH_MAPPING": plain("match_mapping"),
    "MATCH_SEQUENCE": plain("match_sequence"),
    "NOP": dropped,
    "POP_EXCEPT": plain("pop_except"),
    "POP_TOP": plain("pop_top"),
    "PUSH_EXC_INFO": plain("push_exception"),
    "PUSH_NULL": plain("push_null"),
    "RAISE_VARARGS": number("raise_exception"),
    "RERAISE": number("reraise"),
    "RESUME": dropped,
    "RETURN_GENERATOR": plain("return_generator"),
    "RETURN_VALUE": plain("return_value"),
    "SETUP_ANNOTATIONS": plain("setup_annotations"),
    "SET_ADD": number("set_add"),
    "SET_UPDATE": number("set_update"),
    "STORE_ATTR": name("store_attribute"),
    "STORE_DEREF": number("store_cell"),
    "STORE_FAST": number("store_local"),
    "STORE_GLOBAL": name("store_global"),
    "STORE_NAME": name("store_name"),
    "STORE_SUBSCR": plain("store_subscript"),
    "SWAP": number("swap"),
    "UNARY_INVERT": plain("unary_invert"),
    "UNARY_NEGATIVE": plain("unary_negative"),
    "UNARY_NOT": plain("unary_not"),
    "UNPACK_EX": number("unpack_with_star"),
    "UNPACK_SEQUENCE": number("unpack_sequence"),
    "WITH_EXCEPT_START": plain("with_except_start"),
    "YIELD_VALUE": plain("yield_value"),
}

REFUSED = {
    "BEFORE_ASYNC_WITH": "async with",
    "END_ASYNC_FOR": "async for",
    "GET_AITER": "async for",
    "GET_ANEXT": "async for",
    "GET_AWAITABLE": "await",
}
