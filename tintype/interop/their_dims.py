"""``dynamic_shapes`` written with torch.export's dimensions, for who comes from there."""

from __future__ import annotations

from typing import Any

import torch

from tintype.export.dimensions import Dim, DimHint
from tintype.export.shape_spec import AdditionalInputs


def own_shapes(dynamic_shapes: Any, mod: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The same in our dimensions.

    >>> batch = torch.export.Dim("batch", min=2)
    >>> own_shapes({"x": {0: batch, 1: 2 * batch + 1, 2: torch.export.Dim.AUTO}}, None, (), {})
    {'x': {0: Dim('batch', min=2), 1: 2*batch + 1, 2: Dim.AUTO}}
    """
    if isinstance(dynamic_shapes, torch.export.AdditionalInputs):
        examples = AdditionalInputs()
        for more_args, more_kwargs in dynamic_shapes._examples:
            examples.add(more_args, more_kwargs)
        return examples
    if isinstance(dynamic_shapes, torch.export.ShapesCollection):
        dynamic_shapes = dynamic_shapes.dynamic_shapes(mod, args, kwargs)
    return _own(dynamic_shapes, {})


def _own(spec: Any, roots: dict[str, Dim]) -> Any:
    if isinstance(spec, dict):
        return {key: _own(value, roots) for key, value in spec.items()}
    if type(spec) in (list, tuple):
        return type(spec)(_own(value, roots) for value in spec)
    kind = type(spec).__name__ if type(spec).__module__ == "torch.export.dynamic_shapes" else ""
    if kind == "_DimHint":
        return DimHint(spec.type.name, min=spec.min, max=spec.max)
    if kind == "_StaticDim":
        return spec.value
    if kind == "_DerivedDim":
        return spec.fn(_own(spec.root, roots))
    if kind == "Dim":
        if spec.__name__ not in roots:
            most = spec.max if isinstance(spec.max, int) else None
            roots[spec.__name__] = Dim(spec.__name__, min=spec.min or None, max=most)
        return roots[spec.__name__]
    return spec
