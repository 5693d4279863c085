"""The order of the keys in dictionaries that a program is given.

Keys may come in any order, unless the program goes by it (``for value in inputs.values()``). No dictionary can be
asked who looked at its order, so the program is captured once more with the keys in another order: where that gives
another program, the order is one of its observations, checked when it is called. Keyword arguments have an order only
for a program that takes them as ``**kwargs`` and does more than pass them on. A table by layer, ``{0: ..., 1: ...}``,
that is an attribute of a cache is as good as a list: its order is one of the program's observations, and nothing has
to be tried.
"""

from __future__ import annotations

import collections
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from tintype import tree
from tintype.errors import InputMismatchError, Location, TintypeError
from tintype.export.same_program import difference
from tintype.ir.observations import KEYS, Observation
from tintype.ir.sources import place_in_call
from tintype.trace.argument_names import is_captured_program, taken_without_name
from tintype.trace.captured_graph import CapturedGraph

# a dictionary among the arguments: the numbers of the children that lead to it
Path = tuple[int, ...]
_KEYWORDS: Path = (1,)
_DICTIONARIES = (dict, collections.OrderedDict, collections.defaultdict)
# with more dictionaries than that, they are not looked at one by one
_FEW = 4


# --- finding out ---------------------------------------------------------------------------------------------


class Reordered:
    """A call with the keys of some dictionaries in another order."""

    def __init__(self, args: Any, kwargs: Any, chosen: dict[Path, list[Any]]) -> None:
        leaves, spec = tree.flatten((args, kwargs))
        self.positions: list[int] = []  # for each leaf its place in the original call
        new_spec = self._reordered(spec, (), 0, chosen)
        self.args, self.kwargs = tree.unflatten([leaves[position] for position in self.positions], new_spec)

    def _reordered(self, spec: tree.TreeSpec, path: Path, start: int, chosen: dict[Path, list[Any]]) -> tree.TreeSpec:
        if spec.is_leaf():
            self.positions.append(start)
            return spec
        children, starts = spec.children(), []
        for child in children:
            starts.append(start)
            start += child.num_leaves
        order = list(range(len(children)))
        context = spec.context
        if path in chosen:
            keys = keys_of(spec)
            # every key gets another place; a mere reversal would leave the one in the middle where it is
            moved = [*chosen[path][1:], chosen[path][0]]
            new_keys = [*(key for key in keys if key not in moved), *moved]
            order = [keys.index(key) for key in new_keys]
            context = [context[0], new_keys] if spec.type is collections.defaultdict else new_keys
        new = [self._reordered(children[number], (*path, number), starts[number], chosen) for number in order]
        return tree.TreeSpec(spec.type, context, new)


Capture = Callable[[Reordered], CapturedGraph]


def order_observations(
    module: torch.nn.Module, args: Any, kwargs: Any, captured: CapturedGraph, capture: Capture
) -> list[Observation]:
    """The dictionaries whose order the program goes by; ``capture`` captures it for another call."""
    if is_captured_program(module):
        return list(module._checks.ordered)  # type: ignore[union-attr,arg-type]
    chosen = _dictionaries(module, kwargs, captured.in_spec)
    numbered = {path: chosen.pop(path) for path in _numbered_attributes(captured.in_spec, chosen)}
    found = [_observation(captured.in_spec, path, keys, None) for path, keys in numbered.items()]
    if not chosen:
        return found
    groups = [chosen]
    line, differs = _difference(args, kwargs, chosen, captured, capture)
    if differs and 1 < len(chosen) <= _FEW:
        groups = [{path: keys} for path, keys in chosen.items()]
    for group in groups if differs else ():
        if group is not chosen:
            line, differs = _difference(args, kwargs, group, captured, capture)
        if differs:
            found += [_observation(captured.in_spec, path, keys, line) for path, keys in group.items()]
    return found


def _dictionaries(module: torch.nn.Module, kwargs: Any, in_spec: tree.TreeSpec) -> dict[Path, list[Any]]:
    """The dictionaries with keys that have an order."""
    found = {path: keys for path, spec in _nodes(in_spec, ()) if len(keys := keys_of(spec)) > 1}
    if kwargs and _KEYWORDS in found:
        found[_KEYWORDS] = taken_without_name(module.forward, kwargs)[1]
        if len(found[_KEYWORDS]) > 1:
            from tintype.export.passed_keywords import looked_at  # few models take any name

            found[_KEYWORDS] = looked_at(module.forward, kwargs)
        if len(found[_KEYWORDS]) < 2:
            del found[_KEYWORDS]
    return found


