"""Inputs of programs from the command line: ``NAME=VALUE``, or files that hold several by name.

A value is a file (.npy, .npz, .pt, .safetensors, .json) or JSON as it stands: numbers, true, false, null, text, lists
and dictionaries. Lists of numbers are tensors where the program takes one. A container among arguments is given as
a whole, or leaf by leaf under the names that ``tintype info`` shows.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch

from tintype import tree
from tintype.errors import FileFormatError, InvalidRequestError, Location, TintypeError
from tintype.export.program import ExportedProgram
from tintype.ir.graph import placeholders
from tintype.ir.printing import describe_value
from tintype.ir.signature import ConstantArgument, InputKind
from tintype.serde.attach import tensors_in
from tintype.serde.files import load
from tintype.symbolic.location import location_in

_PYTHON_WORDS = {"True": True, "False": False, "None": None}


def import_modules(names: Sequence[str]) -> None:
    """Import what a program needs besides tintype: custom operators, and classes of its arguments and results."""
    for name in names:
        with users_code(f"--import {name}"), modules_beside():
            importlib.import_module(name)


@contextmanager
def modules_beside() -> Iterator[None]:
    """Within it, modules in the current folder can be imported, as by ``python -m``."""
    sys.path.insert(0, os.getcwd())
    try:
        yield
    finally:
        sys.path.pop(0)


@contextmanager
def users_code(what: str, remedy: str = "mend this first") -> Iterator[None]:
    """Code of the user's that is run on the way: what goes wrong there is told with its line, without a traceback."""
    try:
        yield
    except TintypeError:
        raise
    except Exception as error:
        place = location_in(error)
        if isinstance(error, SyntaxError) and error.filename is not None:
            place = Location(error.filename, error.lineno or 1, "module")
        kind = "" if isinstance(error, ImportError) else f"{type(error).__name__}: "
        if isinstance(error, ImportError):
            remedy = "run it where the module can be imported"
        raise InvalidRequestError(f"{what}: {kind}{error}", location=place, remedy=remedy) from error


def load_one(path: Path, entry: str | None, **options: Any) -> ExportedProgram:
    """The program of a file; if there are several, somebody has to say which."""
    program = load(path, **options) if entry is None else load(path, entry=entry, **options)
    if isinstance(program, dict):
        raise InvalidRequestError(
            f"{path.name} holds the programs {', '.join(program)}", remedy=f"say which: --entry {next(iter(program))}"
        )
    return program


def given_inputs(program: ExportedProgram, texts: Sequence[str], *, example: bool) -> tuple[Any, Any]:
    """The arguments of a call, from what was given on the command line."""
    leaves = _leaves(program, _named(texts), example)
    args, kwargs = tree.unflatten(leaves, program.call_spec.in_spec)
    return args, kwargs


def _named(texts: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if separator and name:
            found[name] = read_value(value, f"--input {text}")
            continue
        several = read_value(text, f"--input {text}") if Path(text).is_file() else None
        if not isinstance(several, dict):
            raise InvalidRequestError(
                f"--input {text}: expected NAME=VALUE, or a file of several inputs by name",
                remedy="write --input x=x.npy",
            )
        found.update(several)
    return found


def read_value(text: str, option: str) -> Any:
    """The value that a text is, or that is in the file it names."""
    path = Path(text)
    reader = _READERS.get(path.suffix)
    if reader is not None and path.is_file():
        try:
            return reader(path)
        except (ValueError, TypeError, EOFError, RuntimeError, UnpicklingError, FileFormatError) as error:
            first = str(error).partition("\n")[0]
            what = "array of numbers" if path.suffix == ".npy" else f"{path.suffix} file of tensors"
            raise InvalidRequestError(f"{option}: {text} is no {what} ({first})") from error
    if text in _PYTHON_WORDS:
        return _PYTHON_WORDS[text]
    for parse in (json.loads, float):
        try:
            return parse(text)
        except ValueError:
            continue
    if text[:1] in ("[", "{"):
        raise InvalidRequestError(
            f"{option}: {text} is no JSON", remedy="look for brackets and quotes that are missing"
        )
    if path.suffix or "/" in text:
        kinds = ", ".join(_READERS)
        raise InvalidRequestError(
            f"{option}: there is no file {text} that could be read, and it is no number",
            remedy=f"give a file ({kinds}), a number, or JSON; text is written in quotes: '\"{text}\"'",
        )
    return text


def _read_npy(path: Path) -> Any:
    return torch.from_numpy(np.load(path, allow_pickle=False))


def _read_npz(path: Path) -> Any:
    with np.load(path, allow_pickle=False) as file:
        return {name: torch.from_numpy(array) for name, array in file.items()}


def _read_pt(path: Path) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True)


