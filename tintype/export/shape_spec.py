"""``dynamic_shapes``: from what the user wrote to one entry per dimension of every input tensor.

A spec is a dictionary by argument name or a tuple by position; how it goes on below an argument is told in
spec_matching.py. What is not named is static.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tintype import tree
from tintype.errors import InvalidRequestError
from tintype.export.dimensions import Dim, DimHint
from tintype.export.spec_matching import Entry, is_number, match, spec_like, spec_to_copy
from tintype.trace.argument_names import captured_argument_names, signature_of
from tintype.tree.subclasses import holds_sparse


class ShapesCollection:
    """A spec by tensor: for arguments whose structure is tedious to write down.

    >>> x = torch.randn(4, 3)
    >>> shapes = ShapesCollection()
    >>> shapes[x] = {0: Dim("batch")}
    >>> shapes.dynamic_shapes(lambda x: x, (x,))
    {'x': {0: Dim('batch')}}
    """

    def __init__(self) -> None:
        self._shapes: dict[int, tuple[torch.Tensor, Any]] = {}

    def __setitem__(self, tensor: torch.Tensor, shape: Any) -> None:
        if not isinstance(tensor, torch.Tensor):
            raise InvalidRequestError(f"shapes are given to tensors, but got {type(tensor).__name__}")
        known = self._shapes.get(id(tensor))
        if known is not None and known[1] != shape:
            raise InvalidRequestError(f"this tensor has a shape already: {known[1]}, and now {shape}")
        self._shapes[id(tensor)] = (tensor, shape)

    def __getitem__(self, tensor: torch.Tensor) -> Any:
        if id(tensor) not in self._shapes:
            self._shapes[id(tensor)] = (tensor, {})
        return self._shapes[id(tensor)][1]

    def __len__(self) -> int:
        return len(self._shapes)

    def dynamic_shapes(self, mod: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        """The spec in the form that ``export`` takes."""
        arguments = bound_arguments(mod, args, kwargs or {})
        leaves = {id(leaf) for leaf in tree.leaves(arguments)}
        for tensor, shape in self._shapes.values():
            if id(tensor) not in leaves:
                raise InvalidRequestError(f"a tensor with the shape {shape} is not among the arguments")
        return spec_like(arguments, lambda leaf: self._shapes[id(leaf)][1] if id(leaf) in self._shapes else None)


class AdditionalInputs:
    """A spec by examples: sizes that differ between the examples are dynamic, all others static.

    >>> examples = AdditionalInputs()
    >>> examples.add((torch.randn(4, 3),))
    >>> examples.dynamic_shapes(lambda x: x, (torch.randn(2, 3),))
    {'x': (Dim.DYNAMIC, None)}
    """

    def __init__(self) -> None:
        self._examples: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def add(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        """Add the arguments of a call that the program must accept."""
        if not isinstance(args, tuple):
            raise InvalidRequestError(f"args must be a tuple, but got {type(args).__name__}")
        self._examples.append((args, kwargs or {}))

    def dynamic_shapes(self, mod: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        """The spec in the form that ``export`` takes."""
        first = bound_arguments(mod, args, kwargs or {})
        spec = tree.flatten(first)[1]
        others = []
        for more_args, more_kwargs in self._examples:
            more_leaves, more_spec = tree.flatten(bound_arguments(mod, more_args, more_kwargs))
            if not tree.same_structure(more_spec, spec):
                raise InvalidRequestError("the additional inputs have another structure than the example inputs")
            others.append(more_leaves)
        columns = iter(zip(*others))
        return spec_like(first, lambda leaf: self._entries(leaf, next(columns, ())))

    @staticmethod
    def _entries(leaf: Any, others: Sequence[Any]) -> Any:
        if not isinstance(leaf, torch.Tensor):
            if all(other == leaf for other in others):
                return None
            if is_number(leaf) and all(type(other) is type(leaf) for other in others):
                return Dim.DYNAMIC
            raise InvalidRequestError(f"the argument {leaf!r} differs between the inputs; only sizes and numbers may")
        return tuple(
            Dim.DYNAMIC if any(other.shape[d] != size for other in others) else None
            for d, size in enumerate(leaf.shape)
        )

    def verify(self, program: Any) -> None:
        """Check that a program accepts all these inputs, by running it on copies of them."""
        module = program.module()
        for number, example in enumerate(self._examples, 1):
            args, kwargs = tree.map_leaves(
                lambda leaf: leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf, example
            )
            try:
                with torch.no_grad(), torch.random.fork_rng(devices=()):
                    module(*args, **kwargs)
            except RuntimeError as error:  # of the program: its checks, its assertions, its operators
                raise InvalidRequestError(
                    f"the program does not take additional inputs number {number}: {error}",
                    remedy="look at the program's contract() without them, or leave them out",
                ) from error


def bound_arguments(mod: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name; those of ``*args`` and ``**kwargs`` under their own names."""
    names = captured_argument_names(mod)
    if names is not None and len(names) == len(args) + len(kwargs):
        return {**dict(zip(names, args)), **kwargs}
    function = mod.forward if isinstance(mod, torch.nn.Module) else mod
    try:
        return dict(signature_of(function).bind(*args, **kwargs).arguments)
    except TypeError as error:
        raise InvalidRequestError(f"the example arguments do not fit the program: {error}") from error


