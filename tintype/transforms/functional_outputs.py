"""What a functional program returns: outputs that share memory as views of one value, and new values of inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.fx import Node

from tintype.errors import raise_all
from tintype.fake.info import Storage
from tintype.ir.graph import output_node
from tintype.ir.signature import InputKind, OutputKind, OutputSpec, StateWrite, TensorArgument
from tintype.transforms import refused_writes
from tintype.transforms.handles import Handle, root_of
from tintype.transforms.views import laid_out, overlaps

if TYPE_CHECKING:
    from tintype.transforms.functionalize import Functionalization

aten = torch.ops.aten

_MUTATION_KINDS = {
    InputKind.USER_INPUT: OutputKind.USER_INPUT_MUTATION,
    InputKind.BUFFER: OutputKind.BUFFER_MUTATION,
    InputKind.PARAMETER: OutputKind.PARAMETER_MUTATION,
}


def expose(functional: Functionalization, output: Node) -> None:
    """Let outputs that share memory with each other or with an input do so as in eager mode: as views of
    one value."""
    by_storage: dict[Storage, dict[Handle, None]] = {}
    for node in output.all_input_nodes:
        handle = functional.handles.get(node)
        if handle is not None and functional.versions[handle.storage]:
            by_storage.setdefault(handle.storage, {})[handle] = None
    for handles in by_storage.values():
        base = root_of(next(iter(handles)))
        if len(handles) == 1 and base.source.op != "placeholder":
            _lay_out(functional, next(iter(handles)))
            continue
        if any(handle.parent is not None for handle in handles):
            value = laid_out(functional.emit, base.value, base.info)
            if value is not base.value:
                functional.give(base, value)
        for handle in handles:
            _derive(functional, handle)


def _lay_out(functional: Functionalization, handle: Handle) -> None:
    """Let a result lie in memory as in eager mode, where it was there before what was written to it."""
    value = functional.read(handle)
    new = laid_out(functional.emit, value, handle.info)
    if new is not value:
        functional.give(handle, new)


def _derive(functional: Functionalization, handle: Handle) -> None:
    """Make a handle's value a view of its base's."""
    chain: list[Handle] = []
    step = handle
    while step.parent is not None:
        chain.append(step)
        step = step.parent
    for step in reversed(chain):
        assert step.parent is not None
        if step.version != functional.versions[step.storage]:
            functional.make_view(step, step.parent.value)
            functional.inherit_doubts(step)
        elif step.viewed is not step.parent.value and not _is_detached(step.parent.value, step.viewed):
            if functional.differentiated and step.view.is_cut and functional.histories.may_exist(step.value):
                functional.problems.append(refused_writes.two_histories(functional.written[step.storage]))
            functional.make_view(step, step.parent.value)


def _is_detached(value: Node, viewed: Node | None) -> bool:
    """Whether a value is what another one became without its history, in the same memory."""
    return viewed is not None and value.target is aten.detach.default and value.args[0] is viewed


def _is_changed(functional: Functionalization, node: Node, handle: Handle) -> bool:
    """Whether the caller finds an input otherwise than it was: with another value, or without its history. State of
    a program's own has none but by a write."""
    if functional.versions[handle.storage] != 0:
        return True
    specs = {spec.arg.name: spec for spec in functional.input_specs}
    is_detached = functional.state_writes.get(node.name) is StateWrite.DETACHED
    return is_detached and specs[node.name].kind is not InputKind.BUFFER


def mutation_outputs(functional: Functionalization) -> list[OutputSpec]:
    """Return the new values of inputs first; their specs."""
    specs: list[OutputSpec] = []
    values: list[Node] = []
    output = output_node(functional.graph)
    functional.emit.at = output
    by_name = {spec.arg.name: spec for spec in functional.input_specs}
    for node in functional.graph.find_nodes(op="placeholder"):
        functional.doubts.note_read(node)  # the caller sees what is in it
        handle = functional.handles.get(node)
        if handle is None or not _is_changed(functional, node, handle):
            continue
        functional.doubts.relied_on.update(handle.doubts)
        spec = by_name[node.name]
        value = functional.read(handle)
        written = functional.written[handle.storage]
        target = spec.arg.name if spec.kind is InputKind.USER_INPUT else spec.target
        if spec.kind not in _MUTATION_KINDS:
            functional.problems.append(refused_writes.written_constant(node, spec, written))
            continue
        if overlaps(handle.info):
            functional.problems.append(refused_writes.written_overlapping_input(node, written))
            continue
        argument = TensorArgument(value.name)
        write = functional.state_writes.get(node.name, StateWrite.IN_PLACE)
        specs.append(OutputSpec(_MUTATION_KINDS[spec.kind], argument, target, write))
        values.append(value)
    raise_all(functional.problems)
    if values:
        output.args = ((*values, *output.args[0]),)  # type: ignore[misc]
    return specs
