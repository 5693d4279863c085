"""``from_torch``: a ``torch.export.ExportedProgram`` as a program of ours.

torch's graph becomes a module that fetches its state and writes new values back, and that module is captured, node
by node, each keeping the origin that torch recorded for it. So everything is there that our programs know of values.
"""

from __future__ import annotations

import copy
import operator
import re
from collections.abc import Sequence
from typing import Any

import sympy
import torch
import torch.export.graph_signature as their_signature
from torch._higher_order_ops.auto_functionalize import auto_functionalized_v2_dense
from torch.fx import Graph, GraphModule, Node

from tintype import tree
from tintype.errors import ConstraintViolationError, InvalidRequestError, VerificationError
from tintype.export import ExportedProgram, Stage, export, export_for_training, suggest_dynamic_shapes
from tintype.export.call_spec import ModuleCallEntry, ModuleCallSignature
from tintype.export.checks import InputChecks
from tintype.export.dimensions import Dim
from tintype.export.module import ProgramModule
from tintype.export.module_calls import put_signatures
from tintype.export.program import copy_program, verified_copy
from tintype.export.shape_spec import bound_arguments
from tintype.interop.their_guards import TheirGuards
from tintype.ir import signature as ours
from tintype.ir.graph import add_placeholder, output_node, placeholders
from tintype.ir.names import free_name
from tintype.ir.node_info import Frame, ModuleCall, NodeMeta, Origin
from tintype.symbolic.failures import RequirementError
from tintype.symbolic.location import is_internal

aten = torch.ops.aten

_Kind = their_signature.InputKind
_WRITES = (
    their_signature.OutputKind.BUFFER_MUTATION,
    their_signature.OutputKind.PARAMETER_MUTATION,
    their_signature.OutputKind.USER_INPUT_MUTATION,
)


def from_torch(program: torch.export.ExportedProgram) -> ExportedProgram:
    """A program of ours that does what a program of torch.export does.

    Programs of its training dialect become programs of the training stage; others are functional, and of the core
    stage where they only use core operators. State is shared with torch's program.

    >>> import torch, tintype
    >>> theirs = torch.export.export(torch.nn.ReLU(), (torch.ones(2),))
    >>> tintype.interop.from_torch(theirs).module()(torch.tensor([-1.0, 1.0]))
    tensor([0., 1.])
    """
    if not isinstance(program, torch.export.ExportedProgram):
        ours = isinstance(program, ExportedProgram)
        given = "one of tintype's" if ours else f"a {type(program).__name__}"
        raise InvalidRequestError(
            f"from_torch takes a torch.export.ExportedProgram, but got {given}",
            remedy="tintype.interop.to_torch makes a program of torch's of it"
            if ours
            else "export the model with torch.export.export, or with tintype.export directly",
        )
    _check_kinds(program)
    translation = Translation(program)
    module = translation.module()
    args, kwargs = translation.example_inputs()
    shapes = translation.dynamic_shapes(module, args, kwargs)
    capture = export_for_training if program.dialect == "TRAINING" else export
    try:
        result = _captured(capture, module, args, kwargs, shapes)
    except ConstraintViolationError as error:  # torch does not see everything that it relies on
        if error.suggested is None:
            raise
        result = _captured(capture, module, args, kwargs, suggest_dynamic_shapes(error))
    _write_what_was_written(result)
    result = copy_program(
        result,
        result.graph_module,
        example_inputs=program.example_inputs,
        module_call_graph=translation.module_calls(result.module_call_graph),
    )
    return _as_core(result) if result.stage is Stage.FUNCTIONAL else result


def _captured(capture: Any, module: Any, args: Any, kwargs: Any, shapes: Any) -> ExportedProgram:
    try:
        program: ExportedProgram = capture(
            module, args, kwargs, dynamic_shapes=shapes, prefer_deferred_runtime_asserts_over_guards=True
        )
    except RequirementError as error:  # torch records a call that fails if the model's own try statement catches it
        raise InvalidRequestError(
            f"torch's program can't run: {error}",
            location=error.location,
            remedy="export the model with tintype.export, which records what follows a failure that is caught",
        ) from error
    return program


