"""Classes whose objects are containers: the user's, and on first sight those of libraries that we know.

The registry is that of ``torch.utils._pytree``. What a library needs lives in a plug-in, which is loaded when an
object of that library turns up among leaves, or its name in a file.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
import torch.utils._pytree as pytree

from tintype.errors import InvalidRequestError

# Libraries, by the root of their modules' names, and who knows their containers and functions.
_PLUG_INS = {
    "transformers": "tintype.interop.library_plug_in",
    "diffusers": "tintype.interop.library_plug_in",
}


def loaded_plug_ins() -> list[Any]:
    """The plug-ins of libraries that are there."""
    names = dict.fromkeys(plug_in for library, plug_in in _PLUG_INS.items() if library in sys.modules)
    return [importlib.import_module(name) for name in names]


# What a container is made of: parts by name, and settings that are its structure.
Parts = Mapping[str, Any]

# Attributes of these types are settings unless somebody says otherwise: they can't vary in a program.
_SETTINGS = (bool, str, type, type(None), torch.dtype, torch.device)


def register_container(
    cls: type,
    flatten: Callable[[Any], tuple[Parts, Any]] | None = None,
    unflatten: Callable[[dict[str, Any], Any], Any] | None = None,
    *,
    settings: Iterable[str] = (),
    name: str | None = None,
) -> None:
    """Let objects of a class be inputs and outputs of programs: their parts become leaves, or containers of leaves.

    Without functions an object is the container of its attributes. Tensors, numbers and containers are its parts;
    flags, strings, dtypes, devices, classes and ``None`` are its structure, which must be the same in every call, and
    so are numbers under the names in ``settings``. ``flatten(object)`` returns the parts by name, and anything that
    can be compared and saved as structure; ``unflatten(parts, structure)`` puts an object together again. Files refer
    to the class by ``name``, by default that of its module and its own.

    >>> class Grid:
    ...     def __init__(self, cells, unit):
    ...         self.cells, self.unit = cells, unit
    >>> register_container(Grid)
    >>> import torch, tintype
    >>> program = tintype.export(lambda grid: grid.cells * 2, (Grid(torch.ones(3), "mm"),), dynamic_shapes="auto")
    >>> program.module()(Grid(torch.ones(5), "mm")).shape
    torch.Size([5])
    """
    if not isinstance(cls, type):
        raise InvalidRequestError(f"register_container expects a class, but got {cls!r}")
    if (flatten is None) != (unflatten is None):
        raise InvalidRequestError("register_container takes both of flatten and unflatten, or none of them")
    _check_registration(cls, flatten, unflatten, settings, name)
    if cls in pytree.SUPPORTED_NODES:
        raise InvalidRequestError(
            f"{cls.__qualname__} is a container already", remedy="register a class once, where it is defined"
        )
    if flatten is None or unflatten is None:
        register_attributes(cls, settings, name)
    else:
        _register_named(cls, flatten, unflatten, name)


def _check_registration(cls: type, flatten: Any, unflatten: Any, settings: Any, name: Any) -> None:
    """Refuse what would only fail when a container is taken apart."""
    for function in (flatten, unflatten):
        if function is not None and not callable(function):
            raise InvalidRequestError(f"flatten and unflatten are functions, but got {function!r:.80}")
    if isinstance(settings, str) or not isinstance(settings, Iterable):
        raise InvalidRequestError(f"settings are names of attributes, but got {settings!r:.80}", remedy='("size",)')
    if name is not None and (not isinstance(name, str) or not name):
        raise InvalidRequestError(f"the name of a class in files is a text, but got {name!r:.80}")
    if name is not None and name in pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE:
        raise InvalidRequestError(f"another class has the name {name!r} already", remedy="choose another one")
    if issubclass(cls, (torch.Tensor, torch.nn.Module)):
        raise InvalidRequestError(f"{cls.__qualname__} can't be a container: programs know what it is")
    holds_more = issubclass(cls, (dict, list, tuple, set, int, float, str)) or not cls.__dictoffset__
    if flatten is None and holds_more:
        raise InvalidRequestError(
            f"an object of {cls.__qualname__} is more than its attributes, or has none that can be listed",
            remedy="say how it is taken apart and put together: register_container(cls, flatten, unflatten)",
        )


def _register_named(
    cls: type,
    flatten: Callable[[Any], tuple[Parts, Any]],
    unflatten: Callable[[dict[str, Any], Any], Any],
    name: str | None,
) -> None:
    name = name or f"{cls.__module__}.{cls.__qualname__}"

    def flatten_parts(value: Any) -> tuple[list[Any], Any]:
        parts, structure = _taken_apart(flatten(value), cls)
        return list(parts.values()), (tuple(parts), structure)

    def flatten_with_keys(value: Any) -> tuple[list[tuple[Any, Any]], Any]:
        parts, structure = _taken_apart(flatten(value), cls)
        return [(pytree.GetAttrKey(part), item) for part, item in parts.items()], (tuple(parts), structure)

    def unflatten_parts(values: Iterable[Any], context: Any) -> Any:
        names, structure = context
        return unflatten(dict(zip(names, values, strict=True)), structure)

    pytree.register_pytree_node(
        cls, flatten_parts, unflatten_parts, serialized_type_name=name, flatten_with_keys_fn=flatten_with_keys
    )
    _has_named_parts.add(cls)


def _taken_apart(result: Any, cls: type) -> tuple[Parts, Any]:
    """What a user's function returns, if it is what it must be."""
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], Mapping)):
        raise InvalidRequestError(
            f"flatten of a {cls.__qualname__} returned {result!r:.100}",
            remedy="return a dictionary of the parts by name, and the structure: ({'x': value.x}, None)",
        )
    return result


