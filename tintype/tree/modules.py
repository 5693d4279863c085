"""Modules as arguments of a program: containers of their parameters and buffers.

What a module computes is part of the program; a call may give another one that differs in nothing but its state. So
the structure says what it is: the classes of its modules, whether they are in training, and their plain attributes.
"""

from __future__ import annotations

import copy
import weakref
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch

from tintype.errors import UnsupportedInputError
from tintype.tree.registration import register_container

# What every module has.
_OF_ALL = frozenset(vars(torch.nn.Module())) - {"training"}
_OF_RECURRENT = frozenset({"_flat_weights", "_flat_weight_refs"})  # made of their parameters
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_PLAIN = (bool, int, float, str, type(None))
_BY_TEXT = (torch.dtype, torch.device, torch.layout, torch.memory_format)
# By its structure a module that was given last: what makes one of that structure again.
_templates: weakref.WeakValueDictionary[Any, torch.nn.Module] = weakref.WeakValueDictionary()


class ModuleParts:
    """The parameters and buffers of a module by name; ``structure`` says what it is."""

    def __init__(self, parts: dict[str, Any], structure: Any) -> None:
        self.parts = parts
        self.structure = structure

    @staticmethod
    def of(module: torch.nn.Module) -> ModuleParts:
        """A module taken apart."""
        structure = tuple(_described(path, inner) for path, inner in module.named_modules(remove_duplicate=False))
        _templates[structure] = module
        state = [module.named_parameters(remove_duplicate=False), module.named_buffers(remove_duplicate=False)]
        return ModuleParts({name: value for named in state for name, value in named}, structure)

    def module(self) -> Any:
        """A module with these parts; the parts themselves where no module of the structure is known."""
        template = _templates.get(self.structure)
        return self if template is None else self._filled(template, "")

    def _filled(self, template: torch.nn.Module, prefix: str) -> torch.nn.Module:
        made = copy.copy(template)
        for kind in ("_parameters", "_buffers"):
            state = {name: self.parts.get(prefix + name) for name in vars(template)[kind]}
            vars(made)[kind] = state
        inner = {name: child and self._filled(child, f"{prefix}{name}.") for name, child in template._modules.items()}
        vars(made)["_modules"] = inner
        if isinstance(made, torch.nn.RNNBase):
            vars(made)["_flat_weights"] = [getattr(made, name) for name in made._flat_weights_names]
        return made


def _described(path: str, module: torch.nn.Module) -> Any:
    """What a module is but for its state and the modules inside."""
    kind = type(module)
    if any(getattr(module, hooks) for hooks in _HOOKS):
        raise UnsupportedInputError(
            f"a {kind.__qualname__} among the arguments has hooks, which a program can't know of in the next call",
            remedy="let the model hold it: what it holds is captured with its hooks",
        )
    known = _OF_ALL | _OF_RECURRENT if isinstance(module, torch.nn.RNNBase) else _OF_ALL
    own = [(name, _plain(value, name, kind)) for name, value in vars(module).items() if name not in known]
    return path, f"{kind.__module__}.{kind.__qualname__}", tuple(sorted(own, key=lambda entry: entry[0]))


def _plain(value: Any, name: str, kind: type) -> Any:
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, _BY_TEXT):
        return str(value)
    if isinstance(value, (list, tuple)):
        return tuple(_plain(item, name, kind) for item in value)
    if isinstance(value, (FunctionType, BuiltinFunctionType)) and "<" not in value.__qualname__:
        return f"{value.__module__}.{value.__qualname__}"
    raise UnsupportedInputError(
        f"a {kind.__qualname__} among the arguments has {name!r}, a {type(value).__qualname__}, which can't be "
        "compared with another module's",
        remedy="let the model hold the module, or keep plain values in its attributes",
    )


register_container(ModuleParts, lambda parts: (parts.parts, parts.structure), ModuleParts, name="tintype.ModuleParts")
