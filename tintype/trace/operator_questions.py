"""Questions that a program asks by operators: ``torch.ops.aten.is_contiguous(x)``.

Operators that look at a tensor without computing anything are answered in C++, and no dispatcher hears of them. What
they ask is asked of the tensor first, as ``x.is_contiguous()`` asks it, where the user's own code calls them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tintype.fake.tensor import FakeTensor
from tintype.ir.observations import FACTS
from tintype.symbolic.location import standing_in

aten = torch.ops.aten

# By operator what it asks for: facts that the answer follows from, those that are the answer with its arguments.
_ASKED = {
    aten.is_contiguous: "is_contiguous",
    aten.is_strides_like_format: "stride",
    aten.is_non_overlapping_and_dense: "stride",
    aten._debug_has_internal_overlap: "stride",
    aten.stride: "stride",
    aten.sym_stride: "stride",
    aten.storage_offset: "storage_offset",
    aten.sym_storage_offset: "storage_offset",
    aten.is_conj: "is_conj",
    aten.is_neg: "is_neg",
    aten.is_inference: "is_inference",
    aten.is_leaf: "is_leaf",
    aten.output_nr: "output_nr",
    aten.retains_grad: "retains_grad",
    aten._version: "_version",
    torch.ops.prim.requires_grad: "requires_grad",
    torch.ops.prim.layout: "layout",
    torch.ops.prim.grad: "grad",
}
_ANSWERS = frozenset({aten.is_contiguous, aten.stride, aten.sym_stride, torch.ops.prim.grad})


class _Asking:
    """What stands in for the function of an operator, which torch knows the operator by in its tables."""

    def __init__(self, fact: str, is_answer: bool, function: Callable[..., Any]) -> None:
        self._fact, self._is_answer, self._function = fact, is_answer, function

    def __hash__(self) -> int:
        return hash(self._function)

    @standing_in
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tensor = args[0] if args else kwargs.get("self")
        if type(tensor) is not FakeTensor:
            return self._function(*args, **kwargs)
        found = getattr(tensor, self._fact)
        if self._is_answer and FACTS[self._fact]:
            return found(*args[1:], **{name: value for name, value in kwargs.items() if name != "self"})
        answer = found() if FACTS.get(self._fact) else found
        return answer if self._is_answer else self._function(*args, **kwargs)


def asking_operators() -> Iterator[tuple[Any, str, Callable[[Any], Any]]]:
    """What has such an operator's function, its name there, and what makes the stand-in for it."""
    for packet, fact in _ASKED.items():
        maker = functools.partial(_Asking, fact, packet in _ANSWERS)
        for operator in (packet, *(getattr(packet, name) for name in packet.overloads())):
            yield operator, "_op", maker
    yield torch, "_debug_has_internal_overlap", functools.partial(_Asking, "stride", False)