def register_attributes(
    cls: type,
    settings: Iterable[str] = (),
    name: str | None = None,
    attributes_of: Callable[[Any], Mapping[str, Any]] = vars,
    kept: Iterable[str] = (),
) -> None:
    """Let objects of a class be containers of their attributes, as far as ``attributes_of`` tells of them; what it
    does not tell of them as it is, is ``kept`` by objects of the caller's that a program has changed."""
    settings = frozenset(settings)

    def flatten(value: Any) -> tuple[Parts, Any]:
        parts, structure = {}, []
        for attribute, item in sorted(attributes_of(value).items()):
            if isinstance(item, torch.Tensor):  # first: a fake is slow to tell what it is not
                parts[attribute] = item
            elif isinstance(item, _SETTINGS) or (attribute in settings and _is_plain(item)):
                structure.append((attribute, _copied(item)))
            else:
                parts[attribute] = item
        return parts, tuple(structure)

    def unflatten(parts: dict[str, Any], structure: Any) -> Any:
        value: Any = object.__new__(cls)
        vars(value).update(parts)
        vars(value).update((attribute, _copied(item)) for attribute, item in structure)
        return value

    _register_named(cls, flatten, unflatten, name)
    _holds_attributes[cls] = frozenset(kept)


def _is_plain(item: Any) -> bool:
    """Whether numbers, also in a dictionary or list, are none that a program computes."""
    if isinstance(item, dict):
        return all(map(_is_plain, item.values()))
    if isinstance(item, (list, tuple)):
        return all(map(_is_plain, item))
    return isinstance(item, (int, float, *_SETTINGS))


def _copied(item: Any) -> Any:
    """A setting of its own: programs change dictionaries of settings, but not the structure that they are part of."""
    if isinstance(item, dict):
        return {key: _copied(value) for key, value in item.items()}
    return list(map(_copied, item)) if isinstance(item, list) else item


# Containers of attributes: an object can be changed to hold what another one does, but for what it keeps.
_holds_attributes: weakref.WeakKeyDictionary[type, frozenset[str]] = weakref.WeakKeyDictionary()
# Containers whose context is the names of their parts and a structure.
_has_named_parts: weakref.WeakSet[type] = weakref.WeakSet()


def holds_attributes(cls: type) -> bool:
    """Whether objects of a class are containers of their attributes."""
    return cls in _holds_attributes


def is_of_library(cls: type) -> bool:
    """Whether a class belongs to a library that we know."""
    return cls.__module__.partition(".")[0] in _PLUG_INS


def kept_attributes(cls: type) -> frozenset[str]:
    """The attributes that an object keeps when it is made to hold what another one does."""
    return _holds_attributes[cls]


def named_parts(cls: Any, context: Any) -> tuple[Sequence[str], Any] | None:
    """The names of a container's parts, and the rest of its structure; None for one whose parts have no names."""
    if cls in _has_named_parts:
        return context
    # the outputs of models are dictionaries
    is_entries = isinstance(cls, type) and issubclass(cls, dict) and isinstance(context, list)
    return (context, None) if is_entries and all(type(name) is str for name in context) else None


# --- libraries -------------------------------------------------------------------------------------------


# What leaves usually are: no plug-in needs to be asked.
_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter, int, float, bool, str, complex, type(None), torch.SymInt))
# Classes that turned out to be no container of anybody's.
_leaf_classes: weakref.WeakSet[type] = weakref.WeakSet()


def register_on_sight(leaves: Iterable[Any]) -> bool:
    """Make containers of objects among leaves whose classes belong to a library that we know; whether there were
    any."""
    kinds = set(map(type, leaves)) - _PLAIN
    registered = [register_known(kind) for kind in kinds if kind not in _leaf_classes] if kinds else ()
    return any(registered)


def register_known(cls: type) -> bool:
    """Register a class if it is a container of a library that we know; whether it was."""
    if cls in pytree.SUPPORTED_NODES:
        return False
    for library in {base.__module__.partition(".")[0] for base in cls.__mro__} & _PLUG_INS.keys():
        if importlib.import_module(_PLUG_INS[library]).register(cls):
            return True
    _leaf_classes.add(cls)
    return False


