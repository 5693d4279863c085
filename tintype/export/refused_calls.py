"""Words for calls whose arguments don't have the structure that a program was exported with: what is missing, what is
too much, and where containers differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from tintype import tree
from tintype.errors import InputStructureError
from tintype.tree.jagged import EXTREMES, JaggedParts
from tintype.tree.modules import ModuleParts
from tintype.tree.sparse import SparseParts
from tintype.tree.subclasses import SubclassParts


@dataclass(frozen=True)
class Calling:
    """How a program may be called besides as its example was.

    ``positional`` are the keyword arguments of the example that may be given by position too, in their order there.
    ``constants`` has the arguments that the program was exported for one value of, by position or name: they may be
    left out.
    """

    positional: Sequence[str] = ()
    constants: Mapping[int | str, Any] = field(default_factory=dict)


AS_THE_EXAMPLE = Calling()


_Function = TypeVar("_Function", bound=Callable[..., Any])


def untraced(function: _Function) -> _Function:
    """A function that finds out why a call is refused, which ``torch.compile`` is to call as it is."""
    marks = vars(function)
    marks["_torchdynamo_disable"] = True
    marks["_torchdynamo_disable_msg"] = (
        "the program refuses this call; its error says why, without fullgraph=True or without torch.compile"
    )
    return function


@untraced
def refuse_call(
    in_spec: tree.TreeSpec, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any], calling: Calling
) -> NoReturn:
    """Raise the error for a call that does not fit."""
    problems = list(_argument_problems(in_spec, names, args, kwargs, calling))
    instead = ""
    if not problems:
        problems = list(_structure_problems(in_spec, names, args, kwargs))[:1]
        instead = " with an argument of that kind, or export the program with an example of this one"
    raise _refusal(in_spec, names, problems, calling, instead)


def _refusal(
    in_spec: tree.TreeSpec, names: Sequence[str], problems: Sequence[str], calling: Calling, instead: str = ""
) -> InputStructureError:
    lines = "".join(f"\n  {problem}" for problem in problems)
    return InputStructureError(
        "Trying to flatten user inputs with exported input tree spec: the arguments of this call are not those that "
        f"the program was exported with{':' if lines else ''}{lines}",
        remedy=f"call it as {_call_text(in_spec, names, calling)}{instead}",
    )


def _call_text(in_spec: tree.TreeSpec, names: Sequence[str], calling: Calling) -> str:
    args, kwargs = in_spec.children()
    listed = list(names[: args.num_children])
    listed += [str(name) if name in calling.positional else f"{name}=..." for name in kwargs.context]
    fixed = {names[key] if isinstance(key, int) else key: value for key, value in calling.constants.items()}
    return f"program({', '.join(f'{n}={fixed[n]!r}' if n in fixed else n for n in listed)})"


def _argument_problems(
    in_spec: tree.TreeSpec, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any], calling: Calling
) -> Iterator[str]:
    expected_args, expected_kwargs = in_spec.children()
    count = expected_args.num_children
    places = [*names[:count], *calling.positional]
    if len(args) > len(places):
        yield f"{len(args)} arguments are given by position, but the program takes {len(places)} so"
    by_position = set(places[: len(args)])
    known = [*names[:count], *expected_kwargs.context]
    for name in kwargs:
        if name in by_position:
            yield f"{name} is given twice, by position and by name"
        elif name not in known:
            yield f"the program has no argument {name!r}{_nearest(name, known)}"
    optional = {names[key] if isinstance(key, int) else key for key in calling.constants}
    for name in known:
        if name not in by_position and name not in kwargs and name not in optional:
            yield f"{name} is missing"


def _nearest(name: str, known: Sequence[str]) -> str:
    import difflib  # only for this message

    found = difflib.get_close_matches(name, [str(each) for each in known], 1)
    return f"; did you mean {found[0]!r}?" if found else ""


def _structure_problems(
    in_spec: tree.TreeSpec, names: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[str]:
    expected_args, expected_kwargs = in_spec.children()
    expected = dict(zip(names, expected_args.children(), strict=False))
    expected.update(zip(map(str, expected_kwargs.context), expected_kwargs.children(), strict=True))
    given = {**dict(zip(expected, args, strict=False)), **kwargs}
    for name, spec in expected.items():
        if name in given:
            yield from _differences(spec, tree.flatten(given[name])[1], name)


def _differences(expected: tree.TreeSpec, given: tree.TreeSpec, where: str) -> Iterator[str]:
    """Where two structures are not the same, the outermost first."""
    if tree.same_structure(expected, given):
        return
    whole = expected.is_leaf() or expected.type in (SparseParts, JaggedParts)
    same_kind = expected.type is given.type and not whole
    if same_kind and isinstance(expected.context, list) and isinstance(given.context, list):
        keys, others = expected.context, given.context
        for key in keys:
            if key not in others:
                yield f"{where}[{key!r}] is missing"
        for key in others:
            if key not in keys:
                yield f"{where}[{key!r}] is not expected"
        positions = {key: number for number, key in enumerate(others)}
        for key, child in zip(keys, expected.children(), strict=True):
            if key in positions:
                yield from _differences(child, given.children()[positions[key]], f"{where}[{key!r}]")
    elif same_kind and expected.num_children == given.num_children:
        for number, (child, other) in enumerate(zip(expected.children(), given.children(), strict=True)):
            (name,) = tree.child_names(expected, (number,))
            yield from _differences(child, other, f"{where}{name}")
        if expected.context != given.context:
            yield f"{where} is {_kind(expected)} with other settings than in the example{_settings(expected, given)}"
    else:
        yield f"{where} must be {_kind(expected)}, but got {_kind(given)}"


def _kind(spec: tree.TreeSpec) -> str:
    if spec.is_leaf():
        return "a tensor or another single value"
    if spec.type is SparseParts:
        _, (layout, coalesced) = spec.context
        return f"a tensor of layout torch.{layout}" + (", coalesced" if coalesced else "")
    if spec.type is JaggedParts:
        names, (dimension, number) = spec.context
        known = [name for name in ("lengths", *EXTREMES) if name in names]
        knows = f", which knows its {' and '.join(known)}" if known else ""
        return f"a nested tensor, jagged in dimension {dimension}, with offsets number {number} of the call{knows}"
    if spec.type is SubclassParts:
        return f"a tensor of the class {spec.context[1][0]}"
    if spec.type is ModuleParts:
        return f"a module of the class {spec.context[1][0][1]}"
    return f"a {spec.type.__name__} of {spec.num_children}"


def _settings(expected: tree.TreeSpec, given: tree.TreeSpec) -> str:
    """What a tensor that consists of others, or a module, is made with besides its parts, where that differs."""
    if expected.type is ModuleParts:
        pairs = zip(expected.context[1], given.context[1], strict=False)
        (path, kind, wanted), (_, other, found) = next(pair for pair in pairs if pair[0] != pair[1])
        if kind != other:
            return f": {path or 'it'} is a {kind}, but got a {other}"
        changed = sorted(set(wanted) - set(found))
        return f": in {path or 'it'} {dict(changed)}, but got {dict(entry for entry in found if entry not in wanted)}"
    if expected.type is not SubclassParts or expected.context[1][0] != given.context[1][0]:
        return ""
    return f": {expected.context[1][1:]}, but got {given.context[1][1:]}"
