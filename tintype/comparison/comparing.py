"""``tintype.compare``: two things that should compute the same, and the first place where they don't."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from tintype import tree
from tintype.comparison.measuring import Difference, measure
from tintype.comparison.sides import Called, Side, captured, same_random_numbers, side_of
from tintype.comparison.steps import Key, Step, run_steps
from tintype.errors import InvalidRequestError
from tintype.export.program import ExportedProgram

_MOST_ROWS = 15


@dataclass
class Comparison:
    """What :func:`tintype.compare` found.

    ``outputs`` are the results by their place, ``steps`` the values on the way that both sides have, in the order of
    the first; ``first`` is the first step that diverges, and ``between`` what only one side does since the last step
    that agreed. ``written`` are arguments and buffers that a side writes to, as they are after the call.
    ``seconds`` is how long a call takes on either side.
    """

    names: tuple[str, str]
    outputs: list[Difference]
    steps: list[Difference] = field(default_factory=list)
    between: list[str] = field(default_factory=list)
    seconds: tuple[float, float] = (0.0, 0.0)
    notes: list[str] = field(default_factory=list)
    written: list[Difference] = field(default_factory=list)

    @property
    def agree(self) -> bool:
        """Whether all results are the same, up to rounding, and so is what calls write to."""
        return not any(found.diverges for found in (*self.outputs, *self.written))

    @property
    def first(self) -> Difference | None:
        """The first step that diverges."""
        return next((step for step in self.steps if step.diverges), None)

    def modules(self) -> list[Difference]:
        """The step that is furthest apart, of each module."""
        worst: dict[str, Difference] = {}
        for step in self.steps:
            known = worst.get(step.module)
            if known is None or (step.diverges, step.relative) > (known.diverges, known.relative):
                worst[step.module] = step
        return list(worst.values())

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        one, other = self.names
        yield f"{one} and {other} {'agree' if self.agree else 'differ'}"
        yield f"  a call takes {_time(self.seconds[0])} and {_time(self.seconds[1])}"
        yield "results, by how much they are apart:"
        for output in self.outputs[:_MOST_ROWS]:
            yield f"  {output.name}: {output.problem or output.numbers()}"
        if len(self.outputs) > _MOST_ROWS:
            yield f"  and {len(self.outputs) - _MOST_ROWS} more"
        if self.written:
            yield "arguments and buffers that are written to, after the call:"
        for written in self.written[:_MOST_ROWS]:
            yield f"  {written.name}: {written.problem or written.numbers()}"
        first = self.first
        if first is not None:
            instead = "" if first.other_operator == first.operator else f" (in {other}: {first.other_operator})"
            yield f"they part first at {first.name} = {first.operator}{instead}, in {first.module or 'the model'}:"
            yield f"  {first.problem}"
            if first.location is not None:
                yield f"  At: {first.location}: {first.location.source_line()}"
            yield from (f"  {line}" for line in self.between[:_MOST_ROWS])
        worst = sorted(self.modules(), key=lambda step: (step.diverges, step.relative), reverse=True)
        if worst and (worst[0].absolute or worst[0].diverges):
            yield f"the {len(self.steps)} steps of both, where each module is furthest apart:"
        for step in worst[:_MOST_ROWS]:
            if step.absolute or step.diverges:
                yield f"  {step.module or '(model)'}: {step.numbers()} in {step.name}"
        yield from self.notes


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"


def compare(a: Any, b: Any, inputs: Any = None, *, tolerance: float | None = None, steps: bool = True) -> Comparison:
    """Run two things on the same inputs, and find where their numbers part.

    Each is a model or function, a program of any stage, the path of a file, a program of ``torch.export`` or an ONNX
    program. ``inputs`` is a tuple of arguments, a dictionary of keyword arguments, or a pair of both; without it, the
    example of one of the programs is taken. ``tolerance`` is how far numbers may be apart, as a part of the largest
    one among them (by default 1e-4 for float32, more for smaller dtypes). The values on the way are compared by the
    module, function and line that they come from; without ``steps``, only results are.

    Both sides run without gradients, on copies of the inputs and with the same seed. A program that was made for
    another floating point dtype (``program.to(torch.bfloat16)``) gets the inputs in that one.

    >>> import torch, tintype
    >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    >>> ep = tintype.export(model, (torch.ones(2, 3),))
    >>> tintype.compare(model, ep.run_decompositions(), (torch.ones(2, 3),)).agree
    True
    >>> changed = ep.with_state({"2.bias": torch.ones(2)}, strict=False)
    >>> tintype.compare(ep, changed).first.module
    '2'
    """
    return compare_sides(side_of(a, "a"), side_of(b, "b"), inputs, tolerance=tolerance, steps=steps)


def compare_sides(
    one: Side, other: Side, inputs: Any, *, tolerance: float | None = None, steps: bool = True
) -> Comparison:
    """See :func:`compare`."""
    args, kwargs = _arguments(inputs, one, other)
    results = one.call(args, kwargs), other.call(args, kwargs)
    outputs = _output_differences(results[0].result, results[1].result, tolerance)
    found = Comparison((one.name, other.name), outputs, written=_written_differences(*results, tolerance))
    found.seconds = one.seconds(args, kwargs), other.seconds(args, kwargs)
    if steps:
        _compare_steps(found, one, other, args, kwargs, tolerance)
    return found


def _arguments(inputs: Any, *sides: Side) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if inputs is None:
        for side in sides:
            if side.program is not None and side.program.example_inputs is not None:
                return side.program.example_inputs
        raise InvalidRequestError(
            "neither side has an example of its inputs", remedy="give some: tintype.compare(a, b, (x,))"
        )
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if not isinstance(inputs, (tuple, list)):
        raise InvalidRequestError(
            f"inputs is a tuple of arguments, a dictionary of them by name, or both, but got {type(inputs).__name__}",
            remedy="write (x,) for a single argument",
        )
    if len(inputs) == 2 and isinstance(inputs[0], tuple) and isinstance(inputs[1], dict):
        return inputs[0], inputs[1]
    return tuple(inputs), {}


def _output_differences(one: Any, other: Any, tolerance: float | None) -> list[Difference]:
    (one_leaves, one_spec), (other_leaves, other_spec) = tree.flatten_with_paths(one), tree.flatten_with_paths(other)
    paths, other_paths = _places(one_leaves), _places(other_leaves)
    if len(paths) != len(other_paths):
        problem = f"there are {len(paths)} values on one side and {len(other_paths)} on the other"
        return [Difference("result", problem=problem)]
    if paths != other_paths:
        here, there = next(pair for pair in zip(paths, other_paths) if pair[0] != pair[1])
        return [Difference("result", problem=f"what one side returns as {here} is {there} on the other")]
    kinds = _other_kinds(one_spec, other_spec)
    if kinds is not None:
        problem = f"one side returns a {kinds[0].__name__} where the other returns a {kinds[1].__name__}"
        return [Difference("result", problem=problem)]
    pairs = zip(paths, one_leaves, other_leaves)
    return [measure(path, leaf, other_leaf, tolerance) for path, (_, leaf), (_, other_leaf) in pairs]


def _places(leaves: list[Any]) -> list[str]:
    return [tree.place_name(tree.path_text(path)) or "result" for path, _ in leaves]


def _other_kinds(one: Any, other: Any) -> tuple[type, type] | None:
    """The first two containers that are of Python's own kinds and not of the same; None if there are none. A class of
    a library's may stand for one of them: a file can be loaded where the library is not."""
    if one.type is not other.type and {one.type, other.type} <= {list, tuple, dict}:
        return one.type, other.type
    parts = (_other_kinds(mine, yours) for mine, yours in zip(one.children(), other.children()))
    return next((found for found in parts if found is not None), None)


