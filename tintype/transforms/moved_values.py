"""Values that lie in memory otherwise than in the program, since something that they depend on was written to."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, Node

from tintype.fake.info import TensorInfo
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import graphs_of, meta_of, set_meta
from tintype.ir.operator_facts import facts_of
from tintype.ir.operators import OPERATORS
from tintype.transforms.emit import evaluate, info_of
from tintype.transforms.handles import alike, moved_fake
from tintype.transforms.layouts import as_reshape, said_view, take_any_layout
from tintype.transforms.views import RECOMPUTE_VIEW, View, laid_out

if TYPE_CHECKING:
    from tintype.transforms.functionalize import Functionalization


aten = torch.ops.aten


def work_out_again(functional: Functionalization, node: Node) -> None:
    """Work the value of a node out again whose arguments have another layout than in the program."""
    old = node.meta.get("val")
    if node.target is operator.getitem:
        several: Any = node.args[0]
        new = several.meta["val"][node.args[1]]
        _move(functional, node, old, new.info if type(new) is FakeTensor else None)
        return
    if not isinstance(node.target, torch._ops.OpOverload) or facts_of(node.target).writes:
        return
    if (
        node.target in RECOMPUTE_VIEW and type(old) is FakeTensor and node not in functional.handles
    ):  # no copy that is written to
        _view_moved(functional, node, old.info)
        return
    new = evaluate(functional.context, node.target, node.args, node.kwargs)
    if type(new) is TensorInfo:
        _move(functional, node, old, new)
    elif isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)):
        _move_several(functional, node, old, new)


def _move(functional: Functionalization, node: Node, old: Any, new: TensorInfo | None) -> None:
    """Note that a node's value has another layout; to the program it is still the same tensor."""
    if new is None or type(old) is not FakeTensor or alike(new, old.info):
        return
    functional.originals.setdefault(node, old.info)
    _describe(functional, node, moved_fake(new, old, functional.context))


def _move_several(functional: Functionalization, node: Node, old: Any, new: Any) -> None:
    pairs = list(zip(old, new, strict=False))
    if any(type(a) is FakeTensor and type(b) is TensorInfo and not alike(a.info, b) for a, b in pairs):
        fakes = [
            moved_fake(b, a, functional.context) if type(a) is FakeTensor and type(b) is TensorInfo else a
            for a, b in pairs
        ]
        _describe(functional, node, tuple(fakes))


def _describe(functional: Functionalization, node: Node, value: Any) -> None:
    set_meta(node, meta_of(node).derived(val=value))
    functional.moved.add(node)


def _view_moved(functional: Functionalization, node: Node, info: TensorInfo) -> None:
    """A view, of something nobody writes to, that depends on how that lies in memory."""
    base: Any = node.args[0]
    wanted = functional.geometry.get(base) or info_of(base)
    assert wanted is not None
    value = View(node, info, wanted).again(functional.emit, base)
    functional.geometry[value] = info
    functional.moved.add(value)
    functional.doubts.note_made_again(node, value)
    node.replace_all_uses_with(value)
    functional.graph.erase_node(node)


def rests_on_layouts(graph: Graph) -> bool:
    """Whether a graph has something that may have to take a value otherwise, if that lies otherwise in memory: a
    ``view`` that the program called, or a graph that an operator calls. Most have not."""
    views = graph.find_nodes(op="call_function", target=aten.view.default, sort=False)
    return any(map(said_view, views)) or bool(graph.find_nodes(op="get_attr", sort=False))


def note_layout(functional: Functionalization, node: Node) -> None:
    """Note that a node's value may lie in memory otherwise than in eager mode, since it depends on the new value of
    something that was written to: that lies there as its operator lays it out, and not as the tensor does that eager
    mode writes to. A ``view`` of it that the program called need not be one then."""
    may_move = functional.may_move
    if not may_move or may_move.isdisjoint(node.all_input_nodes) or functional.layouts.is_certain(node):
        return
    may_move.add(node)
    if node.target is aten.view.default:
        set_meta(node, as_reshape(meta_of(node)))


def let_graphs_take_layouts(functional: Functionalization) -> None:
    """Let the graphs that operators call on such values take them as they lie."""
    may_move = functional.may_move
    for node in functional.graph.nodes if may_move else ():
        if node.target in OPERATORS and not may_move.isdisjoint(node.all_input_nodes):
            _take_any_layout(node)


def _take_any_layout(node: Node) -> None:
    for _, inner in graphs_of(node):
        for view in inner.graph.find_nodes(op="call_function", target=aten.view.default):
            set_meta(view, as_reshape(meta_of(view)))
        take_any_layout(inner.graph)
        for called in inner.graph.nodes:
            if called.target in OPERATORS:
                _take_any_layout(called)


def lay_as_in_program(functional: Functionalization, node: Node, read: dict[Node, Node]) -> None:
    """Give an operator that draws random numbers its arguments as they lie in the program: it draws for elements in
    the order in which they lie in memory. ``read`` has the values of its arguments."""
    laid = {}
    for argument, value in read.items():
        handle = functional.handles.get(argument)
        wanted = handle.info if handle is not None else functional.originals.get(argument)
        laid[value] = value if wanted is None else laid_out(functional.emit, value, wanted)
    node.args = torch.fx.node.map_arg(node.args, lambda value: laid.get(value, value))
    node.kwargs = torch.fx.node.map_arg(node.kwargs, lambda value: laid.get(value, value))
