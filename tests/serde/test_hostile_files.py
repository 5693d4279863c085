"""Files that are damaged, or made to do harm: each is refused with a clear error, before anything is allocated."""

from __future__ import annotations

import io
import os
import resource
import struct
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tintype
from tests.serde.programs import (
    archive_of,
    edited,
    edited_json,
    entries_of,
    everything,
    loaded,
    safetensors,
    saved_bytes,
    small,
    with_subgraph,
)
from tintype.errors import FileFormatError
from tintype.serde import schema
from tintype.serde.targets import FUNCTIONS

SMALL = saved_bytes(small())
EVERYTHING = saved_bytes(everything())


def refused(content: bytes, message: str) -> None:
    with pytest.raises(FileFormatError, match=message):
        loaded(content)


# --- the container ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip file at all", bytes(100), SMALL[:-1], SMALL[:200]])
def test_what_is_no_archive(content: bytes) -> None:
    refused(content, "no tintype file|can't be read")


@pytest.mark.parametrize("length", range(0, len(SMALL), 97))
def test_a_file_that_was_cut_off(length: int) -> None:
    refused(SMALL[:length], "tintype file|directory")


def test_a_file_with_something_behind_it() -> None:
    refused(SMALL + b"\0", "no tintype file")


def test_compressed_entries_are_refused() -> None:
    refused(archive_of(entries_of(SMALL), compression=zipfile.ZIP_DEFLATED), "compressed")


def test_a_zip_bomb_is_refused_by_its_first_entry() -> None:
    bomb = archive_of({"format.json": bytes(10_000_000)}, compression=zipfile.ZIP_DEFLATED)
    assert len(bomb) < 20_000
    refused(bomb, "compressed")


