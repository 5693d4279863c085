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


def print_info(path: Path, *, as_json: bool = False) -> None:
    """Print everything that is worth knowing about a file."""
    archive = archive_of(map_path(path), path)
    description = read_description(archive)
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(_as_data(path, archive, description)), indent=1).decode())
        return
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


def _as_data(path: Path, archive: Any, description: Any) -> dict[str, Any]:
    """The same for machines."""
    info, one = description.info, description.program
    programs = {"": one} if one is not None else description.programs
    return {
        "file": path.name,
        "bytes": len(archive.view),
        "format": list(info.format),
        "producer": info.producer,
        "torch": info.torch,
        "programs": {name: _program_data(program) for name, program in programs.items()},
        "extra_files": [name.removeprefix("extra/") for name in archive.names() if name.startswith("extra/")],
    }


def _program_data(program: schema.Program) -> dict[str, Any]:
    _name_sizes(program)
    return {
        "stage": program.stage,
        "inputs": dict(_inputs(program)),
        "outputs": [{"name": name, "value": value} for name, value in _outputs(program)],
        "contract": _contract(program),
        "operators": dict(_operator_counts(program)),
        "state": [entry.name for entry in program.state],
        "constants": [entry.name for entry in program.constants],
    }


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
    console.print(plain(text, style), soft_wrap=True)


def plain(text: str, style: str = "", *, keep_lines: bool = False) -> Text:
    """Text from a file: never markup, and nothing that a terminal would obey."""
    shown = [
        character if character.isprintable() or (keep_lines and character == "\n") else "?" for character in text
    ]
    return Text("".join(shown), style)


def _inputs(program: schema.Program) -> Iterator[tuple[str, str]]:
    nodes = (
        [node for node in program.graphs[-1].nodes if node.operation == schema.PLACEHOLDER] if program.graphs else []
    )
    for node, entry in zip(nodes, program.inputs, strict=False):
        if entry.kind == "user_input":
            yield entry.argument.name, _describe(program, node.value)


def _outputs(program: schema.Program) -> Iterator[tuple[str, str]]:
    nodes = {node.name: node for graph in program.graphs[-1:] for node in graph.nodes}
    places = iter(_places(program.out_tree))
    for entry in program.outputs:
        node = nodes.get(entry.argument.name)
        value = entry.argument.value if node is None else node.value
        purpose = "" if entry.kind == "user_output" else f"  ({entry.kind.replace('_', ' ')} of {entry.target})"
        if entry.kind == "user_output" and (place := next(places, "")):
            purpose = f"  {place}"
        yield entry.argument.name or "(constant)", _describe(program, value) + purpose


def _places(tree: schema.Tree | None, path: str = "") -> Iterator[str]:
    """Where each output stands in the result, as far as the file alone tells."""
    if tree is None:
        yield path.removeprefix(".")
        return
    names = _names_of_parts(tree)
    for number, child in enumerate(tree.children):
        yield from _places(child, f"{path}.{names[number]}" if names else f"{path}[{number}]")


def _names_of_parts(tree: schema.Tree) -> list[str]:
    """The names of a container's parts; none where it only numbers them."""
    context: Any = msgspec.to_builtins(tree.context)
    while isinstance(context, (list, tuple)) and context:
        if len(context) == len(tree.children) and all(isinstance(name, str) for name in context):
            return list(context)
        context = next((part for part in context if isinstance(part, (list, tuple))), None)
    return []


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
        table.add_row(plain(name), plain(description))
    if len(found) > _MOST_ROWS:
        table.add_row(f"and {len(found) - _MOST_ROWS} more", "")
    return table


def _print_contract(console: Console, program: schema.Program) -> None:
    lines = _contract(program)
    _print(console, "what it asks of sizes" if lines else "all sizes are fixed", style="italic" if lines else "")
    for line in lines:
        _print(console, f"  {line}")


def _contract(program: schema.Program) -> list[str]:
    """What a program asks of sizes; nothing where all are fixed."""
    if not program.symbols.symbols:
        return []
    from tintype.export.contract import Contract, contract_lines
    from tintype.serde.symbols import SymbolReader

    symbols = SymbolReader(program.symbols)
    return str(Contract(contract_lines(symbols.environment, symbols.sizes))).splitlines()


def _operators_table(program: schema.Program) -> Table:
    counts = _operator_counts(program)
    rows = [(name, str(count)) for name, count in counts.most_common()]
    return _values_table(f"operators ({sum(counts.values())} calls)", iter(rows))


def _operator_counts(program: schema.Program) -> Counter[str]:
    return Counter(
        program.functions[node.target].removeprefix("torch.ops.")
        for graph in program.graphs
        for node in graph.nodes
        if node.operation == schema.CALL and type(node.target) is int and 0 <= node.target < len(program.functions)
    )


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
