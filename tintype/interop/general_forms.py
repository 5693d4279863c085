"""Functions of transformers in a form that decides less about sizes.

A cache with a window asks whether the window is full, and adds up lengths in one way or the other; the same is a
minimum, for every length at once. While a program is captured, such functions run code that is given here and returns
the same for all numbers; afterwards they have their own back. A function is known by its source: one that was changed
since is left alone, and its program is right for the sizes that it decides for.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

from tintype.symbolic.location import standing_in

# What stands for the function itself in code of ours, which runs among the names of the function's own module.
_ITSELF = "<the function itself>"


def _get_mask_sizes(self, query_length):  # type: ignore[no-untyped-def]
    import torch

    seen, most = self.cumulative_length, self.sliding_window - 1
    return torch.sym_min(seen, most) + query_length, torch.sym_max(seen - most, 0)


def _ignore_causal_mask_sdpa(  # type: ignore[no-untyped-def]
    padding_mask, q_length, kv_length, q_offset, kv_offset, local_attention_size=None
):
    if padding_mask is not None and is_tracing(padding_mask):  # type: ignore[name-defined]  # noqa: F821
        return False  # nothing that would be computed of the mask is looked at
    itself = "<the function itself>"
    return itself(padding_mask, q_length, kv_length, q_offset, kv_offset, local_attention_size)  # type: ignore[operator]


# (module, name, the beginning of the digest of its source, our form)
FORMS: tuple[tuple[str, str, str, Any], ...] = (
    ("transformers.cache_utils", "DynamicSlidingWindowLayer.get_mask_sizes", "d8852834e5a31c9c", _get_mask_sizes),
    ("transformers.masking_utils", "_ignore_causal_mask_sdpa", "f88392eb1a18586f", _ignore_causal_mask_sdpa),
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


@functools.cache
def _general_form(module: str, name: str, expected: str, form: FunctionType) -> tuple[FunctionType, CodeType] | None:
    """The function of a loaded module, and the code that it is to run; None if it is another one than we know."""
    function: Any = sys.modules[module]
    for part in name.split("."):
        function = getattr(function, part, None)
    if type(function) is not FunctionType or function.__closure__ or digest(function) != expected:
        return None
    itself = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__)
    code = standing_in(FunctionType(form.__code__, {})).__code__
    constants = tuple(itself if constant == _ITSELF else constant for constant in code.co_consts)
    return function, code.replace(co_consts=constants)


@contextmanager
def general_forms() -> Iterator[None]:
    """Within it, functions of loaded modules run in their general form."""
    before: list[tuple[FunctionType, CodeType]] = []
    try:
        for module, name, expected, form in FORMS:
            known = _general_form(module, name, expected, form) if module in sys.modules else None
            if known is not None and known[0].__code__ is not known[1]:
                before.append((known[0], known[0].__code__))
                known[0].__code__ = known[1]
        yield
    finally:
        for function, code in before:
            function.__code__ = code
