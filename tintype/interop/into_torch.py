"""``to_torch``: a program as a genuine ``torch.export.ExportedProgram``.

Operators, names and state stay what they are. What is made anew is what torch's tools look at besides: tensors of its
fake mode, numbers of its shape environment, and its own classes for the signature.
"""

from __future__ import annotations

import dataclasses
import operator
import warnings
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch.export.exported_program as theirs
import torch.export.graph_signature as their_signature
from torch._export.verifier import SpecViolationError, TrainingIRVerifier, Verifier
from torch._higher_order_ops.auto_functionalize import can_auto_functionalize
from torch._subclasses.fake_tensor import FakeTensor as TheirFakeTensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.symbolic_shapes import _free_unbacked_symbols_with_path
from torch.fx.passes.shape_prop import _extract_tensor_metadata
from torch.utils import _pytree as pytree

from tintype.errors import InvalidRequestError
from tintype.export import ExportedProgram, Stage
from tintype.export.call_spec import ModuleCallEntry
from tintype.export.owned_state import OwnedState
from tintype.fake.tensor import FakeTensor
from tintype.interop.guards import (
    constant_guards,
    input_source,
    left_out,
    memory_guards,
    observation_guards,
    small_bounds,
)
from tintype.interop.loops import fit_loops
from tintype.interop.numbers import NumberTranslation, value_ranges
from tintype.interop.recurrent import with_loops
from tintype.interop.torch_names import (
    argument_names,
    node_names,
    refuse_keys,
    refuse_state_names,
)
from tintype.ir import signature as ours
from tintype.ir.graph import add_placeholder, is_pure, location_of, meta_of, placeholders
from tintype.ir.node_info import NodeMeta
from tintype.ir.operator_facts import has_effect
from tintype.ops.auto_functionalized import written_names
from tintype.symbolic import Expr, python_source
from tintype.symbolic.bits import bitwise
from tintype.symbolic.bridge import from_torch as our_number
from tintype.symbolic.expression import Symbol
from tintype.transforms.layouts import views_by_layout
from tintype.tree.subclasses import has_parts

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_QUANTIZED = frozenset({torch.qint8, torch.quint8, torch.qint32, torch.quint4x2, torch.quint2x4})
ROOT_KEY = "L__self__"  # what torch calls the root in a node's module stack


def to_torch(program: ExportedProgram) -> torch.export.ExportedProgram:
    """The program as a ``torch.export.ExportedProgram``, which torch's own verifier has accepted.

    State is shared with the program, but for what the program writes to: that is copied. A program of the training
    stage becomes one of torch's training dialect, others are in its functional one.

    >>> import torch, tintype
    >>> program = tintype.export(torch.nn.ReLU(), (torch.ones(2),))
    >>> tintype.interop.to_torch(program).module()(torch.tensor([-1.0, 1.0]))
    tensor([0., 1.])
    """
    if not isinstance(program, ExportedProgram):
        raise InvalidRequestError(
            f"to_torch takes a tintype.ExportedProgram, but got a {type(program).__name__}",
            remedy="export the model with tintype.export",
        )
    if has_parts(program.call_spec.in_spec) or has_parts(program.call_spec.out_spec):
        raise InvalidRequestError(
            "the program takes or returns tensors that consist of others, which torch's program would be given whole",
            remedy="let the model take and return the tensors that they consist of",
        )
    missing = left_out(program)
    if missing:
        warnings.warn(f"torch's modules of this program do less than its own: {'; '.join(missing)}", stacklevel=2)
    translation = Translation(with_loops(program))
    # what torch asks of sizes while tensors are made is no fact about the program: ranges stay what was promised
    with translation.numbers.shape_env.suppress_guards():
        return translation.run()


