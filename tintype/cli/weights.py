"""``tintype weights``: the parameters and buffers of a file, and a file with others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch

from tintype.cli.inputs import load_one
from tintype.errors import InvalidRequestError
from tintype.ir.printing import describe_value
from tintype.serde.attach import attach_weights
from tintype.serde.files import save
from tintype.serde.mapping import opened


def list_weights(path: Path, *, entry: str | None, statistics: bool, as_json: bool) -> None:
    """Print every weight with its shape; with statistics, its smallest, largest and mean number too."""
    program = load_one(path, entry)
    rows = []
    for name, value in {**program.state_dict, **program.constants}.items():
        if not isinstance(value, torch.Tensor):
            continue
        row = {"name": name, "type": describe_value(value), "bytes": value.numel() * value.element_size()}
        if statistics and not value.is_meta and value.numel() and not value.is_complex():
            wide = value.detach().double()
            row |= {"min": float(wide.min()), "max": float(wide.max()), "mean": float(wide.mean())}
        rows.append(row)
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        numbers = f"  from {row['min']:.4g} to {row['max']:.4g}, mean {row['mean']:.4g}" if "min" in row else ""
        print(f"{row['name']}: {row['type']}{numbers}")


def replace_weights(path: Path, sources: Sequence[Path], output: Path, *, entry: str | None, strict: bool) -> None:
    """Write a program with the weights of safetensors files, or of what torch.save wrote of a state_dict."""
    weights: list[object] = []
    for source in sources:
        if source.suffix in (".pt", ".pth", ".bin"):
            with opened(source) as file:
                loaded = torch.load(file, map_location="cpu", weights_only=True)
            if not isinstance(loaded, dict):
                raise InvalidRequestError(f"{source.name} holds no weights by name, but a {type(loaded).__name__}")
            weights.append(loaded)
        else:
            weights.append(source)
    before = load_one(path, entry)
    program = attach_weights(before, weights, strict=strict)  # type: ignore[arg-type]
    save(program, output)
    others = sum(value is not before.state_dict[name] for name, value in program.state_dict.items())
    print(f"{output}: {others} of {len(program.state_dict)} parameters and buffers are other ones")
