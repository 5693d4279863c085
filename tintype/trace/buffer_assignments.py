"""``self.buffer = tensor`` in a program: the module's buffer gets the tensor's value when the program ends.

In eager mode the module holds another tensor from then on, and the old one is the program's alone. A captured
program keeps the module's tensors and copies into them, so whatever else still has the old tensor - a result, or
the new value of another buffer - gets a copy of its own first.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import torch
from torch.fx import Graph, Node

from tintype.fake.context import FakeContext
from tintype.fake.info import Storage, TensorInfo, preserved_strides
from tintype.fake.tensor import FakeTensor, make_fake
from tintype.ir.graph import append_call, meta_of, output_node
from tintype.ir.node_info import NodeMeta
from tintype.ir.signature import StateWrite
from tintype.trace.snapshot import Change
from tintype.trace.state import ModelState
from tintype.tree.subclasses import wrappers

aten = torch.ops.aten

# marks the copy of such a node, in the training stage, with the name of the buffer that it stands for replacing
REPLACES = "replaces"


def assign_buffers(graph: Graph, context: FakeContext, assigned: list[tuple[str, FakeTensor, FakeTensor]]) -> None:
    """Record the assignments of (name, buffer, new value), all at once, at the end of a graph."""
    output = output_node(graph)
    storages = {buffer.info.storage for _, buffer, _ in assigned}
    copies: dict[Node, Node] = {}

    def apart(node: Node) -> Node:
        info = _info_of(node)
        if info is None or not _may_lie_in(info.storage, storages):
            return node
        if node not in copies:
            copies[node] = _clone(graph, context, node, info)
        return copies[node]

    with graph.inserting_before(output):
        results = torch.fx.node.map_arg(output.args[0], apart)
        values = [apart(value.node) for _, _, value in assigned]
        for (name, buffer, _), value in zip(assigned, values, strict=True):
            meta = NodeMeta({"val": buffer, REPLACES: name}, meta_of(value).origin)
            append_call(graph, aten.copy_.default, (buffer.node, value), {}, "copy_", meta)
            _mark_written(buffer.info.storage)
    output.args = (results,)


class NamesThatStay:
    """The names in a model of what keeps the tensor, or memory of the tensor, of a buffer that is replaced."""

    def __init__(
        self, changes: Iterable[Change], modules: Iterable[tuple[str, torch.nn.Module]], state: ModelState
    ) -> None:
        self._given = changes, modules
        self._state = state

    @functools.cached_property
    def _changes(self) -> dict[int, list[Change]]:
        """All changes by what they replace."""
        found: dict[int, list[Change]] = {}
        for change in self._given[0]:
            found.setdefault(id(change.before), []).append(change)
        return found

    @functools.cached_property
    def _paths(self) -> dict[int, list[str]]:
        """The paths of modules, and of tensors that consist of others, by what holds their attributes."""
        found: dict[int, list[str]] = {}
        for name, tensor in self._state.wrapped.items():
            for path, whole in wrappers(tensor, name):
                found.setdefault(id(whole), []).append(path)
        for path, module in self._given[1]:
            for owner in (module, module._buffers):
                found.setdefault(id(owner), []).append(path)
        return found

    @functools.cached_property
    def _in_memory(self) -> dict[int, list[tuple[str, torch.Tensor]]]:
        """The model's tensors by the memory that they are in."""
        found: dict[int, list[tuple[str, torch.Tensor]]] = {}
        for name, (_, tensor, _) in self._state.names.items():
            found.setdefault(tensor.untyped_storage()._cdata, []).append((name, tensor))
        return found

    def of(self, change: Change) -> list[str]:
        """Those for one of the changes."""
        buffer = change.before
        assigned = {
            f"{path}.{other.name}" if path else other.name
            for other in self._changes[id(buffer)]
            if other.after is change.after
            for path in self._paths.get(id(other.owner), ())
        }
        near = self._in_memory.get(buffer.untyped_storage()._cdata, ())
        names = [name for name, tensor in near if tensor is buffer or _overlap(tensor, buffer)]
        return [name for name in [*names, *self._state.attribute_names(buffer)] if name not in assigned]


def _overlap(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two tensors of one memory may have parts of it in common, as far as the places say where they begin and
    end."""
    if first.is_meta:
        return False
    (begin, end), (other_begin, other_end) = _span(first), _span(second)
    return begin < other_end and other_begin < end


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    if tensor.numel() == 0:
        return 0, 0
    begin = int(tensor.storage_offset()) * tensor.element_size()
    reach = sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
    return begin, begin + (reach + 1) * tensor.element_size()


def replaced_buffers(graph: Graph) -> dict[str, StateWrite]:
    """How buffers that a graph of the training stage replaces get their new values, by the names of its inputs."""
    copies = graph.find_nodes(op="call_function", target=aten.copy_.default)
    return {str(node.args[0]): StateWrite.REPLACED for node in copies if REPLACES in node.meta}


def _clone(graph: Graph, context: FakeContext, node: Node, info: TensorInfo) -> Node:
    strides = preserved_strides(info.sizes, info.strides)
    copy = TensorInfo(info.sizes, strides, info.dtype, info.device, requires_grad=info.requires_grad)
    meta = NodeMeta({"val": make_fake(copy, context)}, meta_of(node).origin)
    return append_call(graph, aten.clone.default, (node,), {}, "clone", meta)


def _may_lie_in(storage: Storage | None, storages: set[Any]) -> bool:
    """Whether memory is one of some, or may be: a branch or a loop decides what its result is."""
    if storage is None or storage in storages:
        return storage is not None
    return any(_may_lie_in(source, storages) for source in storage.sources)


def _info_of(node: Node) -> TensorInfo | None:
    value = node.meta.get("val")
    return value.info if type(value) is FakeTensor else None


def _mark_written(storage: Storage | None) -> None:
    if storage is not None:
        storage.written = True
