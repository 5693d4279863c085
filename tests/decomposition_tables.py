"""Tables of decompositions that several tests use."""

from __future__ import annotations

from typing import Any

import tintype
from tintype.transforms.core_decompositions import CompositeKernel


def composites_only() -> dict[Any, Any]:
    """A table that decomposes composite operators and nothing else, as torch did in 2024 whatever the table."""
    kernels = tintype.default_decompositions().items()
    return {operator: kernel for operator, kernel in kernels if isinstance(kernel, CompositeKernel)}