def leaf_entries(
    mod: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> list[list[Entry] | None]:
    """For every leaf of ``(args, kwargs)``, in their order, an entry per dimension, one for a number; None for a
    static leaf."""
    if dynamic_shapes is None:
        if not holds_sparse((args, kwargs)):
            return [None] * len(tree.leaves((args, kwargs)))
        dynamic_shapes = {}
    if isinstance(dynamic_shapes, (ShapesCollection, AdditionalInputs)):
        dynamic_shapes = dynamic_shapes.dynamic_shapes(mod, args, kwargs)
    arguments = bound_arguments(mod, args, kwargs)
    if isinstance(dynamic_shapes, (str, DimHint)):
        dynamic_shapes = dict.fromkeys(arguments, "auto" if dynamic_shapes == Dim.AUTO else dynamic_shapes)
    try:
        by_name = _by_name(mod, arguments, dynamic_shapes)
        matched = {name: match(value, by_name.get(name), name) for name, value in arguments.items()}
    except InvalidRequestError as error:
        structure = f"a spec of everything that may vary:\n{spec_to_copy(arguments)}"
        error.remedy = f"{error.remedy}; {structure}" if error.remedy else structure
        raise
    _check_names([entries for found in matched.values() for entries in found])
    return _in_call_order(mod, args, kwargs, matched)


def with_fixes(
    mod: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    entries: Sequence[list[Entry] | None],
    fixes: Mapping[str, Dim | int],
) -> Any:
    """A ``dynamic_shapes`` in which dimensions are replaced by new definitions of their names."""
    remaining = iter(entries)

    def fixed(leaf: Any) -> Any:
        entry = next(remaining)
        parts = None if entry is None else tuple(_fixed(part, fixes) for part in entry)
        return parts[0] if parts is not None and is_number(leaf) else parts

    fixed_args, fixed_kwargs = spec_like((args, kwargs), fixed)
    return bound_arguments(mod, fixed_args, fixed_kwargs)


def _fixed(entry: Entry, fixes: Mapping[str, Dim | int]) -> Entry:
    if not isinstance(entry, Dim) or entry.root.name not in fixes:
        return entry
    return entry.scale * fixes[entry.root.name] + entry.offset


def _by_name(mod: Any, arguments: Mapping[str, Any], dynamic_shapes: Any) -> dict[str, Any]:
    if isinstance(dynamic_shapes, Mapping):
        dynamic_shapes = _with_keywords(mod, arguments, dynamic_shapes)
        unknown = [name for name in dynamic_shapes if name not in arguments]
        if unknown:
            raise InvalidRequestError(
                f"dynamic_shapes names {', '.join(map(repr, unknown))}, but the arguments are "
                f"{', '.join(map(repr, arguments))}",
                remedy=_names_instead(mod, unknown),
            )
        return dict(dynamic_shapes)
    if isinstance(dynamic_shapes, (tuple, list)):
        if len(dynamic_shapes) != len(arguments):
            raise InvalidRequestError(
                f"dynamic_shapes has {len(dynamic_shapes)} entries, but there are {len(arguments)} arguments: "
                f"{', '.join(arguments)}",
                remedy="give one entry per argument (None for a static one), or a dictionary by name",
            )
        return dict(zip(arguments, dynamic_shapes))
    raise InvalidRequestError(
        f"dynamic_shapes must be a dictionary, a tuple, a ShapesCollection, AdditionalInputs or 'auto', but got "
        f"{type(dynamic_shapes).__name__}"
    )


def _names_instead(mod: Any, unknown: Sequence[str]) -> str:
    """What to write for names that are no arguments of the example call."""
    function = mod.forward if isinstance(mod, torch.nn.Module) else mod
    left_out = [name for name in unknown if name in signature_of(function).parameters]
    if left_out:
        return (
            f"the example leaves {', '.join(left_out)} out, so that the program has the default: leave "
            f"{'it' if len(left_out) == 1 else 'them'} out here too, or give an example"
        )
    return "use the names of the program's parameters"


def _with_keywords(mod: Any, arguments: Mapping[str, Any], specs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Specs of keywords that ``**kwargs`` takes, under its name."""
    keywords = _variadic_keywords(mod)
    if keywords is None or keywords not in arguments or keywords in specs:
        return specs
    inside = {name: spec for name, spec in specs.items() if name not in arguments and name in arguments[keywords]}
    return {**{name: spec for name, spec in specs.items() if name not in inside}, keywords: inside}


def _variadic_keywords(mod: Any) -> str | None:
    function = mod.forward if isinstance(mod, torch.nn.Module) else mod
    parameters = signature_of(function).parameters.values()
    return next((parameter.name for parameter in parameters if parameter.kind is parameter.VAR_KEYWORD), None)


def _check_names(leaves: Sequence[list[Entry] | None]) -> None:
    """One name stands for one definition."""
    known: dict[str, Dim] = {}
    for entries in leaves:
        for entry in entries or ():
            if isinstance(entry, Dim):
                root = entry.root
                other = known.setdefault(root.name, root)
                if (other.min, other.max) != (root.min, root.max):
                    raise InvalidRequestError(
                        f"Found different definitions {other!r} and {root!r} for the same symbolic dimension",
                        remedy="use one Dim object, or different names",
                    )


def _in_call_order(
    mod: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    matched: dict[str, list[list[Entry] | None]],
) -> list[list[Entry] | None]:
    """Entries by argument name, in the order in which the leaves of ``(args, kwargs)`` come."""
    remaining = {name: iter(entries) for name, entries in matched.items()}
    owner = _owners(mod, args, kwargs)
    result: list[list[Entry] | None] = []
    for name, value in [*zip(owner[: len(args)], args), *zip(owner[len(args) :], kwargs.values())]:
        result += [next(remaining[name]) for _ in tree.leaves(value)]
    return result


def _owners(mod: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
    """The parameter that takes each positional and each keyword argument."""
    names = captured_argument_names(mod)
    if names is not None and len(names) == len(args) + len(kwargs):
        return list(names)
    function: Callable[..., Any] = mod.forward if isinstance(mod, torch.nn.Module) else mod
    parameters = signature_of(function).parameters.values()
    owners: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            owners += [parameter.name] * (len(args) - len(owners))
        elif parameter.kind is not parameter.KEYWORD_ONLY and len(owners) < len(args):
            owners.append(parameter.name)
    variadic = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None)
    # a keyword of **kwargs may be called like the parameter *args
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return owners + [name if name in named else str(variadic) for name in kwargs]
