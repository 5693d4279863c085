"""Which numbers and sizes vary: static first, then those that were seen to change.

Torch's marks of tensors (``mark_dynamic``, ``mark_static``) are read where they lie, in attributes of the tensor.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from tintype.compiler.sources import LOOKUP_ERRORS, Guard, Source
from tintype.errors import InvalidRequestError

_DYNAMIC, _STATIC = ("_dynamo_dynamic_indices", "_dynamo_weak_dynamic_indices"), ("_dynamo_static_indices",)
_SIZES = (".shape", "size", "numel", "nelement", "__len__")
_ARGUMENTS = ("argument", "keyword")


class Varying:
    """What a compiled function has seen change. ``dynamic``: None (what changes varies), True (all sizes and numbers
    of arguments), False (nothing)."""

    def __init__(self, dynamic: bool | None = None) -> None:
        self.dynamic = dynamic
        self.paths: set[Any] = set()
        self.has_sizes = dynamic is True

    def is_seen(self, source: Source) -> bool:
        """Whether what is there was seen to change."""
        return source.path in self.paths

    def number(self, source: Source) -> bool:
        """Whether a number that is read there varies. What a step gives does."""
        if self.dynamic is False:
            return False
        if source.kind == "value" or source.path in self.paths:
            return True
        return self.dynamic is True and source.root.kind in _ARGUMENTS

    def size(self, tensor: torch.Tensor, shape: Source, dim: int, made: bool) -> bool:
        """Whether a size of a tensor varies; ``made``: the tensor is the result of a call."""
        if dim in _marked(tensor, _DYNAMIC):
            return True
        if self.dynamic is False or dim in _marked(tensor, _STATIC):
            return False
        if self.has_sizes and made:
            return True
        if self.dynamic is True and shape.root.kind in _ARGUMENTS:
            return True
        return bool(self.paths) and Source("item", dim, shape).path in self.paths

    def any_size(self, tensor: torch.Tensor) -> bool:
        """Whether anything is to be asked about the sizes of a tensor."""
        return bool(_marked(tensor, _DYNAMIC)) or (self.dynamic is not False and self.has_sizes)

    def note(self, guards: Iterable[Guard], args: Any, kwargs: Any, values: Any) -> None:
        """These guards were asked in vain."""
        if self.dynamic is False:
            return
        for guard in guards:
            try:
                found = guard.source.fetch(args, kwargs, values)
            except LOOKUP_ERRORS:
                continue
            if guard.kind == "value" and type(guard.expected) is tuple:
                self.paths.add(guard.source.path)
            elif (
                guard.kind == "value" and type(guard.expected) in (int, float) and type(found) is type(guard.expected)
            ):
                self.paths.add(guard.source.path)
                if any(step == ("attribute", (str, "shape")) for step in guard.source.path.steps()):
                    self.has_sizes = True
            elif guard.kind == "relation" and any(
                step == ("attribute", (str, "shape")) for step in guard.source.path.steps()
            ):
                self.paths.add(guard.source.path)  # a size beyond the range of a mark
                self.has_sizes = True
            elif guard.kind == "answer" and guard.expected[0] in _SIZES and isinstance(found, torch.Tensor):
                self._note_sizes(guard, found)
            elif guard.kind == "tensor" and isinstance(found, torch.Tensor) and found.dim() == len(guard.expected[2]):
                shape = Source("attribute", "shape", guard.source)
                changed = [dim for dim, size in enumerate(guard.expected[2]) if size not in (None, found.shape[dim])]
                self.paths.update(Source("item", dim, shape).path for dim in changed)
                self.has_sizes = self.has_sizes or bool(changed)

    def _note_sizes(self, guard: Guard, tensor: torch.Tensor) -> None:
        read, arguments, answer = guard.expected
        if isinstance(answer, tuple):
            if len(answer) != tensor.dim():
                return
            dims = [dim for dim, size in enumerate(answer) if tensor.shape[dim] != size]
        elif read == "size":
            dims = [arguments[0] % max(1, tensor.dim())]
        elif read == "__len__":
            dims = [0]
        else:
            dims = list(range(tensor.dim()))
        shape = Source("attribute", "shape", guard.source)
        self.paths.update(Source("item", dim, shape).path for dim in dims)
        self.has_sizes = self.has_sizes or bool(dims)


def _marked(tensor: torch.Tensor, names: tuple[str, ...]) -> set[int]:
    attributes = tensor.__dict__
    found: set[int] = set()
    if attributes:
        for name in names:
            found.update(attributes.get(name, ()))
    return found


def promised_sizes(tensor: torch.Tensor) -> set[int]:
    """The dimensions that were marked with :func:`mark_dynamic`, ours or torch's."""
    return _marked(tensor, _DYNAMIC[:1])


