"""What code names: the globals that it reads, attributes, modules that it imports.

Read off the instructions, once per code object. Names that are only made when the code runs (``getattr(x, f"w{i}")``)
can't be found so; that there are such is said.
"""

from __future__ import annotations

import dis
import functools
import sys
from types import CodeType
from typing import NamedTuple

_EXTENDED = dis.opmap["EXTENDED_ARG"]
_LOAD_CONST = dis.opmap["LOAD_CONST"]
_IS_OP = dis.opmap["IS_OP"]
_MATCH_CLASS = dis.opmap["MATCH_CLASS"]
_IMPORT_NAME = dis.opmap["IMPORT_NAME"]
_GLOBALS = frozenset(
    dis.opmap[name] for name in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL") if name in dis.opmap
)
_NAMING = frozenset(dis.hasname)
# how many bits of an instruction's argument say something else than the number of its name
_FLAGS = {"LOAD_GLOBAL": 1, "LOAD_ATTR": 1 if sys.version_info >= (3, 12) else 0, "LOAD_SUPER_ATTR": 2}
_SHIFTS = {dis.opmap[name]: bits for name, bits in _FLAGS.items() if name in dis.opmap}
_TEXTS = frozenset(dis.opmap[name] for name in ("BUILD_STRING", "FORMAT_VALUE", "FORMAT_SIMPLE") if name in dis.opmap)

# functions that take the name of an attribute, and what gives all attributes of an object
_BY_NAME = frozenset({"getattr", "hasattr", "setattr", "delattr"})
_WHOLE = frozenset({"vars", "__dict__", "attrgetter", "__getattribute__", "dir"})
_WITH_NAMES = _WHOLE | {"globals"}


class CodeNames(NamedTuple):
    """The names in a piece of code and in the functions that it makes."""

    globals: frozenset[str]
    attributes: frozenset[str]
    imports: frozenset[str]
    # attributes may be read under names that do not stand in the code
    reads_unnamed: bool
    # whether something is compared with "is", constants aside, or asked for its id()
    compares_objects: bool


@functools.lru_cache(maxsize=65536)
def names_in(code: CodeType) -> CodeNames:
    """The names in a piece of code.

    >>> names = names_in((lambda config: config.scale * FACTOR).__code__)
    >>> names.globals, names.attributes
    (frozenset({'FACTOR'}), frozenset({'scale'}))
    """
    found: set[str] = set()
    attributes: set[str] = set()
    imports: set[str] = set()
    asked = constants = texts = 0
    compares_objects = "id" in code.co_names
    extended = before = 0
    raw = code.co_code
    for operation, argument in zip(raw[::2], raw[1::2], strict=True):
        argument |= extended
        extended = argument << 8 if operation == _EXTENDED else 0
        if operation in _NAMING:
            name = code.co_names[argument >> _SHIFTS.get(operation, 0)]
            if operation in _GLOBALS:
                found.add(name)
                asked += name in _BY_NAME
            elif operation == _IMPORT_NAME:
                imports.add(name)
            else:
                attributes.add(name)
        elif operation == _LOAD_CONST:
            constants += type(code.co_consts[argument]) is str
        elif operation == _IS_OP:
            compares_objects |= before != _LOAD_CONST
        else:
            texts += operation in _TEXTS
        before = operation
    if asked or not _WITH_NAMES.isdisjoint(code.co_names) or _MATCH_CLASS in raw[::2]:
        # getattr(config, "scale") has the name among its constants
        attributes.update(
            text
            for constant in code.co_consts
            for text in (constant if type(constant) is tuple else (constant,))
            if type(text) is str and text.isidentifier()
        )
    reads_unnamed = (asked > 0 and (constants < asked or texts > 0)) or not _WHOLE.isdisjoint(found | attributes)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = names_in(constant)
            found |= inner.globals
            attributes |= inner.attributes
            imports |= inner.imports
            reads_unnamed |= inner.reads_unnamed
            compares_objects |= inner.compares_objects
    return CodeNames(frozenset(found), frozenset(attributes), frozenset(imports), reads_unnamed, compares_objects)
