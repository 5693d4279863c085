"""The containers in a structure as objects: which they are, which are one, and letting them hold something else.

Only what can be changed counts: tuples are what they are made of. Containers are numbered in the order of their
structure, each before those in it.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
import torch.utils._pytree as pytree
from torch.utils._pytree import TreeSpec

from tintype.tree.registration import holds_attributes, kept_attributes, named_parts
from tintype.tree.structure import same_value
from tintype.tree.updating import update

# the numbers of children on the way to a part of a tree
Path = tuple[int, ...]

_DICTIONARIES = (dict, collections.OrderedDict, collections.defaultdict)
_SEQUENCES = (list, collections.deque)
# What holds nothing: most of what containers hold.
_LEAVES = frozenset((torch.Tensor, torch.nn.Parameter, int, float, bool, str, complex, type(None)))


def can_be_updated(kind: type) -> bool:
    """Whether containers of a class can be made to hold what another one does."""
    return kind in _DICTIONARIES or kind in _SEQUENCES or holds_attributes(kind)


def is_changeable(kind: Any) -> bool:
    """Whether a type of a structure is one of containers that can be changed at all."""
    return isinstance(kind, type) and not issubclass(kind, tuple)


class _Plan(NamedTuple):
    """How to get at the containers of a structure; no more of it than is needed."""

    number: int | None
    children: Callable[[Any], Sequence[Any]]
    parts: tuple[tuple[int, _Plan], ...]


class Containers:
    """The containers in values of one structure, but for the value itself and, for the arguments of a call, the tuple
    and the dictionary that hold these."""

    def __init__(self, spec: TreeSpec, *, of_call: bool = False) -> None:
        self.paths: list[Path] = []
        self.kinds: list[Any] = []
        self._outer = ((), (0,), (1,)) if of_call else ((),)
        self._plan = self._planned(spec, ())
        self.numbers = {path: number for number, path in enumerate(self.paths)}

    def _planned(self, spec: TreeSpec, path: Path) -> _Plan | None:
        if spec.is_leaf():
            return None
        number = None
        if path not in self._outer and is_changeable(spec.type):
            number = len(self.paths)
            self.paths.append(path)
            self.kinds.append(spec.type)
        plans = [self._planned(child, (*path, position)) for position, child in enumerate(spec.children())]
        parts = tuple((position, plan) for position, plan in enumerate(plans) if plan is not None)
        return _Plan(number, _children_of(spec), parts) if parts or number is not None else None

    def of(self, value: Any) -> list[Any]:
        """The containers of a value."""
        found: list[Any] = []
        if self._plan is not None:
            _collect(value, self._plan, found)
        return found


def _collect(value: Any, plan: _Plan, found: list[Any]) -> None:
    if plan.number is not None:
        found.append(value)
    if plan.parts:
        children = plan.children(value)
        for position, part in plan.parts:
            _collect(children[position], part, found)


def _children_of(spec: TreeSpec) -> Callable[[Any], Sequence[Any]]:
    """The function that has the children of a container in the order of a structure."""
    kind, context = spec.type, spec.context
    if kind in _DICTIONARIES:
        keys = list(context[1] if kind is collections.defaultdict else context)
        return lambda value: [value[key] for key in keys]
    if kind is tuple or kind is list:
        return lambda value: value
    if holds_attributes(kind):
        names, _ = named_parts(kind, context) or ((), None)
        return lambda value: [getattr(value, name) for name in names]
    flatten: Any = pytree.SUPPORTED_NODES[kind].flatten_fn
    return lambda value: list(flatten(value)[0])


def order_attributes(containers: Sequence[Any], examples: Sequence[Any]) -> None:
    """Let the attributes of objects have the order that those of others have."""
    for container, example in zip(containers, examples):
        if holds_attributes(type(container)) and list(vars(container)) != list(vars(example)):
            attributes = dict(vars(container))
            vars(container).clear()
            vars(container).update({name: attributes[name] for name in vars(example) if name in attributes})
            vars(container).update(attributes)


def labels(containers: Sequence[Any]) -> tuple[int, ...]:
    """For each container the number of the first one that is the same object."""
    first: dict[int, int] = {}
    return tuple(first.setdefault(id(container), number) for number, container in enumerate(containers))


def call_labels(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The labels of the containers in a call; None if each is an object of its own."""
    found: list[Any] = []
    for argument in (*args, *kwargs.values()):
        if type(argument) not in _LEAVES:
            _collect_unplanned(argument, found)
    return labels(found) if len(found) > 1 and len({*map(id, found)}) != len(found) else None


def _collect_unplanned(value: Any, found: list[Any]) -> None:
    kind = pytree._get_node_type(value)
    if kind not in pytree.SUPPORTED_NODES:
        return
    if is_changeable(kind):
        found.append(value)
    for child in pytree.SUPPORTED_NODES[kind].flatten_fn(value)[0]:
        if type(child) not in _LEAVES:
            _collect_unplanned(child, found)


