"""The state of a module made from a program: shared with the program, but for what the module writes to."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import torch

from tintype.ir.signature import StateWrite
from tintype.trace.recorder import active_recorder


class OwnedState:
    """Copies of the tensors that a module will write to.

    Memory is copied once: tensors that shared it, under several names or as views of each other, share the copy.
    """

    def __init__(self, written: Iterable[torch.Tensor]) -> None:
        self._written = {_memory(tensor) for tensor in written}
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._copies: dict[int, torch.Tensor] = {}
        self._objects: dict[int, Any] = {}

    def changes(self, value: Any) -> bool:
        """Whether a value lies in memory that is written to."""
        return isinstance(value, torch.Tensor) and _memory(value) in self._written

    def own(self, value: Any) -> Any:
        """The value that the module holds in place of the program's. Methods of an object may change it, so that the
        module has one of its own, where objects of its class can be copied."""
        if isinstance(value, torch.ScriptObject) and hash(value) not in self._objects:
            has: Any = value._has_method  # type: ignore[attr-defined]
            copyable = has("__getstate__") and has("__setstate__")
            self._objects[hash(value)] = copy.deepcopy(value) if copyable else value
        if isinstance(value, torch.ScriptObject):
            return self._objects[hash(value)]
        if not self.changes(value):
            return value
        if id(value) not in self._copies:
            self._copies[id(value)] = self._copy(value)
        return self._copies[id(value)]

    @torch.inference_mode(False)  # the copies outlast a mode that the caller happens to be in
    def _copy(self, value: torch.Tensor) -> torch.Tensor:
        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            return value.detach().clone()
        key = _memory(value)
        if key not in self._storages:
            self._storages[key] = value.untyped_storage().clone()
        new = torch.empty(0, dtype=value.dtype, device=value.device)
        new.set_(self._storages[key], value.storage_offset(), value.size(), value.stride())
        if isinstance(value, torch.nn.Parameter):
            return torch.nn.Parameter(new, value.requires_grad)
        return new.requires_grad_(value.requires_grad)


class InitialValue:
    """What state was when its module was made. Nothing is kept of zeros, which is what caches are made of."""

    def __init__(self, value: torch.Tensor) -> None:
        self._copy: torch.Tensor | None = None
        is_fake = type(value).__module__.startswith("torch._subclasses")
        if value.device.type != "meta" and not is_fake:
            content = torch.empty(0, dtype=torch.uint8, device=value.device).set_(value.untyped_storage())
            if content.any():
                self._copy = value.detach().clone()

    def write_to(self, target: torch.Tensor) -> None:
        """Let a tensor have this value again, and no history."""
        if torch._debug_has_internal_overlap(target) == 1:
            return  # nobody can write to it but through another tensor, which is written to here
        with torch.no_grad():
            if target.grad_fn is not None and not target._is_view():
                target.detach_()
            if self._copy is None:
                target.zero_()
            else:
                target.copy_(self._copy)

    def like(self, old: torch.Tensor) -> torch.Tensor:
        """A new tensor with this value, of the dtype, device and layout of another one."""
        new = torch.zeros_like(old) if self._copy is None else self._copy.to(old.device, old.dtype, copy=True)
        return as_replacement(old, new).requires_grad_(old.is_leaf and old.requires_grad)


def write_untracked(target: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Write to state without autograd taking it for a mutation: what it saved of the old value stays usable where
    eager mode would not have written there either."""
    if target.is_inference():  # autograd has no part in it
        target.copy_(value)
    else:
        write_behind_autograd(target, value)
    recorder = active_recorder()
    if recorder is not None:
        recorder.state_writes.setdefault(target, StateWrite.UNTRACKED)
    return target


def write_behind_autograd(target: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Write to a tensor that autograd looks after, unseen."""
    with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(target):
        target.copy_(value)
    return target


def value_before_write(tensor: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
    """What a program reads of a tensor that it writes to in the end: where gradients may need the value, its own or
    those of others that meet it, a copy."""
    if torch.is_grad_enabled() and (tensor.requires_grad or any(other.requires_grad for other in others)):
        return tensor.clone()
    return tensor


def strided_from(
    tensor: torch.Tensor, sizes: Any, strides: Any, offset: int, written: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    """A view of the memory behind a written tensor, at a place counted from where the memory of its new value begins:
    the two may begin at different places of their memory."""
    shift = written.storage_offset() * written.element_size() - value.storage_offset() * value.element_size()
    return tensor.as_strided(sizes, strides, offset + shift // tensor.element_size())


def write_to_input(target: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Write to an input that may have gradients. A leaf can't have been written to but behind autograd's back; a
    program that is captured with one may be called with another."""
    recorder = active_recorder()
    if recorder is not None and recorder.below_autograd:
        return target.copy_(value)
    return write_beside_autograd(target, value)


def write_beside_autograd(target: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Write to an input of a program that runs."""
    (target.detach() if target.is_leaf and target.requires_grad else target).copy_(value)
    return target


def as_replacement(old: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """A tensor that takes another one's place in a module, with its history, laid out in memory as the program knows
    it."""
    if value.stride() == old.stride():
        return value.view_as(value) if isinstance(value, torch.nn.Parameter) else value
    return torch.empty_strided(old.size(), old.stride(), dtype=old.dtype, device=old.device).copy_(value)


def replace_state(path: str, value: torch.Tensor) -> torch.Tensor:
    """Stands in a module's graph for ``self.<path> = value``; the module that holds the graph carries it out."""
    raise RuntimeError(f"{path} can only be replaced by the module that the graph belongs to")


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata
