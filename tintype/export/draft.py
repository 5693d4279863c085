"""``draft_export``: a program for a model that can't be exported yet, and a list of what stands in the way.

An export refuses what it can't decide. A draft decides it as the example does, lets the program assert that, and says
so: sizes that a promise is too wide for are narrowed, numbers and branches of the data go as in the example, and
operators without a fake kernel return what they return there.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tintype.errors import (
    CaptureError,
    CaptureReport,
    ConstraintViolationError,
    LostEffectWarning,
    LostGradientWarning,
    LostStateWarning,
    StateChangedError,
    TintypeError,
)
from tintype.export.exporting import capture_program
from tintype.export.program import ExportedProgram
from tintype.export.stage import Stage
from tintype.trace.example_answers import Decision
from tintype.trace.findings import Finding

# More promises than this are not narrowed one after the other.
_MOST_TRIES = 8


@dataclasses.dataclass
class DraftReport:
    """What a draft decided in place of the user. ``bool(report)`` says whether there is something."""

    decisions: list[Decision]

    @property
    def findings(self) -> Sequence[Finding]:
        """The decisions, by the name that the report of ``strict=True`` has for what it tells."""
        return self.decisions

    def __bool__(self) -> bool:
        return bool(self.decisions)

    def __str__(self) -> str:
        if not self.decisions:
            return "Nothing had to be decided: tintype.export makes the same program."
        count = len(self.decisions)
        head = f"{count} decision{'s' if count > 1 else ''} of the example's are part of this program:"
        return "\n".join([head, *(f"{n}. {decision}" for n, decision in enumerate(self.decisions, 1))])


def draft_export(
    mod: torch.nn.Module | Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    prefer_deferred_runtime_asserts_over_guards: bool = False,
    preserve_module_call_signature: Sequence[str] = (),
) -> ExportedProgram:
    """Export a model; where that is refused, take the example's answer and report it.

    The program has a ``report``: everything that was decided in the user's place, with the line and what to do about
    it. Whatever was decided the program asserts, so it refuses data for which the answer is another one. What no
    example can decide (an input of a kind that no program takes) is refused as by :func:`~tintype.export`.

    >>> import torch, tintype
    >>> def cut(x):
    ...     return x[: int(x.sum()) * 2].tolist()[0] + x
    >>> program = tintype.draft_export(cut, (torch.ones(3),))
    >>> [decision.kind for decision in program.report.decisions]
    ['data-dependent']
    >>> program.module()(torch.ones(3)).tolist()
    [2.0, 2.0, 2.0]
    """
    options: dict[str, Any] = {
        "complex_as_assertions": prefer_deferred_runtime_asserts_over_guards,
        "preserved": preserve_module_call_signature,
        "strict": strict,
    }
    with torch.random.fork_rng(devices=_devices_in_use()):  # the example is run for its answers
        return _drafted(mod, args, kwargs, dynamic_shapes, options)


def _devices_in_use() -> range:
    return range(torch.cuda.device_count() if torch.cuda.is_initialized() else 0)


def _drafted(
    mod: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, dynamic_shapes: Any, options: dict[str, Any]
) -> ExportedProgram:
    taken: list[Decision] = []
    for _ in range(_MOST_TRIES):
        try:
            program, lost = _noting_warnings(mod, args, kwargs, dynamic_shapes, options)
        except ConstraintViolationError as error:
            if error.suggested is None or not error.suggested_fixes:
                break
            dynamic_shapes = error.suggested
            taken += [_narrowed(name, fix, error) for name, fix in error.suggested_fixes.items()]
            continue
        except CaptureError as error:
            if not _relaxed(options, error, taken):
                raise
            continue
        program.report = DraftReport([*taken, *options.get("decisions", ()), *lost])
        return program
    program, lost = _noting_warnings(mod, args, kwargs, None, options)  # nothing varies
    program.report = DraftReport([*taken, _ALL_FIXED, *options.get("decisions", ()), *lost])
    return program


_ALL_FIXED = Decision(
    "specialized",
    "no sizes that vary were found for which the program works: all of them are those of the example",
    None,
    "give dynamic_shapes that the program keeps; dynamic_shapes='auto' finds the most general ones",
)


def _narrowed(name: str, fix: Any, error: TintypeError) -> Decision:
    return Decision(
        "specialized",
        f"dynamic_shapes promises more than the program keeps: {name} = {fix}",
        error.location,
        f"promise no more than that: {name} = {fix}",
    )


def _relaxed(options: dict[str, Any], error: CaptureError, taken: list[Decision]) -> bool:
    """Let the next try go further than one that failed; False if there is nothing more to let go."""
    problems = error.problems if isinstance(error, CaptureReport) else [error]
    kept = [problem for problem in problems if isinstance(problem, StateChangedError)]
    if kept and "forgets_assignments" not in options:
        options["forgets_assignments"] = True
        taken += [Decision("state-changed", p.fact, p.location, p.remedy or "register a buffer") for p in kept]
        return True
    if "decisions" not in options:
        options.update(decisions=[], control_flow="refuse")
        return True
    return False


def _noting_warnings(
    mod: Any, args: Any, kwargs: Any, dynamic_shapes: Any, options: dict[str, Any]
) -> tuple[ExportedProgram, list[Decision]]:
    """The program, and what was warned of as decisions."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = capture_program(mod, args, kwargs, dynamic_shapes, Stage.FUNCTIONAL, **options)
    decisions = []
    for warning in caught:
        if issubclass(warning.category, (LostStateWarning, LostGradientWarning, LostEffectWarning)):
            text, _, remedy = str(warning.message).partition("\n  What to do: ")
            text = text.removeprefix(f"[{warning.category.id}] ")
            decisions.append(Decision(warning.category.id, text, None, remedy or "see the message"))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return program, decisions
