"""Whether code is what it was: hashes of code objects, and the code objects that a process has by module and name."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any


def code_hash(code: CodeType) -> str:
    """A hash of what code does: its instructions, names and constants, not its lines or its file."""
    digest = hashlib.blake2b(digest_size=16)
    _add(digest, code)
    return digest.hexdigest()


def _add(digest: Any, code: CodeType) -> None:
    parts = (
        code.co_code,
        code.co_names,
        code.co_varnames,
        code.co_cellvars,
        code.co_freevars,
        code.co_flags,
        (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount),
        code.co_exceptiontable,
    )
    digest.update(repr(parts).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _add(digest, constant)
        elif isinstance(constant, frozenset):
            digest.update(repr(sorted(map(repr, constant))).encode())
        else:
            digest.update(f"{type(constant).__name__} {constant!r}".encode())


class LiveCode:
    """The code that modules of this process have now."""

    def __init__(self) -> None:
        self._of_modules: dict[str, dict[str, list[CodeType]]] = {}

    def find(self, module: str, name: str, expected: str) -> tuple[CodeType | None, str]:
        """The code of that name and hash; or why there is none."""
        found = self._codes(module)
        if found is None:
            return None, f"the module {module} is not loaded"
        candidates = found.get(name, [])
        for code in candidates:
            if code_hash(code) == expected:
                return code, ""
        return None, f"{module}.{name} {'has changed' if candidates else 'is gone'}"

    def _codes(self, module: str) -> dict[str, list[CodeType]] | None:
        if module not in self._of_modules:
            loaded = sys.modules.get(module)
            if loaded is None:
                return None
            found: dict[str, list[CodeType]] = {}
            for code in codes_of(loaded):
                found.setdefault(code.co_qualname, []).append(code)
            self._of_modules[module] = found
        return self._of_modules[module]


def codes_of(module: ModuleType) -> Iterator[CodeType]:
    """All code that the functions and classes of a module consist of."""
    seen: set[int] = set()
    waiting: list[Any] = list(vars(module).values())
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, CodeType):
            yield value
            waiting += [constant for constant in value.co_consts if isinstance(constant, CodeType)]
        elif isinstance(value, type):
            if value.__module__ == module.__name__:
                waiting += list(vars(value).values())
        elif isinstance(value, FunctionType):
            waiting += [value.__code__, vars(value).get("__wrapped__"), *(value.__closure__ or ())]
        elif isinstance(value, CellType):
            try:
                content = value.cell_contents
            except ValueError:  # not filled yet
                continue
            if isinstance(content, (FunctionType, type)):
                waiting.append(content)
        elif isinstance(value, (staticmethod, classmethod)):
            waiting.append(value.__func__)
        elif isinstance(value, property):
            waiting += [value.fget, value.fset, value.fdel]
        elif hasattr(type(value), "__wrapped__") or "__wrapped__" in getattr(value, "__dict__", {}):
            waiting.append(value.__wrapped__)  # functools.cache, functools.lru_cache
