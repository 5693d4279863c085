"""Shape rules of the operators that models use most, by family."""

from tintype.fake.rules import (
    attention,
    convolution,
    elementwise,
    factories,
    indexing,
    joining,
    matrix,
    normalization,
    pooling,
    recurrent,
    reductions,
    resizing,
    scattering,
    sorting,
    views,
)
from tintype.fake.rules.registry import RULES

__all__ = [
    "RULES",
    "attention",
    "convolution",
    "elementwise",
    "factories",
    "indexing",
    "joining",
    "matrix",
    "normalization",
    "pooling",
    "recurrent",
    "reductions",
    "resizing",
    "scattering",
    "sorting",
    "views",
]
