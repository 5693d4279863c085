"""onnxscript's functions for torch's operators, made to build into a graph of ours.

torchlib's functions speak to a global named ``op``, the opset 18 of onnxscript, whose calls go through an evaluator
that is set for the whole thread. Here each function gets globals in which ``op`` is a builder: no state is shared
between exports, the target opset decides which operators there are, and a call costs no more than its node.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

import torch

from tintype.onnx.builder import Builder

_HOME = "onnxscript.function_libs.torch_lib.ops."

# Bodies of theirs that branch on tensors, or build sequences: not to be called as Python.
_NOT_PYTHON = frozenset({"aten::atleast_1d.Sequence", "aten::atleast_2d.Sequence", "aten::atleast_3d.Sequence",
                         "aten::is_nonzero", "_operator::getitem", "aten::getitem"})  # fmt: skip


@functools.cache
def _registered() -> dict[tuple[str, bool], Any]:
    """Every function of torchlib by the name of its operator and whether it takes complex numbers."""
    import onnxscript.function_libs.torch_lib.ops  # noqa: F401 - fills the registry
    from onnxscript.function_libs.torch_lib.registration import default_registry

    found: dict[tuple[str, bool], Any] = {}
    for name, functions in default_registry.items():
        if name in _NOT_PYTHON:
            continue
        for is_complex, choices in ((False, functions.overloads), (True, functions.complex)):
            if choices:
                found[name, is_complex] = _python_function(choices[0])
    return found


def _python_function(function: Any) -> Any:
    """The Python function inside of a function of onnxscript."""
    return getattr(function, "func", None) or getattr(function, "function", function)


def name_of(overload: Any) -> str:
    """torchlib's name of an operator overload."""
    name = overload._schema.name
    extra = overload._overloadname
    return name if extra == "default" else f"{name}.{extra}"


@functools.cache
def known_overloads() -> frozenset[Any]:
    """The overloads of torch's operators that torchlib has a function for."""
    found = set()
    for name, _ in _registered():
        namespace, _, rest = name.partition("::")
        operator, _, overload = rest.partition(".")
        packet = getattr(getattr(torch.ops, namespace, None), operator, None)
        target = None if packet is None else getattr(packet, overload or "default", None)
        if isinstance(target, torch._ops.OpOverload):
            found.add(target)
    return frozenset(found)


@functools.cache
def _parameters(function: Any) -> tuple[frozenset[str], int]:
    """The names of a function's parameters, and how many it takes by position."""
    parameters = inspect.signature(function).parameters
    return frozenset(parameters), len(parameters)


class Torchlib:
    """torchlib's functions, building with one builder."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self._globals: dict[str, dict[str, Any]] = {}
        self._rebound: dict[Any, Any] = {}

    def function(self, overload: Any, is_complex: bool) -> Callable[..., Any] | None:
        """The function for an operator overload; None where torchlib has none."""
        known = _registered().get((name_of(overload), is_complex))
        return None if known is None else self._bound(known)

    def _bound(self, function: Any) -> Any:
        rebound = self._rebound.get(function)
        if rebound is None:
            rebound = types.FunctionType(
                function.__code__, self._namespace(function.__globals__), function.__name__, function.__defaults__,
                function.__closure__,
            )  # fmt: skip
            rebound.__kwdefaults__ = function.__kwdefaults__
            self._rebound[function] = rebound
        return rebound

    def _namespace(self, original: dict[str, Any]) -> dict[str, Any]:
        """A module's globals with the builder as its opset, and its functions bound to the same."""
        name = original["__name__"]
        if name in self._globals:
            return self._globals[name]
        namespace = self._globals[name] = dict(original)
        from onnxscript import values

        for key, value in original.items():
            if isinstance(value, values.Opset):
                namespace[key] = self.builder
            elif isinstance(value, (values.OnnxFunction, values.TracedOnnxFunction)):
                namespace[key] = self._bound(_python_function(value))
            elif isinstance(value, types.FunctionType) and value.__module__ == name:
                namespace[key] = self._bound(value)
            elif isinstance(value, types.ModuleType) and value.__name__.startswith(_HOME):
                namespace[key] = types.SimpleNamespace(**self._namespace(vars(value)))
        return namespace


# Arguments of torch's operators that say nothing about values.
_WITHOUT_MEANING = frozenset(
    {"layout", "output_size", "device", "pin_memory", "memory_format", "non_blocking", "generator", "cudnn_enabled"}
)


def accepted(function: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments that a function takes; others are dropped where they mean nothing."""
    names, _ = _parameters(function)
    return {
        name: value
        for name, value in kwargs.items()
        if name in names or (value is not None and name not in _WITHOUT_MEANING)
    }
