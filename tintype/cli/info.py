"""``tintype info``: what a file says of its program. Nothing of the program is looked up or run, so that a file whose
operators are not installed here can be looked at too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tintype.serde import schema
from tintype.serde.description import read_description
from tintype.serde.foreign import archive_of
from tintype.serde.mapping import map_path

_MOST_ROWS = 40


def print_info(path: Path) -> None:
    """Print everything that is worth knowing about a file."""
    archive = archive_of(map_path(path), path)
    description = read_description(archive)
    info, one = description.info, description.program
    console = Console()
    what = f"{len(description.programs)} programs" if one is None else f"{one.stage} stage"
    _print(console, f"{path.name}: {_bytes(len(archive.view))}, {what}", style="bold")
    _print(console, f"format {info.format[0]}.{info.format[1]}, operator set {info.operator_set}, written by "
           f"{info.producer} with torch {info.torch}")  # fmt: skip
    if one is not None:
        _print_program(console, one)
        _print_weights(console, [one], one.storages)
    for name, program in description.programs.items():
        _print(console, f"{name}: {program.stage} stage", style="bold")
        _print_program(console, program)
    if description.shared is not None:
        _print_weights(console, list(description.programs.values()), description.shared.storages)
    extra = [name.removeprefix("extra/") for name in archive.names() if name.startswith("extra/")]
    if extra:
        _print(console, f"extra files: {', '.join(extra)}")


def _print_program(console: Console, program: schema.Program) -> None:
    _name_sizes(program)
    console.print(_values_table("inputs", _inputs(program)))
    console.print(_values_table("outputs", _outputs(program)))
    _print_contract(console, program)
    console.print(_operators_table(program))


def _name_sizes(program: schema.Program) -> None:
    """Let the sizes of a description be called what the user called them."""
    if not program.symbols.symbols:
        return  # and torch need not be loaded
    from tintype.serde.symbols import SymbolReader
    from tintype.symbolic import named_text

    symbols = SymbolReader(program.symbols)
    program.tensor_types = [
        msgspec.structs.replace(tensor, sizes=[named_text(symbols.size(size)) for size in tensor.sizes])
        for tensor in program.tensor_types
    ]


def _print(console: Console, text: str, style: str = "") -> None:
    console.print(_plain(text, style), soft_wrap=True)


def _plain(text: str, style: str = "") -> Text:
    """Text from a file: never markup, and nothing that a terminal would obey."""
    return Text("".join(character if character.isprintable() else "?" for character in text), style)


def _inputs(program: schema.Program) -> Iterator[tuple[str, str]]:
    nodes = (
        [node for node in program.graphs[-1].nodes if node.operation == schema.PLACEHOLDER] if program.graphs else []
    )
    for node, entry in zip(nodes, program.inputs, strict=False):
        if entry.kind == "user_input":
            yield entry.argument.name, _describe(program, node.value)


def _outputs(program: schema.Program) -> Iterator[tuple[str, str]]:
    nodes = {node.name: node for graph in program.graphs[-1:] for node in graph.nodes}
    for entry in program.outputs:
        node = nodes.get(entry.argument.name)
        value = entry.argument.value if node is None else node.value
        purpose = "" if entry.kind == "user_output" else f"  ({entry.kind.replace('_', ' ')} of {entry.target})"
        yield entry.argument.name or "(constant)", _describe(program, value) + purpose


def _describe(program: schema.Program, value: Any) -> str:
    if isinstance(value, schema.FakeValue) and 0 <= value.tensor_type < len(program.tensor_types):
        tensor = program.tensor_types[value.tensor_type]
        sizes = ", ".join(str(size) for size in tensor.sizes)
        return f"{tensor.dtype}[{sizes}]" + ("" if tensor.device == "cpu" else f" on {tensor.device}")
    if isinstance(value, schema.ExpressionValue):
        return f"number {value.text}"
    return "unknown" if isinstance(value, msgspec.Struct) else repr(value)


def _values_table(title: str, rows: Iterator[tuple[str, str]]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 2))
    found = list(rows)
    for name, description in found[:_MOST_ROWS]:
        table.add_row(_plain(name), _plain(description))
    if len(found) > _MOST_ROWS:
        table.add_row(f"and {len(found) - _MOST_ROWS} more", "")
    return table


def _print_contract(console: Console, program: schema.Program) -> None:
    if not program.symbols.symbols:
        _print(console, "all sizes are fixed")
        return
    from tintype.export.constraints import contract_lines
    from tintype.export.contract import Contract
    from tintype.serde.symbols import SymbolReader

    symbols = SymbolReader(program.symbols)
    _print(console, "what it asks of sizes", style="italic")
    for line in str(Contract(contract_lines(symbols.environment, symbols.sizes))).splitlines():
        _print(console, f"  {line}")


def _operators_table(program: schema.Program) -> Table:
    counts = Counter(
        program.functions[node.target]
        for graph in program.graphs
        for node in graph.nodes
        if node.operation == schema.CALL and type(node.target) is int and 0 <= node.target < len(program.functions)
    )
    rows = [(name.removeprefix("torch.ops."), str(count)) for name, count in counts.most_common()]
    return _values_table(f"operators ({sum(counts.values())} calls)", iter(rows))


def _print_weights(console: Console, programs: list[schema.Program], storages: list[schema.Storage]) -> None:
    stored = {
        (storage.part, storage.name): storage.size for storage in storages if storage.part in ("weights", "constants")
    }
    without = sum(storage.part == "" for storage in storages)
    state = {entry.name for program in programs for entry in program.state}
    constants = {entry.name for program in programs for entry in program.constants}
    text = f"weights: {len(state)} parameters and buffers, {len(constants)} constants, {_bytes(sum(stored.values()))}"
    _print(console, text + (f"; {without} of them without data" if without else ""))


def _bytes(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.4g} {unit}"
        count /= 1000
    return f"{count:.4g} TB"
