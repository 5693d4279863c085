"""The tables in which torch's compiler finds the functions that it knows.

It fills them once, by looking at torch when it is first used, and knows functions by their identity. A program that
is captured may be what uses it first (``torch.utils.checkpoint`` imports it when it is called). What we have put in
the place of torch's functions by then must not get into the tables, or the compiler knows those no more in this
process. The same is true of tables that torch keeps for its modes: which functions make tensors
(``torch.set_default_device``), and which can be overridden. Those that a capture fills are emptied after it.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
import torch.overrides
import torch.utils._device

from tintype.ir.process_switches import replaced_names

_COMPILER = "torch._dynamo"
# Tables of functions that torch fills when they are first asked for.
_CACHES: tuple[Any, ...] = (
    torch.utils._device._device_constructors,
    torch.overrides.get_ignored_functions,
    torch.overrides.get_default_nowrap_functions,
    torch.overrides.get_testing_overrides,
    torch.overrides._get_overridable_functions,
    torch.overrides._get_tensor_methods,
)
_empty_before: list[Any] = []
_TABLES = ("get_torch_obj_rule_map", "get_tensor_method")


class _BeforeImport(importlib.abc.MetaPathFinder):
    """Lets the compiler be imported with torch as it is."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _COMPILER:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            load = loader.exec_module

            def load_aside(module: ModuleType) -> None:
                with contextlib.ExitStack() as aside:
                    for put_aside in list(replaced_names):
                        aside.enter_context(put_aside())
                    load(module)
                    _fill()

            loader.exec_module = load_aside  # this module's own loader, used once
        return spec


_before_import = _BeforeImport()


def fill_before_capture() -> None:
    """Fill the tables if the compiler is there, else see to it that they are filled when it comes."""
    _empty_before[:] = [cache for cache in _CACHES if not cache.cache_info().currsize]
    if _COMPILER in sys.modules:
        _fill()
    else:
        sys.meta_path.insert(0, _before_import)


def stop_waiting() -> None:
    """Undo :func:`fill_before_capture`."""
    for cache in _empty_before:
        cache.cache_clear()
    _empty_before.clear()
    if _before_import in sys.meta_path:
        sys.meta_path.remove(_before_import)


def _fill() -> None:
    rules = sys.modules.get(f"{_COMPILER}.trace_rules")
    for name in _TABLES:
        fill = getattr(rules, name, None)
        if fill is not None and not fill.cache_info().currsize:
            fill()
