"""A program from the schema. Everything a file says is checked before it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from tintype import tree
from tintype.errors import FileFormatError, VerificationError
from tintype.export.call_spec import CallSpec, ModuleCallEntry, ModuleCallSignature
from tintype.export.program import ExportedProgram
from tintype.export.stage import Stage
from tintype.fake.context import FakeContext
from tintype.fake.info import Storage, TensorInfo
from tintype.fake.tensor import FakeTensor, make_fake
from tintype.ir.graph import add_placeholder, graph_module, placeholders, set_meta
from tintype.ir.node_info import NodeMeta
from tintype.ir.signature import (
    MUTATION_KINDS,
    STATE_KINDS,
    ArgumentSpec,
    ConstantArgument,
    CustomObjArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    StateWrite,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)
from tintype.serde import schema
from tintype.serde.archive import Archive
from tintype.serde.objects import loaded_object
from tintype.serde.observations import decode_observations
from tintype.serde.origins import OriginReader
from tintype.serde.structure import decode_positional, decode_returned, decode_tree, registered_type
from tintype.serde.symbols import SymbolReader
from tintype.serde.targets import function_named
from tintype.serde.values import ValueDecoder, device_named, dtype_named, is_path, looked_up
from tintype.serde.weights import TensorReader
from tintype.symbolic.bridge import to_torch
from tintype.trace.buffer_assignments import REPLACES

_ARGUMENT_KINDS: dict[str, Any] = {
    "tensor": TensorArgument,
    "symint": SymIntArgument,
    "symfloat": SymFloatArgument,
    "symbool": SymBoolArgument,
}
_STAGES = {stage.value: stage for stage in Stage}
_INPUT_KINDS = {kind.name.lower(): kind for kind in InputKind}
_OUTPUT_KINDS = {kind.name.lower(): kind for kind in OutputKind}
_WRITES = {write.name.lower(): write for write in StateWrite}
_MOST_DIMENSIONS = 64


class SharedValues:
    """The tensors and custom objects of a file, which its programs may share."""

    def __init__(self, archive: Archive, tables: schema.Program | schema.Programs) -> None:
        programs = len(tables.names) if isinstance(tables, schema.Programs) else 1
        self.tensors = TensorReader(archive, tables.storages, tables.tensors, programs)
        self._archive = archive
        self._types = tables.objects
        self._objects: dict[int, Any] = {}

    def object(self, number: int) -> Any:
        """A custom object; the same one for the same number."""
        if number not in self._objects:
            if not 0 <= number < len(self._types):
                raise FileFormatError(f"there is no object {number}")
            content = bytes(self._archive.content(f"objects/{number}"))
            self._objects[number] = loaded_object(self._types[number].type, content)
        return self._objects[number]


class ProgramDecoder:
    """Makes the objects that a program consists of."""

    def __init__(self, program: schema.Program, shared: SharedValues, *, plain_containers: bool = False) -> None:
        self.program = program
        self.shared = shared
        self.values = _GraphValues(self)
        self.values.plain_containers = plain_containers
        self.symbols = SymbolReader(program.symbols)
        self.context = FakeContext(self.symbols.environment)
        self.origins = OriginReader(program.metadata, self.values)
        self.functions = [function_named(name) for name in program.functions]
        self.types = [self._tensor_type(entry) for entry in program.tensor_types]
        self.memories = self._memories()

    def decode(self) -> ExportedProgram:
        """The program."""
        program = self.program
        signature = ExportGraphSignature(
            [self._input(entry) for entry in program.inputs], [self._output(entry) for entry in program.outputs]
        )
        if not program.graphs:
            raise FileFormatError("the file has no graph")
        graphs: list[GraphModule] = []
        for graph in program.graphs:
            graphs.append(self._graph(graph, graphs))
        state = {entry.name: self._state_tensor(entry) for entry in program.state}
        constants = {entry.name: self.values.decode_stored(entry.value) for entry in program.constants}
        for name in (*state, *constants):
            _check_path(name)
        for node, spec in zip(placeholders(graphs[-1].graph), signature.input_specs, strict=False):
            if spec.kind is InputKind.CUSTOM_OBJ:
                node.meta["val"] = constants.get(str(spec.target))
        in_spec, out_spec = decode_tree(program.in_tree, self.values), decode_tree(program.out_tree, self.values)
        returned = {"": program.returned or [], **(program.returned_by_modules or {})}
        call_spec = CallSpec(
            in_spec,
            out_spec,
            decode_returned(program.returned or [], in_spec, out_spec),
            decode_positional(program.positional or [], in_spec),
        )
        decoded = ExportedProgram(
            graphs[-1],
            signature,
            state,
            constants,
            call_spec,
            program.argument_names,
            self._examples(program.examples),
            looked_up(_STAGES, program.stage, "stage"),
            self.context,
            [self._module(entry, returned) for entry in program.modules],
            self.symbols.sizes,
            decode_observations(program.observations, self.values, signature, call_spec.in_spec),
        )
        self._check(decoded)
        return decoded

    # --- graphs ---------------------------------------------------------------------------------------------------

    def _graph(self, described: schema.Graph, earlier: list[GraphModule]) -> GraphModule:
        graph = Graph()
        attributes = _subgraphs(described.subgraphs, earlier)
        self.values.nodes = nodes = []
        names: set[str] = set()
        for entry in described.nodes:
            if entry.name in names:
                raise FileFormatError(f"two nodes are called {entry.name!r:.80}")
            names.add(entry.name)
            nodes.append(self._node(graph, entry))
        for node in graph.find_nodes(op="get_attr"):
            if node.target not in attributes:
                raise FileFormatError(f"a graph fetches {node.target!r:.80}, which it does not have")
            node.meta["val"] = attributes[str(node.target)]
        return graph_module(graph, "Program")

    def _node(self, graph: Graph, entry: schema.Node) -> Node:
        name = entry.name
        _check_identifier(name)
        decode = self.values.decode
        meta = self._meta(entry)
        operation = entry.operation
        if operation == schema.PLACEHOLDER:
            node = add_placeholder(graph, name, meta)
        elif operation == schema.CALL:
            node = self._call(graph, entry, meta)
        elif operation == schema.ATTRIBUTE:
            target = str(entry.target)
            _check_path(target)
            node = _append(graph, name, "get_attr", target, (), {}, meta)
        elif operation == schema.OUTPUT and len(entry.args) == 1:
            node = _append(graph, name, "output", "output", (decode(entry.args[0]),), {}, meta)
        else:
            raise FileFormatError(f"the node {name!r:.80} is of a kind that no program has")
        value = meta.get("val")
        if type(value) is FakeTensor:
            value.node = node
        return node

    def _call(self, graph: Graph, entry: schema.Node, meta: NodeMeta) -> Node:
        target = entry.target
        if type(target) is not int or not 0 <= target < len(self.functions):
            raise FileFormatError(f"the node {entry.name!r:.80} calls a function that is not there: {target!r:.80}")
        decode = self.values.decode
        args = tuple([decode(argument) for argument in entry.args])
        kwargs = {}
        for key, argument in entry.kwargs.items():
            _check_identifier(key)
            kwargs[key] = decode(argument)
        return _append(graph, entry.name, "call_function", self.functions[target], args, kwargs, meta)

    def _meta(self, entry: schema.Node) -> NodeMeta:
        origins = self.origins
        meta = NodeMeta(None, origins.origin(entry.origin), origins.origin(entry.consumer))
        if type(entry.value) is not schema.NoValue:
            meta["val"] = self.values.decode_result(entry.value)
        if entry.notes != -1:
            meta.update(origins.notes(entry.notes))
        if entry.replaces is not None:
            meta[REPLACES] = entry.replaces
        return meta

    def _tensor_type(self, entry: schema.TensorType) -> tuple[Any, ...]:
        size = self.symbols.size
        sizes = tuple([size(number) for number in entry.sizes])
        strides = tuple([size(number) for number in entry.strides])
        if len(sizes) != len(strides) or len(sizes) > _MOST_DIMENSIONS:
            raise FileFormatError("a tensor has more sizes than strides, or fewer, or absurdly many")
        elements = 1
        for number in sizes:
            if type(number) is int:
                elements *= number
        if elements >= 1 << 62:
            raise FileFormatError("a tensor has an absurd number of elements")
        flags = entry.flags
        dtype, device, offset = dtype_named(entry.dtype), device_named(entry.device), size(entry.offset)
        return sizes, strides, dtype, device, offset, bool(flags & 1), bool(flags & 2), bool(flags & 4)

    def _memories(self) -> list[Storage]:
        # each is a tensor's, so there can't be more than there are tensors in all graphs
        count = self.program.memories
        nodes = sum(len(graph.nodes) for graph in self.program.graphs)
        if not 0 <= count <= 1000 * (nodes + 1):
            raise FileFormatError(f"the program claims {count} memories for {nodes} nodes")
        memories = [Storage() for _ in range(count)]
        for note in self.program.memory_notes:
            if not (0 <= note.number < count and -1 <= note.source < count):
                raise FileFormatError("a memory that is not there is described")
            storage = memories[note.number]
            storage.frozen, storage.written = note.frozen, note.written
            storage.source = None if note.source == -1 else memories[note.source]
        _refuse_circles(memories)
        return memories

    def fake(self, value: schema.FakeValue) -> FakeTensor:
        """A tensor without data."""
        if not (0 <= value.tensor_type < len(self.types) and 0 <= value.memory < len(self.memories)):
            raise FileFormatError("a tensor without data is of a type or over a memory that is not there")
        sizes, strides, dtype, device, offset, *flags = self.types[value.tensor_type]
        memory = self.memories[value.memory]
        return make_fake(TensorInfo(sizes, strides, dtype, device, offset, memory, *flags), self.context)

    # --- state ----------------------------------------------------------------------------------------------------

    def _state_tensor(self, entry: schema.Named) -> torch.Tensor:
        tensor = self.values.decode_stored(entry.value)
        if not isinstance(tensor, torch.Tensor):
            raise FileFormatError(f"the parameter or buffer {entry.name!r:.80} is no tensor")
        return tensor

    def _examples(self, examples: schema.Examples | None) -> Any:
        if examples is None:
            return None
        spec = decode_tree(examples.tree, self.values)
        if spec.num_leaves != len(examples.leaves):
            raise FileFormatError("the example inputs have more leaves than places, or fewer")
        found = tree.unflatten([self.values.decode_stored(leaf) for leaf in examples.leaves], spec)
        if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], dict)):
            raise FileFormatError("the example inputs are no arguments of a call")
        return found

    # --- signature ------------------------------------------------------------------------------------------------

    def _argument(self, argument: schema.Argument) -> ArgumentSpec:
        if argument.kind == "constant":
            return ConstantArgument(argument.name, self.values.decode(argument.value))
        if argument.kind == "object":
            return CustomObjArgument(argument.name, str(argument.value))
        found: ArgumentSpec = looked_up(_ARGUMENT_KINDS, argument.kind, "kind of argument")(argument.name)
        return found

    def _input(self, entry: schema.Input) -> InputSpec:
        kind = looked_up(_INPUT_KINDS, entry.kind, "kind of input")
        return InputSpec(kind, self._argument(entry.argument), entry.target, entry.persistent)

    def _output(self, entry: schema.Output) -> OutputSpec:
        kind = looked_up(_OUTPUT_KINDS, entry.kind, "kind of output")
        write = looked_up(_WRITES, entry.write, "kind of write")
        return OutputSpec(kind, self._argument(entry.argument), entry.target, write)

    def _module(self, entry: schema.ModuleEntry, returned: Mapping[str, Any]) -> ModuleCallEntry:
        for path in (entry.path, entry.same_as):
            if path:
                _check_path(path)
        signature = entry.signature
        if signature is None:
            return ModuleCallEntry(entry.path, None, entry.same_as)
        in_spec, out_spec = decode_tree(signature.in_tree, self.values), decode_tree(signature.out_tree, self.values)
        return ModuleCallEntry(
            entry.path,
            ModuleCallSignature(
                [self._argument(argument) for argument in signature.inputs],
                [self._argument(argument) for argument in signature.outputs],
                in_spec,
                out_spec,
                decode_returned(returned.get(entry.path, []), in_spec, out_spec),
            ),
            entry.same_as,
        )

    def _check(self, program: ExportedProgram) -> None:
        """What the verifier does not look at: that state is what the graph takes it for."""
        try:
            program.verify_stage()
        except VerificationError as error:
            raise FileFormatError(f"the program in the file is not valid: {error}") from error
        state = {**program.state_dict, **program.constants}
        inputs = program.graph.find_nodes(op="placeholder")
        users = 0
        for node, spec in zip(inputs, program.graph_signature.input_specs, strict=True):
            users += spec.kind is InputKind.USER_INPUT
            value = node.meta.get("val")
            if spec.kind not in STATE_KINDS or type(value) is not FakeTensor:
                continue
            actual, info = state[str(spec.target)], value.info
            if not isinstance(actual, torch.Tensor) or (tuple(actual.shape), actual.dtype) != (
                info.sizes,
                info.dtype,
            ):
                raise FileFormatError(f"the state {spec.target!r:.80} is not what the graph takes it for")
            self.context.know_memory_of(actual, info.storage)
        in_spec = program.call_spec.in_spec
        if in_spec.num_leaves != users or [child.type for child in in_spec.children()] != [tuple, dict]:
            raise FileFormatError("the structure of the inputs does not fit the graph's inputs")
        results = sum(spec.kind not in MUTATION_KINDS for spec in program.graph_signature.output_specs)
        if program.call_spec.out_spec.num_leaves != results:
            raise FileFormatError("the structure of the outputs does not fit the graph's outputs")


class _GraphValues(ValueDecoder):
    """Values that refer to nodes and operators; results and stored values have tables of their own."""

    def __init__(self, program: ProgramDecoder) -> None:
        super().__init__()
        self.nodes: list[Node] = []
        self._program = program
        self.handlers[schema.Ref] = self._node
        self.handlers[schema.OperatorValue] = self._operator
        self.handlers[schema.ExpressionValue] = self._expression
        self.handlers[schema.TypeValue] = lambda value: registered_type(value.name)
        self._results = _Results(program, self._expression)
        self._stored = _StoredValues(program)

    def decode_result(self, value: Any) -> Any:
        """What is known of a node's result."""
        if type(value) is schema.FakeValue:
            return self._program.fake(value)
        return self._results.decode(value)

    def decode_stored(self, value: Any) -> Any:
        """A parameter, constant or example input."""
        return self._stored.decode(value)

    def _node(self, value: schema.Ref) -> Node:
        if not 0 <= value.index < len(self.nodes):
            raise FileFormatError(f"a node uses the result of node {value.index}, which does not stand before it")
        return self.nodes[value.index]

    def _operator(self, value: schema.OperatorValue) -> Any:
        functions = self._program.functions
        if not 0 <= value.index < len(functions):
            raise FileFormatError(f"there is no function {value.index}")
        return functions[value.index]

    def _expression(self, value: schema.ExpressionValue) -> Any:
        return to_torch(self._program.symbols.value(value.text))


