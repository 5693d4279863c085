"""A program as an ONNX model: state as initializers, arguments as inputs, the graph translated, results named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from tintype.errors import TintypeError
from tintype.export.dimensions import Dim
from tintype.export.program import ExportedProgram
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import output_node, placeholders
from tintype.ir.signature import (
    MUTATION_KINDS,
    ConstantArgument,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
)
from tintype.onnx.cleaning import remove_unused
from tintype.onnx.errors import LoweringError, OnnxExportError
from tintype.onnx.functions import Outlined, all_nodes
from tintype.onnx.interface import METADATA_KEY, Check, InputLeaf, Interface, NewValue, OutputLeaf
from tintype.onnx.libraries import ir
from tintype.onnx.report import failures_error
from tintype.onnx.translation import GraphTranslator, Translator
from tintype.onnx.values import Value
from tintype.onnx.weights import weight
from tintype.symbolic.expression import Symbol

_NUMBERS = {"SymIntArgument": "int", "SymFloatArgument": "float", "SymBoolArgument": "bool"}


def assemble(
    program: ExportedProgram, opset: int, translations: Mapping[Any, Callable[..., Any]], *, functions: bool = False
) -> tuple[ir.Model, Interface, GraphTranslator]:
    """The model of a program whose operators all have lowerings, and what its inputs and outputs are."""
    return _Assembly(program, opset, translations, functions).run()


class _Assembly:
    def __init__(
        self,
        program: ExportedProgram,
        opset: int,
        translations: Mapping[Any, Callable[..., Any]],
        functions: bool,
    ) -> None:
        self.program = program
        self.functions = functions
        self.opset = opset
        self.shared = Translator(opset, translations, dimension_names(program))
        self.shared.with_modules = functions
        self.translator = GraphTranslator(self.shared)
        self.builder = self.translator.builder
        self.inputs: list[Value] = []
        self.initializers: list[Value] = []
        self.overridable: dict[str, Value] = {}
        self._by_memory: dict[Any, Value] = {}

    def run(self) -> tuple[ir.Model, Interface, GraphTranslator]:
        program = self.program
        specs = program.graph_signature.input_specs
        nodes = placeholders(program.graph)
        pairs = list(zip(nodes, specs, strict=True))
        for _, spec in pairs:  # arguments keep their names, whatever state is called
            if spec.kind is InputKind.USER_INPUT and not isinstance(spec.arg, ConstantArgument):
                self.shared.store.taken.add(spec.arg.name)
        leaves: list[InputLeaf] = []
        values = [self._input(node, spec, leaves) for node, spec in pairs]
        results = self.translator.translate(program.graph, values)
        if self.shared.failures:
            raise failures_error(self.shared.failures)
        outputs, interface = self._outputs(results, leaves)
        graph = self._graph(outputs)
        model = ir.Model(graph, ir_version=10 if self.opset < 23 else 11 if self.opset < 24 else 12)
        model.producer_name = "tintype"
        try:
            model.metadata_props[METADATA_KEY] = interface.to_text()
        except TintypeError as error:  # containers of the caller's that have no name for files
            self.shared.notes.append(
                f"a file will not say what its arguments and results are: {str(error).splitlines()[0]}"
            )
        for identifier, function in self.shared.functions.items():
            model.functions[identifier] = function
        return model, interface, self.translator

    # --- inputs ----------------------------------------------------------------------------------------------

    def _input(self, node: Node, spec: InputSpec, leaves: list[InputLeaf]) -> Any:
        if spec.kind is not InputKind.USER_INPUT:
            return self._state(spec)
        if isinstance(spec.arg, ConstantArgument):
            leaves.append(InputLeaf("constant", value=_stored(spec.arg.value)))
            return spec.arg.value
        value = Value(self.builder, spec.arg.name)
        example = node.meta["val"]
        try:
            self.shared.describe(value, example)
        except LoweringError as error:
            raise OnnxExportError(f"input {spec.arg.name} can't be said in ONNX: {error}") from error
        self.inputs.append(value)
        if type(example) is FakeTensor:
            sizes = [self.shared.dimension(size) for size in example.info.sizes]
            leaves.append(InputLeaf("tensor", value.name, _dtype_name(example.info.dtype), sizes))
        else:
            leaves.append(InputLeaf(_NUMBERS[type(spec.arg).__name__], value.name))
        return value

    def _state(self, spec: InputSpec) -> Any:
        assert spec.target is not None
        program = self.program
        held = program.constants if spec.target not in program.state_dict else program.state_dict
        tensor = held[spec.target]
        if not isinstance(tensor, torch.Tensor):
            raise OnnxExportError(
                f"{spec.target} is a {type(tensor).__name__}: ONNX has tensors only",
                remedy="leave custom objects out of what is exported",
            )
        is_written = spec.target in program.graph_signature.written_state
        key = None if is_written else memory_of(tensor)
        if key is not None and key in self._by_memory:
            return self._by_memory[key]
        value = Value(self.builder, self.shared.store.free_name(spec.target))
        # what calls change is the ONNX program's own: the model may be run meanwhile
        weight(value, tensor.detach().clone() if is_written else tensor)
        self.initializers.append(value)
        if is_written:
            value.meta["written"] = True
            self.overridable[spec.target] = value
        elif key is not None:
            self._by_memory[key] = value
        return value

    # --- outputs ---------------------------------------------------------------------------------------------

    def _outputs(self, results: Sequence[Any], leaves: list[InputLeaf]) -> tuple[list[Value], Interface]:
        program = self.program
        specs = program.graph_signature.output_specs
        nodes = output_node(program.graph).args[0]
        assert isinstance(nodes, (list, tuple))
        outputs: list[Value] = []
        result_leaves: list[OutputLeaf] = []
        new_values: list[NewValue] = []
        triples = list(zip(nodes, specs, results, strict=True))
        names = iter(program.output_paths())
        # results first, for who runs the file by hand
        for node, spec, result in triples:
            if spec.kind not in MUTATION_KINDS:
                name = next(names)
                name = f"result{name}" if name.startswith("[") else name
                result_leaves.append(self._result(node, result, outputs, name))
        for node, spec, result in triples:
            if spec.kind in MUTATION_KINDS:
                new_values.append(self._new_value(node, spec, result, outputs))
        checks: list[Check] = []
        for assertion in self.shared.assertions:
            value = self._as_output(assertion.value, outputs, f"check_{len(checks)}")
            checks.append(Check(value.name or "", assertion.message, assertion.at))
        interface = Interface(
            leaves, result_leaves, new_values, checks, program.call_spec.in_spec, program.call_spec.out_spec,
            list(program.argument_names), list(program.call_spec.positional),
        )  # fmt: skip
        return outputs, interface

    def _result(self, node: Any, result: Any, outputs: list[Value], name: str) -> OutputLeaf:
        if not isinstance(node, Node) or not isinstance(result, ir.Value):
            return OutputLeaf("constant", value=_stored(result))
        example = node.meta["val"]
        value = self._as_output(result, outputs, name, renamed=True)
        if type(example) is FakeTensor:
            return OutputLeaf("tensor", value.name, dtype=_dtype_name(example.info.dtype))
        kinds = {torch.SymInt: "int", torch.SymFloat: "float", torch.SymBool: "bool"}
        return OutputLeaf(kinds.get(type(example), type(example).__name__), value.name)

    def _new_value(self, node: Any, spec: OutputSpec, result: Any, outputs: list[Value]) -> NewValue:
        assert spec.target is not None
        value = self._as_output(result, outputs, f"{spec.target}.new", renamed=True)
        if spec.kind is OutputKind.USER_INPUT_MUTATION:
            users = [each for each in self.program.graph_signature.input_specs if each.kind is InputKind.USER_INPUT]
            position = next(index for index, each in enumerate(users) if each.arg.name == spec.target)
            return NewValue(value.name or "", leaf=position)
        return NewValue(value.name or "", state=self.overridable[spec.target].name)

    def _as_output(self, value: Any, outputs: list[Value], stem: str, *, renamed: bool = False) -> Value:
        """A value that may stand among the outputs: made by a node, and there once only. What has a name already is
        called otherwise if it is ``renamed``."""
        if not isinstance(value, ir.Value):
            value = self.builder.constant(value)
        if value.producer() is None or value.graph is not None or any(value is other for other in outputs):
            copied = Value(self.builder)
            copied.dtype, copied.shape = value.dtype, value.shape
            self.builder.nodes.append(ir.Node("", "Identity", [value], outputs=[copied]))
            value = copied
        if value.name is None or renamed:
            value.name = self.shared.store.free_name(stem)
        outputs.append(value)
        return value

    # --- the graph -------------------------------------------------------------------------------------------

    def _graph(self, outputs: list[Value]) -> ir.Graph:
        store = self.shared.store
        nodes = remove_unused(self.builder.nodes, outputs)
        store.name_results(nodes)
        if self.functions:
            nodes, outputs = self._outlined(nodes, outputs)
        overridable = {id(value) for value in self.overridable.values()}
        initializers = [value for value in self.initializers if value.uses() or id(value) in overridable]
        for value in store.constants.values():
            if value.uses():
                value.name = store.free_name("constant")
                assert value.const_value is not None
                value.const_value.name = value.name
                initializers.append(value)
        return ir.Graph(
            [*self.inputs, *self.overridable.values()],
            outputs,
            nodes=nodes,
            initializers=initializers,
            opset_imports={"": self.opset, **self._domains(nodes)},
            name="main",
        )

    def _domains(self, nodes: Sequence[ir.Node]) -> dict[str, int]:
        """The domains of operators that are not ONNX's own, those of functions inside of functions included."""
        inside = [node for function in self.shared.functions.values() for node in function]
        return {node.domain: node.version or 1 for node in all_nodes([*nodes, *inside]) if node.domain}

    def _outlined(self, nodes: list[ir.Node], outputs: list[Value]) -> tuple[list[ir.Node], list[Any]]:
        """With the modules' calls as calls of functions."""
        constants = {id(value) for value in self.shared.store.constants.values()}
        outlined = Outlined(nodes, outputs, constants, self.opset)
        self.shared.functions.update(outlined.functions)
        self.translator.values = {
            node: outlined.outside(value) if isinstance(value, ir.Value) else value
            for node, value in self.translator.values.items()
        }
        return outlined.nodes, [outlined.outside(value) for value in outputs]


def dimension_names(program: ExportedProgram) -> dict[Symbol, str]:
    """The names that the user gave to sizes that vary."""
    names: dict[Symbol, str] = {}
    taken: set[str] = set()
    for size in program.dynamic_sizes:
        dimension = size.dimension
        expression = size.expression
        if isinstance(dimension, Dim) and isinstance(expression, Symbol) and expression not in names:
            name = dimension.__name__
            if name.isidentifier() and name not in taken:
                names[expression] = name
                taken.add(name)
    return names


def memory_of(tensor: torch.Tensor) -> Any:
    """What tells tensors apart: where their elements lie. None for those without memory."""
    if tensor.numel() == 0 or tensor.is_meta:
        return None
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _stored(value: Any) -> Any:
    """A constant as the metadata can have it."""
    return value if value is None or isinstance(value, (bool, int, float, str)) else {"text": repr(value)}
