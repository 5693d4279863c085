"""Modules of TorchScript inside of a model of Python: while the model is captured, mirrors of them stand in its tree,
and run their methods as those of a script that is captured by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from tintype.interop.torchscript.conversion import Entry
from tintype.interop.torchscript.interpreter import Interpreter
from tintype.interop.torchscript.mirror import Mirror


@contextmanager
def scripts_as_modules(root: torch.nn.Module) -> Iterator[None]:
    """Let mirrors stand for the scripts in a model's tree; the tree is as it was afterwards."""
    interpreter = Interpreter()
    entries: dict[tuple[int, str], Entry] = {}

    def called(mirror: Mirror, name: str) -> Callable[..., Any]:
        key = (id(mirror), name)
        if key not in entries:
            entries[key] = Entry.of_method(interpreter, mirror, name, is_call=name == "forward")
        return entries[key].function()

    interpreter.from_outside = called
    places = list(_scripts(root))
    for table, name, script in places:
        table[name] = interpreter.mirroring.of(script._c)
    try:
        # what calls write to is state of the program from the beginning
        for mirror in list(interpreter.mirroring.mirrors.values()):
            for name in mirror.script._method_names():
                Entry.of_method(interpreter, mirror, name, is_call=False).keep_written()
        yield
    finally:
        for table, name, script in places:
            table[name] = script


def _scripts(root: torch.nn.Module) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """Where scripts are in the tables of a model's modules."""
    seen: set[int] = set()
    work = [root]
    while work:
        module = work.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        for name, child in module._modules.items():
            if isinstance(child, torch.jit.ScriptModule):
                yield module._modules, name, child
            elif child is not None:
                work.append(child)