def promised_ranges(tensor: torch.Tensor) -> dict[int, tuple[int | None, int | None]]:
    """The ranges that marks of a tensor, ours or torch's, name for its sizes."""
    attributes = tensor.__dict__
    ranges = {entry.dim: (entry.min, entry.max) for entry in attributes.get("_dynamo_dynamic_range", ())}
    ranges.update(attributes.get("_tintype_ranges", {}))
    return {dim: bounds for dim, bounds in ranges.items() if bounds != (None, None)}


def mark_dynamic(
    tensor: torch.Tensor, dim: int | Iterable[int], min: int | None = None, max: int | None = None
) -> None:
    """Say that a size of a tensor varies, from ``min`` to ``max``: the first capture serves other sizes too. A size
    of a marked tensor that is beyond its range, and a program that rests on one size, are errors.

    >>> import torch, tintype
    >>> x = torch.ones(3, 4)
    >>> tintype.compile.mark_dynamic(x, 0)
    >>> rows = tintype.compile(lambda x: x / x.shape[0])
    >>> rows(x).shape, rows(torch.ones(5, 4)).shape, rows.engine.captures
    (torch.Size([3, 4]), torch.Size([5, 4]), 1)
    """
    dims = _dimensions(tensor, dim)
    for bound in (min, max):
        if bound is not None and type(bound) is not int:
            raise InvalidRequestError(f"a size is an int, not {bound!r}", remedy="give ints for min and max, or none")
    if min is not None and max is not None and min > max:
        raise InvalidRequestError(f"there is no size from {min} to {max}", remedy="give a min that is at most max")
    marked: Any = tensor
    marked._dynamo_dynamic_indices = getattr(tensor, "_dynamo_dynamic_indices", set()) | dims
    ranges = getattr(tensor, "_tintype_ranges", {})
    marked._tintype_ranges = {**ranges, **dict.fromkeys(dims, (min, max))}


def maybe_mark_dynamic(tensor: torch.Tensor, dim: int | Iterable[int]) -> None:
    """The same without a promise: a program that rests on one size is captured for that one.

    >>> import torch, tintype
    >>> x = torch.ones(3, 4)
    >>> tintype.compile.maybe_mark_dynamic(x, 0)
    >>> tintype.compile(lambda x: x * 2 if x.shape[0] == 3 else x)(x).shape
    torch.Size([3, 4])
    """
    marked: Any = tensor
    dims = _dimensions(tensor, dim)
    marked._dynamo_weak_dynamic_indices = getattr(tensor, "_dynamo_weak_dynamic_indices", set()) | dims


def mark_static(tensor: torch.Tensor, dim: int | Iterable[int] | None = None) -> None:
    """Say that sizes of a tensor (all of them, if none is named) don't vary: other sizes are captured on their own.

    >>> import torch, tintype
    >>> tintype.compile.mark_static(torch.ones(3, 4), 1)
    """
    marked: Any = tensor
    dims = set(range(tensor.dim())) if dim is None else _dimensions(tensor, dim)
    marked._dynamo_static_indices = getattr(tensor, "_dynamo_static_indices", set()) | dims


def _dimensions(tensor: torch.Tensor, dim: int | Iterable[int]) -> set[int]:
    if not isinstance(tensor, torch.Tensor):
        raise InvalidRequestError(f"sizes of tensors are marked, not of a {type(tensor).__name__}")
    given = {dim} if isinstance(dim, int) else set(dim) if isinstance(dim, Iterable) else {dim}
    for one in given:
        if not isinstance(one, int):
            raise InvalidRequestError(
                f"a dimension is an int, not {one!r}", remedy=f"name dimensions from 0 to {tensor.dim() - 1}"
            )
    wrong = [one for one in given if not -tensor.dim() <= one < tensor.dim()]
    if wrong:
        raise InvalidRequestError(
            f"a tensor of {tensor.dim()} dimensions has no dimension {wrong[0]}",
            remedy=f"name dimensions from 0 to {tensor.dim() - 1}",
        )
    return {one % tensor.dim() for one in given}
