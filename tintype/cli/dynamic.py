"""``--dynamic``: the sizes that vary, as text.

``x.0=batch`` names a size, ``x.0=batch:1:64`` gives it bounds, ``x.2=8*rows`` and ``x.1=2*pairs+1`` are sizes made of
it, ``x.1=auto`` leaves it to the model. One name is one size, wherever it stands.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from tintype.errors import InvalidRequestError
from tintype.export.dimensions import Dim

# SIZE, perhaps with bounds: batch, 8*rows, pairs*2+1, batch:1:64, batch:2
_SIZE = re.compile(
    r"(?:(?P<before>\d+)\*)?(?P<name>[A-Za-z_]\w*)(?:\*(?P<after>\d+))?(?:(?P<sign>[+-])(?P<more>\d+))?"
    r"(?::(?P<low>\d*)(?::(?P<high>\d*))?)?"
)
_HINTS = {"auto": Dim.AUTO, "dynamic": Dim.DYNAMIC, "static": None}
_FORMS = "write --dynamic x.0=batch, x.0=batch:1:64 with bounds, x.2=8*rows for multiples, x.1=auto, or auto alone"


def dynamic_shapes_of(texts: Sequence[str], arguments: Mapping[str, Any]) -> Any:
    """What ``--dynamic`` says, as ``dynamic_shapes`` of an export with these arguments; None without it."""
    wishes = [wish for text in texts for wish in _split(text)]
    if not wishes:
        return None
    everything = "auto" in wishes
    names = _Names()
    # first what all of them say of a name, as its bounds may stand behind any of its uses
    asked = [(wish, *_read(wish, names)) for wish in wishes if wish != "auto"]
    if not asked:
        return "auto"
    entries: dict[str, dict[tuple[str, ...], Any]] = {}
    for wish, name, path, size in asked:
        if name not in arguments:
            near = difflib.get_close_matches(name, arguments, n=1)
            raise InvalidRequestError(
                f"--dynamic {wish}: there is no input {name!r}; the inputs are {', '.join(arguments)}",
                remedy=f"did you mean {near[0]}?" if near else "name one of the inputs",
            )
        entry = names.dim(*size) if isinstance(size, tuple) else size
        if entries.setdefault(name, {}).setdefault(path, entry) is not entry:
            raise InvalidRequestError(
                f"--dynamic {wish}: {'.'.join((name, *path))} is given twice", remedy="leave one of them out"
            )
    shapes = {}
    for name, value in arguments.items():
        wanted = entries.get(name, {})
        shapes[name] = _spec(value, wanted, name, (), everything)
        for path in wanted:
            raise InvalidRequestError(
                f"--dynamic {'.'.join((name, *path))}: {_described(name, value)}, which has no such size",
                remedy=f"the sizes are {', '.join(list(_sizes(value, name))[:8]) or 'none'}",
            )
    return shapes


def mended(texts: Sequence[str], fixes: Mapping[str, Dim | int]) -> str:
    """The same wishes with other definitions of their names, as one ``--dynamic``."""
    names = _Names()
    seen: set[str] = set()
    said = []
    for wish in (wish for text in texts for wish in _split(text)):
        size = None if wish == "auto" else _read(wish, names)[2]
        if not isinstance(size, tuple):
            said.append(wish)
            continue
        name, factor, offset = size
        fix = fixes.get(name)
        if isinstance(fix, int):
            continue  # the one size that works is that of the example
        if fix is None:
            said.append(wish)
            continue
        new = factor * fix + offset
        said.append(f"{wish.partition('=')[0]}={new.name.replace(' ', '')}")
        root = fixes.get(new.root.name, new.root)
        if isinstance(root, Dim) and root.name not in seen:
            seen.add(root.name)
            bounds = None if root.min <= 0 else int(root.min), None if root.max == math.inf else int(root.max)
            said[-1] += "" if bounds == (None, None) else f":{_bounds_text(bounds)}"
    return f"--dynamic {','.join(said)}" if said else "no --dynamic"


def _split(text: str) -> list[str]:
    return [wish.replace(" ", "") for wish in text.split(",")]


class _Names:
    """The names of sizes, each with the bounds that it was given somewhere."""

    def __init__(self) -> None:
        self._bounds: dict[str, tuple[int | None, int | None]] = {}
        self._dims: dict[str, Dim] = {}

    def note(self, name: str, low: str | None, high: str | None, wish: str) -> None:
        bounds = int(low) if low else None, int(high) if high else None
        known = self._bounds.setdefault(name, bounds)
        if known == (None, None):
            self._bounds[name] = bounds
        elif bounds not in ((None, None), known):
            raise InvalidRequestError(
                f"--dynamic {wish}: {name} has the bounds {_bounds_text(known)} elsewhere, and here "
                f"{_bounds_text(bounds)}",
                remedy="give the bounds of a name once, or let sizes that are not the same have two names",
            )

    def dim(self, name: str, factor: int, offset: int) -> Dim:
        """The size; one object where the same is meant."""
        if name not in self._dims:
            low, high = self._bounds[name]
            self._dims[name] = Dim(name, min=low, max=high)
        return factor * self._dims[name] + offset


def _bounds_text(bounds: tuple[int | None, int | None]) -> str:
    low, high = ("" if bound is None else str(bound) for bound in bounds)
    return f"{low}:{high}"


def _read(wish: str, names: _Names) -> tuple[str, tuple[str, ...], Any]:
    """The input, the way from there to the size, and its hint or its name, factor and offset."""
    place, separator, text = wish.partition("=")
    name, *path = place.split(".")
    if not separator or not name:
        raise InvalidRequestError(f"--dynamic {wish}: expected INPUT.DIMENSION=SIZE", remedy=_FORMS)
    if text in _HINTS:
        return name, tuple(path), _HINTS[text]
    found = _SIZE.fullmatch(text)
    if found is None or (found["before"] and found["after"]):
        why = f"{text} is a fixed size, which needs no --dynamic" if text.isdigit() else f"{text!r} is no size"
        raise InvalidRequestError(f"--dynamic {wish}: {why}", remedy=_FORMS)
    names.note(found["name"], found["low"], found["high"], wish)
    offset = int(found["more"] or 0) * (-1 if found["sign"] == "-" else 1)
    return name, tuple(path), (found["name"], int(found["before"] or found["after"] or 1), offset)


def _spec(value: Any, wanted: dict[tuple[str, ...], Any], name: str, path: tuple[str, ...], everything: bool) -> Any:
    """The entry of an argument, or of a part of it; takes what it uses out of what is wanted."""
    if isinstance(value, torch.Tensor):
        found = dict.fromkeys(range(value.dim()), Dim.AUTO) if everything else {}
        for number in range(value.dim()):
            for key in (str(number), str(number - value.dim())):
                if (*path, key) in wanted:
                    found[number] = wanted.pop((*path, key))
        return found or None
    if isinstance(value, Mapping):
        return {key: _spec(part, wanted, name, (*path, str(key)), everything) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [_spec(part, wanted, name, (*path, str(number)), everything) for number, part in enumerate(value)]
        return tuple(parts) if isinstance(value, tuple) else parts
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and path in wanted:
        return wanted.pop(path)
    return "auto" if everything and value is not None else None


def _sizes(value: Any, place: str) -> Iterator[str]:
    """The places of all sizes in an argument."""
    if isinstance(value, torch.Tensor):
        yield from (f"{place}.{number}" for number in range(value.dim()))
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _sizes(part, f"{place}.{key}")
    elif isinstance(value, (list, tuple)):
        for number, part in enumerate(value):
            yield from _sizes(part, f"{place}.{number}")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield place


def _described(name: str, value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{name} is a tensor of {value.dim()} dimensions, {list(value.shape)}"
    return f"{name} is a {type(value).__name__}"
