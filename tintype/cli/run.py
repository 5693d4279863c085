"""``tintype run``: runs a program on inputs from files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.text import Text

from tintype import tree
from tintype.errors import InvalidRequestError
from tintype.export.program import ExportedProgram
from tintype.ir.printing import describe_value
from tintype.ir.signature import ConstantArgument, InputKind
from tintype.serde.files import load


def run_program(path: Path, given: Sequence[str], *, entry: str | None, example: bool, output: Path | None) -> None:
    """Load a program, run it without gradients, print or write its results."""
    program = load(path) if entry is None else load(path, entry=entry)
    if isinstance(program, dict):
        raise InvalidRequestError(
            f"{path.name} holds the programs {', '.join(program)}", remedy=f"say which: --entry {next(iter(program))}"
        )
    leaves = _leaves(program, dict(map(_named_value, given)), example)
    args, kwargs = tree.unflatten(leaves, program.call_spec.in_spec)
    with torch.no_grad():
        result = program.module()(*args, **kwargs)
    results = {
        "result" + tree.path_text(key_path): leaf for key_path, leaf in tree.flatten_with_paths(result)[0]
    }  # fmt: skip
    console = Console()
    for name, leaf in results.items():
        console.print(Text(f"{name}: {_summary(leaf)}"), soft_wrap=True)
    if output is not None:
        tensors = {name: leaf for name, leaf in results.items() if isinstance(leaf, torch.Tensor)}
        arrays: dict[str, Any] = {name: _array(tensor) for name, tensor in tensors.items()}
        np.savez(output, **arrays)


def _array(tensor: torch.Tensor) -> Any:
    """A tensor as numpy has it; of the dtypes that it does not have, bfloat16 fits into another one."""
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).cpu().numpy()


def _named_value(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise InvalidRequestError(f"--input {text}: expected NAME=VALUE", remedy="write --input x=x.npy")
    for number in (int, float):
        try:
            return name, number(value)
        except ValueError:
            continue
    path = Path(value)
    if not path.is_file():
        raise InvalidRequestError(f"--input {text}: there is no file {value}, and it is no number")
    try:
        return name, torch.from_numpy(np.load(path, allow_pickle=False))
    except (ValueError, TypeError) as error:
        raise InvalidRequestError(
            f"--input {text}: {value} is no array of numbers ({error})", remedy="save it with numpy.save"
        ) from error


def _leaves(program: ExportedProgram, given: dict[str, Any], example: bool) -> list[Any]:
    """The inputs in the program's order: given, the example's, or what the program was specialised on."""
    specs = [spec for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    names = [spec.arg.name for spec in specs]
    unknown = [name for name in given if name not in names]
    if unknown:
        raise InvalidRequestError(f"the program has no input {unknown[0]!r}; its inputs are {', '.join(names)}")
    examples: list[Any] = []
    if example and program.example_inputs is not None:
        examples = tree.flatten(program.example_inputs)[0]
    leaves = []
    for position, spec in enumerate(specs):
        if spec.arg.name in given:
            leaves.append(given[spec.arg.name])
        elif isinstance(spec.arg, ConstantArgument):
            leaves.append(spec.arg.value)
        elif examples:
            leaves.append(examples[position])
        else:
            raise InvalidRequestError(
                f"the input {spec.arg.name!r}, {_expected(program, spec.arg.name)}, is not given",
                remedy=f"add --input {spec.arg.name}=FILE.npy, or --example for the inputs that were exported with",
            )
    return leaves


def _expected(program: ExportedProgram, name: str) -> str:
    node = next(node for node in program.graph.nodes if node.name == name)
    return describe_value(node.meta.get("val"))


def _summary(leaf: Any) -> str:
    if not isinstance(leaf, torch.Tensor):
        return repr(leaf)
    text = f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}"
    if leaf.numel() == 0 or leaf.is_complex():
        return text
    values = leaf.double()
    return f"{text} from {values.min():.6g} to {values.max():.6g}, mean {values.mean():.6g}"
