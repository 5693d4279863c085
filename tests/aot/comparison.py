"""Whether a compiled function can be told from the function itself.

Both are called with equal arguments. Compared are outputs (structure, type, values, sizes, strides, requires_grad),
arguments after the call, which outputs and arguments share memory or are the same object, what a write to an
output does to everything else, and gradients of all leaves.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

import tintype

# makes fresh arguments, and the leaves whose gradients are compared
Arguments = Callable[[], tuple[Sequence[Any], Sequence[torch.Tensor]]]


def check(function: Callable[..., Any], arguments: Arguments, *, calls: int = 2, **options: Any) -> Any:
    """Compare a function with its compiled form, in several calls; returns the compiled form."""
    compiled = tintype.aot.function(function, **options)
    for number in range(calls):
        compare(function, compiled, arguments, number)
    return compiled


def compare(function: Callable[..., Any], compiled: Callable[..., Any], arguments: Arguments, seed: int = 0) -> None:
    """Compare one call."""
    expected = observe(function, arguments, seed)
    assert expected.error is None, f"eager mode refuses the program: {expected.error}"
    found = observe(compiled, arguments, seed)
    if found.error is not None:
        raise found.error
    assert found.facts == expected.facts, difference(found.facts, expected.facts)
    assert len(found.tensors) == len(expected.tensors)
    for name, value in expected.tensors.items():
        torch.testing.assert_close(found.tensors[name], value, msg=lambda m, name=name: f"{name}: {m}")


def difference(found: dict[str, Any], expected: dict[str, Any]) -> str:
    names = [name for name in {**found, **expected} if found.get(name) != expected.get(name)]
    return "; ".join(f"{name}: {found.get(name)} instead of {expected.get(name)}" for name in names)


class Observation:
    """What a call did."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        self.error: Exception | None = None


def observe(function: Callable[..., Any], arguments: Arguments, seed: int) -> Observation:
    """Call a function and look at everything that came of it."""
    seen = Observation()
    torch.manual_seed(seed)
    given, leaves = arguments()
    try:
        outputs = function(*given)
        _look(seen, "call", given, outputs)
        seen.facts["grad mode"] = torch.is_grad_enabled()
        torch.set_grad_enabled(True)
        _differentiate(seen, given, outputs, leaves)
        _write(seen, given, outputs)
    except Exception as error:
        seen.error = error
    finally:
        torch.set_grad_enabled(True)
    return seen


def tensors_of(given: Any, outputs: Any) -> list[tuple[str, torch.Tensor]]:
    named = [(f"argument {i}", leaf) for i, leaf in enumerate(pytree.tree_leaves(given))]
    named += [(f"output {i}", leaf) for i, leaf in enumerate(pytree.tree_leaves(outputs))]
    return [(name, value) for name, value in named if isinstance(value, torch.Tensor)]


def _look(seen: Observation, when: str, given: Any, outputs: Any) -> None:
    seen.facts["structure"] = pytree.tree_structure(outputs)
    seen.facts["constants"] = [leaf for leaf in pytree.tree_leaves(outputs) if not isinstance(leaf, torch.Tensor)]
    found = tensors_of(given, outputs)
    for name, value in found:
        seen.facts[f"{name} ({when})"] = (
            type(value), value.dtype, tuple(value.shape), _strides(value), value.requires_grad, value.is_leaf,
        )  # fmt: skip
        seen.tensors[f"{name} ({when})"] = value.detach().clone()
    for (first, a), (second, b) in itertools.combinations(found, 2):
        same_memory = a.untyped_storage()._cdata == b.untyped_storage()._cdata
        seen.facts[f"{first} and {second}"] = (
            a is b,
            same_memory,
            same_memory and a.storage_offset() - b.storage_offset(),
        )


def _differentiate(seen: Observation, given: Any, outputs: Any, leaves: Sequence[torch.Tensor]) -> None:
    """Gradients of everything that has some, each weighted in its own way."""
    starts = [value for _, value in tensors_of(given, outputs) if value.requires_grad and value.grad_fn is not None]
    if not starts or not any(leaf.requires_grad for leaf in leaves):
        return
    total: Any = 0
    for number, value in enumerate(starts):
        weights = torch.arange(1, value.numel() + 1, dtype=torch.float64).reshape(value.shape)
        total = (
            total + (torch.view_as_real(value).sum(-1) if value.is_complex() else value).mul(weights + number).sum()
        )
    wanted = [leaf for leaf in leaves if leaf.requires_grad]  # the program may have called detach_()
    for number, gradient in enumerate(torch.autograd.grad(total, wanted, allow_unused=True)):
        seen.facts[f"gradient {number}"] = gradient is not None
        if gradient is not None:
            seen.tensors[f"gradient {number}"] = gradient


def _write(seen: Observation, given: Any, outputs: Any) -> None:
    """Write to each output in turn and see what else changes."""
    found = tensors_of(given, outputs)
    for name, value in found:
        if name.startswith("output") and value.dtype.is_floating_point and not _overlaps(value):
            before = [other._version for _, other in found]
            with torch.no_grad():
                value.add_(1)
            seen.facts[f"written ({name})"] = [o._version - b for (_, o), b in zip(found, before, strict=True)]
            for other, tensor in found:
                seen.tensors[f"{other} after a write to {name}"] = tensor.detach().clone()


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Strides, but for those of dimensions of size one, which mean nothing."""
    return tuple(stride if size > 1 else 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _overlaps(tensor: torch.Tensor) -> bool:
    return any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
