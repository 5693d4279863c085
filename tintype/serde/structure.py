"""The structure of inputs and outputs, to and from the schema.

A container is written by the name that it was registered under with ``torch.utils._pytree``, and found by that name
among the types of this process; a named tuple needs no registration, it is found in its module if that is loaded.
Nothing is imported because a file says so.
"""

from __future__ import annotations

import collections
import sys
from typing import Any

import torch
import torch.utils._pytree as pytree

from tintype.errors import FileFormatError, UnsavableError
from tintype.serde import schema
from tintype.serde.values import ValueDecoder, ValueEncoder
from tintype.tree import (
    PlainContainer,
    TreeSpec,
    holds_attributes,
    is_changeable,
    plain_context,
    register_known,
    type_named,
)
from tintype.tree.subclasses import ClassName, SubclassParts

_DEEPEST = 200

# What a defaultdict may make: a file can't name any other function.
_FACTORIES: dict[str, Any] = {
    cls.__name__: cls for cls in (bool, dict, float, int, list, set, str, tuple, collections.OrderedDict)
}
_NAMES_OF_FACTORIES = {factory: name for name, factory in _FACTORIES.items()}
_BUILT_IN: dict[str, Any] = {
    "tuple": tuple,
    "list": list,
    "dict": dict,
    "OrderedDict": collections.OrderedDict,
    "deque": collections.deque,
}
_NAMES_OF_BUILT_IN = {cls: name for name, cls in _BUILT_IN.items()}
_NAMEDTUPLE: Any = collections.namedtuple  # what pytree calls the type of every named tuple
_RETURN_TYPES = {cls.__name__: cls for cls in torch.return_types.all_return_types}


def encode_tree(spec: TreeSpec, encoder: ValueEncoder) -> schema.Tree | None:
    """A structure; None is a leaf."""
    if spec.is_leaf():
        return None
    name, context = _type_and_context(spec)
    children = [encode_tree(child, encoder) for child in spec.children()]
    return schema.Tree(name, encoder.encode(context), children)


def _type_and_context(spec: TreeSpec) -> tuple[str, Any]:
    cls: Any = spec.type
    context = spec.context
    if cls in _NAMES_OF_BUILT_IN:
        return _NAMES_OF_BUILT_IN[cls], context
    if cls is _NAMEDTUPLE:
        return "namedtuple", _name_in_module(context) or registered_name(context)
    if cls is collections.defaultdict:
        factory, keys = context
        if factory is not None and factory not in _NAMES_OF_FACTORIES:
            raise UnsavableError(f"a defaultdict that makes {factory!r} can't be saved", remedy="use a dict")
        return "defaultdict", [None if factory is None else _NAMES_OF_FACTORIES[factory], keys]
    if cls is torch.Size:
        return "Size", context
    if cls in _RETURN_TYPES.values():
        return f"torch.return_types:{cls.__name__}", context
    name = registered_name(cls)
    to_dumpable = pytree.SUPPORTED_SERIALIZED_TYPES[cls].to_dumpable_context
    return f"registered:{name}", context if to_dumpable is None else to_dumpable(context)


def _name_in_module(cls: type) -> str | None:
    """The name of a named tuple that nobody registered, by the module that has it; None if that has it not."""
    name = f"{cls.__module__}:{cls.__qualname__}"
    return name if cls not in pytree.SUPPORTED_SERIALIZED_TYPES and _in_loaded_module(name) is cls else None


def _in_loaded_module(name: Any) -> type | None:
    """A plain named tuple, which runs no code of its own when it is made, from a module that is loaded."""
    module, separator, class_name = str(name).partition(":")
    if not separator or module not in sys.modules:
        return None
    cls = vars(sys.modules[module]).get(class_name)
    is_plain = isinstance(cls, type) and cls.__bases__ == (tuple,) and pytree.is_namedtuple_class(cls)
    return cls if is_plain else None


def registered_name(cls: type) -> str:
    """The name of a class of containers in files."""
    register_known(cls)
    entry = pytree.SUPPORTED_SERIALIZED_TYPES.get(cls)
    if entry is None or entry.serialized_type_name == pytree.NO_SERIALIZED_TYPE_NAME_FOUND:
        how = "tintype.register_namedtuple" if issubclass(cls, tuple) else "tintype.register_container"
        raise UnsavableError(
            f"{cls.__qualname__} is part of the program's inputs or outputs, but has no name that a file could use",
            remedy=f"register it with {how}, here and where the file is loaded",
        )
    return entry.serialized_type_name


