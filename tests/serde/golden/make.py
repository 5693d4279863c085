"""Writes the files that every later version must load: ``python -m tests.serde.golden.make``, once per version.

Files that are there are never written again: what counts is that they were made by the version that they are of.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.utils._pytree as pytree

import tintype
from tests.serde.programs import Everything, everything, example_of_everything, small
from tintype.serde import schema
from tintype.serde.archive import write_archive
from tintype.serde.atomic import replacing
from tintype.serde.encode import encode_program, encode_programs
from tintype.serde.files import archive_entries

GOLDEN = Path(__file__).parent


class Branches(torch.nn.Module):
    """Control flow: a graph within the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        chosen = torch.cond(value.sum() > 0, lambda x: self.layer(x).sin(), lambda x: x.cos(), (value,))
        return chosen + 1


def branches() -> tintype.ExportedProgram:
    torch.manual_seed(0)
    return tintype.export(Branches(), (torch.randn(3, 4),))


def symbolic() -> tintype.ExportedProgram:
    """Sizes that data decide, sums of dimensions, assertions."""

    def function(value: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        count = value.long().abs().max().item()
        torch._check(count < 100)
        joined = torch.cat([value, other[1:]])
        return joined[joined > 0].sum(0) + torch.ones(count).sum()

    rows = tintype.Dim("rows", min=2, max=50)
    torch.manual_seed(0)
    shapes = {"value": {0: rows}, "other": {0: rows + 1}}
    return tintype.export(function, (torch.randn(4, 2) * 3, torch.randn(5, 2)), dynamic_shapes=shapes)


def core() -> tintype.ExportedProgram:
    torch.manual_seed(0)
    model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    return tintype.export(model, (torch.randn(2, 3, 8),)).run_decompositions()


def training() -> tintype.ExportedProgram:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv1d(2, 3, 3), torch.nn.BatchNorm1d(3), torch.nn.ReLU(inplace=True))
    return tintype.export_for_training(model, (torch.randn(4, 2, 8),))


