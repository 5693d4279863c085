"""What a program changed that a captured one can't, in words: where it is, and which line did it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from types import CellType, FunctionType, ModuleType
from typing import Any

import torch

from tintype.errors import CaptureError, Location, StateChangedError, TintypeError
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import location_of
from tintype.trace.hidden_state import ENVIRONMENT
from tintype.trace.snapshot import Change
from tintype.trace.users_code import CONTAINERS, UsersCode


class ChangedState:
    """Speaks of changes that the user's functions made."""

    def __init__(self, code: UsersCode, modules: Sequence[tuple[str, torch.nn.Module]]) -> None:
        self._code = code
        self._modules = modules
        # lines that were seen to change something, by owner and name; names tell where nobody has looked
        self.seen: dict[tuple[int, Any], Location] = {}

    def _seen(self, change: Change) -> Location | None:
        return self.seen.get((id(change.owner), change.name)) or self.seen.get((id(change.owner), None))

    def _line(self, change: Change) -> Location | None:
        """The line that made a change of an attribute or a global."""
        named = isinstance(change.name, str)
        return self._seen(change) or (self._code.assignment_to(change.name) if named else None)

    def line_of(self, container: Any, names: Iterable[str]) -> Location | None:
        """The line that changed a container that the program was given."""
        lines = [self.seen.get((id(container), name)) for name in (*names, None)]
        lines += [self._code.assignment_to(name) for name in names]
        return next(filter(None, lines), None) or self._code.change_of(container, ())

    def _attributes_that_hold(self, value: Any) -> list[str]:
        tables = [list(vars(module).items()) for _, module in self._modules]
        return [name for table in tables for name, held in table if held is value]

    def description(self, change: Change) -> str:
        """A change, what was there before and afterwards, and the line."""
        line = self._line(change)
        if line is None and (change.name is None or isinstance(change.owner, CellType)):
            line = self._code.change_of(change.owner, ())
        return f"{in_words(change)}{'' if line is None else f'  # {line}'}"

    def gradient_refusals(self, names: list[str]) -> list[TintypeError]:
        """The errors for parameters whose gradients the program assigned."""
        return [
            StateChangedError(
                f"the program assigned the gradient of {name!r}; a captured program can only change registered "
                "buffers",
                location=self._code.assignment_to("grad"),
                remedy="return the gradient instead",
            )
            for name in names
        ]

    def other_size(self, name: str, buffer: FakeTensor, value: FakeTensor) -> StateChangedError:
        """The error for a buffer that the program assigned a tensor of another size or dtype."""
        return StateChangedError(
            f"the program assigned a tensor of size {list(value.info.sizes)} and {value.info.dtype} to the "
            f"buffer {name!r} of size {list(buffer.info.sizes)} and {buffer.info.dtype}",
            remedy="keep the size and dtype of a buffer, or return the tensor instead",
        )

    def left_behind(self, change: Change, name: str, kept: str) -> StateChangedError:
        """The error for a buffer that was assigned another tensor where something else keeps the old one."""
        return StateChangedError(
            f"the program assigns another tensor to the buffer {name!r}, and {kept!r}, which is the same "
            "tensor or has memory in common with it, keeps the old one; a captured program copies into it",
            location=self._line(change) or made_at(change.after),
            remedy=f"write to the buffer, self.{name}.copy_(value), if {kept!r} is to follow; give that a "
            "tensor of its own, clone(), if not",
        )

    def undecided_number(self, change: Change) -> StateChangedError:
        """The error for a number that the data decide, put where the next call would find it."""
        owner, name = change.owner, change.name
        line = self._line(change)
        place = f"a {type(owner).__name__}" if name is None else f"{name!r} of a {type(owner).__name__}"
        return StateChangedError(
            f"the data decide about a number that the program puts into {place}, which the next call would find; a "
            "captured program can only keep tensors in registered buffers",
            location=line or self._code.change_of(owner, self._attributes_that_hold(owner)),
            remedy="keep the number in a buffer, self.register_buffer(name, torch.tensor(...)), or return it",
        )

    def refusal(self, change: Change) -> StateChangedError:
        """The error for a tensor that the program put where a captured program can't."""
        owner, name = change.owner, change.name
        if isinstance(change.after, torch.nn.Module):
            return StateChangedError(
                f"the program makes a module ({type(change.after).__name__}) with parameters or buffers and keeps it "
                f"as {name!r}, where its next call would find it, which a captured program can not",
                location=self._line(change),
                remedy="make the module in __init__, or call the model once before it is captured",
            )
        is_global = isinstance(owner, dict) and "__builtins__" in owner
        is_variable = isinstance(owner, CellType)
        if is_variable or (type(owner) in CONTAINERS and not is_global):
            place = "a variable" if is_variable else f"a {type(owner).__name__}"
            return StateChangedError(
                f"the program put a tensor into {place} that is not its own; a captured program can only change "
                "registered buffers",
                location=self._seen(change)
                or self._code.change_of(owner, self._attributes_that_hold(owner))
                or made_at(change.after),
                remedy="return the tensor instead; a cache can be filled before, by calling the model once",
            )
        place = f"the attribute {name!r} of a {type(owner).__name__}"
        remedy = f"register it: self.register_buffer({name!r}, ...) in __init__, or return the tensor instead"
        if isinstance(owner, type):
            place = f"the attribute {name!r} of the class {owner.__name__}"
        elif is_global:
            place = f"the global {name!r}"
        elif isinstance(owner, torch.Tensor):
            remedy = "return the tensor instead, or write it to a registered buffer"
        elif not isinstance(owner, torch.nn.Module):
            remedy = (
                f"make the {type(owner).__name__} anew in every call of forward, or take it as an argument and "
                "return it; what must last from call to call can be written to a registered buffer"
            )
        return StateChangedError(
            f"the program assigned a tensor to {place}; a captured program can only change registered buffers",
            location=self._line(change) or made_at(change.after),
            remedy=remedy,
        )


