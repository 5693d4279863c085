"""``split``: a program as stages, one module after the other, as ``torch.distributed.pipelining`` runs them.

The flat graph is cut before the first operator of each of the given modules. A stage takes the tensors that it or a
later stage needs of those before, and hands on what later ones need; so each stage talks to its neighbours alone. It
holds the state that it uses and no other. Arithmetic on sizes is done again in every stage that needs it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from tintype import tree
from tintype.errors import InvalidRequestError
from tintype.export.codegen import Writer
from tintype.export.module import attach_state
from tintype.export.module_tree import StructuredModule, UnflattenedModule, find_module
from tintype.export.own_attributes import tables_of
from tintype.export.owned_state import OwnedState, replace_state
from tintype.export.program import ExportedProgram
from tintype.export.unflatten import is_derived, use_what_is_written, write_where_computed
from tintype.export.unlifting import unlift_values
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import add_placeholder, meta_of, output_node, placeholders, subgraph_at
from tintype.ir.node_info import NodeMeta
from tintype.ir.process_switches import collector_paused
from tintype.ir.signature import OutputKind
from tintype.symbolic.bridge import from_torch

aten = torch.ops.aten


class StageModule(UnflattenedModule):
    """One stage of a program: a module with the state that it uses, under the names that the model has for it."""

    def _write_inputs(self, writer: Writer, inputs: list[Node]) -> str:
        if self._checks is None:  # what comes from the stage before
            return StructuredModule._write_inputs(self, writer, inputs)
        return super()._write_inputs(writer, inputs)

    def _state_of(self, name: str) -> torch.Tensor:
        # the checks of inputs compare their memory with state; that of other stages is elsewhere
        path, _, attribute = name.rpartition(".")
        owner = find_module(self, path)
        is_here = owner is not None and any(attribute in table for table in tables_of(owner))
        return super()._state_of(name) if is_here else torch.empty(0)


def split(program: ExportedProgram, at: Sequence[str]) -> list[StageModule]:
    """The program as stages that run one after the other; each of the modules named in ``at`` begins a new one.

    The first stage takes the program's arguments, others take what the one before returns: a tensor, or a tuple. The
    last one returns the program's result, a tuple of tensors where the model returns another container. Stages are
    trained as modules are; ``torch.distributed.pipelining``'s schedules run them.

    >>> import torch, tintype
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    >>> x = torch.ones(5, 3)
    >>> first, second = tintype.split(tintype.export(model, (x,)), at=["2"])
    >>> list(first.state_dict()), list(second.state_dict())
    (['0.weight', '0.bias'], ['2.weight', '2.bias'])
    >>> torch.equal(second(first(x)), model(x))
    True
    """
    if not isinstance(program, ExportedProgram):
        raise InvalidRequestError(
            f"split takes an ExportedProgram, but got a {type(program).__name__}",
            remedy="export the model first: tintype.split(tintype.export(model, args), at=[...])",
        )
    if isinstance(at, str) or not all(isinstance(path, str) for path in at):
        raise InvalidRequestError(
            f"at is a list of names of modules, but got {at!r:.200}", remedy="write at=['layers.4', 'layers.8']"
        )
    with collector_paused():
        return _Splitting(program, list(at)).run()


class _Splitting:
    """One run: the flat graph, and in which stage each of its nodes is."""

    def __init__(self, program: ExportedProgram, at: list[str]) -> None:
        _refuse_writes(program)
        self.program = program
        self.count = len(at) + 1
        self.flat, _, writes = unlift_values(program)
        use_what_is_written(self.flat)
        write_where_computed(self.flat, writes)
        self.homes = _homes(self.flat, _starts(self.flat, at))
        # what each stage takes of its own accord: values of other stages, and state by name
        self.needed: list[dict[Node, None]] = [{} for _ in range(self.count)]
        self.state_used: list[dict[str, None]] = [{} for _ in range(self.count)]

    def run(self) -> list[StageModule]:
        for node in self.flat.nodes:
            if node.op == "output":
                self._need(self.count - 1, node.all_input_nodes)
            elif node in self.homes and node.op == "call_function":
                self._need(self.homes[node], node.all_input_nodes)
        self._refuse_shared_state()
        # what comes into each stage, in the order of the graph: what it or a later one needs of earlier ones
        order = {node: position for position, node in enumerate(self.flat.nodes)}
        coming: list[list[Node]] = []
        for number in range(self.count):
            later = {value for needed in self.needed[number:] for value in needed if self._home(value) < number}
            coming.append(sorted(later, key=order.__getitem__))
        coming[0] = placeholders(self.flat)
        owned = OwnedState(self.program.written_tensors())
        state = self.program._module_state(owned)
        places = self._places_of_state(state)
        return [
            self._stage(number, coming[number], coming[number + 1] if number + 1 < self.count else None,
                        {name: value for name, value in state.items() if number in places[name]})
            for number in range(self.count)
        ]  # fmt: skip

    def _home(self, node: Node) -> int:
        return self.homes.get(node, -1)

    def _need(self, stage: int, values: Iterable[Node]) -> None:
        """Note what a stage needs for a node."""
        for value in values:
            if value.op == "get_attr":
                self.state_used[stage][str(value.target)] = None
            elif is_derived(value) and value.target not in (aten.sym_size.int,):
                self._need(stage, value.all_input_nodes)
            elif is_derived(value):
                self._need(stage, [self._tensor_with_size(stage, value)[0]])
            elif self._home(value) != stage:
                self._refuse_number(value)
                self.needed[stage][value] = None

    def _tensor_with_size(self, stage: int, size: Node) -> tuple[Node, int]:
        """A tensor that a stage has anyway and that has a size, with its dimension; else the one that was asked."""
        asked: Any = size.args
        if self._home(asked[0]) == stage:
            return asked
        expression = from_torch(size.meta["val"])
        for value in self.needed[stage]:
            fake = value.meta.get("val")
            if type(fake) is FakeTensor and expression in fake.info.sizes:
                return value, fake.info.sizes.index(expression)
        return asked

    def _refuse_number(self, value: Node) -> None:
        if not isinstance(value.meta.get("val"), torch.Tensor):
            raise InvalidRequestError(
                f"the value {value.name} is no tensor, and a later stage needs it: stages hand tensors on",
                remedy="cut the program elsewhere",
            )

    def _refuse_shared_state(self) -> None:
        """A parameter that two stages train would have half of its gradient in each."""
        stages: dict[int, list[int]] = {}
        values = {**self.program.state_dict, **self.program.constants}
        written = {id(value) for value in self.program.written_tensors()}
        for number, names in enumerate(self.state_used):
            for name in names:
                value = values.get(name)
                if not isinstance(value, torch.Tensor):
                    continue
                used = stages.setdefault(id(value), [])
                if used and number not in used and (value.requires_grad or id(value) in written):
                    what = "trained" if value.requires_grad else "written to"
                    raise InvalidRequestError(
                        f"{name!r} is used by stages {used[0]} and {number}, and is {what}: each would have a copy",
                        remedy="cut the program elsewhere, or let the model have two of it; a parameter that is not "
                        "trained (requires_grad_(False)) may be in several stages",
                    )
                used.append(number)

    def _places_of_state(self, state: dict[str, Any]) -> dict[str, set[int]]:
        """The stages that hold each tensor: those that use it, under this or another name; else the stage that has
        more of the same module."""
        by_value: dict[int, set[int]] = {}
        by_owner: dict[str, int] = {}
        for number, names in enumerate(self.state_used):
            for name in names:
                if name in state:
                    by_value.setdefault(id(state[name][0]), set()).add(number)
                    by_owner.setdefault(name.rpartition(".")[0], number)
        return {
            name: by_value.get(id(value), {by_owner.get(name.rpartition(".")[0], 0)})
            for name, (value, _) in state.items()
        }

    # --- the modules ---------------------------------------------------------------------------------------

    def _stage(
        self, number: int, coming: list[Node], leaving: list[Node] | None, state: dict[str, Any]
    ) -> StageModule:
        graph, values = Graph(), {}
        for node in coming:
            values[node] = add_placeholder(graph, node.name)
            values[node].meta = meta_of(node).copy()
        for node in self.flat.nodes:
            if node.op == "call_function" and self._home(node) == number:
                self._copy(graph, values, node, number)
        results: Any = output_node(self.flat).args[0] if leaving is None else tuple(leaving)
        graph.output(tuple(self._result(graph, values, result, number) for result in results))
        module = self._module(number, coming, leaving)
        module.adopt(graph)
        attach_state(module, state)
        module._constants = [name for name, (_, kind) in state.items() if kind == "constant"]
        for node in graph.find_nodes(op="get_attr"):
            if subgraph_at(node) is not None:
                module._modules[str(node.target)] = self.program.graph_module._modules[str(node.target)]
        return module

    def _copy(self, graph: Graph, values: dict[Node, Node], node: Node, number: int) -> Node:
        """A node in the graph of a stage, after what it takes."""
        if node in values:
            return values[node]
        if node.target is aten.sym_size.int:
            tensor, dimension = self._tensor_with_size(number, node)
            arguments = (self._copy(graph, values, tensor, number), dimension)
            made = graph.create_node("call_function", aten.sym_size.int, arguments, name=node.name)
            made.meta = meta_of(node).copy()
        else:
            for value in node.all_input_nodes:
                self._copy(graph, values, value, number)
            made = graph.node_copy(node, values.__getitem__)
        values[node] = made
        return made

    def _result(self, graph: Graph, values: dict[Node, Node], result: Any, number: int) -> Any:
        if not isinstance(result, Node):
            return result
        value = self._copy(graph, values, result, number)
        if value.op != "placeholder" or not isinstance(value.meta.get("val"), torch.Tensor):
            return value
        # what only passes through is another tensor to autograd, which stages are trained with
        alias = graph.create_node("call_function", aten.alias.default, (value,), name="passed_on")
        alias.meta = NodeMeta({"val": value.meta["val"]}, meta_of(value).origin)
        return alias

    def _module(self, number: int, coming: list[Node], leaving: list[Node] | None) -> StageModule:
        spec = self.program.call_spec
        if leaving is None:
            leaves = [0] * spec.out_spec.num_leaves
            is_plain = spec.out_spec.is_leaf() or spec.out_spec.type is tuple
            out_spec = spec.out_spec if is_plain else tree.flatten(tuple(leaves))[1]
        else:
            out_spec = tree.flatten(0 if len(leaving) == 1 else (0,) * len(leaving))[1]
        checks: Any = None
        if number == 0:
            checks, names, in_spec = self.program.input_checks(), self.program.argument_names, spec.in_spec
        else:
            names = [node.name for node in coming]
            in_spec = tree.flatten(((0,) * len(coming), {}))[1]
        return StageModule(in_spec, out_spec, names, checks, ())


def _refuse_writes(program: ExportedProgram) -> None:
    for spec in program.graph_signature.output_specs:
        if spec.kind is OutputKind.USER_INPUT_MUTATION:
            raise InvalidRequestError(
                f"the program writes to its input {spec.target!r}, which may be in another process",
                remedy="let the model return the new value",
            )


def _starts(graph: Graph, at: list[str]) -> list[Node]:
    """The node that each stage but the first begins with."""
    first: dict[str, tuple[int, Node]] = {}
    for position, node in enumerate(graph.nodes):
        if node.target is replace_state:
            raise InvalidRequestError(
                f"the program puts another tensor in the place of the buffer {node.args[0]!r}, which stages can't",
                remedy="let the model write to the buffer: self.buffer.copy_(value)",
            )
        origin = meta_of(node).origin
        call = None if origin is None or node.op != "call_function" or is_derived(node) else origin.call
        while call is not None:
            first.setdefault(call.path, (position, node))
            call = call.parent
    found: list[tuple[int, Node]] = []
    for path in at:
        if path not in first:
            known = ", ".join([repr(name) for name in first if name][:8])
            raise InvalidRequestError(
                f"the program calls no module {path!r}, or that computes nothing",
                remedy=f"name modules that it calls: {known}",
            )
        if found and first[path][0] <= found[-1][0]:
            raise InvalidRequestError(
                f"{path!r} does not begin after {at[len(found) - 1]!r}",
                remedy="name modules in the order in which the model calls them",
            )
        found.append(first[path])
    return [node for _, node in found]


def _homes(graph: Graph, starts: list[Node]) -> dict[Node, int]:
    """The stage of every call; what selects from a result is where that is."""
    homes: dict[Node, int] = {}
    stage = 0
    for node in graph.nodes:
        if stage < len(starts) and node is starts[stage]:
            stage += 1
        if node.op == "call_function" and not is_derived(node):
            source = node.args[0] if node.target is operator.getitem else None
            homes[node] = homes.get(source, stage) if isinstance(source, Node) else stage
    return homes