class _Results(ValueDecoder):
    def __init__(self, program: ProgramDecoder, expression: Any) -> None:
        super().__init__()
        self.handlers[schema.FakeValue] = lambda value: program.fake(value)
        self.handlers[schema.ExpressionValue] = expression


class _StoredValues(ValueDecoder):
    def __init__(self, program: ProgramDecoder) -> None:
        super().__init__()
        self.handlers[schema.TensorValue] = lambda value: program.shared.tensors.tensor(value.index)
        self.handlers[schema.ObjectValue] = lambda value: program.shared.object(value.index)


def _refuse_circles(memories: list[Storage]) -> None:
    """A memory's source has a source in turn, and so on: that must come to an end."""
    settled: set[Storage] = set()
    for memory in memories:
        chain: dict[Storage, None] = {}
        step: Storage | None = memory
        while step is not None and step not in settled:
            if step in chain:
                raise FileFormatError("a memory is its own source")
            chain[step] = None
            step = step.source
        settled.update(chain)


def _subgraphs(described: list[schema.Subgraph], earlier: list[GraphModule]) -> dict[str, GraphModule]:
    found = {}
    for subgraph in described:
        if not 0 <= subgraph.graph < len(earlier):
            raise FileFormatError(f"the subgraph {subgraph.name!r:.80} does not stand before its user")
        _check_path(subgraph.name)
        found[subgraph.name] = earlier[subgraph.graph]
    return found


def _append(
    graph: Graph,
    name: str,
    operation: str,
    target: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    meta: NodeMeta,
) -> Node:
    """Append a node under exactly this name, which is free."""
    node = Node(graph, name, operation, target, args, kwargs, None)
    set_meta(node, meta)
    graph._graph_namespace._used_names.add(name)
    graph._graph_namespace._obj_to_name[node] = name
    graph._insert(node)
    graph._find_nodes_lookup_table.insert(node)
    graph._len += 1
    return node


def _check_identifier(name: str) -> None:
    """Names become variables of generated code: they must not be able to be anything else."""
    if not name.isidentifier():
        raise FileFormatError(f"{name!r:.80} can't be the name of a value")


def _check_path(path: str) -> None:
    if not is_path(path):
        raise FileFormatError(f"{path!r:.80} can't be the name of a module, parameter, buffer or subgraph")
