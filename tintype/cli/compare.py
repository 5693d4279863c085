"""``tintype compare`` and ``tintype diff``: two files, by what they compute and by what is in them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tintype.cli.inputs import given_inputs, load_one
from tintype.comparison.comparing import compare_sides
from tintype.comparison.differing import diff_programs
from tintype.comparison.sides import side_of
from tintype.errors import InvalidRequestError


def compare_files(
    one: Path, other: Path, inputs: Sequence[str], *, entry: str | None, example: bool, tolerance: float | None
) -> bool:
    """Print how far the results of two programs are apart; returns whether they agree."""
    programs = load_one(one, entry), load_one(other, entry)
    having = next((program for program in programs if program.example_inputs is not None), programs[0])
    if having.example_inputs is None and not inputs:
        raise InvalidRequestError("neither file has an example of its inputs", remedy="give --input NAME=VALUE")
    given = given_inputs(having, inputs, example=example or not inputs)
    left, right = (side_of(program, "") for program in programs)
    left.name, right.name = (one.name, other.name) if one.name != other.name else (str(one), str(other))
    found = compare_sides(left, right, given, tolerance=tolerance)
    print(found)
    return found.agree


def diff_files(one: Path, other: Path, *, entry: str | None, text: bool) -> bool:
    """Print what is different in two programs; returns whether nothing is."""
    found = diff_programs(load_one(one, entry), load_one(other, entry))
    if not text:
        found.text[:] = [f"{len(found.text)} lines differ"] if found.text else []
    print(found)
    return found.same
