"""What a capture gives: a recorded graph with everything a program is made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph

from tintype import tree
from tintype.errors import StateChangedError
from tintype.fake.context import FakeContext
from tintype.ir.observations import Observation
from tintype.ir.signature import InputSpec, OutputSpec, StateWrite
from tintype.trace.findings import Finding
from tintype.trace.recorder import Conversion
from tintype.trace.snapshot import Change


@dataclasses.dataclass
class CapturedGraph:
    """A recorded graph with everything a program is made of."""

    graph: Graph
    context: FakeContext
    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]
    in_spec: tree.TreeSpec
    out_spec: tree.TreeSpec
    argument_names: list[str]
    state_dict: dict[str, torch.Tensor]
    constants: dict[str, Any]
    # every path of every module, with the one that the program knows it by
    module_paths: dict[str, str]
    # the names of the root's own children; not those of the graphs in a program that was captured again
    children: frozenset[str]
    # inputs that get their new value in another way than by a write that autograd sees
    state_writes: dict[str, StateWrite]
    # conversions that changed nothing; what they become depends on the stage
    conversions: list[Conversion]
    observations: list[Observation]
    # plain attributes that the program changed, and how to tell of them
    plain_changes: list[Change]
    # tensors that it put where a program can't keep them, and the errors for that
    kept: list[tuple[Change, StateChangedError]]
    # numbers and texts outside of the model (globals, closures, attributes of classes) that it changed; put back
    outside_changes: list[Change]
    describe_change: Callable[[Change], str]
    # where objects that were given stand among the results
    returned: list[tuple[tree.Path, tree.Path]]
    # which of the containers that were given are one object, and the order of their attributes, where it matters
    of_containers: list[Observation] = dataclasses.field(default_factory=list)
    # what the program does besides computing; None where nobody has looked
    findings: list[Finding] | None = None