class Translation:
    """One translation: the fake mode and shape environment that everything in it belongs to."""

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program
        # state that is no parameter of the model's, but a parameter: those of modules in a plain list
        self.parameters = {name for name, value in program.constants.items() if isinstance(value, torch.nn.Parameter)}
        self.names = node_names(program)
        self.numbers = NumberTranslation(program.context.environment, _sizes(program.graph))
        self.mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=self.numbers.shape_env)

    def run(self) -> torch.export.ExportedProgram:
        program = self.program
        refuse_state_names(program)
        refuse_keys(program)
        graph = self.graph(program.graph, self.names)
        attributes = self._subgraphs(program.graph_module, graph)
        self._bind_unbacked(graph)
        # a module of torch's program writes to the program's own state
        owned = OwnedState(program.written_tensors())
        state = {name: owned.own(value) for name, value in (*program.state_dict.items(), *program.constants.items())}
        for name in program.graph_signature.parameters:  # parts of a parameter that consists of several tensors
            if not isinstance(state[name], torch.nn.Parameter):
                state[name] = torch.nn.Parameter(state[name], requires_grad=False)
        verifier = TrainingIRVerifier if program.stage is Stage.TRAINING else Verifier
        translated = _verified(
            root=attributes,
            graph=graph,
            graph_signature=self._signature(program.graph_signature),
            state_dict={name: value for name, value in state.items() if name not in program.constants}
            | {name: state[name] for name in program.constants if name in self.parameters},
            range_constraints=self._range_constraints(graph),
            module_call_graph=[self._module_call(entry) for entry in program.module_call_graph],
            example_inputs=program.example_inputs,
            constants={name: state[name] for name in program.constants if name not in self.parameters},
            verifiers=[verifier],
        )
        translated._guards_code = self._guards()
        return translated

    # --- graphs --------------------------------------------------------------------------------------------

    def graph(self, old: Graph, names: Mapping[str, str] = MappingProxyType({})) -> Graph:
        """A copy of a graph with values and origins that torch understands; ``names`` are new names of inputs."""
        graph = Graph()
        values: dict[Node, Node] = {}
        by_layout: set[Node] = set()
        if self.program.stage is not Stage.TRAINING:
            by_layout.update(views_by_layout(old, self.program.graph_signature.output_specs))
        for node in old.nodes:
            if node.op == "placeholder":
                new = add_placeholder(graph, names.get(node.name, node.name))
            elif node.target is operator.xor:
                new = self._xor(graph, node, values)
            else:
                _check_call(node)
                new = graph.create_node(
                    node.op,
                    torch.ops.aten.reshape.default if node in by_layout else _their_target(node.target),
                    torch.fx.node.map_arg(node.args, values.__getitem__),
                    torch.fx.node.map_arg(_their_kwargs(node), values.__getitem__),
                    name=node.name,
                )
                _keep_effects(node)
            new.meta = self._meta(node)
            values[node] = new
        return graph

    def _xor(self, graph: Graph, node: Node, values: Mapping[Node, Node]) -> Node:
        """``a ^ b`` of numbers, which torch's programs don't have, as ``(a | b) - (a & b)``."""
        args = torch.fx.node.map_arg(node.args, values.__getitem__)
        numbers = [our_number(arg.meta["val"]) if isinstance(arg, Node) else arg for arg in node.args]
        parts = []
        for name, function in (("or", operator.or_), ("and", operator.and_)):
            part = graph.create_node("call_function", function, args, name=f"{node.name}_{name}")
            part.meta = self._meta(node) | {"val": self.numbers.number(bitwise(name, *numbers))}
            parts.append(part)
        return graph.create_node("call_function", operator.sub, tuple(parts), name=node.name)

    def _subgraphs(self, module: GraphModule, graph: Graph) -> dict[str, Any]:
        """The graphs that a graph's operators take, by name."""
        found: dict[str, Any] = {}
        for name, child in module.named_children():
            if isinstance(child, GraphModule):
                inner = self.graph(child.graph)
                found[name] = GraphModule(self._subgraphs(child, inner), inner, type(child).__name__)
        fit_loops(graph, found)
        return found

    def _meta(self, node: Node) -> dict[str, Any]:
        meta = meta_of(node)
        new: dict[str, Any] = {}
        if "val" in meta and node.op != "get_attr":
            value = self.value(meta["val"], node)
            # torch's verifier knows no complex numbers; who looks for the value finds it in the signature
            new["val"] = None if isinstance(value, complex) else value
            if isinstance(value, torch.Tensor):
                new["tensor_meta"] = _extract_tensor_metadata(value)
        if node.op in ("call_function", "get_attr"):
            new["nn_module_stack"] = _their_stack(meta)
            # no source_fn_stack: torch compares what stands there with functions and classes; where there is none,
            # as in its own programs, it goes by torch_fn
            for key in ("stack_trace", "torch_fn", "custom"):
                if key in meta:
                    new[key] = meta[key]
        return new

    def value(self, value: Any, node: Node) -> Any:
        """A node's value in torch's terms."""
        if type(value) is FakeTensor:
            return self._tensor(value, node)
        if isinstance(value, _SYMBOLIC):
            return self.numbers.number(our_number(value))
        if isinstance(value, (list, tuple)):
            return type(value)([self.value(item, node) for item in value])
        if isinstance(value, torch.ScriptObject):
            return their_signature.CustomObjArgument(node.name, value._type().qualified_name())
        return value

    def _tensor(self, fake: FakeTensor, node: Node) -> torch.Tensor:
        info = fake.info
        if info.dtype in _QUANTIZED:
            raise InvalidRequestError(
                f"{node.name} is a tensor of {info.dtype}, which torch's programs can't describe",
                location=location_of(node),
                remedy="keep the program in tintype, or quantize with operators of torch.ops.quantized_decomposed "
                "(torchao's pt2e), which keep plain integers",
            )
        number = self.numbers.number
        # what the mode itself would do, without its dispatch: this is most of a translation's time
        described = torch.empty_strided(
            [number(size) for size in info.sizes],
            [number(stride) for stride in info.strides],
            dtype=info.dtype,
            device="meta",
            requires_grad=info.requires_grad,
        )
        if info.conjugate:
            described = described.conj()
        if info.negative:
            described = torch._neg_view(described)
        return TheirFakeTensor(self.mode, described, info.device)

    def _bind_unbacked(self, graph: Graph) -> None:
        """Say of every number that data decide where it comes from: the first node that has it."""
        pending = set(self.numbers.unbacked)
        for node in graph.nodes:
            value = node.meta.get("val")
            if not pending or value is None or isinstance(value, their_signature.CustomObjArgument):
                continue
            found = _free_unbacked_symbols_with_path(
                value, (), shape_env=self.numbers.shape_env, pending=pending, simplify=True
            )
            if found:
                node.meta["unbacked_bindings"] = found

    def _range_constraints(self, graph: Graph) -> dict[Any, Any]:
        environment = self.program.context.environment
        constraints: dict[Any, Any] = {
            symbol: self.numbers.shape_env.var_to_range[symbol]
            for symbol in (*self.numbers.symbols.values(), *self.numbers.unbacked)
            if symbol in self.numbers.shape_env.var_to_range
        }
        for size in self.program.dynamic_sizes:
            expression = self.numbers.expression(size.expression)
            if not expression.is_Integer and expression not in constraints:
                constraints[expression] = value_ranges(environment.range(size.expression))
        return constraints

    def _guards(self) -> list[str]:
        """Checks that torch itself does not make: of sizes that follow from others (``2*s0 + 1``), of the types of
        numbers, of what the program looked at, and of memory that inputs share."""
        sources: dict[Any, str] = {}
        related: list[tuple[str, Any]] = []
        inputs = zip(placeholders(self.program.graph), self.program.graph_signature.input_specs, strict=True)
        values = [node.meta.get("val") for node, spec in inputs if spec.kind is ours.InputKind.USER_INPUT]
        for position, value in enumerate(values):
            for dimension, size in enumerate(value.info.sizes if type(value) is FakeTensor else ()):
                source = f"{input_source(position)}.size()[{dimension}]"
                if isinstance(size, Symbol):
                    sources.setdefault(size, source)
                elif isinstance(size, Expr):
                    related.append((source, size))
        sizes = [
            f"{source} == {python_source(size, sources)}" for source, size in related if size.symbols <= set(sources)
        ]
        observed = observation_guards(self.program.observations, sources)
        program = self.program
        constants, bounds = constant_guards(program), small_bounds(program)
        return [*sizes, *constants, *bounds, *observed, *memory_guards(program)]

    # --- signatures ----------------------------------------------------------------------------------------

    def _signature(self, signature: ours.ExportGraphSignature) -> their_signature.ExportGraphSignature:
        return their_signature.ExportGraphSignature(
            [
                their_signature.InputSpec(
                    their_signature.InputKind["PARAMETER" if spec.target in self.parameters else spec.kind.name],
                    self._argument(spec.arg),
                    spec.target,
                    spec.persistent,
                )
                for spec in signature.input_specs
            ],
            [
                their_signature.OutputSpec(
                    their_signature.OutputKind[spec.kind.name],
                    self._argument(spec.arg),
                    self.names.get(str(spec.target), spec.target)
                    if ours.belongs_to_user_input(spec)
                    else spec.target,
                )
                for spec in signature.output_specs
            ],
        )

    def _argument(self, argument: ours.ArgumentSpec) -> Any:
        name = self.names.get(argument.name)
        return _their_argument(argument if name is None else dataclasses.replace(argument, name=name))

    def _module_call(self, entry: ModuleCallEntry) -> theirs.ModuleCallEntry:
        signature = entry.signature
        if signature is None:
            return theirs.ModuleCallEntry(entry.fqn)
        return theirs.ModuleCallEntry(
            entry.fqn,
            theirs.ModuleCallSignature(
                # torch leaves those of the root empty: they would have to follow every renaming
                [self._argument(argument) for argument in signature.inputs if entry.fqn],
                [self._argument(argument) for argument in signature.outputs if entry.fqn],
                signature.in_spec,
                signature.out_spec,
                argument_names(self.program) if not entry.fqn else None,
            ),
        )


