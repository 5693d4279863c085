"""The tensors a program holds: parameters, buffers, and constants that turn up while it runs.

The model is never touched. Its real tensors stay where they are; when the program hands one to an operator,
the recorder looks up the fake that stands for it here.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from types import FunctionType
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from tintype.errors import UnsupportedInputError
from tintype.fake.tensor import FakeTensor
from tintype.ir.signature import InputKind
from tintype.tree.sparse import SparseParts, is_sparse
from tintype.tree.subclasses import is_wrapper, plain_parts


@dataclasses.dataclass(slots=True)
class StateEntry:
    """One tensor or object of the model that becomes an input of the graph."""

    kind: InputKind
    target: str
    value: Any
    persistent: bool | None = None
    requires_grad: bool = False
    grad: torch.Tensor | None = None
    hooks: tuple[int, ...] = ()  # on its gradient, by their keys


# under this name a module of an unflattened program says that it is another one, called in another way: ``block@1``
FURTHER_CALL = "tintype.further_call"


def named_modules(root: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """All modules by all of their paths, as ``root.named_modules(remove_duplicate=False)`` has them; a module of an
    unflattened program that stands for further calls of one has the path of that one.

    That is a generator inside of a generator for every level, which costs as much as capturing some operators.
    """
    found: list[tuple[str, torch.nn.Module]] = []
    above: set[int] = set()  # a module may contain itself

    def visit(path: str, module: torch.nn.Module) -> None:
        found.append((path, module))
        children = module._modules
        if children and id(module) not in above:
            above.add(id(module))
            for name, child in children.items():
                if child is not None:
                    if "@" in name and FURTHER_CALL in vars(child):
                        name = name.partition("@")[0]
                    visit(f"{path}.{name}" if path else name, child)
            above.remove(id(module))

    visit("", root)
    return found


class ScriptInsideError(UnsupportedInputError):
    """A module of TorchScript is in a model of Python."""


class UninitializedStateError(UnsupportedInputError):
    """A parameter or buffer of a lazy layer, which gets its size in the first call."""


def refuse_script(module: torch.nn.Module, path: str = "") -> None:
    """Raise for a module of TorchScript inside of one of Python: it runs where no capture sees it, and what it holds
    is not Python's, so that it could not be put back."""
    if isinstance(module, torch.jit.ScriptModule):
        name = f"{path!r}" if path else f"{module.original_name}"
        raise ScriptInsideError(
            f"the module {name} of the model is TorchScript, which can't be captured as part of a model of Python",
            remedy="use the module of Python that it was made from, export it by itself (tintype.export(scripted, "
            "args) takes scripts), or script the whole model",
        )


ScriptModule = torch.jit.ScriptModule
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})


