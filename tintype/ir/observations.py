"""What a program looked at that its ordinary contract leaves open.

A program is exported for inputs of certain sizes and dtypes. Their strides, whether they require a gradient, or
whether gradients are enabled at all may be anything when it is called: unless the program itself asked, in which case
the answer decided what was captured. Every such question is an :class:`Observation`: part of the program, checked
when it is called.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from tintype.errors import Location


@dataclasses.dataclass(frozen=True)
class Observation:
    """A question that a program asked, and the answer that it was captured with.

    ``subject`` is the position of a tensor among the program's inputs, the name of a parameter or buffer, or None for
    what is around the program (:data:`SURROUNDINGS`). ``answer`` is a number, a truth value, a dtype, a text or None,
    or a tuple of numbers; numbers may be symbolic.
    """

    subject: int | str | None
    fact: str
    arguments: tuple[Any, ...]
    answer: Any
    location: Location | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for the same question."""
        return self.subject, self.fact, self.arguments

    def question(self, name: str) -> str:
        """The question as it is asked of a subject of that name: ``x.stride(0)``, ``torch.is_grad_enabled()``."""
        arguments = f"({', '.join(map(str, self.arguments))})"
        if self.subject is None:
            return f"torch.{self.fact}{arguments}"
        if self.fact == "tensor_class":
            return f"type({name})"
        if self.fact == "is":
            return f"({name} is the tensor at position {self.arguments[0]})"
        return f"{name}.{self.fact}{arguments if FACTS[self.fact] else ''}"


# What can be asked of a tensor, and whether it is asked by a call. A file may name nothing else.
FACTS: dict[str, bool] = {
    # the same object as another input, by its position
    "is": True,
    "grad": False,
    "grad_fn": False,
    "is_conj": True,
    "is_contiguous": True,
    "is_inference": True,
    "is_leaf": False,
    "is_neg": True,
    "is_pinned": True,
    "is_plain": False,
    "is_shared": True,
    "layout": False,
    "requires_grad": False,
    "storage_offset": True,
    "stride": True,
    "tensor_class": False,
}

# What can be asked of a program's surroundings, and by what it is answered.
SURROUNDINGS: dict[str, Callable[..., Any]] = {
    "are_deterministic_algorithms_enabled": torch.are_deterministic_algorithms_enabled,
    "get_autocast_dtype": torch.get_autocast_dtype,
    "get_default_dtype": torch.get_default_dtype,
    "get_float32_matmul_precision": torch.get_float32_matmul_precision,
    "get_num_threads": torch.get_num_threads,
    "initial_seed": torch.initial_seed,
    "is_anomaly_enabled": torch.is_anomaly_enabled,
    "is_autocast_enabled": torch.is_autocast_enabled,
    "is_deterministic_algorithms_warn_only_enabled": torch.is_deterministic_algorithms_warn_only_enabled,
    "is_grad_enabled": torch.is_grad_enabled,
    "is_inference_mode_enabled": torch.is_inference_mode_enabled,
}


def answer_of(tensor: torch.Tensor, fact: str, arguments: tuple[Any, ...]) -> Any:
    """What a tensor answers: one with data for itself, one without as the capture that it belongs to says."""
    in_capture = getattr(tensor, "answer_in_capture", None)
    if in_capture is not None:
        return in_capture(fact, arguments)
    if fact == "tensor_class":
        return class_name(tensor)
    if fact == "is_plain":
        return type(tensor) in (torch.Tensor, torch.nn.Parameter)
    found = getattr(tensor, fact)
    if FACTS[fact]:
        return found(memory_format=arguments[0]) if arguments and fact == "is_contiguous" else found(*arguments)
    return (None if found is None else "a tensor or function") if fact in ("grad", "grad_fn") else found


def class_name(tensor: torch.Tensor) -> str:
    """The class of a tensor by name; the class itself need not be known to who reads a file."""
    kind = type(tensor)
    return f"{kind.__module__}.{kind.__qualname__}"


def same_answer(given: Any, expected: Any) -> bool:
    """Whether two answers are the same; numbers may be symbolic while a program is captured."""
    if isinstance(expected, tuple):
        return isinstance(given, tuple) and len(given) == len(expected) and all(map(same_answer, given, expected))
    return bool(given == expected)
