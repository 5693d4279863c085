"""What a program says about gradients that the captured program can't keep, collected for one warning.

Programs are captured below autograd: the gradients of a captured program come from the operators that it consists of.
So the ``backward`` of a ``torch.autograd.Function`` and hooks on gradients are not part of it. (Joint graphs and
:mod:`tintype.aot` run with autograd on, and keep both.)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FrameType
from typing import Any

import torch

from tintype.errors import Location, LostGradientWarning
from tintype.symbolic.location import caller_of, levels_to_the_user, line_outside_of_libraries, user_location


class LostGradients:
    """What one capture met, by name and line."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], None] = {}
        self._classes: set[type] = set()
        # parameters and buffers whose requires_grad the program changed, also where it changed it back
        self.switched: list[torch.Tensor] = []

    def add_function(self, apply: FrameType) -> None:
        """A ``torch.autograd.Function`` is being applied; given is the frame of its ``apply``."""
        function = apply.f_locals.get("cls")
        if function is None or function.__module__.partition(".")[0] in ("torch", "tintype"):
            return  # torch's own do what autograd would do with their operators (checkpoints)
        line = line_outside_of_libraries(caller_of(apply))
        self._found[f"the backward of {function.__module__}.{function.__qualname__}", _place(line)] = None

    def add_class(self, kind: type) -> None:
        """A class of tensors computes with one that requires a gradient: to autograd the operator is what it always
        is, whatever the class computes, and what the class unpacks has no history."""
        if kind not in self._classes and kind.__module__.partition(".")[0] not in ("torch", "tintype"):
            self._classes.add(kind)
            name = f"{kind.__module__}.{kind.__qualname__}"
            self._found[
                f"what autograd knows of operators on tensors of the class {name}", _place(user_location())
            ] = None

    def add_hook(self, kind: str, hook: Callable[..., Any] | None) -> None:
        """The program itself registers a hook on a tensor."""
        self._found[f"{kind}{'' if hook is None else f' ({_name(hook)})'}", _place(user_location())] = None

    def add_flags(self, names: Sequence[str]) -> None:
        """The program itself says of parameters whether they require a gradient."""
        if names:
            some = ", ".join(map(repr, names[:3])) + (", ..." if len(names) > 3 else "")
            self._found[
                f"what the model sets requires_grad to, of {len(names)} parameters or buffers: {some}", ""
            ] = None

    def add_module_hooks(self, modules: Iterable[tuple[str, torch.nn.Module]], paths: Mapping[int, str]) -> None:
        """The hooks that modules have for their gradients, those of each under the path that it has here."""
        for path, module in modules:
            if not (module._backward_hooks or module._backward_pre_hooks) or paths[id(module)] != path:
                continue
            for hooks in (module._backward_pre_hooks, module._backward_hooks):
                for hook in hooks.values():
                    code = getattr(hook, "__code__", None)
                    line = code and Location(code.co_filename, code.co_firstlineno, code.co_name)
                    self._found[f"the backward hook {_name(hook)} of module {path or '(root)'!r}", _place(line)] = (
                        None
                    )

    def _add_wrapped(self, parameters: Mapping[str, torch.Tensor]) -> None:
        """Parameters that consist of other tensors, which are the program's in their place."""
        trained = [name for name, tensor in parameters.items() if tensor.requires_grad]
        if trained:
            names = ", ".join(map(repr, trained[:3])) + (", ..." if len(trained) > 3 else "")
            kind = type(parameters[trained[0]]).__name__
            self._found[
                f"the gradients of {len(trained)} parameters that consist of others ({kind}): {names}", ""
            ] = None

    def warn(self, wrapped: Mapping[str, torch.Tensor]) -> None:
        """Say so, once; given are the parameters that consist of other tensors."""
        self._add_wrapped(wrapped)
        if not self._found:
            return
        lines = "".join(f"\n  - {name}{place}" for name, place in self._found)
        warnings.warn(
            f"[{LostGradientWarning.id}] the captured program computes what the model computes, but its gradients "
            f"are those of its operators. It does not have:{lines}\n  What to do: nothing if the program is not "
            "differentiated; else use tintype.export_joint or tintype.aot, which keep all of this, or make a custom "
            "operator with torch.library.register_autograd",
            LostGradientWarning,
            stacklevel=levels_to_the_user(),
        )


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def _place(line: Location | None) -> str:
    return "" if line is None else f"  # {line}"