def _numbered_attributes(in_spec: tree.TreeSpec, chosen: dict[Path, list[Any]]) -> list[Path]:
    """The dictionaries that are attributes of an object, and whose keys count from 0."""
    return [
        path
        for path, keys in chosen.items()
        if keys == list(range(len(keys))) and tree.holds_attributes(_spec_at(in_spec, path[:-1]).type)
    ]


def _spec_at(spec: tree.TreeSpec, path: Path) -> tree.TreeSpec:
    for number in path:
        spec = spec.children()[number]
    return spec


def _nodes(spec: tree.TreeSpec, path: Path) -> Iterator[tuple[Path, tree.TreeSpec]]:
    if not spec.is_leaf():
        yield path, spec
        for number, child in enumerate(spec.children()):
            yield from _nodes(child, (*path, number))


def keys_of(spec: tree.TreeSpec) -> list[Any]:
    """The keys of a dictionary, nothing for other containers."""
    if spec.type not in _DICTIONARIES:
        return []
    return list(spec.context[1] if spec.type is collections.defaultdict else spec.context)


def _difference(
    args: Any, kwargs: Any, chosen: dict[Path, list[Any]], captured: CapturedGraph, capture: Capture
) -> tuple[Location | None, bool]:
    """Whether the program is another one for another order, and the line where it begins to be."""
    call = Reordered(args, kwargs, chosen)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the same were given before
            other = capture(call)
    except Exception as error:  # the user's program may raise anything where keys come in another order
        return (error.location if isinstance(error, TintypeError) else None), True
    return difference(captured, other, call.positions)


def _observation(in_spec: tree.TreeSpec, path: Path, keys: list[Any], line: Location | None) -> Observation:
    return Observation(None, KEYS, (_where(in_spec, path), *path), tuple(map(repr, keys)), line)


def _where(in_spec: tree.TreeSpec, path: Path) -> str:
    if path == _KEYWORDS:
        return "**kwargs"
    spec, before = in_spec, 0
    for number in path:
        before += sum(child.num_leaves for child in spec.children()[:number])
        spec = spec.children()[number]
    numbered = tree.unflatten(list(range(in_spec.num_leaves)), in_spec)
    leaf_path = tree.flatten_with_paths(numbered)[0][before][0] if spec.num_leaves else ()
    return str(place_in_call(leaf_path[: len(path)])) if leaf_path else "an argument"


# --- checking ------------------------------------------------------------------------------------------------


def is_dictionary_at(in_spec: tree.TreeSpec, arguments: tuple[Any, ...]) -> bool:
    """Whether the arguments of an observation name a dictionary that a program takes."""
    spec = in_spec
    for number in arguments[1:]:
        if type(number) is not int or spec.is_leaf() or not 0 <= number < spec.num_children:
            return False
        spec = spec.children()[number]
    return len(arguments) > 1 and type(arguments[0]) is str and spec.type in _DICTIONARIES


def is_of_keywords(observation: Observation) -> bool:
    """Whether an order is that of keyword arguments."""
    return observation.arguments[1:] == _KEYWORDS


def check_order(
    observations: Sequence[Observation], in_spec: tree.TreeSpec, given: tree.TreeSpec, kwargs: dict[str, Any]
) -> None:
    """Raise where the keys of a dictionary come in another order than the program goes by."""
    for observation in observations:
        path: Path = observation.arguments[1:]
        keys = list(kwargs) if path == _KEYWORDS else keys_of(_same_place(in_spec, given, path))
        order = [text for text in map(repr, keys) if text in observation.answer]
        if order != [text for text in observation.answer if text in order]:  # others were given by position
            wanted = ", ".join(observation.answer)
            raise InputMismatchError(
                f"Expected the keys of {observation.arguments[0]} in the order {wanted}, but got {', '.join(order)}: "
                "the program goes by their order",
                location=observation.location,
                remedy=f"pass them in the order {wanted}, or let the program go by names or by sorted(...)",
            )


def _same_place(expected: tree.TreeSpec, given: tree.TreeSpec, path: Path) -> tree.TreeSpec:
    """What is given where a path leads in the expected structure; dictionaries on the way go by their keys."""
    for number in path:
        keys = keys_of(expected)
        given = given.children()[keys_of(given).index(keys[number]) if keys else number]
        expected = expected.children()[number]
    return given