def _written_differences(one: Called, other: Called, tolerance: float | None) -> list[Difference]:
    """What either side writes to, where both have it."""
    found = []
    for name in dict.fromkeys([*one.written, *other.written]):
        buffer = name.removeprefix("buffer ")
        if buffer != name and not (buffer in one.buffers and buffer in other.buffers):
            continue  # the state of another model
        if name in one.written and name in other.written:
            found.append(measure(name, one.written[name], other.written[name], tolerance))
        else:
            found.append(Difference(name, problem="only one side writes to it"))
    return found


def _compare_steps(
    found: Comparison, one: Side, other: Side, args: Any, kwargs: Any, tolerance: float | None
) -> None:
    programs = captured(one, args, kwargs), captured(other, args, kwargs)
    for side, program in zip((one, other), programs):
        if program is None:
            found.notes.append(f"only results were compared: {side.name}, {side.why_not}")
            return
    with torch.no_grad():
        values: dict[Key, tuple[Step, torch.Tensor]] = {}

        def keep(step: Step, value: torch.Tensor) -> None:
            values[step.key] = (step, value.detach().clone())  # a later step may write to it

        assert programs[0] is not None and programs[1] is not None
        _seeded_run(programs[0], one.inputs(args, kwargs), keep)
        measured: dict[Key, Difference] = {}
        only_other: list[tuple[int, Step]] = []

        def hold_against(step: Step, value: torch.Tensor) -> None:
            kept = values.get(step.key)
            if kept is None or kept[1].shape != value.shape:
                only_other.append((len(measured), step))
                return
            mine = kept[0]
            origin = {"operator": mine.operator, "other_operator": step.operator, "module": mine.module}
            found_here = measure(mine.node.name, kept[1], value, tolerance, location=mine.location, **origin)
            measured[step.key] = found_here

        _seeded_run(programs[1], other.inputs(args, kwargs), hold_against)
    found.steps = [measured[key] for key in values if key in measured]
    found.between = _between(values, measured, only_other, one.name, other.name)
    _note_of_nan(found)
    _note_of_capture(found)


def _seeded_run(program: ExportedProgram, given: Any, seen: Callable[[Step, torch.Tensor], None]) -> None:
    args, kwargs = given
    with same_random_numbers():
        run_steps(program, args, kwargs, seen)


def _between(
    values: dict[Key, tuple[Step, torch.Tensor]],
    measured: dict[Key, Difference],
    only_other: list[tuple[int, Step]],
    one: str,
    other: str,
) -> list[str]:
    """What only one side does, after the last step that agreed and before the first that does not."""
    lines: list[str] = []
    for key, (step, _) in values.items():
        if key not in measured:
            lines.append(f"only {one} has {step.node.name} = {step.operator}")
        elif measured[key].diverges:
            number = list(measured).index(key)
            after = max(
                (n for n, seen in enumerate(measured.values()) if n < number and not seen.diverges), default=-1
            )
            lines += [
                f"only {other} has {step.node.name} = {step.operator}"
                for count, step in only_other
                if after < count <= number
            ]
            return lines
        else:
            lines.clear()
    return []


def _note_of_nan(found: Comparison) -> None:
    for number, name in enumerate(found.names):
        step = next((step for step in found.steps if step.nan[number]), None)
        if step is not None:
            place = "" if step.location is None else f", {step.location}"
            found.notes.append(f"{name}: the first nan is in {step.name} = {step.operator}{place}")


def _note_of_capture(found: Comparison) -> None:
    if not found.agree and found.first is None and found.steps:
        found.notes.append(
            "no step of both differs: they part in what only one of them does, or one of them does something else "
            "than the program that was captured from it"
        )
