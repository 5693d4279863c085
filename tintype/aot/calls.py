"""What tells two calls of a compiled function apart: everything about the arguments that its graphs may depend on.

Tensors count by type, dtype, device, sizes, strides, history and the bits that make them negative or conjugated, and
by which of them are the same or share memory, and where; everything else by its type and value, bit for bit.
"""

from __future__ import annotations

import dataclasses
import functools
import struct
import sys
from collections.abc import Sequence
from typing import Any

import torch

from tintype.errors import UnsupportedInputError
from tintype.fake.tensor import FakeTensor


def key_of(leaves: Sequence[Any]) -> tuple[Any, ...]:
    """A value that is equal for two lists of flat arguments if the same graphs do for both."""
    seen: dict[int, int] = {}
    memories: dict[int, list[torch.Tensor]] = {}
    found: list[Any] = []
    for position, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor):
            found.append(value_key(leaf))
            continue
        first = seen.setdefault(id(leaf), position)
        if first != position:
            found.append(first)
        elif leaf.layout is not torch.strided:
            found.append(leaf.layout)
        else:
            found.append(_tensor(leaf))
            memories.setdefault(leaf.untyped_storage()._cdata, []).append(leaf)
    if len(memories) != len(seen):
        found += [_sharing(tensors) for tensors in memories.values()]
    return tuple(found)


def modes() -> tuple[Any, ...]:
    """The modes of the thread that a function's operators depend on."""
    functions = torch._C._len_torch_function_stack()
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        torch.get_default_device() if functions else None,
        _autocast(),
    )


_autocast_on_cpu = functools.partial(torch.is_autocast_enabled, "cpu")
_autocast_on_cuda = functools.partial(torch.is_autocast_enabled, "cuda")


