"""What stands in ``program.json``: the numbered schema of the file format (docs/format.md is its specification).

Structs with ``array_like`` are written as arrays: a field's number is its position, so that a field is never moved,
retyped or reused, and new ones are only added at the end, with a default. Values are told apart by the number that
comes first, their ``tag``. tests/serde/golden has the schema of every version, and a test that holds this one to it.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import UNSET, Struct, UnsetType, field

# A reader of major version N reads all files of major version N; a newer minor version only adds what an older
# reader can leave out.
FORMAT_MAJOR = 1
FORMAT_MINOR = 4
# What files say of themselves: one with one program is what it was before there were files with several.
ONE_PROGRAM = (1, 1)
SEVERAL_PROGRAMS = (1, 2)
RETURNED_CONTAINERS = (1, 3)
DETACHED_IN_PLACE = (1, 4)
# The meaning of the operators' names and arguments; see upgrade.py.
OPERATOR_SET = 1


class FormatInfo(Struct):
    """``format.json``: what a reader must know before it reads the rest."""

    format: tuple[int, int]
    # the oldest minor version of the format whose readers understand this file
    minimum_reader: tuple[int, int]
    operator_set: int
    producer: str = ""
    torch: str = ""


# --- values: arguments of calls, what is known of results, constants ----------------------------------------------


class Ref(Struct, array_like=True, tag=1, frozen=True):
    """The result of a node of the same graph, by position."""

    index: int


class ListValue(Struct, array_like=True, tag=2, frozen=True):
    items: list[Value]


class TupleValue(Struct, array_like=True, tag=3, frozen=True):
    items: list[Value]


class DictValue(Struct, array_like=True, tag=4, frozen=True):
    keys: list[Value]
    values: list[Value]


class DtypeValue(Struct, array_like=True, tag=5, frozen=True):
    name: str


class DeviceValue(Struct, array_like=True, tag=6, frozen=True):
    name: str


class LayoutValue(Struct, array_like=True, tag=7, frozen=True):
    name: str


class MemoryFormatValue(Struct, array_like=True, tag=8, frozen=True):
    name: str


class ComplexValue(Struct, array_like=True, tag=9, frozen=True):
    """Both parts as text, since JSON has no infinity and no nan."""

    real: str
    imaginary: str


class FloatValue(Struct, array_like=True, tag=10, frozen=True):
    """A float that JSON can't write: nan, inf, -inf."""

    text: str


class SliceValue(Struct, array_like=True, tag=11, frozen=True):
    start: Value
    stop: Value
    step: Value


class EllipsisValue(Struct, array_like=True, tag=12, frozen=True):
    pass


class OperatorValue(Struct, array_like=True, tag=13, frozen=True):
    """A function of :attr:`Program.functions`."""

    index: int


class ExpressionValue(Struct, array_like=True, tag=14, frozen=True):
    """A symbolic number, as text."""

    text: str


class FakeValue(Struct, array_like=True, tag=15, frozen=True):
    """A tensor without data: one of :attr:`Program.tensor_types`, over the memory of this number."""

    tensor_type: int
    memory: int


class SizeValue(Struct, array_like=True, tag=16, frozen=True):
    """A torch.Size."""

    items: list[Value]


class TensorValue(Struct, array_like=True, tag=17, frozen=True):
    """A tensor with data: one of :attr:`Program.tensors`."""

    index: int


class ObjectValue(Struct, array_like=True, tag=18, frozen=True):
    """A custom object: one of :attr:`Program.objects`."""

    index: int


class NoValue(Struct, array_like=True, tag=19, frozen=True):
    """Nothing is known of a node's result."""


class BytesValue(Struct, array_like=True, tag=20, frozen=True):
    """Bytes, written in base64."""

    content: bytes


class TypeValue(Struct, array_like=True, tag=21, frozen=True):
    """A class of containers, by its registered name."""

    name: str


class FunctionValue(Struct, array_like=True, tag=22, frozen=True):
    """A function among the inputs that the program was specialised on. Its name is all that a file has of it."""

    name: str


Value: TypeAlias = (
    bool
    | int
    | float
    | str
    | Ref
    | ListValue
    | TupleValue
    | DictValue
    | DtypeValue
    | DeviceValue
    | LayoutValue
    | MemoryFormatValue
    | ComplexValue
    | FloatValue
    | SliceValue
    | EllipsisValue
    | OperatorValue
    | ExpressionValue
    | FakeValue
    | SizeValue
    | TensorValue
    | ObjectValue
    | NoValue
    | BytesValue
    | TypeValue
    | FunctionValue
    | None
)


