"""Programs that between them have everything that a file can hold, and ways to take files apart."""

from __future__ import annotations

import dataclasses
import io
import operator
import struct
import zipfile
from collections.abc import Callable
from typing import Any

import msgspec
import torch
from torch import nn

import tintype
from tintype.serde import schema


def saved_bytes(program: tintype.ExportedProgram, **options: Any) -> bytes:
    file = io.BytesIO()
    tintype.save(program, file, **options)
    return file.getvalue()


def loaded(content: bytes, **options: Any) -> tintype.ExportedProgram:
    return tintype.load(io.BytesIO(content), **options)


def round_trip(program: tintype.ExportedProgram) -> tintype.ExportedProgram:
    return loaded(saved_bytes(program))


@dataclasses.dataclass
class Pair:
    left: torch.Tensor
    right: torch.Tensor


tintype.register_dataclass(Pair, serialized_type_name="tests.serde.Pair")


class Everything(nn.Module):
    """Tied and shared state, buffers that change, constants, containers, numbers, dynamic sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(4)
        whole = torch.arange(8.0)
        self.register_buffer("part", whole[2:6])
        self.register_buffer("other_part", whole[4:])
        self.register_buffer("volatile", torch.ones(4, dtype=torch.bfloat16), persistent=False)
        self.register_buffer("calls", torch.zeros(()))
        self.table = torch.tensor([1, 2, 3, 4])

    def forward(self, pair: Pair, more: dict[str, Any], *, scale: float = 2.0) -> dict[str, Any]:
        value = self.norm(self.first(pair.left) + self.second(pair.right)) * scale
        self.calls.add_(1)
        picked = value[value > 0]
        return {
            "value": value + self.part + self.calls + self.other_part + self.table + self.volatile.float(),
            "rows": (value.shape[0], picked),
            "more": [more["a"].to(torch.float64), 5, None, "text"],
            "filled": torch.full((2,), float("inf"), device="cpu", dtype=torch.float16),
        }


def example_of_everything(rows: int = 3) -> tuple[tuple[Any, ...], dict[str, Any]]:
    generator = torch.Generator().manual_seed(rows)
    left, right, other = (torch.randn(rows, 4, generator=generator) for _ in range(3))
    return (Pair(left, right), {"a": other}), {"scale": 2.0}


def everything() -> tintype.ExportedProgram:
    torch.manual_seed(0)
    rows = tintype.Dim("rows", min=2, max=64)
    args, kwargs = example_of_everything()
    shapes = {"pair": [{0: rows}, {0: rows}], "more": {"a": {0: rows}}, "scale": None}
    return tintype.export(Everything(), args, kwargs, dynamic_shapes=shapes)


def small() -> tintype.ExportedProgram:
    torch.manual_seed(0)
    return tintype.export(nn.Linear(3, 2), (torch.ones(4, 3),))


def with_subgraph() -> tintype.ExportedProgram:
    """A program whose graph holds another one, as control flow has them; put together by hand."""
    program = tintype.export(lambda flag, x: torch.where(flag, x.sin(), x.cos()), (torch.tensor(True), torch.ones(3)))
    graph = program.graph
    output = next(iter(graph.find_nodes(op="output")))
    (result,) = output.args[0]
    flag, x = graph.find_nodes(op="placeholder")

    def branch(function: Any) -> torch.fx.GraphModule:
        inner = torch.fx.Graph()
        value = inner.placeholder("arg0")
        called = inner.call_function(function, (value,))
        value.meta["val"] = called.meta["val"] = x.meta["val"]
        inner.output((called,))
        return torch.fx.GraphModule({}, inner)

    module = program.graph_module
    module.true_graph_0 = branch(torch.ops.aten.sin.default)
    module.false_graph_0 = branch(torch.ops.aten.cos.default)
    with graph.inserting_before(output):
        branches = [graph.get_attr("true_graph_0"), graph.get_attr("false_graph_0")]
        chosen = graph.call_function(torch.ops.higher_order.cond, (flag, *branches, (x,)))
        item = graph.call_function(operator.getitem, (chosen, 0))
        chosen.meta["val"], item.meta["val"] = (result.meta["val"],), result.meta["val"]
    result.replace_all_uses_with(item, delete_user_cb=lambda user: user is output)
    output.args = ((item,),)
    program.graph_signature.output_specs[0].arg = dataclasses.replace(
        program.graph_signature.output_specs[0].arg, name=item.name
    )
    return program


# --- files taken apart --------------------------------------------------------------------------------------------


def entries_of(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archive_of(entries: dict[str, bytes], **options: Any) -> bytes:
    """A file of these entries, with the checksums that belong to them."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", **options) as archive:
        for name, content in entries.items():
            archive.writestr(zipfile.ZipInfo(name), content, options.get("compression"))
    return file.getvalue()


def edited(content: bytes, edit: Callable[[schema.Program], Any]) -> bytes:
    """The file with another program in it."""
    entries = entries_of(content)
    program = msgspec.json.decode(entries["program.json"], type=schema.Program)
    edit(program)
    entries["program.json"] = msgspec.json.encode(program)
    return archive_of(entries)


def edited_json(content: bytes, name: str, edit: Callable[[Any], Any]) -> bytes:
    """The file with another entry in it, edited as plain JSON."""
    entries = entries_of(content)
    value = msgspec.json.decode(entries[name])
    changed = edit(value)
    entries[name] = msgspec.json.encode(value if changed is None else changed)
    return archive_of(entries)


def safetensors(header: Any, data: bytes) -> bytes:
    encoded = header if isinstance(header, bytes) else msgspec.json.encode(header)
    return struct.pack("<Q", len(encoded)) + encoded + data
