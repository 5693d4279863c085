"""``tintype convert``: TorchScript and torch.export to programs, programs to torch.export and ONNX."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tintype.cli.dynamic import dynamic_shapes_of
from tintype.cli.inputs import load_one
from tintype.cli.progress import progress
from tintype.errors import InvalidRequestError, TintypeError
from tintype.export.program import ExportedProgram
from tintype.serde.files import save
from tintype.serde.foreign import foreign_file
from tintype.serde.mapping import opened

_SIZES = re.compile(r"(?:\d+(?:x\d+)*)?")


def convert_file(
    source: Path,
    target: Path,
    inputs: Sequence[str],
    dynamic: Sequence[str],
    *,
    entry: str | None,
    method: str,
    trust: bool,
    onnx_options: dict[str, Any],
) -> None:
    """Make a program of a file, and another file of the program; their endings say what they are."""
    if not source.is_file():
        opened(source).close()  # says that there is none
    if not target.parent.is_dir() or target.is_dir() or (target.exists() and target.samefile(source)):
        raise InvalidRequestError(f"{target} is no place for the program", remedy="name another file to write")
    if source.suffix == ".onnx":
        found = foreign_file(memoryview(source.read_bytes()), str(source))
        raise found or InvalidRequestError(f"{source.name} is no program")
    if source.suffix == ".tt" and target.suffix not in (".onnx", ".pt2"):
        raise InvalidRequestError(
            f"{source.name} is a program already",
            remedy="end the other name with .onnx or .pt2, or see tintype decompose",
        )
    if source.suffix in (".tt", ".pt2") and (inputs or dynamic):
        raise InvalidRequestError(
            f"--input and --dynamic are for TorchScript: {source.name} says itself what it takes",
            remedy="leave them out",
        )
    with progress(f"reading {source.name}") as tell:
        if source.suffix == ".tt":
            program = load_one(source, entry)
        elif source.suffix == ".pt2":
            program = _of_torch_export(source, trust)
        else:
            program = _of_torchscript(source, inputs, dynamic, trust=trust, method=method)
        tell(f"making {target.name}")
        if target.suffix == ".onnx":
            from tintype.cli.to_onnx import write_onnx

            write_onnx(program, target, tell, **onnx_options)
            return
        if target.suffix == ".pt2":
            from tintype.interop.files import write_torch_file

            write_torch_file(program, target)
        else:
            save(program, target)
    weights = sum(tensor.numel() for tensor in program.state_dict.values())
    print(f"{target}: {len(program.graph.nodes)} nodes, {weights} weights")


def _check_trust(source: Path, kind: str, trust: bool) -> None:
    if not trust:
        raise InvalidRequestError(
            f"{source.name} is a {kind} file, and to load one runs code that it brings along",
            remedy="add --trust if you know where the file comes from",
        )


def _of_torch_export(source: Path, trust: bool) -> ExportedProgram:
    _check_trust(source, "torch.export", trust)
    from tintype.interop.files import read_torch_file

    return read_torch_file(source)


def _of_torchscript(
    source: Path, inputs: Sequence[str], dynamic: Sequence[str], *, trust: bool, method: str
) -> ExportedProgram:
    """Load a TorchScript file and convert a method of it."""
    _check_trust(source, "TorchScript", trust)
    described = dict(map(described_input, inputs))
    try:
        script = torch.jit.load(source, map_location="cpu")
    except (RuntimeError, ValueError) as error:
        first = (str(error).strip().splitlines() or ["it can't be read"])[0]
        known = foreign_file(memoryview(source.read_bytes()), source.name)
        if known is not None and "TorchScript" not in str(known):
            raise known from error
        raise InvalidRequestError(f"{source.name} is no TorchScript file: {first}") from error
    from tintype.interop.torchscript.conversion import from_torchscript

    if not script._c._has_method(method):
        methods = ", ".join(script._c._method_names())
        raise InvalidRequestError(f"the script has no method {method!r}; its methods are {methods}")
    chosen = script if method == "forward" else getattr(script, method)
    args = _in_order(script, method, described)
    shapes = dynamic_shapes_of(dynamic, args)
    try:
        return from_torchscript(chosen, tuple(args.values()), dynamic_shapes=shapes)
    except TintypeError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError, torch.jit.Error) as error:
        raise InvalidRequestError(f"the script does not run on these inputs: {error}") from error


def _in_order(script: Any, method: str, given: dict[str, str]) -> dict[str, Any]:
    """The inputs in the order of the method's arguments."""
    arguments = script._c._get_method(method).schema.arguments[1:]
    names = [argument.name for argument in arguments]
    unknown = [name for name in given if name not in names]
    if unknown:
        raise InvalidRequestError(f"the script has no input {unknown[0]!r}; its inputs are {', '.join(names)}")
    found: dict[str, Any] = {}
    for argument in arguments:
        if argument.name in given:
            found[argument.name] = _example(argument.name, given[argument.name], str(argument.type))
        elif argument.has_default_value():
            found[argument.name] = argument.default_value
        else:
            raise InvalidRequestError(
                f"the input {argument.name!r} of the script, a {argument.type}, is not described",
                remedy=f"add --input {argument.name}=2x3:float32",
            )
    return found


def described_input(text: str) -> tuple[str, str]:
    """The name and the description of an input."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise InvalidRequestError(f"--input {text}: expected NAME=SIZES:DTYPE", remedy="write --input x=2x3:float32")
    return name, value


def _example(name: str, value: str, kind: str) -> Any:
    """An example of an input: ``x=2x3:float32`` is a tensor, ``n=3`` and ``f=0.5`` are numbers, ``how=text`` is a
    string. What the script takes decides where a text may be several."""
    kind = kind.removeprefix("Optional[").removesuffix("]")
    if value == "None" and kind != "str":
        return None
    if kind == "Tensor" or (":" in value and kind != "str"):
        return described_tensor(name, value)
    if kind == "str":
        return value
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    for number in (int, float):
        try:
            return number(value)
        except ValueError:
            continue
    return value


def described_tensor(name: str, value: str) -> torch.Tensor:
    """A tensor to convert with; its values make no difference, but for those that the script decides by."""
    sizes, _, dtype_name = value.partition(":")
    dtype = getattr(torch, dtype_name or "float32", None)
    if not isinstance(dtype, torch.dtype) or _SIZES.fullmatch(sizes) is None:
        raise InvalidRequestError(
            f"--input {name}={value}: {value} is no SIZES:DTYPE", remedy="write --input x=2x3:float32, or x=:int64"
        )
    shape = [int(size) for size in sizes.split("x") if size]
    try:
        if dtype.is_floating_point or dtype.is_complex:
            return torch.randn(shape, dtype=torch.complex64 if dtype.is_complex else torch.float32).to(dtype)
        return torch.zeros(shape, dtype=dtype)
    except RuntimeError as error:
        raise InvalidRequestError(f"--input {name}={value}: there can be no such tensor: {error}") from error