# --- graphs -------------------------------------------------------------------------------------------------------

PLACEHOLDER, CALL, ATTRIBUTE, OUTPUT = range(4)


class TensorType(Struct, array_like=True, frozen=True):
    """What is known of a tensor without its data. Numbers are integers or the text of expressions.

    ``flags``: 1 requires a gradient, 2 conjugated, 4 negated.
    """

    sizes: list[int | str]
    strides: list[int | str]
    dtype: str
    device: str
    offset: int | str = 0
    flags: int = 0


class Memory(Struct, array_like=True, frozen=True):
    """What is known of a memory besides its number. ``source`` is another memory's number, or -1."""

    number: int
    frozen: bool
    written: bool
    source: int


class Node(Struct, array_like=True):
    """One step of a graph.

    ``target`` is the number of a function for a call, and a name for an input or an attribute. ``origin`` and
    ``consumer`` are numbers of :attr:`Metadata.origins`, or -1; ``notes`` is a number of :attr:`Metadata.notes`.
    """

    operation: int
    name: str
    target: int | str
    args: list[Value]
    kwargs: dict[str, Value]
    value: Value
    origin: int = -1
    consumer: int = -1
    notes: int = -1
    replaces: str | None = None


class Subgraph(Struct, array_like=True, frozen=True):
    """A graph under the name by which the nodes of another one fetch it."""

    name: str
    graph: int


class Graph(Struct, array_like=True):
    """Steps in order. A subgraph stands before the graphs that use it."""

    nodes: list[Node]
    subgraphs: list[Subgraph] = []


# --- what inputs and outputs stand for ----------------------------------------------------------------------------


class Argument(Struct, array_like=True, frozen=True):
    """``kind``: tensor, symint, symfloat, symbool, constant (with its value) or object (with its class's name)."""

    kind: str
    name: str
    value: Value = None


class Input(Struct, array_like=True, frozen=True):
    kind: str
    argument: Argument
    target: str | None = None
    persistent: bool | None = None


class Output(Struct, array_like=True, frozen=True):
    kind: str
    argument: Argument
    target: str | None = None
    write: str = "in_place"


class Tree(Struct, array_like=True, frozen=True):
    """A container by its registered name; a leaf is null."""

    type: str
    context: Value
    children: list[Tree | None]


class ModuleSignature(Struct, array_like=True, frozen=True):
    inputs: list[Argument]
    outputs: list[Argument]
    in_tree: Tree | None
    out_tree: Tree | None


class ModuleEntry(Struct, array_like=True, frozen=True):
    path: str
    signature: ModuleSignature | None = None
    same_as: str | None = None


# --- symbolic sizes -----------------------------------------------------------------------------------------------


class Symbol(Struct, array_like=True, frozen=True):
    """A bound that is null is infinite; a hint that is null: only data decide."""

    name: str
    kind: Literal["int", "float", "bool"]
    hint: int | None
    lower: int | None
    upper: int | None


class SourceLine(Struct, array_like=True, frozen=True):
    """A line of the user's program, with its text."""

    filename: str
    line: int
    function: str
    code: str


class Condition(Struct, array_like=True, frozen=True):
    """A guard or an assertion."""

    text: str
    message: str | None
    location: SourceLine | None


class Specialization(Struct, array_like=True, frozen=True):
    expression: str
    value: Value
    location: SourceLine | None


class Dimension(Struct, array_like=True, frozen=True):
    """A ``Dim`` (``kind`` is DIM; ``scale`` and ``offset`` where it is derived) or a hint by its kind."""

    kind: str
    name: str
    lower: int | None
    upper: int | None
    scale: int = 1
    offset: int = 0


class DynamicSize(Struct, array_like=True, frozen=True):
    dimension: Dimension
    expression: str
    source: str


class Symbols(Struct):
    """The shape environment: symbols, all facts in the order in which they were learned, and what they came from."""

    symbols: list[Symbol] = []
    facts: list[str] = []
    guards: list[Condition] = []
    assertions: list[Condition] = []
    specializations: list[Specialization] = []
    dynamic_sizes: list[DynamicSize] = []


# --- tensors with data --------------------------------------------------------------------------------------------


