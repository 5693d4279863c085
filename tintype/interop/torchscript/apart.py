"""Values taken apart: what branches and loop bodies give, as a form and the tensors and numbers in it.

Operators that take functions give tensors and numbers. Everything else of a script's values - containers, strings,
None - is the form around them, which must be the same whichever way the program goes.
"""

from __future__ import annotations

from typing import Any

import torch

from tintype.interop.torchscript.heap import Container, Heap, ScriptDict, ScriptInstance, ScriptList
from tintype.interop.torchscript.values import Future


class Form:
    """The form of a value. ``kind`` says what it is; ``parts`` are the forms in it."""

    __slots__ = ("detail", "kind", "parts")

    def __init__(self, kind: str, detail: Any = None, parts: tuple[Form, ...] = ()) -> None:
        self.kind = kind
        self.detail = detail
        self.parts = parts

    def is_like(self, other: Form) -> bool:
        """Whether values of both forms can be results of one operator."""
        if self.kind != other.kind or len(self.parts) != len(other.parts):
            return False
        if self.kind == "same":
            alike = self.detail is other.detail
        elif self.kind == "constant":
            one, two = self.detail, other.detail
            alike = one is two or (type(one) is type(two) and bool(one == two))
        else:
            alike = self.detail == other.detail
        return alike and all(one.is_like(two) for one, two in zip(self.parts, other.parts, strict=True))

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.parts))
        if self.kind == "tensor":
            dtype, dim, device = self.detail
            return f"a tensor of {dtype} with {dim} dimensions on {device}"
        if self.kind == "constant":
            return repr(self.detail)
        if self.kind == "number":
            return f"a number ({self.detail})"
        return f"{self.kind}({inner})" if self.parts else self.kind


def take_apart(value: Any, leaves: list[Any], heap: Heap, by_value: bool = False) -> Form:
    """The form of a value; its tensors and numbers are added to ``leaves``.

    A container that was there before the block that is being recorded is itself: it is shared by reference, unless
    all containers are taken ``by_value``.
    """
    if isinstance(value, torch.Tensor):
        leaves.append(value)
        return Form("tensor", (value.dtype, value.dim(), value.device))
    if isinstance(value, (bool, torch.SymBool)):
        leaves.append(value)
        return Form("number", "bool")
    if isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool):
        leaves.append(value)
        return Form("number", "int")
    if isinstance(value, (float, torch.SymFloat)):
        leaves.append(value)
        return Form("number", "float")
    if isinstance(value, Container):
        return _container(value, leaves, heap, by_value)
    if isinstance(value, tuple):
        return Form("tuple", type(value), tuple(take_apart(item, leaves, heap, by_value) for item in value))
    if isinstance(value, Future):
        return Form("future", None, (take_apart(value.value, leaves, heap, by_value),))
    return Form("constant", value)


def _container(value: Container, leaves: list[Any], heap: Heap, by_value: bool) -> Form:
    if not by_value and heap.is_older(value):
        return Form("same", value)
    if isinstance(value, ScriptList):
        return Form("list", None, tuple(take_apart(item, leaves, heap, by_value) for item in value.known()))
    keys = tuple(value.content)
    parts = tuple(take_apart(item, leaves, heap, by_value) for item in value.content.values())
    if isinstance(value, ScriptDict):
        return Form("dict", keys, parts)
    assert isinstance(value, ScriptInstance)
    return Form("object", (str(value.type), keys, value.type), parts)


def put_together(form: Form, leaves: list[Any], heap: Heap) -> Any:
    """A value of a form; ``leaves`` are taken from the front."""
    if form.kind in ("tensor", "number"):
        return leaves.pop(0)
    if form.kind in ("same", "constant"):
        return form.detail
    parts = [put_together(part, leaves, heap) for part in form.parts]
    if form.kind == "list":
        return heap.list(parts)
    if form.kind == "dict":
        return heap.dictionary(zip(form.detail, parts, strict=True))
    if form.kind == "object":
        return ScriptInstance(dict(zip(form.detail[1], parts, strict=True)), heap.now, form.detail[2])
    if form.kind == "future":
        return Future(parts[0])
    kind = form.detail
    return kind(*parts) if hasattr(kind, "_fields") else tuple(parts)


def shared_containers(values: list[Any], heap: Heap) -> bool:
    """Whether a container that was made in a block is there twice: put together again it would be two."""
    seen: set[int] = set()
    stack = list(values)
    while stack:
        value = stack.pop()
        if isinstance(value, Container):
            if heap.is_older(value):
                continue
            if id(value) in seen:
                return True
            seen.add(id(value))
            content = value.content
            stack.extend(content if isinstance(content, list) else content.values())
        elif isinstance(value, tuple):
            stack.extend(value)
    return False
