"""From a program's graph, which computes and changes nothing, to a module's, which has state and writes to it.

State is fetched from the module instead of being given; new values are copied at the end into what they belong to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.fx import Graph, Node

from tintype.export.owned_state import (
    replace_state,
    strided_from,
    value_before_write,
    write_to_input,
    write_untracked,
)
from tintype.export.stage import Stage
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import add_placeholder, meta_of, output_node, placeholders
from tintype.ir.names import free_name, identifier
from tintype.ir.operators import OPERATORS
from tintype.ir.process_switches import collector_paused
from tintype.ir.signature import (
    MUTATION_KINDS,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    StateWrite,
    belongs_to_user_input,
    positions_of_inputs,
)
from tintype.trace.buffer_assignments import REPLACES
from tintype.transforms.layouts import take_any_layout
from tintype.transforms.rebasing import chain_of_views, make_again
from tintype.transforms.views import base_of

if TYPE_CHECKING:
    from tintype.export.program import ExportedProgram

aten = torch.ops.aten


def unlift(program: ExportedProgram) -> Graph:
    """A copy of a program's graph that fetches state from the module and writes new values back to it."""
    return unlift_values(program).graph


class Unlifted(NamedTuple):
    """A graph that fetches its state, the node that stands there for each node of the program's graph, and those that
    write new values back, which the program's graph does not have."""

    graph: Graph
    values: dict[Node, Node]
    writes: set[Node]


def unlift_values(program: ExportedProgram) -> Unlifted:
    """The same, with what stands for what."""
    with collector_paused():
        return _unlift(program)


def _unlift(program: ExportedProgram) -> Unlifted:
    values: dict[Node, Node] = {}
    signature = program.graph_signature
    old = program.graph
    graph = Graph()
    written = signature.written_state
    inputs = list(zip(placeholders(old), signature.input_specs, strict=True))
    # user inputs first: state is fetched after them
    inputs.sort(key=lambda pair: pair[1].kind is not InputKind.USER_INPUT)
    for node, spec in inputs:
        if spec.kind is InputKind.USER_INPUT:
            new = add_placeholder(graph, node.name)
        else:
            assert spec.target is not None
            if not node.users and spec.target not in written:
                continue
            name = free_name(identifier(spec.target), graph._graph_namespace._used_names)
            new = graph.create_node("get_attr", spec.target, name=name)
        new.meta = meta_of(node).copy()
        values[node] = new
    targets = _read_before_written(graph, inputs, signature, values)
    for node in old.nodes:
        if node.op in ("placeholder", "output"):
            continue
        replaced = node.meta.get(REPLACES)
        if replaced is not None and node.target is aten.copy_.default:
            arguments = (replaced, values[node.args[1]])
            values[node] = graph.create_node("call_function", replace_state, arguments, name="replace_state")
            values[node].meta = meta_of(node).copy()
        elif node.target is aten._assert_tensor_metadata.default:
            # of the caller's tensor, not of a copy that may lie otherwise in memory
            graph.node_copy(node, lambda argument: targets.get(argument, values[argument]))
        else:
            values[node] = graph.node_copy(node, values.__getitem__)
    writes = _write_back(graph, old, program, values, targets)
    if program.stage is not Stage.TRAINING:
        take_any_layout(graph, signature.output_specs)
    return Unlifted(graph, values, writes)


def _read_before_written(
    graph: Graph,
    inputs: Sequence[tuple[Node, InputSpec]],
    signature: ExportGraphSignature,
    values: dict[Node, Node],
) -> dict[Node, Node]:
    """Let inputs and buffers that are written to be read as :func:`value_before_write`; returns them themselves."""
    written = {
        (belongs_to_user_input(spec), spec.target)
        for spec in signature.output_specs
        if spec.kind in (OutputKind.USER_INPUT_MUTATION, OutputKind.BUFFER_MUTATION)
        and spec.write in (StateWrite.IN_PLACE, StateWrite.DETACHED)
    }
    if not written:
        return {}
    others = [values[node] for node, _ in inputs if node in values and _may_have_gradients(node)]
    targets: dict[Node, Node] = {}
    for node, spec in inputs:
        is_input = spec.kind is InputKind.USER_INPUT
        if (is_input, spec.arg.name if is_input else spec.target) not in written:
            continue
        if not _may_have_gradients(node) and not _is_given_to_functions(node):
            continue
        if not (saved := _may_be_saved(node)) and not is_input:
            continue
        target = targets[node] = values[node]
        read = (target, *(other for other in others if other is not target)) if saved else (target,)
        values[node] = graph.create_node("call_function", value_before_write, read, name="before")
        values[node].meta = meta_of(node).copy()
    return targets


def _is_given_to_functions(node: Node) -> bool:
    """Whether functions of an operator get a value: of a branch, one may write to it, and the other keep it for a
    gradient."""
    return any(user.target in OPERATORS for user in node.users)


def _may_be_saved(node: Node) -> bool:
    """Whether autograd may keep a value, or a view of it, for the gradients of what it is combined with."""
    waiting = [node]
    while waiting:
        for user in waiting.pop().users:
            if base_of(user) is not None:
                waiting.append(user)
            elif user.op == "call_function" and user.target not in _SAVE_NOTHING:
                return True
    return False


