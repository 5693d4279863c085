"""Checks of what a program looked at when it was captured: the same questions, asked of what it is called with."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tintype.errors import InputMismatchError
from tintype.export.constraints import ContractLine
from tintype.ir.observations import (
    FACTS,
    OF_ATTRIBUTES,
    SAME_OBJECTS,
    SURROUNDINGS,
    Observation,
    answer_of,
    same_answer,
)
from tintype.ir.writing import Writer
from tintype.symbolic import Expr, evaluate, python_source
from tintype.symbolic.bridge import from_torch, to_torch
from tintype.symbolic.evaluation import substitute
from tintype.symbolic.expression import Symbol
from tintype.symbolic.location import replaying
from tintype.trace.recorder import Recorder, active_recorder

# How an input can be made as the program wants it, by what is asked and the answer.
_REMEDIES: dict[tuple[str, Any], str] = {
    ("is_conj", False): "pass x.resolve_conj()",
    ("is_contiguous", True): "pass x.contiguous()",
    ("is_leaf", True): "pass x.detach()",
    ("is_neg", False): "pass x.resolve_neg()",
    ("grad_fn", None): "pass x.detach()",
    ("requires_grad", False): "pass x.detach()",
    ("requires_grad", True): "pass a tensor that requires a gradient",
    ("is_grad_enabled", True): "call it with gradients enabled (torch.enable_grad())",
    ("is_grad_enabled", False): "call it under torch.no_grad()",
}

# what is asked by a function, not of the tensor itself
_WITHOUT_METHOD = frozenset({"is_plain", "tensor_class", "_is_buffer", *OF_ATTRIBUTES})

# the parameter or buffer of that name
StateOf = Callable[[str], torch.Tensor]


def write_observed(
    writer: Writer,
    observations: Sequence[Observation],
    variables: Sequence[str],
    state_of: str,
    known: Mapping[Symbol, str],
    report: str,
) -> None:
    """Generate the tests; ``report`` is what to run when one fails."""
    for observation in observations:
        subject, fact, answer = observation.subject, observation.fact, observation.answer
        arguments = ", ".join(writer.bind(value) for value in observation.arguments)
        if subject is None:
            asked = f"{writer.bind(SURROUNDINGS[fact])}({arguments})"
        elif fact == "is":
            (other,) = observation.arguments
            asked = f"{state_of}({other!r})" if isinstance(other, str) else variables[other]
            asked = f"({variables[int(subject)]} is {asked})"
        elif fact in _WITHOUT_METHOD:
            asked = f"{writer.bind(answer_of)}({variables[int(subject)]}, {fact!r}, {observation.arguments!r})"
        else:
            tensor = f"{state_of}({subject!r})" if isinstance(subject, str) else variables[subject]
            if fact == "is_contiguous" and arguments:
                arguments = f"memory_format={arguments}"
            asked = f"{tensor}.{fact}" + (f"({arguments})" if FACTS[fact] else "")
        if isinstance(answer, (str, tuple)):
            asked = f"{'str' if isinstance(answer, str) else 'tuple'}({asked})"
        writer.line(f"if {asked} {_differs(writer, answer, known)}: {report}")


def _differs(writer: Writer, answer: Any, known: Mapping[Symbol, str]) -> str:
    if answer is None or isinstance(answer, bool):
        return f"is not {answer}"
    if isinstance(answer, tuple):
        return f"!= ({''.join(f'{_source(item, known)}, ' for item in answer)})"
    if isinstance(answer, (Expr, int)):
        return f"!= {_source(answer, known)}"
    return f"!= {writer.bind(answer)}"


def _source(size: Any, known: Mapping[Symbol, str]) -> str:
    return python_source(size, known) if isinstance(size, Expr) else repr(size)


def check_observed(
    observations: Sequence[Observation],
    leaves: Sequence[Any],
    names: Sequence[str],
    state_of: StateOf,
    symbols: Mapping[Symbol, int],
) -> None:
    """Raise for the first answer that is not what it was."""
    recorder = active_recorder()  # a program that is captured again asks its questions again, as part of the new one
    asking: list[Observation] = []
    with contextlib.nullcontext() if recorder is None else replaying(lambda: asking[-1].location):
        _check_observed(observations, leaves, names, state_of, symbols, recorder, asking)


def _check_observed(
    observations: Sequence[Observation],
    leaves: Sequence[Any],
    names: Sequence[str],
    state_of: StateOf,
    symbols: Mapping[Symbol, int],
    recorder: Recorder | None,
    asking: list[Observation],
) -> None:
    for observation in observations:
        asking.append(observation)
        subject, fact, arguments = observation.key
        if subject is None:
            given = SURROUNDINGS[fact](*arguments)
            name = ""
            if recorder is not None:
                recorder.observer.surroundings(recorder, fact, arguments, given)
        else:
            tensor = state_of(subject) if isinstance(subject, str) else leaves[subject]
            if fact == "is" and isinstance(arguments[0], str):
                other = state_of(arguments[0])
                given = tensor is other
                if recorder is not None:
                    recorder.observer.compares_input_with_state(tensor, other, observation.location)
            elif fact == "is":
                given = tensor is leaves[arguments[0]]
                if recorder is not None:
                    recorder.observer.compares_objects(observation.location)
            else:
                given = answer_of(tensor, fact, arguments)
            name = repr(subject) if isinstance(subject, str) else names[subject]
            if recorder is not None and isinstance(subject, str):
                recorder.observer.asked_of_state(recorder, tensor, fact, arguments, given)
        expected = _evaluated(observation.answer, symbols)
        if not same_answer(given, expected):
            _refuse(observation, name, expected, given)


def _evaluated(answer: Any, symbols: Mapping[Symbol, int]) -> Any:
    if isinstance(answer, tuple):
        return tuple(_evaluated(item, symbols) for item in answer)
    if not isinstance(answer, Expr):
        return answer
    if any(isinstance(value, torch.SymInt) for value in symbols.values()):  # in a capture: nothing is to be decided
        return to_torch(substitute(answer, {symbol: from_torch(value) for symbol, value in symbols.items()}))
    return evaluate(answer, dict(symbols))


def _refuse(observation: Observation, name: str, expected: Any, given: Any) -> None:
    remedy = _REMEDIES.get((observation.fact, expected))
    again = "export the program again for calls like this one"
    raise InputMismatchError(
        f"Expected {observation.question(name)} to be {expected}, but got {given}: the program was captured with "
        "the answer to that question, which it asks",
        location=observation.location,
        remedy=f"{remedy}, or {again}" if remedy else again,
    )


def observed_lines(observations: Sequence[Observation], names: Sequence[str]) -> list[ContractLine]:
    """Observations as lines of the program's contract."""
    lines = []
    for observation in observations:
        if observation.fact == SAME_OBJECTS and observation.answer == tuple(range(len(observation.answer))):
            continue  # nobody expects one object to be given twice
        subject = observation.subject
        name = "" if subject is None else names[subject] if isinstance(subject, int) else subject
        answer = observation.answer
        text = f"({', '.join(map(str, answer))})" if isinstance(answer, tuple) else str(answer)
        lines.append(ContractLine("observation", f"{observation.question(name)} = {text}", observation.location))
    return lines