def _write_what_was_written(program: ExportedProgram) -> None:
    """Let new values of state be what torch's program had them be, not copies that our capture made of them."""
    output = output_node(program.graph)
    results: list[Any] = list(output.args[0])  # type: ignore[arg-type]
    specs = program.graph_signature.output_specs
    copies: list[Node] = []
    for position, (result, spec) in enumerate(zip(results, specs, strict=True)):
        if spec.kind is ours.OutputKind.USER_OUTPUT or result.target is not aten.clone.default:
            continue
        if len(result.users) == 1 and results.count(result) == 1 and not result.kwargs:
            copies.append(result)
            results[position] = result.args[0]
            spec.arg = ours.TensorArgument(result.args[0].name)
            if _is_statistic(result.args[0]):
                spec.write = ours.StateWrite.UNTRACKED
    output.args = (tuple(results),)
    for node in copies:
        program.graph.erase_node(node)


def _is_statistic(node: Node) -> bool:
    """Whether a value is a running statistic of batch norm: to autograd its write is none."""
    if node.target is not operator.getitem:
        return False
    source: Any = node.args[0]
    return source.target is aten._native_batch_norm_legit_functional.default and node.args[1] in (3, 4)


def _as_core(program: ExportedProgram) -> ExportedProgram:
    """A program of the core stage, where it keeps the rules of that; torch has no name for it."""
    try:
        return verified_copy(program, program.graph_module, stage=Stage.CORE)
    except VerificationError:
        return program


def _check_kinds(program: torch.export.ExportedProgram) -> None:
    for spec in (*program.graph_signature.input_specs, *program.graph_signature.output_specs):
        if spec.kind.name == "TOKEN":
            raise InvalidRequestError(
                f"the program has the token {spec.arg.name!r}: operators with effects can't be taken over",
                remedy="convert the program that torch.export.export returns, before run_decompositions()",
            )
        if spec.kind.name.startswith(("LOSS", "GRADIENT")):
            raise InvalidRequestError(
                "the program computes gradients itself; only forward programs can be taken over",
                remedy="convert the forward program, and differentiate that",
            )


class _GuardChecks(InputChecks):
    """The capture itself looks at the inputs; what is left are the conditions that torch checks."""

    def __init__(self, in_spec: tree.TreeSpec, names: Sequence[str], guards: TheirGuards) -> None:
        super().__init__((), in_spec)
        self._structure = in_spec
        self._names = names
        self._guards = guards

    def check(self, leaves: Sequence[Any], state_of: Any) -> None:
        self._hold(*leaves)

    def write(self, writer: Any, variables: Sequence[str], state_of: str) -> None:
        if self._guards:
            writer.line(f"{writer.bind(self._hold)}({', '.join(variables)})")

    def _hold(self, *leaves: Any) -> None:
        args, kwargs = tree.unflatten(leaves, self._structure)
        arguments = {**dict(zip(self._names, args, strict=False)), **kwargs}
        for root in self._guards.roots - arguments.keys():  # *args and **kwargs have their arguments in them
            taken = sum(name in self._guards.roots for name in self._names[: len(args)])
            arguments[root] = args[taken:] if taken < len(args) else kwargs
        self._guards.hold(arguments, leaves)