# Operators whose gradients don't need the values that they are given.
_SAVE_NOTHING = frozenset(
    {
        aten.add.Tensor, aten.sub.Tensor, aten.neg.default, aten.add.Scalar, aten.sub.Scalar, aten.clone.default,
        aten.copy.default, aten.fill.Scalar, aten.fill.Tensor, aten.cat.default, aten.stack.default,
        aten.index_put.default, aten.index_copy.default, aten.index_fill.int_Scalar, aten.index_add.default,
        aten.slice_scatter.default, aten.select_scatter.default, aten.diagonal_scatter.default,
        aten.scatter.src, aten.scatter.value, aten.index.Tensor, aten.sum.default, aten.sum.dim_IntList,
        aten._to_copy.default, aten.zeros_like.default, aten._assert_tensor_metadata.default, aten.sym_size.int,
    }
)  # fmt: skip


def _write_back(
    graph: Graph, old: Graph, program: ExportedProgram, values: dict[Node, Node], targets: dict[Node, Node]
) -> set[Node]:
    """Copy new values into what they belong to, and let outputs that alias it come from there; returns the copies."""
    signature = program.graph_signature
    output = output_node(old)
    results = list(output.args[0])  # type: ignore[arg-type]
    inputs = placeholders(old)
    if signature.backward_signature is not None:
        values = _without_history(graph, [result for result in results if result not in inputs], values)
    positions = positions_of_inputs(signature.input_specs)
    rebased: dict[Node, Node] = {}
    writes: set[Node] = set()
    user_results = []
    for result, spec in zip(results, signature.output_specs, strict=True):
        if spec.kind not in MUTATION_KINDS:
            user_results.append(result)
            continue
        assert isinstance(result, Node) and spec.target is not None
        source = inputs[positions[belongs_to_user_input(spec), spec.target]]
        target = targets.get(source, values[source])
        destination = target
        if spec.kind is OutputKind.PARAMETER_MUTATION:
            # the program wrote to it under no_grad(); autograd must not mind that here either
            destination = graph.create_node("call_function", aten.detach.default, (target,), name="detach")
            destination.meta = meta_of(source).copy()
        if spec.write is StateWrite.REPLACED:
            _replace(graph, spec.target, result, values)
            continue
        if spec.write is StateWrite.DETACHED:
            _detach(graph, target)
            if result.target is aten.detach.default and result.args[0] is source:
                rebased.setdefault(result, target)
                continue
        write: Any = aten.copy_.default
        if spec.write is StateWrite.UNTRACKED:
            write = write_untracked
        elif source in targets and spec.kind is OutputKind.USER_INPUT_MUTATION:
            write = write_to_input
        copy_node = graph.create_node("call_function", write, (destination, values[result]), name="copy_")
        copy_node.meta = meta_of(result).copy()
        writes.add(copy_node)
        rebased.setdefault(result, copy_node if destination is target else target)
    final = [
        _rebase(graph, result, values, rebased) if isinstance(result, Node) else result for result in user_results
    ]
    new_output = graph.output(tuple(final))
    new_output.meta = meta_of(output).copy()
    return writes


def _without_history(graph: Graph, results: list[Any], values: dict[Node, Node]) -> dict[Node, Node]:
    """Results of a joint program as the gradients that are among them: computed, and not to be differentiated.

    What the model kept gradients from, and rules of its own for them, are part of the other half of the graph alone:
    autograd, which sees the operators when they run, would find other gradients."""
    cut = dict(values)
    for result in results:
        if isinstance(result, Node) and cut[result] is values[result] and _may_have_gradients(result):
            cut[result] = graph.create_node("call_function", aten.detach.default, (values[result],), name="detach")
            cut[result].meta = meta_of(result).copy()
    return cut


def _replace(graph: Graph, target: str, result: Node, values: dict[Node, Node]) -> None:
    node = graph.create_node("call_function", replace_state, (target, values[result]), name="replace_state")
    node.meta = meta_of(result).copy()


def _detach(graph: Graph, target: Node) -> None:
    node = graph.create_node("call_function", aten.detach_.default, (target,), name="detach_")
    node.meta = meta_of(target).copy()


def _may_have_gradients(node: Node) -> bool:
    """Whether a tensor may require gradients when the program runs, whatever the example's did."""
    value = node.meta.get("val")
    return type(value) is FakeTensor and (value.dtype.is_floating_point or value.dtype.is_complex)


def _rebase(graph: Graph, node: Node, values: dict[Node, Node], rebased: dict[Node, Node]) -> Node:
    """An output as eager mode returns it: where it is a view of a written tensor, the view of that tensor.

    ``rebased`` has what stands for new values, and for their views once they are made.
    """
    chain, base = chain_of_views(node, rebased)
    if base is None:
        return values[node]
    written, recorded = rebased[base], values[base]

    def move(view: Node, new: Node) -> None:
        if len(view.args) == 4:  # else it begins where its base does
            # an input may begin elsewhere in its memory than the example did
            new.target = strided_from
            new.args = (*new.args, written, recorded)

    make_again(graph, chain, rebased, values, move)
    return rebased[node]
