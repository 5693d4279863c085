"""``tintype export`` and ``tintype check``: programs of models that a function makes, or that a folder holds."""

from __future__ import annotations

import difflib
import importlib
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tintype.cli.convert import described_input, described_tensor
from tintype.cli.dynamic import dynamic_shapes_of, mended
from tintype.cli.inputs import modules_beside, read_value, users_code
from tintype.cli.progress import progress
from tintype.comparison.comparing import compare
from tintype.errors import (
    CaptureReport,
    ConstraintViolationError,
    InvalidRequestError,
    TintypeError,
    WrongFakeWarning,
)
from tintype.export.exporting import export
from tintype.export.program import ExportedProgram
from tintype.serde.files import save
from tintype.trace.argument_names import signature_of
from tintype.view.pages import problems_page

# 2x3, without a dtype
_SEVERAL_SIZES = re.compile(r"\d+(x\d+)+")


def export_model(source: str, target: Path, inputs: Sequence[str], dynamic: Sequence[str], *, validate: bool) -> bool:
    """Export a model to a file; compare the two, and say whether they agree."""
    if not target.parent.is_dir():
        raise InvalidRequestError(f"there is no folder {target.parent}")
    with progress(f"making {source}") as tell:
        model = load_model(source)
        kwargs = _inputs_of(model, inputs)
        tell("exporting")
        program = _exported(model, kwargs, dynamic)
        tell(f"writing {target.name}")
        save(program, target)
        tell("comparing with the model")
        found = compare(model, target, _as_called(model, kwargs)) if validate else None
    calls = sum(node.op == "call_function" for node in program.graph.nodes)
    print(f"{target}: {calls} operator calls, {len(program.state_dict)} parameters and buffers")
    for line in str(program.contract()).splitlines():
        print(f"  {line}")
    if found is None:
        return True
    print(found)
    return found.agree


def check_model(source: str, inputs: Sequence[str], dynamic: Sequence[str], *, page: Path | None = None) -> bool:
    """Print what stands in the way of an export, all of it, or what the program would ask of its inputs; perhaps
    write a page of either, with the lines of the model."""
    model = load_model(source)
    kwargs = _inputs_of(model, inputs)
    try:
        program = _exported(model, kwargs, dynamic)
    except TintypeError as error:
        problems = error.problems if isinstance(error, CaptureReport) else [error]
        print(f"{len(problems)} problem{'s' if len(problems) > 1 else ''} in the way of an export:")
        for number, problem in enumerate(problems, 1):
            print(f"{number}. [{problem.id}] {problem}")
        if page is not None:
            print(problems_page(error, title=source).save(page))
        return False
    if page is not None:
        print(program.view(title=source, source=True).save(page))
    print(f"{source} can be exported")
    for line in str(program.contract()).splitlines():
        print(f"  {line}")
    wrong = wrong_fakes(program, *_as_called(model, kwargs))
    for line in wrong:
        print(line)
    found = compare(model, program, _as_called(model, kwargs))
    print(found)
    return found.agree and not wrong


