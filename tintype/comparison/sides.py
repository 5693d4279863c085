"""What can be compared: models, programs of any stage, files, torch's programs, ONNX programs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tintype import tree
from tintype.errors import InputMismatchError, InputStructureError, InvalidRequestError, TintypeError
from tintype.export.exporting import export
from tintype.export.program import ExportedProgram
from tintype.serde.files import load

_SEED = 0
_SHORT = 0.2  # seconds: what takes less is timed again


@dataclass
class Called:
    """What a call gave, and the arguments and buffers that it wrote to, by name."""

    result: Any
    written: dict[str, torch.Tensor]
    buffers: dict[str, torch.Tensor]  # as they were before


@dataclass
class Side:
    """Something that runs, and the program whose steps it takes; ``why_not`` says why there is none."""

    name: str
    run: Callable[..., Any]
    program: ExportedProgram | None
    model: torch.nn.Module | None = None
    why_not: str = ""

    def inputs(self, args: Any, kwargs: Any) -> Any:
        """Copies of the inputs; a program that was made for another floating point dtype gets them in that one."""
        given = copies((args, kwargs))
        checks = getattr(self.run, "_checks", None) if self.program is not None else None
        wanted = {expectation.path: expectation.dtype for expectation in checks.expectations} if checks else {}

        def taken(path: Any, leaf: Any) -> Any:
            dtype = wanted.get(path)
            if not isinstance(leaf, torch.Tensor) or dtype is None:
                return leaf
            return leaf.to(dtype) if leaf.is_floating_point() and dtype.is_floating_point else leaf

        leaves, spec = tree.flatten_with_paths(given)
        return tree.unflatten([taken(path, leaf) for path, leaf in leaves], spec) if wanted else given

    def call(self, args: Any, kwargs: Any) -> Called:
        """Call it on copies of the inputs, without gradients, as if it were for the first time."""
        with torch.no_grad(), same_random_numbers(), _buffers_kept(self.model):
            before = {name: buffer.clone() for name, buffer in _buffers(self.run).items()}
            (given_args, given_kwargs), untouched = self.inputs(args, kwargs), self.inputs(args, kwargs)
            try:
                result = self.run(*given_args, **given_kwargs)
            except (InputMismatchError, InputStructureError) as error:
                error.fact = f"{self.name} does not take these inputs. {error.fact}"
                raise
            except Exception as error:
                error.add_note(
                    f"{self.name} raised this, which was to be compared, when it was called with the inputs"
                )
                raise
            written = {
                f"{what} {name}": after.detach().clone()
                for what, names in (("argument", _by_place(given_args, given_kwargs)), ("buffer", _buffers(self.run)))
                for name, after in names.items()
                if not _is_same(after, (before if what == "buffer" else _by_place(*untouched)).get(name))
            }
            return Called(result, written, before)

    def seconds(self, args: Any, kwargs: Any) -> float:
        """How long a call takes, after those before: the shortest of a few."""
        with torch.no_grad(), same_random_numbers(), _buffers_kept(self.model):
            taken: list[float] = []
            while len(taken) < 5 and sum(taken) < _SHORT:
                given_args, given_kwargs = self.inputs(args, kwargs)
                begin = time.perf_counter()
                self.run(*given_args, **given_kwargs)
                if torch.cuda.is_initialized():
                    torch.cuda.synchronize()
                taken.append(time.perf_counter() - begin)
        return min(taken)


def side_of(thing: Any, name: str) -> Side:
    """What somebody gave to be compared; a model's program is captured when the inputs are known."""
    if isinstance(thing, (str, os.PathLike)):
        path = Path(thing)
        loaded: Any = load(path)
        if isinstance(loaded, dict):
            raise InvalidRequestError(
                f"{path.name} holds the programs {', '.join(loaded)}",
                remedy=f"compare one of them: tintype.load({str(path)!r}, entry={next(iter(loaded))!r})",
            )
        return Side(path.name, loaded.module(), loaded)
    if isinstance(thing, ExportedProgram):
        return Side(f"{name} ({thing.stage.value} stage)", thing.module(), thing)
    if type(thing).__module__.startswith("torch.export"):
        from tintype.interop import from_torch

        return Side(f"{name} (torch.export)", thing.module(), from_torch(thing))
    if type(thing).__module__.startswith("tintype.onnx"):
        return Side(f"{name} (ONNX)", thing, None, why_not="an ONNX program has no steps to look at")
    if not callable(thing):
        raise InvalidRequestError(
            f"{name} can't be compared: it is a {type(thing).__name__}",
            remedy="give a model, a program, the path of a file, or a program of torch.export",
        )
    model = thing if isinstance(thing, torch.nn.Module) else None
    return Side(f"{name} ({type(thing).__name__})", thing, None, model, "it was not captured")


def captured(side: Side, args: Any, kwargs: Any) -> ExportedProgram | None:
    """The program of a side; of a model, one is captured for these inputs."""
    if side.program is None and side.why_not == "it was not captured":
        given_args, given_kwargs = copies((args, kwargs))
        try:
            side.program = export(side.run, given_args, given_kwargs)
        except TintypeError as error:
            side.why_not = f"it can't be captured: {error.fact}"
    return side.program


def _buffers(run: Any) -> dict[str, torch.Tensor]:
    return dict(run.named_buffers()) if isinstance(run, torch.nn.Module) else {}


def _by_place(args: Any, kwargs: Any) -> dict[str, torch.Tensor]:
    """The tensors among arguments, by where they are."""
    leaves = [*tree.flatten_with_paths(args)[0], *tree.flatten_with_paths(kwargs)[0]]
    return {tree.path_text(path): leaf for path, leaf in leaves if isinstance(leaf, torch.Tensor)}


def _is_same(after: torch.Tensor, before: torch.Tensor | None) -> bool:
    """Whether a tensor holds what it held, nan being nan."""
    if before is None or after.shape != before.shape or after.dtype is not before.dtype:
        return False
    if after.layout is not torch.strided or after.is_quantized:
        return True  # no numbers that could be compared
    return bool(((after == before) | ((after != after) & (before != before))).all())


def copies(value: Any) -> Any:
    """The same structure with tensors of its own, which may be written to."""
    return tree.map_leaves(lambda leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf, value)


@contextmanager
def same_random_numbers() -> Any:
    """Both sides draw the same numbers, and nobody else's are taken."""
    with torch.random.fork_rng():
        torch.manual_seed(_SEED)
        yield


@contextmanager
def _buffers_kept(model: torch.nn.Module | None) -> Any:
    """Whatever a model writes to its buffers is undone, so that a second run is like the first."""
    held = [] if model is None else [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in held:
                buffer.copy_(value)
