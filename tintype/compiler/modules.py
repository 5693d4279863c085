"""Compiled modules: objects that are the module in everything but how they are called."""

from __future__ import annotations

import copy
import os
from typing import Any

import torch

from tintype.compiler.compiled import Engine, Options
from tintype.compiler.explaining import Explanation


class CompiledModule(torch.nn.Module):
    """The part that the classes of compiled modules have in common.

    A compiled module has the very dictionary of the module that it was made of: parameters, buffers, submodules,
    hooks and flags are the same, whichever of the two is asked or changed. Its class is a class of the module's own.
    """

    is_compiled_by_tintype = True
    _tintype_engine: Engine

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._tintype_engine.run(args, kwargs)

    @property
    def original(self) -> torch.nn.Module:
        """The module that was compiled."""
        module: Any = self._tintype_engine.function
        return module

    def __copy__(self) -> Any:
        return compile_module(copy.copy(self.original), self._tintype_engine.options)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return compile_module, (self.original, self._tintype_engine.options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all runs that are known into a file, for :func:`tintype.compile.load`."""
        self._tintype_engine.save(path)

    def contract(self) -> str:
        """What calls have to be like to need no other capture, run by run."""
        return self._tintype_engine.contract()

    def explain(self) -> Explanation:
        """What became of the calls so far: graphs, breaks, captures, each with its line and its reason."""
        return self._tintype_engine.explain()


def compiled_class(kind: Any) -> type:
    """The class of compiled modules of a class; the one that is there, as long as it has objects."""
    for known in type.__subclasses__(kind):
        if known.__bases__ == (CompiledModule, kind):
            return known
    members = {"__slots__": ("_tintype_engine",), "__module__": kind.__module__, "__doc__": kind.__doc__}
    return type(f"Compiled{kind.__name__}", (CompiledModule, kind), members)


def compile_module(module: torch.nn.Module, options: Options) -> torch.nn.Module:
    """A module whose calls are compiled."""
    of: Any = type(module)
    kind = compiled_class(of)
    compiled: Any = object.__new__(kind)
    compiled.__dict__ = module.__dict__
    object.__setattr__(compiled, "_tintype_engine", Engine(module, options))
    return compiled
