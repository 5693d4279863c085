"""Fourier transforms of a length that is said (``torch.fft.rfft(x, n=512)``), of signals whose length varies.

torch cuts a signal that is too long and pads one that is too short: which it is would be part of the program. Here
one operator does both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _of_length(function: Callable[..., Any], is_half: bool) -> Callable[..., Any]:
    """A transform; ``is_half``: it is given one half of what is symmetric."""

    def transform(input: torch.Tensor, n: Any = None, dim: int = -1, norm: Any = None, *, out: Any = None) -> Any:
        if n is None or out is not None or not input.dim() or not -input.dim() <= dim < input.dim():
            return NotImplemented
        length = input.shape[dim]
        if not isinstance(length, torch.SymInt):
            return NotImplemented
        wanted: Any = n // 2 + 1 if is_half else n
        behind = [0, 0] * (input.dim() - 1 - dim % input.dim())
        return function(torch.constant_pad_nd(input, [*behind, 0, wanted - length]), n, dim, norm)

    return transform


SPECTRA: dict[Any, Callable[..., Any]] = {
    **{
        function: _of_length(function, False)
        for function in (torch.fft.fft, torch.fft.ifft, torch.fft.rfft, torch.fft.ihfft)
    },
    **{function: _of_length(function, True) for function in (torch.fft.irfft, torch.fft.hfft)},
}
