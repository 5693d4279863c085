"""Which questions about its surroundings a program rests on.

A program that asks ``torch.is_grad_enabled()`` may do the same whatever it is told. Nobody can see what becomes of an
answer, so the program is captured once more with the opposite ones: where that gives the same program, the questions
are no part of its contract, and it can be called with and without gradients.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import torch

from tintype.export.same_program import difference
from tintype.ir.observations import Observation
from tintype.trace.argument_names import is_captured_program
from tintype.trace.captured_graph import CapturedGraph

Question = tuple[str, tuple[Any, ...]]


def observations_that_matter(
    module: torch.nn.Module, captured: CapturedGraph, capture: Callable[[frozenset[Question]], CapturedGraph]
) -> list[Observation]:
    """The observations of a program; ``capture`` captures it with the opposite answers to some questions."""
    asked = [seen for seen in captured.observations if seen.subject is None and type(seen.answer) is bool]
    if not asked or is_captured_program(module):  # whose questions were found to matter
        return captured.observations
    others = [seen for seen in captured.observations if seen not in asked]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the same were given before
            opposite = capture(frozenset((seen.fact, seen.arguments) for seen in asked))
    except Exception:  # the user's program may raise anything where it is told something else
        return captured.observations
    _, differs = difference(dataclasses.replace(captured, observations=others), opposite)
    return captured.observations if differs else others
