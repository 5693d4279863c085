"""``torch.compiler.nested_compile_region`` inside of a program.

Torch's decorator makes functions that only its own compiler can take in; while a program is captured they come to
:mod:`tintype.ops.invoke_subgraph` instead.
"""

from __future__ import annotations

import sys
from typing import Any

from tintype.ir.process_switches import is_capturing

_MODULE = "torch._higher_order_ops.invoke_subgraph"
_NAME = "invoke_subgraph_placeholder"


def take_over() -> Any:
    """Let calls of marked functions come here; returns what :func:`give_back` needs."""
    module = sys.modules.get(_MODULE)
    if module is None:
        return None
    original = getattr(module, _NAME)

    def call(function: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_capturing():  # another thread's capture
            return original(function, *args, **kwargs)
        from tintype.ops.invoke_subgraph import nested_region

        return nested_region(function, args, kwargs)

    setattr(module, _NAME, call)
    return module, original


def give_back(saved: Any) -> None:
    """Undo :func:`take_over`."""
    if saved is not None:
        module, original = saved
        setattr(module, _NAME, original)
