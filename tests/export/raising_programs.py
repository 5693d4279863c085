"""Programs that raise on some data; in a file of their own, since pytest rewrites what tests assert."""

from __future__ import annotations

import torch


def raises_on_a_tensor(value: torch.Tensor) -> torch.Tensor:
    if value.min() < 0:
        raise ValueError(f"negative: {value}")
    return value.sqrt()


def raises_unless(value: torch.Tensor) -> torch.Tensor:
    if not torch.isfinite(value).all() or value.min() < 0:
        text = "bad"
        raise ValueError(text)
    return value.sqrt()


def asserts(value: torch.Tensor) -> torch.Tensor:
    assert (value >= 0).all(), "negative"
    return value.sqrt()


def raises_on_a_number(value: torch.Tensor) -> torch.Tensor:
    least = value.min().item()
    if least < 0:
        raise ValueError(least)
    return value.sqrt()


def _check(value: torch.Tensor) -> None:
    with torch.no_grad():
        try:
            if value.min() < 0:
                raise ValueError("negative")
        finally:
            value = value + 1


def raises_elsewhere(value: torch.Tensor) -> torch.Tensor:
    _check(value)
    return value.sqrt()


def raises_in_torch(value: torch.Tensor) -> torch.Tensor:
    return torch.distributions.Exponential(value + 1, validate_args=True).mean


def catches(value: torch.Tensor) -> torch.Tensor:
    try:
        if value.min() < 0:
            raise ValueError("negative")
    except ValueError:
        return value * 2
    return value


def is_caught_outside(value: torch.Tensor) -> torch.Tensor:
    try:
        _check(value)
    except Exception:
        return value * 2
    return value


def goes_on(value: torch.Tensor) -> torch.Tensor:
    if value.min() < 0:
        value = value + 1
    return value


def raises_sometimes(value: torch.Tensor) -> torch.Tensor:
    if value.min() < 0:
        if value.dim() > 7:
            raise ValueError("negative")
        value = value + 1
    return value
