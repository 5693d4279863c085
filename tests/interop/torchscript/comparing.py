"""Programs that come from TorchScript, held against the script itself: results, writes to arguments and state, on
every input and from call to call; once as it was scripted and once as it comes from a file."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import torch

import tintype
from tests.export.modes import assert_same

CASES: list[Any] = []


class Case:
    """A function, the inputs that it is called with one after the other, and the sizes that vary."""

    def __init__(self, function: Any, inputs: Any, dynamic: Any) -> None:
        self.function = function
        self.inputs = inputs
        self.dynamic = dynamic
        self.name = function.__name__

    def run(self) -> tintype.ExportedProgram:
        return compare(self.function, *self.inputs, dynamic_shapes=self.dynamic)


def cases(into: list[Case]) -> Callable[..., Any]:
    def case(*inputs: Any, dynamic: Any = None) -> Callable[[Any], Any]:
        def register(function: Any) -> Any:
            given = [entry if isinstance(entry, tuple) else (entry,) for entry in inputs]
            into.append(Case(function, given, dynamic))
            return function

        return register

    return case


def scripted(model: Any) -> Any:
    is_script = isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction))
    return model if is_script else torch.jit.script(model)


def from_file(script: Any) -> Any:
    """A script as it comes back from a file."""
    file = io.BytesIO()
    torch.jit.save(script, file)
    file.seek(0)
    return torch.jit.load(file)


def compare(model: Any, *inputs: tuple[Any, ...], dynamic_shapes: Any = None) -> tintype.ExportedProgram:
    """Hold programs against the script; returns the one of the script from a file."""
    script = scripted(model)
    programs = [converted(script, inputs[0], dynamic_shapes)]
    loaded = from_file(script)
    programs.append(converted(loaded, inputs[0], dynamic_shapes))
    modules = [program.module() for program in programs]
    for args in inputs:
        given = copy.deepcopy(args)
        seed = torch.random.get_rng_state()
        expected = script(*given)
        for module in modules:
            torch.random.set_rng_state(seed)
            own = copy.deepcopy(args)
            assert_same(opened(module(*own)), opened(expected))
            assert_same(own, given)
    return programs[1]


def opened(value: Any) -> Any:
    """A value with named tuples written out: torch makes a class anew for each that a script returns."""
    if isinstance(value, tuple):
        items = tuple(opened(item) for item in value)
        return (type(value).__name__, value._fields, items) if hasattr(value, "_fields") else items
    if isinstance(value, list):
        return [opened(item) for item in value]
    return {key: opened(item) for key, item in value.items()} if isinstance(value, dict) else value


def converted(script: Any, args: tuple[Any, ...], dynamic_shapes: Any = None) -> tintype.ExportedProgram:
    program = tintype.interop.from_torchscript(script, args, dynamic_shapes=dynamic_shapes)
    program.validate()
    return program