class ModelState:
    """What a module holds before it is called, and where each tensor was."""

    def __init__(self, root: torch.nn.Module, modules: list[tuple[str, torch.nn.Module]]) -> None:
        self._modules = modules
        self.entries: list[StateEntry] = []
        # every name of every tensor, aliases included: this becomes the program's state dict
        self.names: dict[str, tuple[InputKind, torch.Tensor, bool | None]] = {}
        self.by_id: dict[int, StateEntry] = {}
        # tensors that consist of others, which are the state in their place
        self.wrapped: dict[str, torch.Tensor] = {}
        self.sparse: dict[int, tuple[torch.Tensor, SparseParts]] = {}
        self._attributes: dict[int, list[str]] | None = None
        self._collect(modules)

    def _collect(self, modules: list[tuple[str, torch.nn.Module]]) -> None:
        for prefix, module in modules:
            if isinstance(module, ScriptModule):
                refuse_script(module, prefix)
            if module._parameters:
                for name, parameter in list(module._parameters.items()):
                    if parameter is not None:
                        self._add(InputKind.PARAMETER, f"{prefix}.{name}" if prefix else name, parameter, None)
        for prefix, module in modules:
            if module._buffers:
                for name, buffer in list(module._buffers.items()):
                    if buffer is not None:
                        path = f"{prefix}.{name}" if prefix else name
                        self._add(InputKind.BUFFER, path, buffer, name not in module._non_persistent_buffers_set)

    def _add(self, kind: InputKind, name: str, tensor: torch.Tensor, persistent: bool | None) -> None:
        # models have thousands, nearly all of which consist of nothing else
        is_plain = type(tensor) in _PLAIN and tensor.layout is torch.strided
        if not is_plain and not self._is_whole(kind, name, tensor, persistent):
            return
        self.names[name] = (kind, tensor, persistent)
        if id(tensor) not in self.by_id:
            grad = tensor.grad if tensor.is_leaf else None
            hooks = tuple(tensor._backward_hooks or ())
            entry = StateEntry(kind, name, tensor, persistent, tensor.requires_grad, grad, hooks)
            self.entries.append(entry)
            self.by_id[id(tensor)] = entry

    def _is_whole(self, kind: InputKind, name: str, tensor: torch.Tensor, persistent: bool | None) -> bool:
        """Whether a tensor is state itself; else the tensors that it consists of have been added."""
        if is_lazy(tensor):
            raise UninitializedStateError(
                f"the {kind.name.lower()} {name!r} has no size yet: it belongs to a lazy layer, "
                "which makes it in its first call",
                remedy="call the model once before it is captured",
            )
        if is_wrapper(type(tensor)):
            self.wrapped[name] = tensor
            for place, part in plain_parts(tensor):
                self._add(kind, f"{name}.{place}", part, persistent)
            return False
        if is_sparse(tensor):
            self.wrapped[name] = tensor
            if id(tensor) not in self.sparse:
                self.sparse[id(tensor)] = (tensor, sparse_state(tensor))
            for place, part in self.sparse[id(tensor)][1].tensors().items():
                self._add(kind, f"{name}.{place}", part, persistent)
            return False
        return True

    def put_back_gradients(self, switched: Sequence[torch.Tensor], *, may_clear: bool) -> tuple[list[str], list[str]]:
        """Undo what a program did with ``grad`` and ``requires_grad_()``; returns where it assigned the former and
        where it changed the latter, be it for a while (``switched``). ``may_clear`` says whether its code may have
        dropped gradients (``zero_grad()``): else another thread did."""
        assigned: list[str] = []
        flagged: list[str] = []
        changed = set(map(id, switched))
        for entry in self.entries:
            # what autograd gave a history is put back by the capture that ran with autograd on
            if not entry.value.is_leaf:
                continue
            if entry.value.requires_grad is not entry.requires_grad:
                entry.value.requires_grad_(entry.requires_grad)
                changed.add(id(entry.value))
            if id(entry.value) in changed:
                flagged.append(entry.target)
            if type(entry.value.grad) is FakeTensor:
                entry.value.grad = entry.grad
                assigned.append(entry.target)
            elif entry.value.grad is None and may_clear:
                entry.value.grad = entry.grad
        return assigned, flagged

    def take_back_hooks(self) -> list[Any]:
        """Remove the hooks that a program put on parameters and buffers; returns them."""
        taken = []
        for entry in self.entries:
            hooks = getattr(entry.value, "_backward_hooks", None)
            if hooks:
                taken += [hooks.pop(key) for key in list(hooks) if key not in entry.hooks]
        return taken

    def attribute_names(self, value: Any) -> list[str]:
        """The paths of a tensor or object that is a plain attribute of modules."""
        if self._attributes is None:
            self._attributes = {}
            for path, attribute in _plain_attributes(self._modules):
                self._attributes.setdefault(identity(attribute), []).append(path)
        return self._attributes.get(identity(value), [])


def sparse_state(tensor: torch.Tensor) -> SparseParts:
    """The parts of a sparse parameter or buffer, which share its memory."""
    parts = SparseParts.of(tensor.detach())
    if isinstance(tensor, torch.nn.Parameter):
        parts.parts["values"] = torch.nn.Parameter(parts.values, tensor.requires_grad)
    return parts


def identity(value: Any) -> int:
    """A number that a tensor or object has alone. Of a custom object every call gets another Python wrapper."""
    return hash(value) if isinstance(value, torch.ScriptObject) else id(value)


# what most attributes of modules are
_NO_TENSORS = frozenset({bool, int, float, str, tuple, list, dict, OrderedDict, set, type(None), FunctionType})


def _plain_attributes(modules: list[tuple[str, torch.nn.Module]]) -> Iterator[tuple[str, Any]]:
    seen: set[int] = set()
    for prefix, module in modules:
        attributes = vars(module)
        if id(module) in seen or _NO_TENSORS.issuperset(map(type, attributes.values())):
            continue
        seen.add(id(module))
        for name, value in list(attributes.items()):
            # setattr(module, "layer.weight", tensor) is possible: such a name would be the path of something else
            if isinstance(value, (torch.Tensor, torch.ScriptObject)) and "." not in name:
                yield (f"{prefix}.{name}" if prefix else name), value
