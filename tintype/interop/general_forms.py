"""Functions of libraries in a form that decides less about sizes.

A cache with a window asks whether the window is full, and adds up lengths in one way or the other; the same is a
minimum, for every length at once. While a program is captured, such functions run code that is edited here and
returns the same for all numbers; afterwards they have their own back. A function is known by its source: one that was
changed since is left alone, and its program is right for the sizes that it decides for. Which functions those are,
a library's plug-in knows (:mod:`tintype.interop.library_plug_in`).
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import sys
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any, NamedTuple


class Form(NamedTuple):
    """A function of a library, and what is put in place of parts of its source, on the same lines."""

    module: str
    name: str
    digest: str
    edits: tuple[tuple[str, str], ...]


# What torch itself has of them. Whether a sample fits a distribution is decided by the sizes that differ; asked in
# torch's own order, a batch that is none of one in the example would never be one.
TORCH_FORMS = (
    Form(
        "torch.distributions.distribution",
        "Distribution._validate_sample",
        "ff656566054d758e",
        (("i != 1 and j != 1 and i != j", "i != j and i != 1 and j != 1"),),
    ),
)


def digest(function: FunctionType) -> str:
    """What identifies a function's source, whatever its comments and its layout; empty if there is none."""
    try:
        source = inspect.getsource(function)
    except OSError:
        return ""
    definition: Any = ast.parse(textwrap.dedent(source)).body[0]
    if ast.get_docstring(definition) is not None:
        del definition.body[0]
    return hashlib.sha256(ast.unparse(definition).encode()).hexdigest()[:16]


def function_of(form: Form) -> Any:
    """The function of a loaded module, without what is wrapped around it; None if there is none."""
    function: Any = sys.modules[form.module]
    for part in form.name.split("."):
        function = getattr(function, part, None)
    return inspect.unwrap(function) if function is not None else None


@functools.cache
def _edited(form: Form) -> tuple[FunctionType, CodeType] | None:
    """The function of a loaded module, and the code that it is to run; None if it is another one than we know."""
    function = function_of(form)
    if type(function) is not FunctionType or function.__code__.co_freevars or digest(function) != form.digest:
        return None
    source = inspect.getsource(function)
    for old, new in form.edits:
        source = source.replace(old, new)
    # indented as it is in its file, so that every expression keeps its place
    tree = ast.parse(f"if True:\n{source}" if source[0].isspace() else f"\n{source}")
    ast.increment_lineno(tree, function.__code__.co_firstlineno - 2)
    whole = compile(tree, function.__code__.co_filename, "exec", dont_inherit=True)
    code = next(constant for constant in whole.co_consts if isinstance(constant, CodeType))
    return function, code.replace(co_qualname=function.__code__.co_qualname)


@contextmanager
def general_forms(forms: Iterable[Form]) -> Iterator[None]:
    """Within it, functions of loaded modules run in their general form."""
    before: list[tuple[FunctionType, CodeType]] = []
    try:
        for form in forms:
            edited = _edited(form) if form.module in sys.modules else None
            if edited is not None and edited[0].__code__ is not edited[1]:
                before.append((edited[0], edited[0].__code__))
                edited[0].__code__ = edited[1]
        yield
    finally:
        for function, code in before:
            function.__code__ = code