def observed() -> tintype.ExportedProgram:
    """Asks for strides, flags and modes."""

    def function(value: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        if other.is_contiguous(memory_format=torch.channels_last) or not torch.is_grad_enabled():
            return value * value.stride(0)
        return value * 2 if (value + 1).requires_grad else value * value.stride(0)

    torch.manual_seed(0)
    shapes = {"value": {1: tintype.Dim("width")}, "other": None}
    return tintype.export(function, (torch.randn(4, 2), torch.randn(1, 2, 3, 4)), dynamic_shapes=shapes)


class Memory:
    """An object that a program is given, adds to and returns."""

    def __init__(self, seen: torch.Tensor) -> None:
        self.seen = seen
        self.kind = "all"


tintype.register_container(Memory, name="tests.Memory")


def returned() -> tintype.ExportedProgram:
    """Adds to an object and returns it."""

    def function(value: torch.Tensor, memory: Memory) -> Any:
        memory.seen = torch.cat([memory.seen, value])
        return {"sum": memory.seen.sum(), "memory": memory}

    torch.manual_seed(0)
    return tintype.export(function, (torch.randn(2), Memory(torch.randn(3))), dynamic_shapes="auto")


class Parts(torch.nn.Module):
    """Sparse and nested tensors as inputs, weights and results: files hold what they consist of."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.eye(3).to_sparse())

    def forward(self, rows: torch.Tensor, compressed: torch.Tensor, nested: torch.Tensor) -> tuple[torch.Tensor, ...]:
        dense = torch.ones(3, 2)
        scaled = nested * 2
        return (self.mask @ dense + rows @ dense, compressed @ dense, scaled.values(), scaled.offsets())


def parts() -> tintype.ExportedProgram:
    torch.manual_seed(0)
    values = torch.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0], [0.0, 0.0, 4.0]])
    nested = torch.nested.nested_tensor_from_jagged(torch.arange(10.0).reshape(5, 2), torch.tensor([0, 2, 5]))
    return tintype.export(Parts(), (values.to_sparse(), values.to_sparse_csr(), nested))


PROGRAMS: dict[str, Callable[[], tintype.ExportedProgram]] = {
    "branches": branches,
    "core": core,
    "everything": everything,
    "observed": observed,
    "parts": parts,
    "returned": returned,
    "small": small,
    "symbolic": symbolic,
    "training": training,
}


def several() -> dict[str, tintype.ExportedProgram]:
    """Programs of one model, of which one is decomposed, and one of an equal model."""
    torch.manual_seed(0)
    model = Everything()
    args, kwargs = example_of_everything()
    first, second = (tintype.export(model, args, kwargs) for _ in range(2))
    return {"first": first, "core": second.run_decompositions(), "equal to the first": everything(), "small": small()}


def expected_results(program: tintype.ExportedProgram) -> bytes:
    """What a program computes on its example, as plain numbers."""
    assert program.example_inputs is not None
    args, kwargs = program.example_inputs
    leaves: list[Any] = pytree.tree_leaves(program.module()(*args, **kwargs))
    numbers = [
        leaf.detach().double().flatten().tolist() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves
    ]
    return msgspec.json.encode([_finite(number) for number in numbers])


def _finite(number: Any) -> Any:
    if isinstance(number, list):
        return [_finite(item) for item in number]
    return 1e300 if number == float("inf") else number  # JSON has no infinity; in float16 it is one again


def schema_text() -> str:
    """The schema in a form that shows every change of it."""
    described = {"program": msgspec.json.schema(schema.Program), "programs": msgspec.json.schema(schema.Programs)}
    return msgspec.json.format(msgspec.json.encode(described, order="sorted"), indent=1).decode() + "\n"


def _forget_folders(program: schema.Program) -> None:
    """The folders of the machine that a golden file was made on are nobody's business."""
    program.metadata.files[:] = [Path(name).name for name in program.metadata.files]
    for conditions in (program.symbols.guards, program.symbols.assertions, program.symbols.specializations):
        for position, condition in enumerate(conditions):
            line = condition.location
            if line is not None:
                place = msgspec.structs.replace(line, filename=Path(line.filename).name)
                conditions[position] = msgspec.structs.replace(condition, location=place)  # type: ignore[call-overload]
    for position, observation in enumerate(program.observations):
        place = msgspec.structs.replace(observation.location, filename=Path(observation.location.filename).name)
        program.observations[position] = msgspec.structs.replace(observation, location=place)


def version_of(name: str) -> tuple[int, int]:
    """What the file of a program says of itself."""
    return schema.RETURNED_CONTAINERS if name == "returned" else schema.ONE_PROGRAM


def golden_path(name: str, version: tuple[int, int]) -> Path:
    return GOLDEN / f"{name}-{version[0]}.{version[1]}.tt"


def main() -> None:
    version = f"{schema.FORMAT_MAJOR}.{schema.FORMAT_MINOR}"
    text = GOLDEN / f"schema-{version}.json"
    if not text.exists():
        text.write_text(schema_text(), encoding="utf-8")
    for name, make in PROGRAMS.items():
        path = golden_path(name, version_of(name))
        if not path.exists():
            encoded = encode_program(make(), metadata=True)
            _forget_folders(encoded.program)
            with replacing(path) as file:
                write_archive(file, archive_entries(encoded, {"expected.json": expected_results(make())}))
    path = golden_path("several", schema.SEVERAL_PROGRAMS)
    if not path.exists():
        together = encode_programs(several(), metadata=True)
        together.shared.files[:] = [Path(name).name for name in together.shared.files]
        for program in together.programs:
            _forget_folders(program)
        expected = {f"expected/{name}": expected_results(program) for name, program in several().items()}
        with replacing(path) as file:
            write_archive(file, archive_entries(together, expected))


if __name__ == "__main__":
    main()