def wrong_fakes(program: ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """The operators whose results are not what was known of them without running them, as lines of text."""
    from tintype.comparison.sides import copies
    from tintype.comparison.steps import run_steps
    from tintype.export.fake_claims import agrees
    from tintype.ir.printing import describe_value

    lines: list[str] = []

    def seen(step: Any, value: torch.Tensor) -> None:
        said = step.node.meta["val"]
        if not agrees(said, value):
            lines.append(
                f"{step.operator} gives {describe_value(value)}, but its fake kernel says {describe_value(said)}"
            )

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", WrongFakeWarning)  # all of them are told at once
        run_steps(program, copies(args), copies(kwargs), seen)
    return lines


def load_model(source: str) -> Any:
    """``package.module:name``, a model or a function that makes one; ``hf:FOLDER``, a model of transformers."""
    kind, _, rest = source.partition(":")
    if not rest:
        raise InvalidRequestError(
            f"{source} is no model", remedy="name one: package.module:model_or_factory, or hf:FOLDER"
        )
    if kind == "hf":
        return _from_folder(Path(rest))
    if kind.endswith(".py"):
        raise InvalidRequestError(
            f"{kind} is a file, and a module is wanted",
            remedy=f"write {kind.removesuffix('.py').replace('/', '.')}:{rest}",
        )
    with users_code(source), modules_beside():
        module = importlib.import_module(kind)
    found: Any = module
    for part in rest.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, dir(found), n=1)
            raise InvalidRequestError(
                f"{kind} has no {rest!r}", remedy=f"did you mean {near[0]!r}?" if near else None
            )
        found = getattr(found, part)
    if isinstance(found, torch.nn.Module):
        return found
    if not callable(found):
        raise InvalidRequestError(f"{source} is a {type(found).__name__}, which makes no model")
    with users_code(f"{source}()", "name a function that makes the model when it is called without arguments"):
        model = found()
    if not isinstance(model, torch.nn.Module):
        raise InvalidRequestError(f"{source}() returned a {type(model).__name__}, and no torch.nn.Module")
    return model.eval()


def _from_folder(folder: Path) -> torch.nn.Module:
    if not (folder / "config.json").is_file():
        raise InvalidRequestError(f"{folder} has no config.json, so it holds no model of transformers")
    try:
        import transformers
    except ImportError as error:
        raise InvalidRequestError("transformers is not installed", remedy="pip install transformers") from error
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    architecture = (config.architectures or [""])[0]
    cls = getattr(transformers, architecture, None) or transformers.AutoModel
    model: torch.nn.Module = cls.from_pretrained(folder, local_files_only=True)
    return model.eval()


def _inputs_of(model: Any, texts: Sequence[str]) -> dict[str, Any]:
    """Inputs by name: files and values as for ``tintype run``, or the sizes and dtype of a tensor."""
    found: dict[str, Any] = {}
    for text in texts:
        name, value = described_input(text)
        is_described = ":" in value or _SEVERAL_SIZES.fullmatch(value) is not None
        if is_described and not Path(value).exists() and value[:1] not in "[{\"'":
            found[name] = described_tensor(name, value)
        else:
            found[name] = _with_tensors(read_value(value, f"--input {text}"))
    if found:
        return found
    dummy = getattr(model, "dummy_inputs", None)  # models of transformers have some
    if isinstance(dummy, dict):
        return dict(dummy)
    raise InvalidRequestError("an export needs inputs", remedy="add --input x=2x3:float32, or --input x=x.npy")


def _with_tensors(value: Any) -> Any:
    """A value in which lists of numbers, and of such lists of one length, are tensors."""
    if isinstance(value, dict):
        return {name: _with_tensors(part) for name, part in value.items()}
    if not isinstance(value, list):
        return value
    try:
        return torch.tensor(value)
    except (ValueError, TypeError, RuntimeError):  # of several lengths, or not of numbers alone
        return [_with_tensors(part) for part in value]


def _as_called(model: Any, given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Inputs as people call the model: by position, as far as its parameters are given without a gap."""
    kwargs, args = dict(given), []
    for parameter in signature_of(model.forward).parameters.values():
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD or parameter.name not in kwargs:
            break
        args.append(kwargs.pop(parameter.name))
    return tuple(args), kwargs


def _exported(model: Any, kwargs: dict[str, Any], dynamic: Sequence[str]) -> ExportedProgram:
    shapes = dynamic_shapes_of(dynamic, kwargs)
    with users_code("the model can't be called with these inputs", "give inputs that the model takes"):
        try:
            return export(model, *_as_called(model, kwargs), dynamic_shapes=shapes)
        except ConstraintViolationError as error:
            if error.suggested_fixes:
                here = f"on the command line that is {mended(dynamic, error.suggested_fixes)}"
                error.remedy = f"{error.remedy}; {here}" if error.remedy else here
            raise
