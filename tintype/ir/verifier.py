"""What must be true of a program at each of its stages.

Every program is verified before somebody gets it: exported, made by a pass, loaded. So this is fast where all is
well: what a stage says of a kind of call (an operator with so many arguments) is worked out once. A fault is shown
with the nodes around it.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Collection
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from tintype.errors import VerificationError
from tintype.ir.graph import NUMBER_FUNCTIONS, graphs_of, is_pure, output_node, placeholders
from tintype.ir.operator_facts import KEPT_WHOLE, VIEWS_OR_COPIES
from tintype.ir.operators import OPERATORS, Position, declaration_of
from tintype.ir.printing import spell_call
from tintype.ir.signature import (
    STATE_KINDS,
    ConstantArgument,
    ExportGraphSignature,
    OutputKind,
    OutputSpec,
    belongs_to_user_input,
    positions_of_inputs,
)

_CONTEXT = 2


def verify(
    graph_module: GraphModule, signature: ExportGraphSignature, stage: str, state: Collection[str] | None = None
) -> None:
    """Raise a VerificationError unless the program keeps the rules of its stage.

    ``state`` are the names of the tensors and objects that the program has.
    """
    graph = graph_module.graph
    others = _check_structure(graph, stage)
    _check_signature(graph, signature)
    if state is not None:
        _check_state(signature, state)
    _check_calls(others, stage)


# By stage, the kinds of calls that keep its rules whatever their values are, with the operator, which keeps its id.
_ACCEPTED: dict[str, dict[Any, Any]] = {"training": {}, "functional": {}, "core": {}}


def _check_calls(nodes: list[Node], stage: str) -> None:
    """Check those nodes that are not known to keep the rules."""
    accepted = _ACCEPTED[stage]
    check = _CHECKS[stage]
    for node in nodes:
        if node.op != "call_function":
            continue
        if check(node):
            accepted[(id(node.target), len(node._args), *node._kwargs)] = node.target
        for position, subgraph in graphs_of(node):
            _check_subgraph(node, position, subgraph, stage)


def _check_subgraph(call: Node, position: Position, subgraph: GraphModule, stage: str) -> None:
    """The rules hold in the graphs that an operator takes too."""
    others = _check_structure(subgraph.graph, stage)
    shared = OPERATORS[call.target].shared_with(call, position)
    inputs = placeholders(subgraph.graph)
    if len(shared) != len(inputs):
        raise fault(call, f"{call.name!r} gives {len(shared)} values to a graph that takes {len(inputs)}")
    _check_calls(others, stage)


def _check_state(signature: ExportGraphSignature, state: Collection[str]) -> None:
    missing = [
        str(spec.target) for spec in signature.input_specs if spec.kind in STATE_KINDS and spec.target not in state
    ]
    if missing:
        raise VerificationError(f"the program has no value for its state {', '.join(missing)}")


def fault(node: Node, fact: str) -> VerificationError:
    """An error about a node, with those around it."""
    return VerificationError(f"{fact}\n{_neighbourhood(node)}")


def _neighbourhood(node: Node) -> str:
    """The lines around a fault, the line itself marked."""
    nodes = list(node.graph.nodes)
    position = nodes.index(node)
    lines = []
    for other in nodes[max(position - _CONTEXT, 0) : position + _CONTEXT + 1]:
        text = spell_call(other) if other.op == "call_function" else other.op
        lines.append(f"{'->' if other is node else '  '} {other.name} = {text}")
    return "\n".join(lines)


_KINDS_OF_NODES = frozenset({"call_function", "get_attr", "output"})


def _check_structure(graph: Graph, stage: str) -> list[Node]:
    """Values are defined before they are used, names are unique, there is one output at the end. Returns the nodes
    that are no calls of kinds known to keep the rules of the stage: one look at every node is enough."""
    nodes = list(graph.nodes)
    inputs = list(itertools.takewhile(_is_placeholder, nodes))
    accepted = _ACCEPTED[stage]
    others: list[Node] = []
    seen = set(inputs)
    in_order = not any(map(_inputs_of, inputs))
    for node in itertools.islice(nodes, len(inputs), None):
        in_order &= seen.issuperset(node._input_nodes)
        seen.add(node)
        # an operator's own hash is a call of a Python function, and so are node.args and node.kwargs
        names = node._kwargs
        count = len(node._args)
        kind = (id(node.target), count, *names) if names else (id(node.target), count)
        if kind not in accepted or not dict.__contains__(node.meta, "val"):
            others.append(node)
    kinds = set(map(_kind_of, itertools.islice(nodes, len(inputs), None)))
    if not (
        in_order
        and _KINDS_OF_NODES.issuperset(kinds)
        and len(set(map(_name_of, nodes))) == len(nodes)
        and len(graph.find_nodes(op="output", sort=False)) == 1
        and nodes[-1].op == "output"
    ):
        raise _structural_fault(graph)
    return others


_inputs_of, _kind_of, _name_of = map(operator.attrgetter, ("_input_nodes", "op", "name"))


def _is_placeholder(node: Node) -> bool:
    return node.op == "placeholder"


def _structural_fault(graph: Graph) -> VerificationError:
    """What is wrong with the structure of a graph."""
    seen: set[Node] = set()
    calls_began = False
    nodes = list(graph.nodes)
    for node in nodes:
        if not seen.issuperset(node._input_nodes):
            argument = next(argument for argument in node._input_nodes if argument not in seen)
            return fault(node, f"{node.name!r} uses {argument.name!r}, which is not defined before it")
        kind = node.op
        if kind == "placeholder":
            if calls_began:
                return fault(node, f"the input {node.name!r} stands after the first call")
        elif kind in _KINDS_OF_NODES:
            calls_began = True
        else:
            return fault(node, f"a program has no {kind} nodes, but {node.name!r} is one")
        seen.add(node)
    if len({node.name for node in nodes}) != len(seen):
        name, node = _used_twice(graph)
        return fault(node, f"two nodes are called {name!r}")
    return VerificationError("a program's graph has exactly one output node, at its end")


def _used_twice(graph: Graph) -> tuple[str, Node]:
    names: set[str] = set()
    for node in graph.nodes:
        if node.name in names:
            return node.name, node
        names.add(node.name)
    raise AssertionError("every name is used once")


def _check_signature(graph: Graph, signature: ExportGraphSignature) -> None:
    inputs = [node.name for node in placeholders(graph)]
    expected = [spec.arg.name for spec in signature.input_specs]
    if inputs != expected:
        raise VerificationError(f"the graph's inputs are {inputs}, but the signature names {expected}")
    results: Any = output_node(graph).args[0]
    if len(results) != len(signature.output_specs):
        raise VerificationError(
            f"the graph has {len(results)} outputs, but the signature {len(signature.output_specs)}"
        )
    known = positions_of_inputs(signature.input_specs)
    for result, spec in zip(results, signature.output_specs, strict=True):
        name = result.name if isinstance(result, Node) else None
        if isinstance(spec.arg, ConstantArgument):
            if name is not None:
                raise VerificationError(f"the output {name!r} is a constant in the signature")
        elif name != spec.arg.name:
            raise VerificationError(f"the output {name!r} is called {spec.arg.name!r} in the signature")
        if spec.kind is not OutputKind.USER_OUTPUT and spec.kind is not OutputKind.LOSS_OUTPUT:
            _check_target(spec, known)


def _check_target(spec: OutputSpec, known: Collection[tuple[bool, str]]) -> None:
    if spec.kind is not OutputKind.TOKEN and (belongs_to_user_input(spec), str(spec.target)) not in known:
        raise VerificationError(f"an output belongs to {spec.target!r}, which is no input of the program")


def _allowed_function(node: Node) -> bool:
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        return True
    module = getattr(target, "__module__", "") or ""
    return target in NUMBER_FUNCTIONS or target in OPERATORS or module.startswith("tintype.")


def _check_arguments(node: Node) -> None:
    """The arguments of a call are those that its operator has."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return
    arguments = target._schema.arguments
    positional = [argument for argument in arguments if not argument.kwarg_only]
    if len(node.args) > len(positional):
        raise fault(node, f"{target} takes {len(positional)} positional arguments, but gets {len(node.args)}")
    given = {argument.name for argument in positional[: len(node.args)]}
    unknown = [name for name in node.kwargs if name not in {argument.name for argument in arguments}]
    if unknown:
        raise fault(node, f"{target} has no argument {unknown[0]!r}")
    for argument in arguments:
        if argument.name not in given and argument.name not in node.kwargs and not argument.has_default_value():
            raise fault(node, f"{target} needs its argument {argument.name!r}")


