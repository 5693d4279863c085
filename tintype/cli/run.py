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
from tintype.cli.inputs import given_inputs, load_one, running
from tintype.errors import InvalidRequestError


def run_program(
    path: Path,
    given: Sequence[str],
    *,
    entry: str | None,
    example: bool,
    output: Path | None,
    containers: str = "strict",
) -> None:
    """Load a program, run it without gradients, print or write its results."""
    if output is not None and (output.is_dir() or not output.parent.is_dir()):
        raise InvalidRequestError(f"{output} is no place for the results", remedy="name a file: -o results.npz")
    program = load_one(path, entry, containers=containers)
    args, kwargs = given_inputs(program, given, example=example)
    with torch.no_grad(), running(path):
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
        with open(output, "wb") as file:  # under this name: numpy would add an ending
            np.savez(file, **arrays)


def _array(tensor: torch.Tensor) -> Any:
    """A tensor as numpy has it; of the dtypes that it does not have, bfloat16 fits into another one."""
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).cpu().numpy()


def _summary(leaf: Any) -> str:
    if not isinstance(leaf, torch.Tensor):
        return repr(leaf)
    text = f"{str(leaf.dtype).removeprefix('torch.')}{list(leaf.shape)}"
    if leaf.numel() == 0 or leaf.is_complex():
        return text
    values = leaf.double()
    return f"{text} from {values.min():.6g} to {values.max():.6g}, mean {values.mean():.6g}"
