"""A program at other sizes than it was captured with, held against eager mode."""

from __future__ import annotations

import collections
import enum
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

import tintype
from tintype import Dim

SIZES = range(8)


class Outcome(enum.Enum):
    """What came of one call, or of an export that did not come to calls."""

    EQUAL = "equal"
    BOTH_RAISE = "both raise"
    RAISES = "the program raises, eager mode does not"
    REFUSED = "the export is refused"
    FOREIGN = "the export fails with an error that is none of tintype's"
    WRONG = "the program gives something else than eager mode, or something where that raises"


def inputs(shapes: Sequence[Sequence[Any]], size: int) -> tuple[torch.Tensor, ...]:
    """Tensors of these shapes, in which ``"n"`` is the size and ``"2*n"`` twice that."""
    generator = torch.Generator().manual_seed(size)
    return tuple(
        torch.randn([eval(d, {"n": size}) if isinstance(d, str) else d for d in shape], generator=generator)
        for shape in shapes
    )


def run(function: Callable[..., Any], args: Sequence[torch.Tensor]) -> list[Any]:
    """The results of a call, and what it left in its arguments."""
    given = [argument.clone() for argument in args]
    with torch.no_grad():
        results = torch.utils._pytree.tree_leaves(function(*given))
    return [item.clone() if isinstance(item, torch.Tensor) else item for item in (*results, *given)]


def compare(module: Callable[..., Any], function: Callable[..., Any], args: Sequence[torch.Tensor]) -> None:
    """Raise unless a program does what eager mode does."""
    torch.testing.assert_close(run(module, args), run(function, args), equal_nan=True)


def outcomes(
    function: Callable[..., Any],
    *shapes: Sequence[Any],
    examples: Sequence[int],
    decompose: bool = False,
) -> collections.Counter[Outcome]:
    """Export with each example, in both stages, with sizes that vary freely and with promised ones; call at all."""
    found: collections.Counter[Outcome] = collections.Counter()
    eager = {size: _attempt(lambda size=size: run(function, inputs(shapes, size))) for size in SIZES}
    for example in examples:
        for size in (Dim.AUTO, Dim("n", min=0)):
            for export in (tintype.export, tintype.export_for_training):
                program = _attempt(
                    lambda export=export, size=size, example=example: export(
                        function, inputs(shapes, example), dynamic_shapes=_spec(function, shapes, size)
                    )
                )
                if isinstance(program, Exception):
                    expected = isinstance(eager[example], Exception)
                    refused = Outcome.REFUSED if isinstance(program, tintype.TintypeError) else Outcome.FOREIGN
                    found[Outcome.BOTH_RAISE if expected else refused] += 1
                    continue
                programs = [program]
                if decompose and export is tintype.export:
                    programs.append(program.run_decompositions())
                for variant in programs:
                    module = variant.module()
                    found.update(_call(module, shapes, eager[other], other) for other in SIZES)
    return found


def _call(module: Any, shapes: Any, eager: Any, size: int) -> Outcome:
    given = _attempt(lambda: run(module, inputs(shapes, size)))
    if isinstance(given, Exception):
        return Outcome.BOTH_RAISE if isinstance(eager, Exception) else Outcome.RAISES
    if isinstance(eager, Exception):
        return Outcome.WRONG
    try:
        torch.testing.assert_close(given, eager, equal_nan=True)
    except AssertionError:
        return Outcome.WRONG
    return Outcome.EQUAL


def _attempt(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception as error:
        return error


def _spec(function: Callable[..., Any], shapes: Sequence[Sequence[Any]], size: Any) -> dict[str, Any]:
    forward = function.forward if isinstance(function, torch.nn.Module) else function
    names = list(inspect.signature(forward).parameters)
    spec: dict[str, Any] = {}
    for name, shape in zip(names, shapes, strict=True):
        varying = {i: part for i, part in enumerate(shape) if isinstance(part, str)}
        spec[name] = {i: size if size is Dim.AUTO else eval(part, {"n": size}) for i, part in varying.items()}
    return spec
