"""Functions that make tensors of a number of elements which they want as a plain integer, for one that varies.

What they compute is written in terms of operators that take such numbers, as eager mode's kernels compute it.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable
from typing import Any

import torch


def _varies(*numbers: Any) -> bool:
    return any(type(number) in (torch.SymInt, torch.SymFloat) for number in numbers)


def _window(shape: Callable[[torch.Tensor, Any], torch.Tensor]) -> Callable[..., Any]:
    """A window function from its formula: of positions, and of the number of the last one."""

    def make(
        window_length: Any,
        periodic: Any = True,
        *rest: Any,
        dtype: torch.dtype | None = None,
        device: Any = None,
        requires_grad: bool = False,
        **more: Any,
    ) -> Any:
        options = {name: value for name, value in more.items() if name not in _NUMBERS}
        kind = dtype or torch.get_default_dtype()
        if not _varies(window_length) or options or requires_grad or kind not in (torch.float32, torch.float64):
            return NotImplemented
        numbers = [*rest, *(more[name] for name in _NUMBERS if name in more)]
        last = window_length if periodic else window_length - 1
        position = torch.arange(window_length, dtype=kind, device=device)
        # a window of one element is 1, whatever its formula says
        values = shape(position, torch.sym_max(last, 1), *numbers)
        return torch.where(torch.full_like(position, torch.sym_float(window_length)) == 1, 1.0, values)

    return make


_NUMBERS = ("alpha", "beta")


def _hamming(position: torch.Tensor, last: Any, alpha: float = 0.54, beta: float = 0.46) -> torch.Tensor:
    return alpha - beta * torch.cos(position * (2 * math.pi / last))


def _hann(position: torch.Tensor, last: Any) -> torch.Tensor:
    return _hamming(position, last, 0.5, 0.5)


def _blackman(position: torch.Tensor, last: Any) -> torch.Tensor:
    angle = position * (math.pi / last)
    return 0.42 - 0.5 * torch.cos(angle * 2) + 0.08 * torch.cos(angle * 4)


def _bartlett(position: torch.Tensor, last: Any) -> torch.Tensor:
    rising = position * (2 / last)
    return torch.where(rising <= 1, rising, 2 - rising)


def _kaiser(position: torch.Tensor, last: Any, beta: float = 12.0) -> torch.Tensor:
    centred = position * (2.0 * beta / last) - beta
    inside = torch.sqrt(torch.clamp(beta * beta - centred * centred, min=0))
    return torch.special.i0(inside) / torch.special.i0(torch.tensor(beta, dtype=position.dtype))


def _linspace(start: Any, end: Any, steps: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Any:
    """The operator wants its number of steps as a plain integer; as eager mode does, from both ends to the middle."""
    kind = dtype or torch.get_default_dtype()
    if type(steps) is not torch.SymInt or isinstance(start, torch.Tensor) or isinstance(end, torch.Tensor):
        return NotImplemented
    if not kind.is_floating_point or options:
        return NotImplemented
    if kind is torch.float32 and not _varies(start, end):
        start, end = ctypes.c_float(start).value, ctypes.c_float(end).value
    # the kernel rounds once, after a product that is exact in double precision, and once before for the width
    position = torch.arange(steps, dtype=torch.float64, device=device)  # type: ignore[call-overload]
    width = torch.full((), (end - start) / torch.sym_max(steps - 1, 1), dtype=kind, device=device).double()
    rising, falling = start + position * width, end - (steps - 1 - position) * width
    return torch.where(position < torch.sym_max(steps // 2, 1), rising, falling).to(kind)


def _logspace(start: Any, end: Any, steps: Any, base: float = 10.0, **options: Any) -> Any:
    if not _varies(steps) or isinstance(start, torch.Tensor) or isinstance(end, torch.Tensor):
        return NotImplemented
    exponents = _linspace(start, end, steps, **options)
    return NotImplemented if exponents is NotImplemented else torch.pow(base, exponents)


def _vander(x: torch.Tensor, N: Any = None, increasing: bool = False) -> Any:
    count = x.shape[0] if N is None else N
    if not _varies(count) or x.dim() != 1:
        return NotImplemented
    if not x.dtype.is_floating_point and not x.dtype.is_complex:
        x = x.to(torch.int64)
    power = torch.arange(count, device=x.device)
    return torch.pow(x.unsqueeze(1), power if increasing else count - 1 - power)


def _triangle(upper: bool) -> Callable[..., Any]:
    def make(
        row: Any, col: Any, offset: Any = 0, *, dtype: Any = torch.int64, device: Any = None, **options: Any
    ) -> Any:
        if not _varies(row, col) or options:
            return NotImplemented
        ones = torch.ones(row, col, dtype=torch.bool, device=device)
        chosen = ones.triu(offset) if upper else ones.tril(offset)
        return chosen.nonzero().t().to(dtype).contiguous()

    return make


def _combinations(input: torch.Tensor, r: int = 2, with_replacement: bool = False) -> Any:
    if input.dim() != 1 or not _varies(input.shape[0]) or r < 2:
        return NotImplemented
    places = torch.meshgrid([torch.arange(input.shape[0], device=input.device)] * r, indexing="ij")
    kept = torch.ones_like(places[0], dtype=torch.bool)
    for one, next_one in itertools.pairwise(places):
        kept = kept & (one <= next_one if with_replacement else one < next_one)
    return torch.stack([input[place[kept]] for place in places], dim=1)


SYMBOLIC_FACTORIES: dict[Any, Callable[..., Any]] = {
    torch.hann_window: _window(_hann),
    torch.hamming_window: _window(_hamming),
    torch.blackman_window: _window(_blackman),
    torch.bartlett_window: _window(_bartlett),
    torch.kaiser_window: _window(_kaiser),
    torch.linspace: _linspace,
    torch.logspace: _logspace,
    torch.vander: _vander,
    torch.tril_indices: _triangle(upper=False),
    torch.triu_indices: _triangle(upper=True),
    torch.combinations: _combinations,
}
