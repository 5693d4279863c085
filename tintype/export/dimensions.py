"""``Dim``: names for the sizes of inputs that may vary, and relations between them."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from tintype.errors import InvalidRequestError

Bound = int | float  # a float only for infinity


class DimHint:
    """What to do with a size that has no name: see ``Dim.AUTO``, ``Dim.DYNAMIC`` and ``Dim.STATIC``.

    A hint can be called to give it bounds: ``Dim.DYNAMIC(min=2, max=64)``.
    """

    def __init__(self, kind: str, *, min: int | None = None, max: int | None = None) -> None:
        self.kind = kind
        # what was asked for: no size is less than 0, but an integer argument may be
        self.lower = min
        self.min: Bound = 0 if min is None else min
        self.max: Bound = math.inf if max is None else max

    def __call__(self, *, min: int | None = None, max: int | None = None) -> DimHint:
        if self.kind == "STATIC":
            raise InvalidRequestError("Dim.STATIC has no bounds", remedy="write the size itself, an integer")
        _check_bounds(f"Dim.{self.kind}", min, max)
        return DimHint(self.kind, min=min, max=max)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DimHint) and (self.kind, self.min, self.max) == (other.kind, other.min, other.max)

    def __hash__(self) -> int:
        return hash((self.kind, self.min, self.max))

    def __repr__(self) -> str:
        return f"Dim.{self.kind}{_bounds_text(self.min, self.max)}"


class Dim:
    """A size that may vary, by name. Inputs that use the same Dim have the same size there.

    Sizes that are related are written as sums and products with integers.

    >>> batch = Dim("batch", min=1, max=64)
    >>> 2 * batch + 1
    2*batch + 1
    """

    # the most general size that the program allows, decided by what it does with it
    AUTO: ClassVar[DimHint] = DimHint("AUTO")
    # a size that varies: an error if the program fixes it
    DYNAMIC: ClassVar[DimHint] = DimHint("DYNAMIC")
    # the size of the example
    STATIC: ClassVar[DimHint] = DimHint("STATIC")

    def __init__(self, name: str, *, min: int | None = None, max: int | None = None) -> None:
        if not isinstance(name, str) or not name.isidentifier():
            raise InvalidRequestError(
                f"a Dim needs a name that is a Python identifier, but got {name!r}", remedy='write Dim("batch")'
            )
        _check_bounds(f"Dim({name!r})", min, max)
        self.__name__ = name
        self.min: Bound = 0 if min is None else min
        self.max: Bound = math.inf if max is None else max

    @property
    def name(self) -> str:
        """The dimension's name; for a derived one, its formula."""
        return self.__name__

    @property
    def root(self) -> Dim:
        """The dimension that this one is derived from; itself if it is not."""
        return self

    scale = 1
    offset = 0

    def _derive(self, scale: int, offset: int) -> Dim:
        if scale == 1 and offset == 0:
            return self.root
        return DerivedDim(self.root, scale, offset)

    def _integer(self, other: Any, operation: str) -> int:
        if isinstance(other, bool) or not isinstance(other, int):
            raise InvalidRequestError(
                f"{self.name} {operation} {other!r}: a Dim is combined with integers only",
                remedy="a relation to another Dim is found by the export itself, or written with a common root",
            )
        return other

    def __add__(self, other: Any) -> Dim:
        return self._derive(self.scale, self.offset + self._integer(other, "+"))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Dim:
        return self._derive(self.scale, self.offset - self._integer(other, "-"))

    def __mul__(self, other: Any) -> Dim:
        factor = self._integer(other, "*")
        if factor <= 0:
            raise InvalidRequestError(
                f"{factor}*{self.name} does not grow with {self.root.name}", remedy="multiply with a positive integer"
            )
        return self._derive(self.scale * factor, self.offset * factor)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Dim:
        raise InvalidRequestError(
            f"{self.name} can't be divided: sizes are multiples of others, not parts of them",
            remedy=f"name the smaller size, part = Dim('part'), and write the larger one with it: {other!r:.20}*part",
        )

    __floordiv__ = __mod__ = __truediv__

    def __repr__(self) -> str:
        bounds = _bounds_text(self.min, self.max)
        return f"Dim({self.__name__!r}{', ' + bounds[1:-1] if bounds else ''})"


class DerivedDim(Dim):
    """A size that is a multiple of another one plus a constant."""

    def __init__(self, root: Dim, scale: int, offset: int) -> None:
        self._root = root
        self.scale = scale
        self.offset = offset
        self.min = scale * root.min + offset
        self.max = scale * root.max + offset
        product = root.name if scale == 1 else f"{scale}*{root.name}"
        sign = "" if offset == 0 else f" + {offset}" if offset > 0 else f" - {-offset}"
        self.__name__ = product + sign

    @property
    def root(self) -> Dim:
        """The dimension that this one is derived from."""
        return self._root

    def __repr__(self) -> str:
        return self.__name__


def dims(*names: str, min: int | None = None, max: int | None = None) -> tuple[Dim, ...]:
    """Several dimensions at once.

    >>> height, width = dims("height", "width", max=512)
    >>> width
    Dim('width', max=512)
    """
    return tuple(Dim(name, min=min, max=max) for name in names)


def _check_bounds(what: str, low: int | None, high: int | None) -> None:
    for bound in (low, high):
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int)):
            raise InvalidRequestError(f"{what}: bounds are integers, but got {bound!r}", remedy="write min=1, max=64")
    if low is not None and low < 0:
        raise InvalidRequestError(
            f"{what}: no size is less than 0, but min is {low}", remedy="write min=0, or leave it out"
        )
    if low is not None and high is not None and low > high:
        raise InvalidRequestError(
            f"{what}: min {low} is greater than max {high}", remedy="change places, or one of them"
        )


def _bounds_text(low: Bound, high: Bound) -> str:
    parts = [f"min={low}"] if low > 0 else []
    if high != math.inf:
        parts.append(f"max={high}")
    return f"({', '.join(parts)})" if parts else ""