class Observation(Struct, array_like=True, frozen=True):
    """A question that the program asked when it was captured: of input ``subject``, of the state of that name, or of
    its surroundings (None). A reader that does not check the answer must not run the program."""

    subject: int | str | None
    fact: str
    arguments: list[Value]
    answer: Value
    location: SourceLine | None = None


class Storage(Struct, array_like=True, frozen=True):
    """A piece of memory: the bytes of tensor ``name`` of the safetensors entry ``part``; none for meta tensors."""

    part: str
    name: str
    size: int
    device: str = "cpu"


class Tensor(Struct, array_like=True, frozen=True):
    """A tensor over a storage; two with the same storage share memory.

    ``offset`` counts elements. ``flags``: 1 requires a gradient, 2 conjugated, 4 negated, 8 is a Parameter.
    """

    storage: int
    dtype: str
    sizes: list[int]
    strides: list[int]
    offset: int = 0
    flags: int = 0


class Named(Struct, array_like=True, frozen=True):
    """A parameter, buffer or constant: several names may have one value."""

    name: str
    value: Value


class CustomObject(Struct, array_like=True, frozen=True):
    """An object by the registered name of its type; its bytes are the entry ``objects/<number>``."""

    type: str


class Examples(Struct, array_like=True, frozen=True):
    tree: Tree | None
    leaves: list[Value]


# --- where nodes come from ----------------------------------------------------------------------------------------


class Frame(Struct, array_like=True, frozen=True):
    """One line of a call stack; ``file`` is a number of :attr:`Metadata.files`."""

    file: int
    line: int
    function: str
    source: str = ""
    called: str | None = None
    internal: bool = False


class ModuleCall(Struct, array_like=True, frozen=True):
    """A call of a module; ``parent`` stands before it, or is -1. Frames are numbers, innermost first."""

    parent: int
    path: str
    name: str
    class_name: str
    frames: list[int]


class Origin(Struct, array_like=True, frozen=True):
    call: int
    frames: list[int]
    function: str | None = None
    serial: int = 1
    # in a program with gradients: the number of the step that it computes or whose gradient it computes
    sequence: int | None = None
    backward: bool = False
    # a stack that somebody else wrote down, one of Metadata.texts
    text: int = -1


class Metadata(Struct):
    files: list[str] = []
    texts: list[str] = []
    frames: list[Frame] = []
    calls: list[ModuleCall] = []
    origins: list[Origin] = []
    # entries of a node's meta that somebody gave it, by name
    notes: list[dict[str, Value]] = []


class Program(Struct):
    """The whole of ``program.json``."""

    stage: str
    functions: list[str]
    tensor_types: list[TensorType]
    # subgraphs first, the program's own graph last
    graphs: list[Graph]
    inputs: list[Input]
    outputs: list[Output]
    in_tree: Tree | None
    out_tree: Tree | None
    argument_names: list[str]
    memories: int = 0
    memory_notes: list[Memory] = []
    storages: list[Storage] = []
    tensors: list[Tensor] = []
    state: list[Named] = []
    constants: list[Named] = []
    objects: list[CustomObject] = []
    examples: Examples | None = None
    modules: list[ModuleEntry] = []
    symbols: Symbols = field(default_factory=Symbols)
    metadata: Metadata = field(default_factory=Metadata)
    # since 1.1; a file that has some needs a reader of 1.1
    observations: list[Observation] = []
    # where objects among the arguments stand among the results, as numbers of children on the way; since 1.2, and
    # since 1.3 all containers; a file that has some needs a reader of 1.3; left out of one that has none, which is
    # what it was in 1.1
    returned: list[tuple[list[int], list[int]]] | UnsetType = UNSET
    # the same for the modules whose signature is preserved, by their calls; since 1.3
    returned_by_modules: dict[str, list[tuple[list[int], list[int]]]] | UnsetType = UNSET
    # the keyword arguments that may be given by position too, in their order there; since 1.4, and a
    # reader may leave it out
    positional: list[str] | UnsetType = UNSET


class Programs(Struct):
    """The whole of ``programs.json``, which a file with several programs has: what they have in common.

    The program of the n-th name is ``programs/<n>.json``, a :class:`Program` in which the tables that are here are
    empty. Since 1.2.
    """

    names: list[str]
    storages: list[Storage] = []
    tensors: list[Tensor] = []
    objects: list[CustomObject] = []
    files: list[str] = []
    texts: list[str] = []
    frames: list[Frame] = []