class Translation:
    """One program of torch's on its way."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        self.program = program
        self.values: dict[Node, Node] = {}
        self.by_name: dict[str, Node] = {}
        self.graphs = self._graph_names()
        self._calls: dict[tuple[ModuleCall | None, str], ModuleCall] = {}

    # --- the module that is captured -----------------------------------------------------------------------

    def module(self) -> ProgramModule:
        """A module that does what the program does."""
        in_spec, out_spec = self.program.call_spec
        graph = self._graph()
        for node in self.program.graph.nodes:
            if node in self.values:
                self.by_name[node.name] = self.values[node]
        entries = [ModuleCallEntry(e.fqn, _our_signature(e)) for e in self.program.module_call_graph if e.fqn]
        put_signatures(graph, entries, self.by_name)
        names = self._argument_names()
        checks = _GuardChecks(in_spec, names, TheirGuards(self.program._guards_code))
        module = ProgramModule(graph, self._state(), in_spec, out_spec, names, checks)
        for name, child in self.program.graph_module.named_children():
            if isinstance(child, GraphModule):
                module._modules[self.graphs[name]] = _with_tuples(child)
        return module

    def _graph_names(self) -> dict[str, str]:
        """The graphs that operators take, with the names that they get: state has its names already."""
        state = (*self.program.state_dict, *self.program.constants)
        taken = {name.partition(".")[0] for name in state}
        names: dict[str, str] = {}
        for name, child in self.program.graph_module.named_children():
            if isinstance(child, GraphModule):
                names[name] = free_name(name, {*taken, *names.values()})
        return names

    def _argument_names(self) -> list[str]:
        in_spec = self.program.call_spec.in_spec
        args, kwargs = in_spec.children()
        names = list(kwargs.context)
        known = self.program.module_call_graph[0].signature.forward_arg_names
        if known is not None and len(known) == args.num_children + len(names):
            return list(known)
        return [*(f"args_{position}" for position in range(args.num_children)), *names]

    def _state(self) -> dict[str, tuple[Any, str]]:
        state: dict[str, tuple[Any, str]] = {}
        volatile = set(self.program.graph_signature.non_persistent_buffers)
        for name, value in self.program.state_dict.items():
            parameter = isinstance(value, torch.nn.Parameter)
            state[name] = (value, "parameter" if parameter else "buffer")
        for name, value in self.program.constants.items():
            state[name] = (value, "volatile" if name in volatile else "constant")
        return state

    def _graph(self) -> Graph:
        """torch's graph, which takes its state as arguments, as one that fetches it and writes to it."""
        program = self.program
        graph = Graph()
        inputs = list(zip(placeholders(program.graph), program.graph_signature.input_specs, strict=True))
        for node, spec in sorted(inputs, key=lambda pair: pair[1].kind is not _Kind.USER_INPUT):
            if spec.kind is _Kind.USER_INPUT:
                self.values[node] = add_placeholder(graph, node.name, NodeMeta())
            else:
                self.values[node] = graph.create_node("get_attr", spec.target, name=node.name)
                self.values[node].meta = NodeMeta()
        for node in program.graph.nodes:
            if node.op == "call_function":
                self.values[node] = self._call(graph, node)
                self.values[node].meta = NodeMeta(origin=self._origin(node))
            elif node.op == "get_attr":
                target = self.graphs.get(str(node.target), node.target)
                self.values[node] = graph.create_node("get_attr", target, name=node.name)
                self.values[node].meta = NodeMeta()
        self._outputs(graph)
        return graph

    def _call(self, graph: Graph, node: Node) -> Node:
        args = torch.fx.node.map_arg(node.args, self.values.__getitem__)
        kwargs = torch.fx.node.map_arg(node.kwargs, self.values.__getitem__)
        target = _OUR_OPERATORS.get(node.target, node.target)
        return graph.create_node("call_function", target, args, kwargs, name=node.name)

    def _outputs(self, graph: Graph) -> None:
        results: Any = output_node(self.program.graph).args[0]
        inputs = list(zip(placeholders(self.program.graph), self.program.graph_signature.input_specs, strict=True))
        # two kinds of names, which may be the same
        state = {spec.target: self.values[node] for node, spec in inputs if spec.kind is not _Kind.USER_INPUT}
        user = {spec.arg.name: self.values[node] for node, spec in inputs if spec.kind is _Kind.USER_INPUT}
        user_results = []
        for result, spec in zip(results, self.program.graph_signature.output_specs, strict=True):
            value = self.values[result] if isinstance(result, Node) else result
            if spec.kind in _WRITES:
                is_input = spec.kind is their_signature.OutputKind.USER_INPUT_MUTATION
                target = user[str(spec.target)] if is_input else state[spec.target]
                write = graph.create_node("call_function", aten.copy_.default, (target, value))
                write.meta = NodeMeta(origin=self._origin(result))
            else:
                user_results.append(value)
        graph.output(tuple(user_results)).meta = NodeMeta()

    # --- origins -------------------------------------------------------------------------------------------

    def _origin(self, node: Node) -> Origin:
        call: ModuleCall | None = None
        for key, (path, kind) in (node.meta.get("nn_module_stack") or {}).items():
            if path.startswith("_empty"):  # what torch writes where it does not know
                continue
            call = self._module_call(call, key, path, kind)
        function = node.meta.get("torch_fn")
        name = function[0].rpartition("_")[0] if function else None
        origin = Origin(call, _frames(node.meta.get("stack_trace") or ""), name or None)
        if node.meta.get("custom"):  # what users noted on it
            origin.annotations = dict(node.meta["custom"])
        return origin

    def _module_call(self, parent: ModuleCall | None, key: str, path: str, kind: Any) -> ModuleCall:
        base, _, number = path.partition("@")
        number = number or key.partition("@")[2]
        name = f"{base}@{number}" if number and base else base
        call = self._calls.get((parent, name))
        if call is None:
            class_name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
            call = self._calls[parent, name] = ModuleCall(parent, base, name, class_name, ())
        return call

    # --- inputs --------------------------------------------------------------------------------------------

    def _user_inputs(self) -> list[Node]:
        pairs = zip(placeholders(self.program.graph), self.program.graph_signature.input_specs, strict=True)
        return [node for node, spec in pairs if spec.kind is _Kind.USER_INPUT]

    def example_inputs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Inputs to capture the program with: torch's own example, or tensors of the sizes it remembers."""
        if self.program.example_inputs is not None:
            return self.program.example_inputs
        specs = [s for s in self.program.graph_signature.input_specs if s.kind is _Kind.USER_INPUT]
        leaves = [_example(node, spec) for node, spec in zip(self._user_inputs(), specs, strict=True)]
        args, kwargs = tree.unflatten(leaves, self.program.call_spec.in_spec)
        return args, kwargs

    def dynamic_shapes(self, module: ProgramModule, args: Any, kwargs: Any) -> Any:
        """Which sizes vary, and how."""
        dimensions: dict[Any, Dim] = {}
        specs = [self._spec(node, dimensions) for node in self._user_inputs()]
        if all(spec is None for spec in specs):
            return None
        given = tree.unflatten(specs, self.program.call_spec.in_spec)
        return bound_arguments(module, *given)

    def _spec(self, node: Node, dimensions: dict[Any, Dim]) -> Any:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            return self._entries(value, dimensions)
        if isinstance(value, torch.SymInt):
            return self._entry(value.node.expr, dimensions)
        if isinstance(value, torch.SymFloat):
            return Dim.DYNAMIC
        if isinstance(value, torch.SymBool):
            raise InvalidRequestError(
                f"the input {node.name!r} is a truth value that varies, which programs don't take",
                remedy="export with the value fixed, or pass it as a tensor",
            )
        return None

    def _entries(self, value: torch.Tensor, dimensions: dict[Any, Dim]) -> tuple[Any, ...] | None:
        entries = tuple(
            self._entry(size.node.expr, dimensions) if isinstance(size, torch.SymInt) else None
            for size in value.shape
        )
        return entries if any(entry is not None for entry in entries) else None

    def _entry(self, expression: Any, dimensions: dict[Any, Dim]) -> Any:
        if expression.is_Integer:
            return None
        form = _linear(expression)
        if form is None:
            return Dim.AUTO
        symbol, scale, offset = form
        if symbol not in dimensions:
            bounds = self.program.range_constraints.get(symbol)
            lower = _bound(bounds.lower) if bounds is not None else None
            upper = _bound(bounds.upper) if bounds is not None else None
            # 2 is what torch takes for granted of every size, and does not check
            minimum = None if lower is None or lower <= 2 else lower
            dimensions[symbol] = Dim(str(symbol), min=minimum, max=upper)
        return scale * dimensions[symbol] + offset

    # --- afterwards ----------------------------------------------------------------------------------------

    def module_calls(self, captured: list[ModuleCallEntry]) -> list[ModuleCallEntry]:
        """The modules of the original model, as far as torch knows them."""
        known = {entry.fqn: entry for entry in captured}
        graphs = set(self.graphs.values())
        names = [entry.fqn for entry in self.program.module_call_graph]
        names += [entry.fqn for entry in captured if entry.fqn not in names and entry.fqn not in graphs]
        return [known.get(name, ModuleCallEntry(name)) for name in dict.fromkeys(["", *names])]