def _read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


_READERS = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".pt": _read_pt,
    ".pth": _read_pt,
    ".safetensors": tensors_in,
    ".json": _read_json,
}


def _leaves(program: ExportedProgram, given: dict[str, Any], example: bool) -> list[Any]:
    """The inputs in the program's order: given, the example's, or what the program was specialised on."""
    nodes = zip(placeholders(program.graph), program.graph_signature.input_specs, strict=True)
    inputs = [(node, spec) for node, spec in nodes if spec.kind is InputKind.USER_INPUT]
    given = _by_leaf(program, given, [spec.arg.name for _, spec in inputs])
    examples = (program.example_leaves if example else None) or []
    leaves = []
    for position, (node, spec) in enumerate(inputs):
        value = node.meta.get("val")
        if spec.arg.name in given:
            leaves.append(_as_expected(given[spec.arg.name], value, spec.arg.name))
        elif isinstance(spec.arg, ConstantArgument):
            leaves.append(spec.arg.value)
        elif examples:
            leaves.append(examples[position])
        else:
            raise InvalidRequestError(
                f"the input {spec.arg.name!r}, {describe_value(value)}, is not given",
                remedy=f"add --input {spec.arg.name}=FILE.npy, or --example for the inputs that were exported with",
            )
    return leaves


def _by_leaf(program: ExportedProgram, given: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """What was given for whole arguments, taken apart into the program's inputs."""
    args_spec, kwargs_spec = program.call_spec.in_spec.children()
    arguments = dict(zip(program.argument_names, [*args_spec.children(), *kwargs_spec.children()]))
    begins: dict[str, int] = {}
    count = 0
    for name, spec in arguments.items():
        begins[name] = count
        count += spec.num_leaves
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name in arguments and not arguments[name].is_leaf():
            leaves = _taken_apart(value, arguments[name], name)
            found.update(zip(names[begins[name] : begins[name] + len(leaves)], leaves))
        elif name in arguments:
            found[names[begins[name]]] = value
        elif name in names:
            found[name] = value
        else:
            known = ", ".join(dict.fromkeys([*arguments, *names]))
            raise InvalidRequestError(f"the program has no input {name!r}; its inputs are {known}")
    return found


def _taken_apart(value: Any, spec: Any, name: str) -> list[Any]:
    """The leaves of a value from JSON or a file, in the order of a structure."""
    if spec.is_leaf():
        return [value]
    children = list(spec.children())
    labels = [tree.place_name(*tree.child_names(spec, (number,))) for number in range(len(children))]
    parts: list[Any] | None = None
    if isinstance(value, dict) and set(value) == set(labels):
        parts = [value[label] for label in labels]
    elif isinstance(value, (list, tuple)) and len(value) == len(children):
        parts = list(value)
    if parts is None:
        raise InvalidRequestError(f"{name} is a {spec.type.__name__} of {len(children)}: {', '.join(labels)}")
    return [
        leaf
        for part, child, label in zip(parts, children, labels)
        for leaf in _taken_apart(part, child, f"{name}.{label}")
    ]


def _as_expected(value: Any, expected: Any, name: str) -> Any:
    """Numbers and lists of them are tensors where the program takes one."""
    if isinstance(value, dict) and len(value) == 1:
        (value,) = value.values()  # a file with one tensor
    if not isinstance(expected, torch.Tensor) or isinstance(value, torch.Tensor):
        return value
    what = f"the input {name!r} is {describe_value(expected)}"
    if isinstance(value, str):
        raise InvalidRequestError(
            f"{what}, and no text: {value!r}", remedy=f"give a file or numbers: --input {name}=x.npy, '{name}=[1, 2]'"
        )
    try:
        made = torch.tensor(value, dtype=expected.dtype, device=expected.device)
        as_written = torch.tensor(value)
    except (ValueError, TypeError, RuntimeError) as error:
        raise InvalidRequestError(f"{what}: {error}") from error
    if as_written.is_floating_point() and not made.is_floating_point() and not made.is_complex():
        lost = as_written[made.cpu() != as_written]
        if lost.numel():
            raise InvalidRequestError(f"{what}, which can't hold {lost[0].item():.6g}", remedy="give whole numbers")
    return made


def running(path: Path) -> AbstractContextManager[None]:
    """Within it a program runs: what an operator refuses is told as something about the inputs."""
    return users_code(
        f"{path.name} can't be run on these inputs",
        "look at their values: indices and token ids must be smaller than the table that they look into",
    )
