"""Values as tensors and numbers, which operators carry, and a form that makes values of them again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from tintype.flow.merging import CONSTANTS, KINDS, PARTS, in_words
from tintype.flow.plain_objects import attributes_of, is_plain_object, object_with
from tintype.interpret import NULL
from tintype.tree.subclasses import as_parts, is_whole


class Form(NamedTuple):
    """What a value is besides its tensors and numbers; ``key`` is what must be equal."""

    kind: str
    key: Any
    parts: tuple[Form, ...] = ()

    def is_like(self, other: Form) -> bool:
        if self.kind != other.kind or len(self.parts) != len(other.parts):
            return False
        if self.key is not other.key:
            if self.kind == "same" and not (type(self.key) is type(other.key) and isinstance(self.key, CONSTANTS)):
                return False
            if self.key != other.key:
                return False
        return all(one.is_like(another) for one, another in zip(self.parts, other.parts, strict=True))


NOTHING = Form("nothing", None)


def take_apart(value: Any, leaves: list[Any], opens: bool = False) -> Form:
    """The form of a value; its tensors and numbers are added to ``leaves``. ``opens``: so are those of plain objects,
    which are the same ones else."""
    if value is NULL:
        return NOTHING
    if isinstance(value, torch.Tensor):
        if is_whole(value):
            return Form("whole", None, (take_apart(as_parts(value), leaves),))
        leaves.append(value)
        return Form("tensor", None)
    if isinstance(value, PARTS):
        names = tuple(value.parts)
        return Form(
            "parts",
            (type(value), names, value.structure),
            tuple(take_apart(part, leaves) for part in value.parts.values()),
        )
    if type(value) in KINDS:
        leaves.append(value)
        return Form("number", KINDS[type(value)])
    if isinstance(value, tuple):
        return Form("tuple", type(value), tuple(take_apart(item, leaves, opens) for item in value))
    if type(value) is list:
        return Form("list", None, tuple(take_apart(item, leaves, opens) for item in value))
    if type(value) is dict:
        return Form("dict", tuple(value), tuple(take_apart(item, leaves, opens) for item in value.values()))
    if opens and is_plain_object(value):
        attributes = attributes_of(value)
        parts = tuple(take_apart(attributes[name], leaves, opens) for name in sorted(attributes))
        return Form("object", (type(value), tuple(sorted(attributes))), parts)
    return Form("same", value)


def containers_in(value: Any, around: tuple[int, ...] = ()) -> list[Any]:
    """The containers and plain objects that a value consists of; one that is in itself comes twice."""
    if isinstance(value, tuple):
        return [found for item in value for found in containers_in(item, around)]
    if type(value) is list or type(value) is dict:
        items: Any = value.values() if isinstance(value, dict) else value
    elif is_plain_object(value):
        items = attributes_of(value).values()
    else:
        return []
    if id(value) in around:
        return [value]
    return [value, *(found for item in items for found in containers_in(item, (*around, id(value))))]


def put_together(form: Form, leaves: Iterator[Any]) -> Any:
    """The value of a form."""
    if form.kind in ("tensor", "number"):
        return next(leaves)
    if form.kind == "same":
        return form.key
    if form.kind == "nothing":
        return NULL
    parts = [put_together(part, leaves) for part in form.parts]
    if form.kind == "whole":
        return parts[0].tensor()
    if form.kind == "parts":
        kind, names, structure = form.key
        return kind(dict(zip(names, parts, strict=True)), structure)
    if form.kind == "object":
        return object_with(form.key[0], dict(zip(form.key[1], parts, strict=True)))
    if form.kind == "tuple":
        return getattr(form.key, "_make", form.key)(parts)
    return parts if form.kind == "list" else dict(zip(form.key, parts, strict=True))


def described(form: Form, leaves: Iterator[Any]) -> str:
    """A value in words."""
    return "nothing" if form is NOTHING else in_words(put_together(form, leaves))