_STEP = re.compile(r'  File "(.+)", line (\d+), in (.+)(?:\n    (.+))?')


def _frames(text: str) -> tuple[Frame, ...]:
    """The steps of a stack that is written down, innermost first."""
    steps = [
        Frame(name, int(line), function, source, None, is_internal(name))
        for name, line, function, source in _STEP.findall(text)
    ]
    return tuple(reversed(steps))


def _with_tuples(module: GraphModule) -> GraphModule:
    """A copy of a graph that an operator takes in which it and those inside of it return tuples, as ours do."""
    copied = copy.deepcopy(module)
    for inner in copied.modules():
        if isinstance(inner, GraphModule):
            output = output_node(inner.graph)
            if not isinstance(output.args[0], (tuple, list)):
                output.args = ((output.args[0],),)
                inner.recompile()
    return copied


def _our_signature(entry: Any) -> ModuleCallSignature | None:
    signature = entry.signature
    if signature is None:
        return None
    return ModuleCallSignature(
        [_our_argument(argument) for argument in signature.inputs],
        [_our_argument(argument) for argument in signature.outputs],
        signature.in_spec,
        signature.out_spec,
    )


def _our_argument(argument: Any) -> ours.ArgumentSpec:
    kind: Any = getattr(ours, type(argument).__name__)
    values = [argument.name]
    if isinstance(argument, their_signature.ConstantArgument):
        values.append(argument.value)
    elif isinstance(argument, their_signature.CustomObjArgument):
        values.append(argument.class_fqn)
    return kind(*values)