def type_named(name: str) -> type | None:
    """The class of containers that a file means by a name: one that is registered, a known library's if that is
    loaded, otherwise a stand-in with the same name and parts; None if nobody knows it."""
    cls = pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE.get(name)
    library = name.partition(".")[0]
    if cls is None and library in _PLUG_INS:
        cls = importlib.import_module(_PLUG_INS[library]).type_named(name)
    return cls


def can_stand_for(value: Any, cls: type) -> bool:
    """Whether an object's attributes may be taken for the parts of a container of another class: a namespace's, and
    those of a class of the same name, since one of the two is a stand-in then. Others may mean something else by
    them, as caches of different kinds do."""
    return type(value) is SimpleNamespace or _full_name(type(value)) == _full_name(cls)


def _full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


# --- the user's own --------------------------------------------------------------------------------------


def register_dataclass(
    cls: type,
    *,
    field_names: Sequence[str] | None = None,
    drop_field_names: Sequence[str] | None = None,
    serialized_type_name: str | None = None,
    return_none_fields: bool = False,
) -> None:
    """Let a dataclass be an input or output of exported programs: its fields become leaves.

    Fields that are ``None`` are part of the structure, unless ``return_none_fields`` makes them leaves.

    >>> from tintype import tree
    >>> @dataclasses.dataclass
    ... class Point:
    ...     x: int
    ...     y: int
    >>> register_dataclass(Point)
    >>> tree.flatten(Point(1, 2))[0]
    [1, 2]
    """
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise InvalidRequestError(
            f"register_dataclass expects a dataclass, but got {cls!r}",
            remedy="decorate the class with @dataclasses.dataclass",
        )
    names = _fields_to_flatten(cls, field_names, drop_field_names)
    left_out = {field.name for field in dataclasses.fields(cls) if field.init} - set(names)
    flatten_fields, flatten_with_keys = _flatteners(names, left_out, return_none_fields)

    def unflatten_fields(values: Iterable[Any], context: Any) -> Any:
        present, absent = context
        attributes = {**dict(zip(present, values, strict=True)), **dict.fromkeys(absent)}
        if left_out:  # its constructor knows their values
            return cls(**attributes)
        # not its constructor: what __post_init__ does was done when the parts were put together for the first time
        made: Any = object.__new__(cls)
        for name, value in attributes.items():
            object.__setattr__(made, name, value)
        return made

    pytree.register_pytree_node(
        cls,
        flatten_fields,
        unflatten_fields,
        serialized_type_name=serialized_type_name or f"{cls.__module__}.{cls.__qualname__}",
        flatten_with_keys_fn=flatten_with_keys,
    )


def register_namedtuple(cls: type, *, serialized_type_name: str | None = None) -> None:
    """Let programs with a named tuple among their inputs or outputs be saved: files refer to it by its name.

    Named tuples can be inputs and outputs without this.

    >>> from collections import namedtuple
    >>> Pair = namedtuple("Pair", ["first", "second"])
    >>> register_namedtuple(Pair, serialized_type_name="example.Pair")
    """
    if not (isinstance(cls, type) and pytree.is_namedtuple_class(cls)):
        raise InvalidRequestError(f"register_namedtuple expects the class of a named tuple, but got {cls!r}")
    if cls not in pytree.SUPPORTED_SERIALIZED_TYPES:
        name = serialized_type_name or f"{cls.__module__}.{cls.__qualname__}"
        pytree._register_namedtuple(cls, serialized_type_name=name)


def _fields_to_flatten(
    cls: type, field_names: Sequence[str] | None, drop_field_names: Sequence[str] | None
) -> list[str]:
    known = [field.name for field in dataclasses.fields(cls) if field.init]
    names = list(field_names) if field_names is not None else known
    dropped = set(drop_field_names or ())
    unknown = [name for name in [*names, *dropped] if name not in known]
    if unknown:
        raise InvalidRequestError(
            f"{cls.__name__} has no constructor field {', '.join(unknown)}; its fields are {', '.join(known)}",
            remedy="name fields of the dataclass that its constructor takes",
        )
    return [name for name in names if name not in dropped]


def _flatteners(
    names: list[str], left_out: Collection[str], keep_none: bool
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def flatten_fields(value: Any) -> tuple[list[Any], Any]:
        present, absent, values = [], [], []
        # what __post_init__ has set besides the fields that the constructor takes is part of the object, too
        further = () if left_out else [name for name in getattr(value, "__dict__", ()) if name not in names]
        for name in (*names, *further):
            field = getattr(value, name)
            if field is None and not keep_none:
                absent.append(name)
            else:
                present.append(name)
                values.append(field)
        return values, [present, absent]

    def flatten_with_keys(value: Any) -> tuple[list[tuple[Any, Any]], Any]:
        values, context = flatten_fields(value)
        keys = [pytree.GetAttrKey(name) for name in context[0]]
        return list(zip(keys, values, strict=True)), context

    return flatten_fields, flatten_with_keys
