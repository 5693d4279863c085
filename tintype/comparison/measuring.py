"""How far two values are apart."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from tintype.errors import Location
from tintype.ir.printing import describe_value

# How far numbers may be apart, as a part of the largest one among them: kernels add in another order.
TOLERANCES = {
    torch.float64: 1e-9,
    torch.complex128: 1e-9,
    torch.float32: 1e-4,
    torch.complex64: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}
_COARSEST = 1e-1  # of the small floating point dtypes


@dataclass(frozen=True)
class Difference:
    """One value on both sides.

    ``absolute`` is the largest distance of two elements, ``relative`` that as a part of the largest number; ``nan``
    and ``inf`` count the elements that are so, on either side. ``problem`` says in words why they are not the same.
    Of a value on the way, ``operator`` computes it on the first side and ``other_operator`` on the second one.
    """

    name: str
    absolute: float = 0.0
    relative: float = 0.0
    nan: tuple[int, int] = (0, 0)
    inf: tuple[int, int] = (0, 0)
    problem: str | None = None
    operator: str = ""
    other_operator: str = ""
    module: str = ""
    location: Location | None = None

    @property
    def diverges(self) -> bool:
        """Whether the two sides are further apart than they may be."""
        return self.problem is not None

    def numbers(self) -> str:
        """The measurements as text."""
        text = f"{self.absolute:.3g} ({self.relative:.2g} of the largest)"
        for what, (one, other) in (("nan", self.nan), ("inf", self.inf)):
            if one or other:
                text += f", {what} {one} / {other}"
        return text


def tolerance_of(*dtypes: torch.dtype) -> float:
    """What two values may differ by, which is that of the coarser dtype."""
    floating = [dtype for dtype in dtypes if dtype.is_floating_point or dtype.is_complex]
    return max((TOLERANCES.get(dtype, _COARSEST) for dtype in floating), default=0.0)


def measure(name: str, one: Any, other: Any, tolerance: float | None, **origin: Any) -> Difference:
    """The difference of two values.

    >>> measure("x", torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5]), None).problem
    'they are 0.5 apart, where the largest number is 2.5'
    >>> measure("x", torch.tensor([1.0]), torch.tensor([float("nan")]), None).problem
    'nan or infinities are elsewhere (nan 0 / 1, inf 0 / 0)'
    """
    if not (isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)):
        same = type(one) is type(other) and _same_number(one, other, tolerance)
        problem = None if same else f"{_described(one)} is not {_described(other)}"
        return Difference(name, problem=problem, **origin)
    if one.shape != other.shape:
        problem = f"{describe_value(one)} is not {describe_value(other)}"
        return Difference(name, math.inf, math.inf, problem=problem, **origin)
    if tolerance is None:
        tolerance = tolerance_of(one.dtype, other.dtype)
    return _measured(name, _wide(one), _wide(other), tolerance, origin)


def _same_number(one: Any, other: Any, tolerance: float | None) -> bool:
    if isinstance(one, float):
        return math.isclose(one, other, rel_tol=1e-4 if tolerance is None else tolerance) or one is other
    return bool(one == other)


def _described(value: Any) -> str:
    return describe_value(value) if isinstance(value, torch.Tensor) else f"{value!r:.80}"


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """The numbers of a tensor in a dtype that loses nothing of them, where they can be compared."""
    tensor = tensor.detach()
    if tensor.is_complex():
        return torch.view_as_real(tensor.to("cpu", torch.complex128).resolve_conj())
    if tensor.dtype in (torch.int64, torch.uint64):
        return tensor.cpu()
    return tensor.to("cpu", torch.float64)


def _measured(
    name: str, one: torch.Tensor, other: torch.Tensor, tolerance: float, origin: dict[str, Any]
) -> Difference:
    if one.dtype is not other.dtype:
        one, other = one.double(), other.double()
    if not one.numel():
        return Difference(name, **origin)
    nan = (int(one.isnan().sum()), int(other.isnan().sum()))
    inf = (int(one.isinf().sum()), int(other.isinf().sum()))
    odd = ~(one.isfinite() & other.isfinite())
    same = (one == other) | (one.isnan() & other.isnan())
    distance = torch.where(odd, 0, (one - other).abs())
    largest = max(float(torch.where(odd, 0, side.abs()).max()) for side in (one, other))
    absolute = float(distance.max())
    relative = absolute / largest if largest else 0.0
    problem = None
    if bool((odd & ~same).any()):
        problem = f"nan or infinities are elsewhere (nan {nan[0]} / {nan[1]}, inf {inf[0]} / {inf[1]})"
    elif relative > tolerance:
        problem = f"they are {absolute:.3g} apart, where the largest number is {largest:.3g}"
    return Difference(name, absolute, relative, nan, inf, problem, **origin)