def _without_value(node: Node) -> VerificationError:
    return fault(node, f"{node.name!r} does not say what its value is")


def _check_training(node: Node) -> bool:
    """Raise a fault; otherwise whether all calls of this kind are right."""
    if not _allowed_function(node):
        raise fault(node, f"{node.target} is no operator, so it can't be part of a program")
    _check_arguments(node)
    if "val" not in node.meta:
        raise _without_value(node)
    return node.target not in OPERATORS


def _writes_to_something(node: Node) -> bool:
    """Whether an operator that writes has something to write to: the argument may be optional, and a list empty."""
    target: Any = node.target
    for position, argument in enumerate(target._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
            if given is not None and not (isinstance(given, (list, tuple)) and not given):
                return True
    return False


def _check_functional(node: Node) -> bool:
    alike = _check_training(node)
    declaration = declaration_of(node)
    if declaration is not None and declaration.setting is not None:
        raise fault(node, f"{node.target} runs a region in another mode, which a functional program does not have")
    target = node.target
    if isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable and _writes_to_something(node):
        raise fault(node, f"{target} writes to its arguments, which a functional program does not")
    return alike


def _check_core(node: Node) -> bool:
    alike = _check_functional(node)
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return alike
    if (
        target in KEPT_WHOLE
        or target in VIEWS_OR_COPIES
        or torch.Tag.core in target.tags
        or target.namespace != "aten"
    ):
        return alike
    if not torch._C._dispatch_has_kernel_for_dispatch_key(target.name(), "CompositeImplicitAutograd"):
        return alike
    if not _is_query(node) and not _varies(node):
        raise fault(node, f"{target} is composite, so it is not part of core ATen")
    return False


def _varies(node: Node) -> bool:
    """Whether sizes vary: then an operator may have no decomposition that holds for all of them, and it stays."""
    return any(
        isinstance(size, torch.SymInt)
        for argument in (node, *node.all_input_nodes)
        for value in _tensors(argument.meta.get("val"))
        for size in value.shape
    )


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [item for item in value if isinstance(item, torch.Tensor)] if isinstance(value, (list, tuple)) else []


_CHECKS = {"training": _check_training, "functional": _check_functional, "core": _check_core}


def _is_query(node: Node) -> bool:
    return not isinstance(node.meta.get("val"), (torch.Tensor, tuple, list)) or not is_pure(node)
