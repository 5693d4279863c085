"""Custom objects in programs: a file holds only those whose types somebody registered for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tintype.errors import FileFormatError, InvalidRequestError, UnsavableError


@dataclass(frozen=True)
class _Serializer:
    name: str
    save: Callable[[Any], bytes]
    load: Callable[[bytes], Any]


_BY_NAME: dict[str, _Serializer] = {}
_BY_TYPE: dict[Any, _Serializer] = {}


def register_object(cls: Any, *, name: str, save: Callable[[Any], bytes], load: Callable[[bytes], Any]) -> None:
    """Let objects of a type be saved with a program that holds them.

    ``cls`` is a class, or the qualified name of a TorchScript class (``"__torch__.torch.classes.library.Queue"``).
    ``save`` makes bytes of an object, ``load`` an object of bytes, which may come from anybody: it must not trust
    them. A file names the type by ``name``, and is read only where that name is registered.

    >>> class Vocabulary:
    ...     def __init__(self, words):
    ...         self.words = words
    >>> register_object(
    ...     Vocabulary,
    ...     name="example.Vocabulary",
    ...     save=lambda vocabulary: " ".join(vocabulary.words).encode(),
    ...     load=lambda content: Vocabulary(content.decode().split(" ")),
    ... )
    """
    if not isinstance(name, str) or not name:
        raise InvalidRequestError(f"a serializer needs a name, but got {name!r}")
    known = _BY_NAME.get(name)
    if known is not None and _BY_TYPE.get(cls) is not known:
        raise InvalidRequestError(f"{name!r} is the name of another type already", remedy="choose another name")
    serializer = _Serializer(name, save, load)
    _BY_NAME[name] = serializer
    _BY_TYPE[cls] = serializer


def _torchs_own() -> dict[Any, _Serializer]:
    """All serializers, with those for objects of torch's own, which few programs hold."""
    import tintype.serde.packed_weights  # noqa: F401  (registers them)

    return _BY_TYPE


def saved_object(where: str, value: Any) -> tuple[str, bytes]:
    """The registered name of an object's type, and its bytes."""
    key = value._type().qualified_name() if isinstance(value, torch.ScriptObject) else type(value)
    serializer = _BY_TYPE.get(key) or _torchs_own().get(key)
    if serializer is None:
        raise UnsavableError(
            f"{where} is an object of {key if isinstance(key, str) else key.__qualname__}, which a file can't hold",
            remedy="say how with tintype.register_object, here and where the file is loaded",
        )
    content = serializer.save(value)
    if not isinstance(content, bytes):
        raise UnsavableError(f"the serializer {serializer.name!r} gave a {type(content).__qualname__}, not bytes")
    return serializer.name, content


def loaded_object(name: str, content: bytes) -> Any:
    """An object from its bytes."""
    _torchs_own()
    serializer = _BY_NAME.get(name)
    if serializer is None:
        raise FileFormatError(
            f"the program holds an object of {name!r:.100}, which is not registered here",
            remedy="import the module that calls tintype.register_object for it before loading the file",
        )
    return serializer.load(content)
