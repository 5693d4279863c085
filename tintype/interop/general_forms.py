"""Functions of transformers in a form that decides less about sizes.

A cache with a window asks whether the window is full, and adds up lengths in one way or the other; the same is a
minimum, for every length at once. While a program is captured, such functions run code that is edited here and
returns the same for all numbers; afterwards they have their own back. A function is known by its source: one that was
changed since is left alone, and its program is right for the sizes that it decides for.
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
from typing import Any, NamedTuple


class Form(NamedTuple):
    """A function of a library, and what is put in place of parts of its source, on the same lines."""

    module: str
    name: str
    digest: str
    edits: tuple[tuple[str, str], ...]


FORMS = (
    # a window holds one token less than it is wide
    Form(
        "transformers.cache_utils",
        "DynamicSlidingWindowLayer.get_mask_sizes",
        "d8852834e5a31c9c",
        (
            ("max(self.cumulative_length", "torch.sym_max(self.cumulative_length"),
            ("if is_full:", "if True:"),
            (
                "kv_length = self.sliding_window - 1 + query_length",
                "kv_length = torch.sym_min(self.cumulative_length, self.sliding_window - 1) + query_length",
            ),
        ),
    ),
    # nothing that is computed of the mask is looked at where the program is captured
    Form(
        "transformers.masking_utils",
        "_ignore_causal_mask_sdpa",
        "f88392eb1a18586f",
        (
            (
                "padding_mask is not None and padding_mask.shape[-1] > kv_length:",
                "padding_mask is not None and not is_tracing(padding_mask) and padding_mask.shape[-1] > kv_length:",
            ),
        ),
    ),
    # with a mask it makes no difference whether there are several tokens
    Form(
        "transformers.integrations.sdpa_attention",
        "sdpa_attention_forward",
        "ff9990d5fb108636",
        (
            (
                "q_length > 1 and attention_mask is None and is_causal",
                "attention_mask is None and q_length > 1 and is_causal",
            ),
        ),
    ),
    # nothing is put before states that are long enough, and nothing is cut off what was not made longer
    Form(
        "transformers.cache_utils",
        "LinearAttentionLayer.update_conv_state",
        "096b1ec2877a105c",
        (
            (
                "if not self.record_past and full_conv_states.shape[-1] < self.conv_kernel_size[state_idx]:",
                "if not self.record_past:",
            ),
            (
                "self.conv_kernel_size[state_idx] - full_conv_states.shape[-1]",
                "torch.sym_max(self.conv_kernel_size[state_idx] - full_conv_states.shape[-1], 0)",
            ),
        ),
    ),
    # a counter that is where it is to be is itself, which is written to
    Form(
        "transformers.cache_utils",
        "StaticLayer.lazy_initialization",
        "29c77870e3e05ded",
        (
            (
                "self.cumulative_length.to(self.device)",
                "(lambda it: it if it.device == self.device else it.to(self.device))(self.cumulative_length)",
            ),
        ),
    ),
    Form(
        "transformers.models.mamba2.modeling_mamba2",
        "mamba2_chunk_scan",
        "6be21d0d221053d4",
        (("    if pad_size > 0:", "    if True:"),),
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
def general_forms() -> Iterator[None]:
    """Within it, functions of loaded modules run in their general form."""
    before: list[tuple[FunctionType, CodeType]] = []
    try:
        for form in FORMS:
            edited = _edited(form) if form.module in sys.modules else None
            if edited is not None and edited[0].__code__ is not edited[1]:
                before.append((edited[0], edited[0].__code__))
                edited[0].__code__ = edited[1]
        yield
    finally:
        for function, code in before:
            function.__code__ = code