def unflatten_call(leaves: Sequence[Any], spec: TreeSpec, shared: Sequence[int]) -> Any:
    """The arguments of a call in which some containers are one object, as their labels say."""
    values, built = iter(leaves), dict[int, Any]()
    numbers = iter(shared)

    def build(spec: TreeSpec, path: Path) -> Any:
        if spec.is_leaf():
            return next(values)
        number = label = None
        if path not in ((), (0,), (1,)) and is_changeable(spec.type):
            number, label = len(built), next(numbers)
            built[number] = None
        children = [build(child, (*path, position)) for position, child in enumerate(spec.children())]
        made = pytree.SUPPORTED_NODES[spec.type].unflatten_fn(children, spec.context)
        if number is None or label is None:
            return torch.Size(made) if spec.type is torch.Size else made
        built[number] = made if label == number else built[label]
        return built[number]

    return build(spec, ())


# --- changing them -------------------------------------------------------------------------------------------


def put(own: Any, made: Any) -> Any:
    """Let a container hold what another one of its class does, which may be of no use afterwards; returns the first.

    One that can't be changed so is taken to hold that already; where something else stands, it is the other one.
    """
    kind = type(made)
    if type(own) is SimpleNamespace and holds_attributes(kind):  # it stands for an object
        vars(own).update({name: item for name, item in vars(made).items() if name in vars(own)})
        return own
    if type(own) is not kind or own is made:
        return made
    if kind is list:
        own[:] = [*map(_kept, own, made), *made[len(own) :]]
    elif kind in _DICTIONARIES:
        items = {key: _kept(own[key], item) if key in own else item for key, item in made.items()}
        if list(own) != list(made):
            own.clear()
        own.update(items)
    elif kind is collections.deque:
        queue = [*map(_kept, own, made), *list(made)[len(own) :]]
        own.clear()
        own.extend(queue)
    elif holds_attributes(kind):
        _put_attributes(own, made)
    return own


def _kept(old: Any, new: Any) -> Any:
    """What is to stand where something stood: a tuple that is still the same stays, and is not merely equal."""
    return old if isinstance(new, tuple) and _is_still(old, new) else new


def _is_still(old: Any, new: Any) -> bool:
    if old is new or type(new) in (int, float, bool, str):
        return old is new or same_value(old, new)
    is_tuple = isinstance(new, tuple) and type(old) is type(new) and len(old) == len(new)
    return is_tuple and all(map(_is_still, old, new))


def _put_attributes(own: Any, made: Any) -> None:
    old, new = vars(own), vars(made)
    parts = pytree.SUPPORTED_NODES[type(made)].flatten_fn(made)[1][0]
    for name in [name for name in old if name not in new]:
        del old[name]
    kept = kept_attributes(type(made))
    for name, item in new.items():
        if name in parts:
            old[name] = _kept(old.get(name), item)
        elif name not in kept or name not in old:  # a setting: it was none of the program's containers
            if name not in old or not same_value(old[name], item):
                old[name] = update(old.get(name), item)


def put_into(places: Mapping[Path, int], containers: Sequence[Any], results: Any, path: Path = ()) -> Any:
    """Results in which the containers at some places are those that were given, by their numbers."""
    if not any(place[: len(path)] == path for place in places):
        return results
    node = pytree.SUPPORTED_NODES[pytree._get_node_type(results)]
    children, context = node.flatten_fn(results)
    children = list(children)
    parts = [put_into(places, containers, child, (*path, position)) for position, child in enumerate(children)]
    made = results
    if not all(one is other for one, other in zip(parts, children)):
        made = node.unflatten_fn(parts, context)
    return put(containers[places[path]], made) if path in places else made


def leaf_paths(spec: TreeSpec, path: Path = ()) -> Iterator[Path]:
    """The places of all leaves of a structure, as numbers of children on the way."""
    if spec.is_leaf():
        yield path
    for number, child in enumerate(spec.children()):
        yield from leaf_paths(child, (*path, number))


def place_name(written: str) -> str:
    """A place in a result as people call it: ``['logits'][0]`` is ``logits[0]``, ``.layers[0].keys`` without the dot.

    >>> place_name("['past'].keys['a'][1]"), place_name("[0]"), place_name("")
    ('past.keys.a[1]', '[0]', 'result')
    """
    return re.sub(r"\['([^\W\d]\w*)'\]", r".\1", written).removeprefix(".") or "result"


def child_names(spec: TreeSpec, path: Path) -> list[str]:
    """What is written after a value to get at a container in it: ``[0]``, ``['a']``, ``.layers``."""
    written = []
    for number in path:
        named = named_parts(spec.type, spec.context)
        if spec.type in _DICTIONARIES:
            keys = spec.context[1] if spec.type is collections.defaultdict else spec.context
            written.append(f"[{keys[number]!r}]")
        elif named is not None:
            written.append(f".{named[0][number]}")
        else:
            written.append(f"[{number}]")
        spec = spec.children()[number]
    return written