def decode_tree(tree: schema.Tree | None, decoder: ValueDecoder, depth: int = 0) -> TreeSpec:
    """A structure as pytrees have it."""
    if tree is None:
        return pytree.treespec_leaf()
    if depth > _DEEPEST:
        raise FileFormatError("the structure of inputs and outputs is nested too deeply")
    children = [decode_tree(child, decoder, depth + 1) for child in tree.children]
    context = decoder.decode(tree.context)
    if decoder.plain_containers and _is_unknown(tree.type, context):
        if tree.type == "namedtuple":
            return TreeSpec(tuple, None, children)
        return TreeSpec(PlainContainer, plain_context(context, len(children)), children)
    cls, context = _decoded_type(tree.type, context)
    if cls in (dict, collections.OrderedDict):
        _check_keys(context, len(children))
    elif cls is collections.defaultdict:
        _check_keys(context[1], len(children))
    elif cls is _NAMEDTUPLE and len(getattr(context, "_fields", ())) != len(children):
        raise FileFormatError(f"the named tuple {context.__qualname__} has other fields here than in the file")
    elif holds_attributes(cls):
        _check_attributes(context, len(children))
    elif cls is SubclassParts:
        context = _named_class(context)
    return TreeSpec(cls, context, children)


def decode_positional(names: list[str], in_spec: TreeSpec) -> tuple[str, ...]:
    """The keyword arguments that may be given by position; they are arguments of the program, each once."""
    if not names:
        return ()
    if (
        len(set(names)) != len(names)
        or len(in_spec.children()) != 2
        or not set(names) <= set(in_spec.children()[1].context)
    ):
        raise FileFormatError(f"the program takes no keyword arguments {names!r:.200} by position")
    return tuple(names)


def decode_returned(
    returned: list[tuple[list[int], list[int]]], in_spec: TreeSpec, out_spec: TreeSpec
) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    """Where objects among the arguments stand among the results."""
    arguments = [argument for side in in_spec.children() for argument in side.children()] if returned else []
    for given, place in returned:
        kinds = _type_at(arguments, given), _type_at([out_spec], [0, *place])
        if kinds[0] is not kinds[1] or not is_changeable(kinds[0]):
            raise FileFormatError("an object is said to be returned where there is none, or another one")
    return tuple((tuple(given), tuple(place)) for given, place in returned)


def _type_at(specs: list[TreeSpec], path: list[int]) -> Any:
    found = None
    for number in path:
        if not 0 <= number < len(specs):
            return None
        found, specs = specs[number].type, specs[number].children()
    return found


def _check_keys(keys: Any, count: int) -> None:
    if not isinstance(keys, list) or len(keys) != count:
        raise FileFormatError("a dictionary among inputs or outputs has more keys than values, or fewer")


def _named_class(context: Any) -> Any:
    """What a tensor that consists of others is besides its parts; its class is looked for when it is needed."""
    match context:
        case (names, (str() as name, settings, geometry)):
            return names, (ClassName(name), settings, geometry)
    raise FileFormatError("a tensor among inputs or outputs that consists of others has no class")


def _check_attributes(context: Any, count: int) -> None:
    """The names of an object's parts, and its settings as pairs."""
    match context:
        case (tuple() as names, tuple() as settings) if len(names) == count and all(
            isinstance(pair, tuple) and len(pair) == 2 for pair in settings
        ):
            attributes = [*names, *(name for name, _ in settings)]
            if all(isinstance(name, str) and name.isidentifier() for name in attributes):
                return
    raise FileFormatError("an object among inputs or outputs has attributes that no object can have")


def _is_unknown(name: str, context: Any) -> bool:
    """Whether a container's class is not here."""
    if name == "namedtuple":
        return _in_loaded_module(context) is None and (not isinstance(context, str) or type_named(context) is None)
    kind, _, registered = name.partition(":")
    return kind == "registered" and type_named(registered) is None


def _decoded_type(name: str, context: Any) -> tuple[Any, Any]:
    if name in _BUILT_IN:
        return _BUILT_IN[name], context
    if name == "Size":
        return torch.Size, context
    if name == "namedtuple":
        return _NAMEDTUPLE, _in_loaded_module(context) or registered_type(context)
    if name == "defaultdict":
        if not isinstance(context, list) or len(context) != 2 or context[0] not in (None, *_FACTORIES):
            raise FileFormatError(f"a defaultdict of {context!r:.80} is not allowed in a file")
        return collections.defaultdict, [None if context[0] is None else _FACTORIES[context[0]], context[1]]
    kind, _, registered = name.partition(":")
    if kind == "torch.return_types" and registered in _RETURN_TYPES:
        return _RETURN_TYPES[registered], context
    if kind != "registered":
        raise FileFormatError(f"there is no container {name!r:.80}")
    cls = registered_type(registered)
    from_dumpable = pytree.SUPPORTED_SERIALIZED_TYPES[cls].from_dumpable_context
    return cls, context if from_dumpable is None else from_dumpable(context)


# pytree's own way of reading these imports the module that the file names
_NEVER_BY_NAME = (collections.defaultdict, _NAMEDTUPLE)


def registered_type(name: Any) -> type:
    """The class of containers that a file means."""
    cls = None
    if isinstance(name, str):
        cls = type_named(name)
    if cls is None or cls in _NEVER_BY_NAME:
        raise FileFormatError(
            f"the program's inputs or outputs have a container {name!r:.100}, which is not registered here",
            remedy="before loading the file, import the module that defines it, and that registers it with "
            "torch.utils._pytree unless it is a named tuple; or take a plain object with the same parts: "
            'tintype.load(path, containers="plain")',
        )
    return cls
