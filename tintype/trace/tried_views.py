"""Views whose error the program catches.

``try: y = x.view(-1)``, ``except RuntimeError: y = x.reshape(-1)``: a capture goes the way that the layout of the
example allows, so that the program rests on the layout, as one does that asks for strides. Kernels that consist of
others call the operator themselves only where the layout allows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from tintype.fake.rules.views import infer_size
from tintype.fake.tensor import FakeTensor
from tintype.symbolic.bridge import from_torch, to_torch
from tintype.symbolic.location import program_caller
from tintype.symbolic.sizes import only_splits, product

if TYPE_CHECKING:
    from tintype.trace.recorder import Recorder


_PLAIN = frozenset({int})


def note_view(recorder: Recorder, tensor: Any, shape: Sequence[Any]) -> None:
    """The program views a tensor in a shape."""
    if not recorder.observer.catches_errors or type(tensor) is not FakeTensor:
        return
    info = tensor.info
    kept = len(info.sizes) - 1
    if tuple(shape[:kept]) == info.sizes[:kept] and _PLAIN.issuperset(map(type, shape)):
        return  # nothing but the last dimension is another one, or several
    if only_splits(info.sizes, infer_size(tuple(map(from_torch, shape)), product(info.sizes))):
        return
    frame = program_caller(2)
    if frame is not None and recorder.origins.goes_on_after(frame, RuntimeError):
        recorder.asked(tensor, "stride", (), tuple(map(to_torch, info.strides)))


def note_view_of_differentiated(recorder: Recorder, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """``tensor.view(...)`` or ``tensor.view_as(...)``, where the recorder also sees what kernels call."""
    if not recorder.below_autograd and len(args) > 1 and not kwargs:
        shape = args[1:] if isinstance(args[1], (int, torch.SymInt)) else args[1]
        shape = shape.shape if isinstance(shape, torch.Tensor) else shape
        if isinstance(shape, (tuple, list)):
            note_view(recorder, args[0], shape)
    return NotImplemented