def test_two_entries_of_one_name() -> None:
    file = io.BytesIO(SMALL)
    with zipfile.ZipFile(file, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("format.json", b"{}")
    refused(file.getvalue(), "two entries 'format.json'")


def patched(content: bytes, signature: bytes, offset: int, form: str, value: int, nth: int = 0) -> bytes:
    """The file with another number in the nth structure of a kind."""
    position = -1
    for _ in range(nth + 1):
        position = content.index(signature, position + 1)
    changed = bytearray(content)
    struct.pack_into(form, changed, position + offset, value)
    return bytes(changed)


CENTRAL, LOCAL, END = b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"
DIRECTORY_FAULTS = {
    "an entry that begins elsewhere": (CENTRAL, 42, "<L", 3, 0),
    "an entry over another one": (CENTRAL, 42, "<L", 0, 1),
    "a size beyond the file": (CENTRAL, 24, "<L", 1 << 31, 1),
    "two sizes": (CENTRAL, 20, "<L", 5, 1),
    "a name that is longer than the directory": (CENTRAL, 28, "<H", 60_000, 0),
    "an encrypted entry": (CENTRAL, 8, "<H", 1, 0),
    "a directory elsewhere": (END, 16, "<L", 7, 0),
    "a directory of another size": (END, 12, "<L", 7, 0),
    "more entries than there are": (END, 10, "<H", 9, 0),
    "a local name of another length": (LOCAL, 26, "<H", 3, 0),
    "an extra field beyond the file": (LOCAL, 28, "<H", 65_000, 0),
    "a large file's directory that is not there": (END, 16, "<L", 0xFFFFFFFF, 0),
}


@pytest.mark.parametrize("fault", DIRECTORY_FAULTS.values(), ids=DIRECTORY_FAULTS.keys())
def test_a_directory_that_lies(fault: Any) -> None:
    refused(patched(SMALL, *fault), "entry|directory|entries|checksum")


def test_a_changed_byte_of_the_description_is_noticed() -> None:
    position = SMALL.index(b'"functional"') + 3
    refused(SMALL[:position] + b"X" + SMALL[position + 1 :], "checksum differs")


@pytest.mark.parametrize("name", ["format.json", "program.json", "weights.safetensors"])
def test_a_missing_entry(name: str) -> None:
    entries = entries_of(SMALL)
    del entries[name]
    refused(archive_of(entries), f"no entry '{name}'")


def test_names_of_entries_are_never_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    entries = {**entries_of(SMALL), "extra/../../evil": b"x", "extra//etc/evil": b"y"}
    files: dict[str, Any] = {}
    loaded(archive_of(entries), extra_files=files)
    assert files == {"../../evil": "x", "/etc/evil": "y"}
    assert list(tmp_path.rglob("*")) == []


# --- weights ------------------------------------------------------------------------------------------------------


def with_weights(header: Any, data: bytes) -> bytes:
    entries = entries_of(SMALL)
    entries["weights.safetensors"] = safetensors(header, data)
    return archive_of(entries)


def tensor(begin: int, end: int, dtype: str = "F32", shape: Any = None) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [(end - begin) // 4] if shape is None else shape, "data_offsets": [begin, end]}


WEIGHT_FAULTS: dict[str, tuple[Any, bytes, str]] = {
    "overlapping": ({"weight": tensor(0, 24), "bias": tensor(20, 28)}, bytes(28), "over another one"),
    "a gap": ({"weight": tensor(0, 24), "bias": tensor(28, 36)}, bytes(36), "leaves a gap"),
    "outside": ({"weight": tensor(0, 24), "bias": tensor(24, 1 << 40)}, bytes(32), "outside of the file"),
    "backwards": ({"weight": tensor(0, 24), "bias": tensor(24, 16)}, bytes(32), "outside of the file"),
    "negative": ({"weight": tensor(-8, 24), "bias": tensor(24, 32)}, bytes(32), "outside of the file"),
    "unused bytes": ({"weight": tensor(0, 24), "bias": tensor(24, 32)}, bytes(40), "belong to no tensor"),
    "one missing": ({"weight": tensor(0, 24)}, bytes(24), "'bias' is not there"),
    "other size": ({"weight": tensor(0, 20), "bias": tensor(20, 28)}, bytes(28), "of another size"),
    "no JSON": (b"{nothing", b"", "can't be read"),
    "other JSON": ([1, 2], b"", "can't be read"),
    "no text": (b"\xff\xff", b"", "can't be read"),
}


@pytest.mark.parametrize(("header", "data", "message"), WEIGHT_FAULTS.values(), ids=WEIGHT_FAULTS.keys())
def test_weights_that_lie(header: Any, data: bytes, message: str) -> None:
    refused(with_weights(header, data), message)


@pytest.mark.parametrize("length", [1 << 63, 1 << 40, 200_000_000])
def test_a_header_of_absurd_length(length: int) -> None:
    entries = entries_of(SMALL)
    entries["weights.safetensors"] = struct.pack("<Q", length) + b"{}"
    refused(archive_of(entries), "more than there are")


def geometry(**changes: Any) -> Callable[[schema.Program], None]:
    def edit(program: schema.Program) -> None:
        old = program.tensors[0]
        fields = {name: getattr(old, name) for name in old.__struct_fields__}
        program.tensors[0] = schema.Tensor(**{**fields, **changes})

    return edit


GEOMETRY_FAULTS = [
    {"sizes": [1 << 40, 3]},
    {"sizes": [2, 3], "strides": [1 << 40, 1]},
    {"offset": 1},
    {"offset": -1},
    {"sizes": [-2, 3]},
    {"strides": [-3, 1]},
    {"sizes": [2, 3, 4]},
    {"sizes": [1 << 62, 1 << 62], "strides": [0, 0]},
    {"sizes": [0, 1 << 63], "strides": [1, 1]},
    {"sizes": [1] * 100, "strides": [1] * 100},
    {"dtype": "complex128"},
    {"dtype": "nothing"},
    {"storage": 7},
    {"storage": -1},
]


@pytest.mark.parametrize("changes", GEOMETRY_FAULTS, ids=str)
def test_tensors_outside_of_their_memory(changes: dict[str, Any]) -> None:
    refused(edited(SMALL, geometry(**changes)), "memory|absurd|fit together|no dtype|no storage")


def test_a_storage_that_claims_more_than_its_data() -> None:
    def edit(program: schema.Program) -> None:
        program.storages[0] = schema.Storage("weights", "weight", 1 << 40)

    refused(edited(SMALL, edit), "another size")


def test_state_of_another_size_than_the_graph_takes() -> None:
    refused(edited(SMALL, geometry(sizes=[3, 2], strides=[2, 1])), "'weight' is not what the graph takes it for")


# --- the program --------------------------------------------------------------------------------------------------


def rename(old: str, new: str) -> bytes:
    entries = entries_of(SMALL)
    entries["program.json"] = entries["program.json"].replace(old.encode(), new.encode())
    return archive_of(entries)


OPERATORS = [
    "os.system",
    "builtins.eval",
    "torch.ops.load_library",
    "torch.ops.aten.nothing.default",
    "torch.ops.aten.linear.nothing",
    "torch.ops.aten.linear",
    "torch.ops.aten.linear.__class__",
    "torch.ops.aten.__class__.__init__",
    "torch.ops.__class__.__init__.__globals__",
    "torch.ops.higher_order.nothing",
    "torch.load",
    "operator.attrgetter",
    "operator.methodcaller",
    "operator.call",
    "tintype.export",
    "",
]


@pytest.mark.parametrize("name", OPERATORS)
def test_functions_that_are_no_operators(name: str) -> None:
    refused(rename("torch.ops.aten.linear.default", name), "which is no operator here")


@pytest.mark.parametrize("name", ["torch.ops.aten.from_file.default", "torch.ops.image.read_file.default"])
def test_operators_that_reach_out_to_files(name: str) -> None:
    refused(rename("torch.ops.aten.linear.default", name), "reaches out to files")


def test_a_program_that_reads_files_can_not_be_saved(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    (tmp_path / "data").write_bytes(bytes(16))
    program = small()
    node = next(iter(program.graph.find_nodes(op="call_function", target=torch.ops.aten.linear.default)))
    node.target, node.args = torch.ops.aten.from_file.default, (path, True, 4)
    with pytest.raises(tintype.UnsavableError, match="reaches out to files"):
        saved_bytes(program)


def test_no_python_function_of_the_table_runs_code() -> None:
    harmless = ("operator.", "math.", "torch.sym_", "torch._sym_", "tintype.")
    assert all(name.startswith(harmless) or name == "round" for name in FUNCTIONS)
    assert not {"operator.call", "operator.attrgetter", "operator.methodcaller", "operator.setitem"} & set(FUNCTIONS)


CODE = "x): __import__('os').system('false') #"


def set_node(**changes: Any) -> Callable[[schema.Program], None]:
    def edit(program: schema.Program) -> None:
        call = next(node for node in program.graphs[-1].nodes if node.operation == schema.CALL)
        for name, value in changes.items():
            setattr(call, name, value)

    return edit


def set_program(**changes: Any) -> Callable[[schema.Program], None]:
    def edit(program: schema.Program) -> None:
        for name, value in changes.items():
            setattr(program, name, value)

    return edit


def first_frame(program: schema.Program) -> None:
    program.metadata.files[0] = "x.py\nimport os"


def absurd_type(program: schema.Program) -> None:
    program.tensor_types[0] = schema.TensorType([1 << 40, 1 << 40], [1, 1], "float32", "cpu")


def cyclic_memory(program: schema.Program) -> None:
    program.memory_notes = [schema.Memory(0, False, False, 99)]


def own_source(program: schema.Program) -> None:
    program.memory_notes = [schema.Memory(0, False, False, 1), schema.Memory(1, False, False, 0)]


def module_that_is_code(program: schema.Program) -> None:
    program.modules = [schema.ModuleEntry(CODE)]


def call_that_is_code(program: schema.Program) -> None:
    program.metadata.calls = [schema.ModuleCall(-1, CODE, CODE, "M", [])]


PROGRAM_FAULTS: dict[str, tuple[Callable[[schema.Program], None], str]] = {
    "code as a name": (set_node(name=CODE), "can't be the name of a value"),
    "code as a keyword": (set_node(kwargs={CODE: 1}), "can't be the name of a value"),
    "a value that is not there yet": (set_node(args=[schema.Ref(50)]), "does not stand before it"),
    "a value before the first": (set_node(args=[schema.Ref(-1)]), "does not stand before it"),
    "a function that is not there": (set_node(target=50), "calls a function that is not there"),
    "a function by name": (set_node(target="os.system"), "calls a function that is not there"),
    "a node of no kind": (set_node(operation=9), "of a kind that no program has"),
    "a type that is not there": (set_node(value=schema.FakeValue(99, 0)), "not there"),
    "a memory that is not there": (set_node(value=schema.FakeValue(0, 99)), "not there"),
    "a memory that is described only": (cyclic_memory, "memory that is not there"),
    "a memory that comes from itself": (own_source, "its own source"),
    "code as a module": (module_that_is_code, "can't be the name of a module"),
    "code as a module call": (call_that_is_code, "can't be the name of a module"),
    "too many arguments": (set_node(args=[1] * 9), "positional arguments"),
    "an unknown argument": (set_node(kwargs={"nothing": 1}), "no argument 'nothing'"),
    "an origin that is not there": (set_node(origin=99), "no entry 99"),
    "a tensor among the arguments": (set_node(args=[schema.TensorValue(0)]), "can't have one"),
    "no graph": (set_program(graphs=[]), "no graph"),
    "no nodes": (set_program(graphs=[schema.Graph([])]), "output"),
    "a stage that is not there": (set_program(stage="final"), "no stage 'final'"),
    "memories without end": (set_program(memories=1 << 60), "claims"),
    "an absurd type": (absurd_type, "absurd number of elements"),
    "a source line with two lines": (first_frame, "more than one line"),
    "inputs of another structure": (set_program(in_tree=None), "structure of the inputs"),
    "outputs of another structure": (set_program(out_tree=schema.Tree("list", None, [])), "structure of the outputs"),
    "a container that is not there": (set_program(out_tree=schema.Tree("os.system", None, [None])), "no container"),
    "an object that is none": (set_program(returned=[([0], [0])]), "said to be returned"),
    "an object that is not there": (set_program(returned=[([7, 7], [])]), "said to be returned"),
    "an object at a negative place": (set_program(returned=[([-1], [-1])]), "said to be returned"),
    "a class by name": (
        set_program(out_tree=schema.Tree("registered:subprocess.Popen", None, [None])),
        "not registered here",
    ),
    "a factory by name": (
        set_program(out_tree=schema.Tree("defaultdict", schema.ListValue(["system", schema.ListValue([])]), [])),
        "is not allowed in a file",
    ),
    "pytree's own way to a factory": (
        set_program(out_tree=schema.Tree("registered:collections.defaultdict", schema.DictValue([], []), [])),
        "not registered here",
    ),
}


@pytest.mark.parametrize(("edit", "message"), PROGRAM_FAULTS.values(), ids=PROGRAM_FAULTS.keys())
def test_programs_that_lie(edit: Callable[[schema.Program], None], message: str) -> None:
    refused(edited(SMALL, edit), message)


def test_subgraphs_can_not_contain_themselves() -> None:
    content = saved_bytes(with_subgraph())

    def edit(program: schema.Program) -> None:
        program.graphs[0].subgraphs = [schema.Subgraph("true_graph_0", 0)]

    refused(edited(content, edit), "does not stand before its user")


def test_a_graph_that_fetches_what_it_does_not_have() -> None:
    def edit(program: schema.Program) -> None:
        program.graphs[-1].subgraphs = []

    refused(edited(saved_bytes(with_subgraph()), edit), "which it does not have")


def symbol_edit(**changes: Any) -> Callable[[schema.Program], None]:
    def edit(program: schema.Program) -> None:
        for name, value in changes.items():
            setattr(program.symbols, name, value)

    return edit


SYMBOL_FAULTS = {
    "code": (symbol_edit(facts=["__import__('os').system('false')"]), "no expression"),
    "a symbol that is not there": (symbol_edit(facts=["s77 > 1"]), "unknown symbol 's77'"),
    "a number": (symbol_edit(facts=["3"]), "no condition"),
    "a contradiction": (symbol_edit(facts=["s0 > 5", "s0 < 3"]), "contradict"),
    "division by zero": (symbol_edit(facts=["s0//0 > 1"]), "no expression"),
    "a tower of powers": (symbol_edit(facts=["s0 > ((9**1024)**1024)**1024"]), "too high"),
    "a very long number": (symbol_edit(facts=["s0 > " + "9" * 5000]), "no expression"),
    "nesting": (symbol_edit(facts=["s0 > " + "(" * 1000 + "1" + ")" * 1000]), "nested too deeply"),
    "length": (symbol_edit(facts=["s0 > " + "+".join(["1"] * 10_000)]), "too long"),
    "a name that is code": (symbol_edit(symbols=[schema.Symbol("a b", "int", 1, 0, None)]), "name of a symbol"),
    "an empty range": (symbol_edit(symbols=[schema.Symbol("s0", "int", 1, 5, 3)]), "outside of its own range"),
}


@pytest.mark.parametrize(("edit", "message"), SYMBOL_FAULTS.values(), ids=SYMBOL_FAULTS.keys())
def test_symbols_that_lie(edit: Callable[[schema.Program], None], message: str) -> None:
    refused(edited(EVERYTHING, edit), message)


@pytest.mark.parametrize("depth", [120, 900, 3000, 100_000])
def test_deep_nesting(depth: int) -> None:
    entries = entries_of(SMALL)
    whole = entries["program.json"]
    call = whole.index(b'"linear",0,[') + len(b'"linear",0,[')
    entries["program.json"] = whole[:call] + b"[2,[" * depth + b"1" + b"]]" * depth + b"," + whole[call:]
    refused(archive_of(entries), "nested too deeply|can't be read: maximum recursion depth")


def test_deep_nesting_where_nobody_looks() -> None:
    entries = entries_of(SMALL)
    deep = b"[" * 100_000 + b"]" * 100_000
    entries["program.json"] = b'{"unknown":' + deep + b"," + entries["program.json"][1:]
    refused(archive_of(entries), "can't be read: maximum recursion depth")


def test_the_json_of_a_program_is_held_to_its_types() -> None:
    def edit(value: Any) -> None:
        value["stage"] = 5

    refused(edited_json(SMALL, "program.json", edit), r"Expected `str`, got `int` - at `\$.stage`")


def test_what_a_hostile_file_says_is_not_read_from_this_machine() -> None:
    """Source lines come from the file; a file that names /etc/passwd does not get to show it."""

    def edit(program: schema.Program) -> None:
        program.metadata.files = ["/etc/passwd" for _ in program.metadata.files]
        program.metadata.frames = [
            schema.Frame(0, 1, frame.function, "", None, False) for frame in program.metadata.frames
        ]

    program = loaded(edited(SMALL, edit))
    assert "root:" not in program.code
    assert all("root:" not in str(node.meta.get("stack_trace")) for node in program.graph.nodes)


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_AS"), reason="needs a limit on memory")
def test_absurd_claims_take_no_memory(tmp_path: Path) -> None:
    """Under a limit on memory, files that claim terabytes are refused, not attempted."""
    claims = [
        with_weights({"weight": tensor(0, 1 << 42), "bias": tensor(1 << 42, 1 << 43)}, bytes(64)),
        edited(SMALL, geometry(sizes=[1 << 50, 1])),
        edited(SMALL, set_program(memories=1 << 40)),
        edited(EVERYTHING, symbol_edit(facts=["s0 > ((9**1024)**1024)**1024"])),
    ]
    for number, content in enumerate(claims):
        (tmp_path / f"{number}.tt").write_bytes(content)
    program = """
        import resource, sys, torch, tintype
        tintype.load(sys.argv[1])  # everything is imported
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), used + (64 << 20)))
        for path in sys.argv[2:]:
            try:
                tintype.load(path)
            except tintype.FileFormatError:
                continue
            sys.exit(f"{path} was not refused")
    """
    (tmp_path / "small.tt").write_bytes(SMALL)
    paths = [str(tmp_path / name) for name in ("small.tt", *(f"{n}.tt" for n in range(len(claims))))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *paths], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
