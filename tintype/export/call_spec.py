"""The structure of calls: of a whole program, and of the modules inside of it."""

from __future__ import annotations

import dataclasses

from tintype import tree
from tintype.ir.signature import ArgumentSpec


@dataclasses.dataclass
class CallSpec:
    """The structure of a program's arguments and results."""

    in_spec: tree.TreeSpec
    out_spec: tree.TreeSpec
    # where objects among the arguments stand among the results: caches that a model adds to and returns
    returned: tuple[tuple[tree.Path, tree.Path], ...] = dataclasses.field(default=(), repr=False)
    # the keyword arguments that may be given by position too, in their order there
    positional: tuple[str, ...] = dataclasses.field(default=(), repr=False, compare=False)


@dataclasses.dataclass
class ModuleCallSignature:
    """What goes into a module and comes out of it."""

    inputs: list[ArgumentSpec]
    outputs: list[ArgumentSpec]
    in_spec: tree.TreeSpec
    out_spec: tree.TreeSpec
    # where containers among the arguments stand among the results
    returned: tuple[tuple[tree.Path, tree.Path], ...] = dataclasses.field(default=(), repr=False)


@dataclasses.dataclass
class ModuleCallEntry:
    """One module of the original model, and its signature where that was preserved.

    A module that is called several times has an entry per preserved call: ``block``, ``block@1``. One that the model
    holds under several names says under which of them the program knows it.
    """

    fqn: str
    signature: ModuleCallSignature | None = None
    same_as: str | None = None
