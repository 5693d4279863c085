"""Translations that the user gives, written against a builder or against onnxscript's opsets."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tintype.onnx.builder import Builder


class _Evaluator:
    """What onnxscript's operators call while a user's translation runs: they become nodes of ours."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder

    def eval_op(self, op: Any, args: Any, kwargs: Any) -> Any:
        if op.opset.domain in ("", "ai.onnx"):
            return self.builder.emit(op.name, *args, **kwargs)
        made = self.builder.call(op.opset.domain, op.name, args, kwargs, kwargs.pop("_outputs", 1), op.opset.version)
        return made[0] if len(made) == 1 else made

    def eval_function(self, function: Any, args: Any, kwargs: Any) -> Any:
        return function.function(*args, **kwargs)


def call_translation(function: Callable[..., Any], builder: Builder, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call a user's translation on the values of an operator's arguments.

    One whose first parameter is called ``op`` gets the builder there; others use onnxscript's opsets.
    """
    from onnxscript import evaluator

    python = getattr(function, "func", None) or getattr(function, "function", None) or function
    parameters = list(inspect.signature(python).parameters)
    given = [builder, *args] if parameters[:1] == ["op"] else args
    with evaluator.default_as(_Evaluator(builder)):
        return python(*given, **kwargs)
