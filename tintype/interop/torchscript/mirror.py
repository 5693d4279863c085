"""State: the modules of a script as modules of Python, with the parameters, buffers and attributes that they have.

A mirror's ``forward`` runs the script's method. As mirrors call each other where the script's modules do, a captured
program knows the hierarchy of modules, as far as the script still has it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch

from tintype.interop.torchscript.reading import Procedure

if TYPE_CHECKING:
    from tintype.interop.torchscript.interpreter import Interpreter
    from tintype.interop.torchscript.kept import Kept

_MISSING = object()
_MANGLED = re.compile(r"\.?___torch_mangle_\d+")
_classes: dict[str, type[Mirror]] = {}
_NUMBERS = {int: torch.int64, float: torch.float64, bool: torch.bool}


class _Inside:
    """What a mirror knows besides its state."""

    def __init__(self, script: Any, interpreter: Interpreter) -> None:
        self.script = script
        self.interpreter = interpreter
        self.procedures: dict[str, Procedure] = {}
        # numbers that the script writes to, which are buffers here
        self.numbers: dict[str, torch.Tensor] = {}
        # lists and dictionaries that it changes, and those of the buffers for their items that stand for numbers
        self.kept: dict[str, Kept] = {}
        self.kept_numbers: set[str] = set()


class Mirror(torch.nn.Module):
    """A module of a script."""

    def __init__(self, script: Any, interpreter: Interpreter) -> None:
        super().__init__()
        inside = _Inside(script, interpreter)
        # behind a function: it is no state of the model, which a capture looks through
        self.__dict__[".inside"] = lambda: inside

    @property
    def script(self) -> Any:
        """The module of C++."""
        return self.__dict__[".inside"]().script

    @property
    def numbers(self) -> dict[str, torch.Tensor]:
        """The buffers that stand for numbers, by name."""
        numbers: dict[str, torch.Tensor] = self.__dict__[".inside"]().numbers
        return numbers

    @property
    def kept(self) -> dict[str, Kept]:
        """The lists and dictionaries whose items are buffers; see kept.py."""
        kept: dict[str, Kept] = self.__dict__[".inside"]().kept
        return kept

    @property
    def kept_numbers(self) -> set[str]:
        names: set[str] = self.__dict__[".inside"]().kept_numbers
        return names

    def method(self, name: str) -> Procedure:
        """A method of the module, read when it is first asked for."""
        procedures: dict[str, Procedure] = self.__dict__[".inside"]().procedures
        if name not in procedures:
            procedures[name] = Procedure(self.script._get_method(name).graph, name)
        return procedures[name]

    def attribute(self, name: str) -> Any:
        """An attribute as it is outside of a run, a number that the script writes to as its buffer has it."""
        if name in self.numbers:
            return self.numbers[name].item()
        for registered in (self._parameters, self._buffers):
            if name in registered:
                return registered[name]
        known = self.__dict__.get(name, _MISSING)
        if known is _MISSING:
            known = self.script.getattr(name)
            if isinstance(known, torch.Tensor):
                self.__dict__[name] = known  # a constant of the program has the name of the attribute
        return known

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the script's method: with values of a script, or as Python calls it."""
        interpreter = self.__dict__[".inside"]().interpreter
        if interpreter.depth:
            return interpreter.run_method(self, "forward", args)
        return interpreter.from_outside(self, "forward")(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """What Python code finds in a module of TorchScript: methods and attributes of the script."""
        inside = self.__dict__.get(".inside")
        interpreter = None if inside is None else inside().interpreter
        if interpreter is None or interpreter.from_outside is None:
            return super().__getattr__(name)
        if name in self.numbers:
            return self.attribute(name)
        try:
            return super().__getattr__(name)
        except AttributeError:
            if self.script._has_method(name):
                return interpreter.from_outside(self, name)
            if not self.script.hasattr(name):
                raise
            return interpreter.mirroring.registered(self.script.getattr(name))


def mirror_class(qualified_name: str) -> type[Mirror]:
    """The class of mirrors of a TorchScript class, which has the name of the Python class that that was made from."""
    name = _MANGLED.sub("", qualified_name).removeprefix("__torch__.")
    if name not in _classes:
        module, _, short = name.rpartition(".")
        _classes[name] = type(short or "Module", (Mirror,), {"__module__": module or "__torch__", "__doc__": None})
    return _classes[name]


class Mirroring:
    """Makes the mirrors of a script's modules; a module that is there twice has one mirror."""

    def __init__(self, interpreter: Interpreter) -> None:
        self.interpreter = interpreter
        self.mirrors: dict[int, Mirror] = {}
        self._parameters: dict[int, tuple[torch.Tensor, torch.nn.Parameter]] = {}
        # Python's objects for modules of C++ are made anew for every question; kept, they stay the same
        self._kept: list[Any] = []

    def of(self, script: Any) -> Mirror:
        key = hash(script)
        if key not in self.mirrors:
            self._kept.append(script)
            self.mirrors[key] = mirror = mirror_class(script._type().qualified_name())(script, self.interpreter)
            self._fill(mirror, script)
        return self.mirrors[key]

    def _fill(self, mirror: Mirror, script: Any) -> None:
        dictionaries: Any = torch._C
        for name, tensor in dictionaries.ParameterDict(script).items():
            mirror._parameters[name] = None if tensor is None else self._parameter(tensor)
        for name, tensor in dictionaries.BufferDict(script).items():
            mirror._buffers[name] = tensor
        for name, child in dictionaries.ModuleDict(script).items():
            mirror._modules[name] = self.of(child)
        mirror.training = bool(script.getattr("training")) if script.hasattr("training") else False

    def _parameter(self, tensor: torch.Tensor) -> torch.nn.Parameter:
        if isinstance(tensor, torch.nn.Parameter):
            return tensor
        key = id(tensor)
        if key not in self._parameters:
            self._parameters[key] = (tensor, torch.nn.Parameter(tensor.detach(), tensor.requires_grad))
        return self._parameters[key][1]

    def registered(self, value: Any) -> Any:
        """A value with its parameters as the mirrors have them: recurrent layers of a file hold theirs in a list too,
        as tensors that are no objects of Python's class."""
        if isinstance(value, torch.Tensor):
            known = self._parameters.get(id(value))
            return value if known is None else known[1]
        if type(value) is list:
            return [self.registered(item) for item in value]
        if type(value) is dict:
            return {key: self.registered(item) for key, item in value.items()}
        if type(value) is tuple:
            return tuple(self.registered(item) for item in value)
        return value


def keep_number(mirror: Mirror, name: str, value: Any) -> None:
    """Let a number that the script writes to be a buffer of the program."""
    buffer = number_buffer(value)
    mirror._buffers[name] = buffer
    mirror.numbers[name] = buffer


def number_buffer(value: Any) -> torch.Tensor:
    return torch.tensor(value, dtype=_NUMBERS[type(value)])


def is_kept_number(value: Any) -> bool:
    return type(value) in _NUMBERS