def _auto_functionalized_v2(called: Any, /, **arguments: Any) -> Any:
    """``auto_functionalized`` for arguments that are views of each other: copies and views are recorded."""
    return auto_functionalized_v2_dense(called, None, **arguments)


_OUR_OPERATORS: dict[Any, Any] = {torch.ops.higher_order.auto_functionalized_v2: _auto_functionalized_v2}


def _example(node: Node, spec: Any) -> Any:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return spec.arg.value if isinstance(spec.arg, their_signature.ConstantArgument) else value
    sizes = [_hint(size) for size in value.shape]
    strides = [_hint(stride) for stride in value.stride()]
    return torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device).requires_grad_(
        value.requires_grad
    )


def _hint(number: Any) -> int:
    if not isinstance(number, torch.SymInt):
        return int(number)
    hint = number.node.hint
    return 4 if hint is None else int(hint)


def _linear(expression: Any) -> tuple[Any, int, int] | None:
    """(symbol, factor, offset) of an expression factor * symbol + offset; None for any other."""
    if len(expression.free_symbols) != 1:
        return None
    (symbol,) = expression.free_symbols
    scale, offset = expression.coeff(symbol), expression.subs(symbol, 0)
    if not scale.is_Integer or not offset.is_Integer or sympy.expand(scale * symbol + offset - expression) != 0:
        return None
    return symbol, int(scale), int(offset)


def _bound(limit: Any) -> int | None:
    return int(limit) if isinstance(limit, int) or limit.is_Integer else None


__all__ = ["from_torch"]