def _verified(**parts: Any) -> torch.export.ExportedProgram:
    """A program of torch's, which its verifier looks at when it is made."""
    try:
        return theirs.ExportedProgram(**parts)
    except SpecViolationError as error:
        raise InvalidRequestError(
            f"the program can't be one of torch's, whose verifier says: {str(error).partition(chr(10))[0]}",
            remedy="keep it in tintype, or decompose it first (run_decompositions)",
        ) from error


def _sizes(graph: Graph) -> Iterator[Expr]:
    """All sizes of a graph's tensors that vary."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if type(value) is FakeTensor:
            yield from (size for size in value.info.sizes if isinstance(size, Expr))


def _their_argument(argument: ours.ArgumentSpec) -> Any:
    kind = getattr(their_signature, type(argument).__name__)
    if isinstance(argument, ours.ConstantArgument):
        return kind(argument.name, argument.value)
    if isinstance(argument, ours.CustomObjArgument):
        return kind(argument.name, argument.class_fqn)
    return kind(argument.name)


def _their_stack(meta: NodeMeta) -> dict[str, tuple[str, str]]:
    stack = meta.get("nn_module_stack") or {"": ("", "torch.nn.modules.module.Module")}
    return {ROOT_KEY + name: entry for name, entry in stack.items()}


_THEIR_TARGETS = {torch._sym_sqrt: torch.sym_sqrt}  # type: ignore[attr-defined]


def _keep_effects(node: Node) -> None:
    """Let torch know an operator with an effect as one: its programs lose what nobody uses the results of."""
    for called in (node.target, *node.args):
        if isinstance(called, torch._ops.OpOverload) and has_effect(called):
            torch.fx.node.has_side_effect(called)
    if isinstance(node.target, torch._ops.HigherOrderOperator) and not node.users and not is_pure(node):
        torch.fx.node.has_side_effect(node.target)


def _check_call(node: Node) -> None:
    """Refuse what torch's own operators can't run."""
    if node.target is torch.ops.higher_order.auto_functionalized:
        called: Any = node.args[0]
        if not can_auto_functionalize(called):
            raise InvalidRequestError(
                f"the program writes with {called} to a tensor of its own, of which torch has no functional form",
                remedy="translate the program of export_for_training, in which the write is as the model has it",
            )
    if node.target in _WITHOUT_FLOATS:
        values = [arg.meta.get("val") if isinstance(arg, Node) else arg for arg in pytree.tree_leaves(node.args)]
        if any(isinstance(value, (float, torch.SymFloat)) for value in values):
            raise InvalidRequestError(
                f"a branch or a loop on data takes a number from around it that is no whole one ({node.target}), "
                "which torch's operator does not",
                location=location_of(node),
                remedy="compute with a tensor in the place of the number: x.sum(), not x.sum().item()",
            )


_WITHOUT_FLOATS = frozenset({torch.ops.higher_order.cond, torch.ops.higher_order.while_loop})


def _their_kwargs(node: Node) -> dict[str, Any]:
    """A call's arguments by name: torch's functional form of a writing operator wants all that would be written to,
    also those that are None because the call leaves them out."""
    if node.target is not torch.ops.higher_order.auto_functionalized:
        return node.kwargs
    called: Any = node.args[0]
    return dict.fromkeys(name for name in written_names(called) if name not in node.kwargs) | node.kwargs


def _their_target(target: Any) -> Any:
    if not callable(target) or isinstance(target, torch._ops.OperatorBase):
        return target
    if (getattr(target, "__module__", None) or "").startswith("tintype."):
        raise InvalidRequestError(f"torch has no counterpart of {target.__module__}.{target.__qualname__}")
    return _THEIR_TARGETS.get(target, target)


__all__ = ["to_torch"]
