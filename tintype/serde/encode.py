"""A program as the schema has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from msgspec import UNSET
from torch.fx import Graph, GraphModule, Node

from tintype import tree
from tintype.errors import UnsavableError
from tintype.export.call_spec import ModuleCallEntry
from tintype.export.program import ExportedProgram
from tintype.fake.context import FakeContext
from tintype.fake.info import Storage, TensorInfo
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import meta_of, subgraph_at
from tintype.ir.signature import (
    ArgumentSpec,
    ConstantArgument,
    CustomObjArgument,
    InputSpec,
    OutputSpec,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)
from tintype.serde import schema
from tintype.serde.archive import Entry, bytes_entry
from tintype.serde.objects import saved_object
from tintype.serde.observations import encode_observations
from tintype.serde.origins import OriginWriter, SourceTable
from tintype.serde.structure import encode_tree, registered_name
from tintype.serde.symbols import encode_symbols
from tintype.serde.targets import name_of
from tintype.serde.values import ValueEncoder, is_path
from tintype.serde.weights import TensorTable
from tintype.symbolic import Expr, text
from tintype.symbolic.bridge import from_torch
from tintype.trace.buffer_assignments import REPLACES
from tintype.tree.subclasses import with_parts

_OPERATIONS = {
    "placeholder": schema.PLACEHOLDER,
    "call_function": schema.CALL,
    "get_attr": schema.ATTRIBUTE,
    "output": schema.OUTPUT,
}
_ARGUMENT_KINDS: dict[type, str] = {
    TensorArgument: "tensor",
    SymIntArgument: "symint",
    SymFloatArgument: "symfloat",
    SymBoolArgument: "symbool",
    ConstantArgument: "constant",
    CustomObjArgument: "object",
}
_NO_KEYWORDS: dict[str, Any] = {}


@dataclass
class EncodedProgram:
    """A program as it is written: its description, and the entries with the data beside it."""

    program: schema.Program
    entries: list[Entry]


@dataclass
class EncodedPrograms:
    """Several programs as they are written: what they share, each of them, and the entries with the data."""

    shared: schema.Programs
    programs: list[schema.Program]
    entries: list[Entry]


@dataclass
class _SharedTables:
    """What the programs of a file have once."""

    tensors: TensorTable = field(default_factory=TensorTable)
    sources: SourceTable = field(default_factory=SourceTable)
    objects: list[schema.CustomObject] = field(default_factory=list)
    object_entries: list[Entry] = field(default_factory=list)
    object_numbers: dict[int, int] = field(default_factory=dict)


def encode_program(program: ExportedProgram, *, metadata: bool) -> EncodedProgram:
    """A program; without ``metadata`` nodes forget where they come from."""
    tables = _SharedTables()
    encoded = _ProgramEncoder(program.context, metadata, tables).encode(program)
    encoded.storages, encoded.tensors, entries = tables.tensors.finish()
    encoded.objects = tables.objects
    return EncodedProgram(encoded, [*entries, *tables.object_entries])


def encode_programs(programs: Mapping[str, ExportedProgram], *, metadata: bool) -> EncodedPrograms:
    """Several programs, which share what is the same in them."""
    tables = _SharedTables()
    encoded = []
    for program in programs.values():
        tables.tensors.begin_program()
        encoded.append(_ProgramEncoder(program.context, metadata, tables).encode(program))
    for description in encoded:
        known = description.metadata
        description.metadata = schema.Metadata(calls=known.calls, origins=known.origins, notes=known.notes)
    storages, tensors, entries = tables.tensors.finish()
    sources = tables.sources
    shared = schema.Programs(
        list(programs), storages, tensors, tables.objects, sources.files, sources.texts, sources.frames
    )
    return EncodedPrograms(shared, encoded, [*entries, *tables.object_entries])


class _ProgramEncoder:
    """Puts together the tables that graphs refer to by number."""

    def __init__(self, context: FakeContext, metadata: bool, tables: _SharedTables) -> None:
        self.context = context
        self.tables = tables
        self.values = _GraphValues(self)
        self.origins = OriginWriter(self.values, tables.sources) if metadata else None
        self.graphs: list[schema.Graph] = []
        self.graph_numbers: dict[int, int] = {}
        self.functions: dict[Any, int] = {}
        self.types: list[schema.TensorType] = []
        self.type_numbers: dict[Any, int] = {}
        self.memories: dict[Storage, int] = {}

    def encode(self, program: ExportedProgram) -> schema.Program:
        """The program, without the tables of tensors and objects."""
        self.graph(program.graph_module)
        state = self.named("weights", program.state_dict)
        constants = self.named("constants", program.constants)
        examples = self.examples(with_parts(program.example_inputs))
        signature, spec = program.graph_signature, program.call_spec
        inputs = [self.input(entry) for entry in signature.input_specs]
        outputs = [self.output(entry) for entry in signature.output_specs]
        modules = [self.module(entry) for entry in program.module_call_graph]
        memory_notes = self.memory_notes()
        return schema.Program(
            stage=program.stage.value,
            functions=[name_of(target) for target in self.functions],
            tensor_types=self.types,
            graphs=self.graphs,
            inputs=inputs,
            outputs=outputs,
            in_tree=encode_tree(spec.in_spec, self.values),
            out_tree=encode_tree(spec.out_spec, self.values),
            returned=_pairs(spec.returned) or UNSET,
            positional=list(spec.positional) or UNSET,
            returned_by_modules={
                entry.fqn: _pairs(entry.signature.returned)
                for entry in program.module_call_graph
                if entry.fqn and entry.signature is not None and entry.signature.returned
            }
            or UNSET,
            argument_names=list(program.argument_names),
            memories=len(self.memories),
            memory_notes=memory_notes,
            state=state,
            constants=constants,
            examples=examples,
            modules=modules,
            symbols=encode_symbols(program.context.environment, program.dynamic_sizes, self.origins is not None),
            metadata=schema.Metadata() if self.origins is None else self.origins.metadata,
            observations=encode_observations(program.observations, self.values, self.origins is not None),
        )

    # --- graphs ---------------------------------------------------------------------------------------------------

    def graph(self, module: GraphModule) -> int:
        """The number of a graph; its subgraphs come before it."""
        known = self.graph_numbers.get(id(module))
        if known is not None:
            return known
        subgraphs: dict[str, schema.Subgraph] = {}
        for node in module.graph.find_nodes(op="get_attr"):
            name = str(node.target)
            if name not in subgraphs:
                subgraphs[name] = schema.Subgraph(name, self.graph(_subgraph(node)))
        nodes = self.nodes(module.graph)
        number = self.graph_numbers[id(module)] = len(self.graphs)
        self.graphs.append(schema.Graph(nodes, list(subgraphs.values())))
        return number

    def nodes(self, graph: Graph) -> list[schema.Node]:
        values = self.values
        outer, values.positions = values.positions, {}
        positions = values.positions
        encoded = []
        for position, node in enumerate(graph.nodes):
            encoded.append(self.node(node))
            positions[node] = position
        values.positions = outer
        return encoded

    def node(self, node: Node) -> schema.Node:
        operation = _OPERATIONS.get(node.op)
        if operation is None:
            raise UnsavableError(f"a program has no {node.op} nodes, but {node.name!r} is one")
        target: int | str = self.function(node.target) if operation == schema.CALL else str(node.target)
        encode, meta = self.values.encode, meta_of(node)
        args = [encode(argument) for argument in node.args]
        kwargs = {key: encode(argument) for key, argument in node.kwargs.items()} if node.kwargs else _NO_KEYWORDS
        known = "val" in meta and operation != schema.ATTRIBUTE and not isinstance(meta["val"], torch.ScriptObject)
        value = self.values.encode_result(meta["val"]) if known else schema.NoValue()
        if self.origins is None:
            return schema.Node(operation, node.name, target, args, kwargs, value, replaces=meta.get(REPLACES))
        return schema.Node(
            operation,
            node.name,
            target,
            args,
            kwargs,
            value,
            self.origins.origin(meta.origin),
            self.origins.origin(meta.consumer),
            self.origins.notes(meta),
            meta.get(REPLACES),
        )

    def function(self, target: Any) -> int:
        return self.functions.setdefault(target, len(self.functions))

    def tensor_type(self, info: TensorInfo) -> int:
        key = (info.sizes, info.strides, info.dtype, info.device, info.offset, _flags(info))
        number = self.type_numbers.get(key)
        if number is None:
            number = self.type_numbers[key] = len(self.types)
            self.types.append(
                schema.TensorType(
                    [_size(size) for size in info.sizes],
                    [_size(stride) for stride in info.strides],
                    str(info.dtype).removeprefix("torch."),
                    str(info.device),
                    _size(info.offset),
                    _flags(info),
                )
            )
        return number

    def memory(self, storage: Storage) -> int:
        return self.memories.setdefault(storage, len(self.memories))

    def memory_notes(self) -> list[schema.Memory]:
        """What is special about memories; their sources get numbers too."""
        notes = []
        pending = list(self.memories)
        for storage in pending:
            if storage.source is not None and storage.source not in self.memories:
                self.memory(storage.source)
                pending.append(storage.source)
            if storage.frozen or storage.written or storage.source is not None:
                source = -1 if storage.source is None else self.memory(storage.source)
                notes.append(schema.Memory(self.memories[storage], storage.frozen, storage.written, source))
        return notes

    # --- state ----------------------------------------------------------------------------------------------------

    def named(self, part: str, values: dict[str, Any]) -> list[schema.Named]:
        return [schema.Named(name, self.stored(part, name, value)) for name, value in values.items()]

    def stored(self, part: str, name: str, value: Any) -> Any:
        """A parameter, buffer, constant or example input."""
        if not is_path(name):
            raise UnsavableError(
                f"{name!r} can't be the name of a parameter, buffer or constant in a file, where names have no "
                "quotes, backslashes or control characters",
                remedy="give it another name in the model: register_buffer(...), register_parameter(...)",
            )
        if isinstance(value, torch.Tensor):
            return schema.TensorValue(self.tables.tensors.add(part, name, value))
        if isinstance(value, (int, float, str, complex, type(None))):
            return self.values.encode(value)
        return self.object(name, value)

    def object(self, name: str, value: Any) -> Any:
        tables = self.tables
        number = tables.object_numbers.get(id(value))
        if number is None:
            type_name, content = saved_object(name, value)
            number = tables.object_numbers[id(value)] = len(tables.objects)
            tables.objects.append(schema.CustomObject(type_name))
            tables.object_entries.append(bytes_entry(f"objects/{number}", content))
        return schema.ObjectValue(number)

    def examples(self, examples: Any) -> schema.Examples | None:
        if examples is None:
            return None
        leaves, spec = tree.flatten(examples)
        values = [
            self.stored("examples", f"example.{position}", leaf)
            if isinstance(leaf, (torch.Tensor, torch.ScriptObject))
            else self.values.encode(leaf)
            for position, leaf in enumerate(leaves)
        ]
        return schema.Examples(encode_tree(spec, self.values), values)

    # --- signature ------------------------------------------------------------------------------------------------

    def argument(self, spec: ArgumentSpec) -> schema.Argument:
        value: Any = None
        if isinstance(spec, ConstantArgument):
            value = self.values.encode(spec.value)
        elif isinstance(spec, CustomObjArgument):
            value = spec.class_fqn
        return schema.Argument(_ARGUMENT_KINDS[type(spec)], spec.name, value)

    def input(self, spec: InputSpec) -> schema.Input:
        return schema.Input(spec.kind.name.lower(), self.argument(spec.arg), spec.target, spec.persistent)

    def output(self, spec: OutputSpec) -> schema.Output:
        argument = self.argument(spec.arg)
        return schema.Output(spec.kind.name.lower(), argument, spec.target, spec.write.name.lower())

    def module(self, entry: ModuleCallEntry) -> schema.ModuleEntry:
        signature = entry.signature
        if signature is None:
            return schema.ModuleEntry(entry.fqn, None, entry.same_as)
        return schema.ModuleEntry(
            entry.fqn,
            schema.ModuleSignature(
                [self.argument(spec) for spec in signature.inputs],
                [self.argument(spec) for spec in signature.outputs],
                encode_tree(signature.in_spec, self.values),
                encode_tree(signature.out_spec, self.values),
            ),
            entry.same_as,
        )


def _pairs(returned: Sequence[tuple[tree.Path, tree.Path]]) -> list[tuple[list[int], list[int]]]:
    return [(list(given), list(place)) for given, place in returned]


class _GraphValues(ValueEncoder):
    """Values that refer to nodes, tensors without data and operators too."""

    def __init__(self, program: _ProgramEncoder) -> None:
        super().__init__()
        self.program = program
        self.positions: dict[Node, int] = {}
        self.handlers[Node] = self._node
        self.handlers[FakeTensor] = self._fake
        for symbolic in (torch.SymInt, torch.SymFloat, torch.SymBool):
            self.handlers[symbolic] = self._number

    def _node(self, node: Node) -> Any:
        position = self.positions.get(node)
        if position is None:
            raise UnsavableError(f"{node.name!r} is used before it is computed, or in another graph")
        return schema.Ref(position)

    def _fake(self, fake: FakeTensor) -> Any:
        info = fake.info
        return schema.FakeValue(self.program.tensor_type(info), self.program.memory(info.storage))

    def encode_result(self, value: Any) -> Any:
        """What is known of a node's result; somebody who edits a graph may give it a tensor with data."""
        if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
            value = self.program.context.fake_of(value.detach())
        return self.encode(value)

    def _number(self, number: Any) -> Any:
        value = from_torch(number)
        return schema.ExpressionValue(text(value)) if isinstance(value, Expr) else self.encode(value)

    def encode_other(self, value: Any) -> Any:
        if isinstance(value, type):
            return schema.TypeValue(registered_name(value))
        if isinstance(value, (torch._ops.OpOverload, torch._ops.HigherOrderOperator)):
            return schema.OperatorValue(self.program.function(value))
        return super().encode_other(value)


def _subgraph(node: Node) -> GraphModule:
    found = subgraph_at(node)
    if found is None:
        raise UnsavableError(
            f"the graph fetches {node.target!r}, which is no graph",
            remedy="let tensors and objects come in as inputs, as tintype.export makes them",
        )
    return found


def _size(size: Any) -> int | str:
    return size if type(size) is int else text(size)


def _flags(info: TensorInfo) -> int:
    return 1 * info.requires_grad | 2 * info.conjugate | 4 * info.negative