class ChangedAboveAutograd(ChangedState):
    """The same for a program that is captured with autograd on, and assigns gradients by calling backward()."""

    def gradient_refusals(self, names: list[str]) -> list[TintypeError]:
        """One error, whichever parameters they are of."""
        return [backward_called()] if names else []


def backward_called() -> CaptureError:
    """The error for a program that accumulates gradients."""
    return CaptureError(
        "the program calls backward(), or assigns gradients itself, which writes to its inputs or parameters",
        remedy="use torch.autograd.grad, which returns gradients",
    )


def in_words(change: Change) -> str:
    """A change, with what was there before and afterwards."""
    owner, name = change.owner, change.name
    if type(owner) is ENVIRONMENT:
        before, after = change.before.state, change.after.state
        names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        return ", ".join(f"os.environ[{name!r}]: {before.get(name)!r} became {after.get(name)!r}" for name in names)
    what = f"a {type(owner).__name__}" if name is None else f"{name!r} of a {type(owner).__name__}"
    if isinstance(owner, CellType):
        what = "a variable of a closure"
    elif isinstance(owner, ContextVar):
        what = f"the context variable {owner.name!r}"
    elif isinstance(owner, (type, FunctionType, ModuleType)):
        what = f"{name!r} of {owner.__name__}"
    elif isinstance(owner, dict) and "__builtins__" in owner:
        what = f"the global {name!r}"
    return f"{what}: {change.before!r:.60} became {change.after!r:.60}"


def made_at(value: Any) -> Location | None:
    """The line that made a tensor, for one that was put somewhere by code that is not the user's."""
    return location_of(value.node) if type(value) is FakeTensor and value.node is not None else None


def is_made_anew(change: Change) -> bool:
    """Whether an attribute is computed before every call, by a hook of torch's (weight_norm, spectral_norm, pruning):
    no call finds what the one before put there."""
    if not isinstance(change.owner, torch.nn.Module):
        return False
    hooks = [hook for hook in change.owner._forward_pre_hooks.values() if type(hook).__module__ in _HOOKS_OF_TORCH]
    return any(change.name in (getattr(hook, "name", None), getattr(hook, "_tensor_name", None)) for hook in hooks)


_HOOKS_OF_TORCH = ("torch.nn.utils.weight_norm", "torch.nn.utils.spectral_norm", "torch.nn.utils.prune")