def _autocast() -> Any:
    if not _autocast_on_cpu() and not _autocast_on_cuda():
        return None
    return tuple((torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in ("cpu", "cuda"))


# what a function may look at (see tintype.ir.observations) that is the same for two calls with the same key
TOLD_BY_KEYS = frozenset(
    {
        "_is_buffer",
        "get_default_dtype",
        "getattr",
        "grad_fn",
        "hasattr",
        "is",
        "is_conj",
        "is_contiguous",
        "is_grad_enabled",
        "is_inference_mode_enabled",
        "is_leaf",
        "is_neg",
        "is_plain",
        "layout",
        "requires_grad",
        "storage_offset",
        "stride",
        "tensor_class",
    }
)


class Offsets(tuple[int, ...]):
    """Where in their memory the tensors among the arguments begin."""


def offsets_of(leaves: Sequence[Any]) -> Offsets:
    """Where in their memory the tensors among the arguments begin."""
    return Offsets(
        int(leaf.storage_offset())
        for leaf in leaves
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided
    )


def state_key(state: Sequence[torch.Tensor | None]) -> list[Any]:
    """What graphs depend on of the tensors that a function finds in a module or elsewhere."""
    return [
        None
        if tensor is None
        else (tensor.dtype, tensor.size(), tensor.stride(), tensor.requires_grad, tensor.is_leaf, tensor.device)
        for tensor in state
    ]


def attached_to(leaf: Any) -> dict[str, Any]:
    """What somebody attached to a tensor as attributes."""
    if type(leaf) in (torch.Tensor, torch.nn.Parameter):
        return leaf.__dict__
    if type(leaf) is FakeTensor:
        return {name: value for name, value in vars(leaf).items() if name not in _OWN_OF_FAKES}
    return {}


def attach(fake: Any, attributes: dict[str, Any]) -> None:
    """Attach to the fake of a tensor what the tensor has."""
    taken = _OWN_OF_FAKES.intersection(attributes)
    if taken:
        raise UnsupportedInputError(
            f"a tensor has an attribute {min(taken)!r}, a name that tensors without data need themselves",
            remedy="give the attribute another name",
        )
    vars(fake).update(attributes)


_OWN_OF_FAKES = frozenset({"context", "has_own_gradient_flag", "info", "is_own_parameter", "node"})


def _attached(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tuple(
        (name, value_key(value) if type(value) in PLAIN else id(value)) for name, value in tensor.__dict__.items()
    )


def _tensor(tensor: torch.Tensor) -> tuple[Any, ...]:
    kind = type(tensor)
    sizes = tensor.size()
    if kind is not torch.Tensor and any(not isinstance(size, int) for size in sizes):
        raise UnsupportedInputError(
            f"a {kind.__name__} with symbolic sizes can't be given to a compiled function",
            remedy="pass tensors of fixed sizes, or export the function with dynamic_shapes",
        )
    return (
        kind,
        tensor.dtype,
        tensor.device,
        sizes,
        tensor.stride(),
        tensor.requires_grad,
        tensor.is_leaf,
        tensor.is_conj(),
        tensor.is_neg(),
        _attached(tensor) if attached_to(tensor) else None,
    )


def _sharing(tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    """How tensors lie in one memory, and what they are views of."""
    if len(tensors) == 1:
        return ()
    bases = [tensor if tensor._base is None else tensor._base for tensor in tensors]
    positions: dict[int, int] = {}
    places = [
        (positions.setdefault(id(base), len(positions)), tensor.storage_offset())
        for tensor, base in zip(tensors, bases, strict=True)
    ]
    described = [
        (base.dtype, base.size(), base.stride(), base.storage_offset(), base.requires_grad, base.is_leaf)
        for base in bases
    ]
    return (*places, *described, tensors[0].untyped_storage().nbytes())


def value_key(leaf: Any) -> Any:
    """A value by its type and its bits: 0.0 and -0.0 are equal, and so are 1 and True. What is of a class of the
    user's counts as the object that it is, since what its class calls equal may be told apart. Hashable, unless the
    value is nothing that can be an argument."""
    kind = type(leaf)
    if isinstance(leaf, float):
        return (kind, struct.pack("<d", leaf))
    if isinstance(leaf, complex):
        return (kind, struct.pack("<dd", leaf.real, leaf.imag))
    if kind in PLAIN:
        return (kind, leaf)
    if kind is slice:
        return (kind, value_key(leaf.start), value_key(leaf.stop), value_key(leaf.step))
    if kind is set or kind is frozenset:
        return (kind, frozenset(map(value_key, leaf)))
    if kind.__module__ == "numpy" and hasattr(leaf, "tobytes") and not hasattr(leaf, "__setitem__"):
        return (kind, leaf.tobytes())
    if is_library(kind.__module__):
        return (kind, leaf)
    fields = _plain_fields(leaf)
    return (kind, TheObject(leaf) if fields is None else fields)


def _plain_fields(leaf: Any) -> tuple[Any, ...] | None:
    """The fields of a frozen dataclass that holds nothing but plain values, which say all about it."""
    parameters = getattr(type(leaf), "__dataclass_params__", None)
    if parameters is None or not parameters.frozen or not parameters.eq:
        return None
    fields = [getattr(leaf, field.name) for field in dataclasses.fields(leaf)]
    has_more = len(getattr(leaf, "__dict__", ())) > len(fields)
    return tuple(map(value_key, fields)) if not has_more and all(type(field) in PLAIN for field in fields) else None


class TheObject:
    """An object that is equal to itself alone, whatever its class says."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TheObject) and self.value is other.value


_LIBRARIES = frozenset({*sys.stdlib_module_names, "torch", "torchvision", "numpy", "tintype"})


def is_library(name: Any) -> bool:
    """Whether a module, by its name, is one whose code is not the user's."""
    return isinstance(name, str) and name.partition(".")[0] in _LIBRARIES


def same_value(first: Any, second: Any) -> bool:
    """Whether two values that can't change are the same, bit for bit."""
    if first is second:
        return True
    kind = type(first)
    if kind is not type(second):
        return False
    if kind in (tuple, frozenset):
        if len(first) != len(second):
            return False
        return first == second if kind is frozenset else all(map(same_value, first, second))
    return kind in PLAIN and value_key(first) == value_key(second)


# types whose values can't change
PLAIN = frozenset(
    {int, float, bool, complex, str, bytes, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}
)
