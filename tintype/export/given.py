"""Containers that a program is given, changes and returns: a cache is the caller's own again, brought up to date.

A model adds to the cache that it is given, and returns it among its results. A graph makes new leaves for it; so when
a program has run, what it returns for such a container goes into the caller's, which then stands in the results.
Which containers are one object is looked at before, where that makes a difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tintype import tree
from tintype.errors import InputMismatchError
from tintype.export.refused_calls import AS_THE_EXAMPLE, Calling
from tintype.ir.observations import ATTRIBUTES, Observation
from tintype.trace.argument_names import is_captured_program
from tintype.trace.captured_graph import CapturedGraph
from tintype.trace.given_containers import place_text
from tintype.tree import Path


def container_observations(module: torch.nn.Module, captured: CapturedGraph) -> list[Observation]:
    """Which containers must be one object when the program is called and which must not, and the order of attributes
    that it goes by."""
    found = list(captured.of_containers)
    if is_captured_program(module):
        found += module._checks.of_containers  # type: ignore[union-attr,arg-type]
    return list({seen.key: seen for seen in found}.values())


def positional_keywords_of(module: Any, kwargs: dict[str, Any]) -> tuple[str, ...]:
    """Which keywords of a call the module of a program takes by position too, in that order."""
    names = list(module._in_spec.children()[1].context)
    return tuple(module._checks.calling.positional) if names == list(kwargs) else ()


class CallersContainers:
    """The caller's containers in the calls of a program; ``returned`` has places among the arguments, a number of an
    argument first, and among the results."""

    def __init__(
        self,
        in_spec: tree.TreeSpec,
        argument_names: Sequence[str],
        returned: Sequence[tuple[Path, Path]],
        observations: Sequence[Observation] = (),
        calling: Calling = AS_THE_EXAMPLE,
    ) -> None:
        self._in_spec = in_spec
        self._calling = calling
        self._names = argument_names
        self._observations = observations
        self.is_needed = bool(returned or observations)
        if self.is_needed:
            self._known = tree.Containers(in_spec, of_call=True)
        count = in_spec.children()[0].num_children
        # by the places where they stand among the results
        self.places = {
            place: self._known.numbers[(0, *given) if given[0] < count else (1, given[0] - count, *given[1:])]
            for given, place in returned
        }

    def of_call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """The containers; raises where those are one that must not be, or the other way round."""
        containers = self._known.of(arranged(args, kwargs, self._in_spec, self._names, self._calling))
        if self._observations:
            found = tree.labels(containers)
            for observation in self._observations:
                if observation.fact == ATTRIBUTES:
                    self._check_attributes(observation, containers)
                elif found != observation.answer:
                    self._check(observation, found)
        return containers

    def put_into(self, containers: Sequence[Any], results: Any) -> Any:
        """Results with the caller's containers in their places."""
        return tree.put_into(self.places, containers, results) if self.places else results

    def _check_attributes(self, observation: Observation, containers: Sequence[Any]) -> None:
        (number,) = observation.arguments
        order = [name for name in vars(containers[number]) if name in observation.answer]
        if order != [name for name in observation.answer if name in order]:
            where, wanted = place_text(self._in_spec, self._known.paths[number]), ", ".join(observation.answer)
            raise InputMismatchError(
                f"Expected the attributes of {where} in the order {wanted}, but got {', '.join(order)}: the program "
                "may go by their order (vars, __dict__)",
                remedy=f"set them in the order {wanted}, or let the program name them",
            )

    def _check(self, observation: Observation, found: Sequence[int]) -> None:
        expected = observation.answer
        for number in observation.arguments:
            for other in range(len(expected)):
                was_same = expected[number] == expected[other]
                if was_same != (found[number] == found[other]):
                    places = [place_text(self._in_spec, self._known.paths[n]) for n in sorted((number, other))]
                    what = ("two objects, but got one", "one object, but got two")[was_same]
                    raise InputMismatchError(
                        f"Expected the containers at {places[0]} and {places[1]} to be {what}: the program changes "
                        "or compares them",
                        remedy="pass them as in the example that the program was exported with, or export it with "
                        "an example like this call",
                    )


def is_of_containers(in_spec: tree.TreeSpec, fact: str, arguments: Any, answer: Any) -> bool:
    """Whether an observation of a file speaks of the containers that a program takes."""
    known = tree.Containers(in_spec, of_call=True)
    count = len(known.paths)
    if fact == ATTRIBUTES:
        is_number = len(arguments) == 1 and type(arguments[0]) is int and 0 <= arguments[0] < count
        is_names = isinstance(answer, tuple) and all(type(name) is str for name in answer)
        return is_number and is_names and tree.holds_attributes(known.kinds[arguments[0]])
    return (
        isinstance(answer, tuple)
        and len(answer) == count
        and all(type(number) is int and 0 <= number < count for number in (*arguments, *answer))
    )


def arranged(
    args: Sequence[Any],
    kwargs: dict[str, Any],
    in_spec: tree.TreeSpec,
    names: Sequence[str],
    calling: Calling = AS_THE_EXAMPLE,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call as the example was: arguments may be given by position or by name, keywords in any order, and those that
    the program has one value for only may be left out."""
    expected_args, expected_kwargs = in_spec.children()
    count = expected_args.num_children
    positional = list(args[:count])
    rest = list(args[count:])
    named = dict(kwargs)
    for position in range(len(positional), min(count, len(names))):
        if names[position] in named:
            positional.append(named.pop(names[position]))
        elif position in calling.constants:
            positional.append(calling.constants[position])
    for name in calling.positional[: len(rest)]:
        if name not in named:
            named[name] = rest.pop(0)
    keywords = {}
    for name in expected_kwargs.context:
        if name in named:
            keywords[name] = named.pop(name)
        elif name in calling.constants:
            keywords[name] = calling.constants[name]
    return (*positional, *rest), {**keywords, **named}


__all__ = ["CallersContainers", "arranged", "container_observations", "is_of_containers"]
