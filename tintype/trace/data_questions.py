"""Questions about the data of tensors that have some: parameters, buffers and constants, which are the model's own
tensors while it is captured.

``buffer.tolist()`` must not put today's values into the program, and ``constant.numpy()`` would be the memory of a
tensor without data, since torch computes it with operators. So while a program is captured, torch.Tensor has
stand-ins for these questions: what the graph knows of is answered by the fake that stands for it, as for any tensor
of the program; of other tensors the data is what it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from tintype.fake.tensor import FakeTensor
from tintype.symbolic.location import standing_in, users_caller
from tintype.trace.function_mode import stands_in_for
from tintype.trace.recorder import Recorder, active_recorder

_own = torch._C.TensorBase
_is_excluded = torch._C._dispatch_tls_is_dispatch_key_excluded
_python = torch._C.DispatchKey.Python


def _asking_recorder() -> Recorder | None:
    """Who records the program that asks; None where nobody does, or where operators run for real."""
    recorder = active_recorder()
    return recorder if recorder is not None and recorder.is_recording and not _is_excluded(_python) else None


def _knows(recorder: Recorder, tensor: torch.Tensor) -> bool:
    """Whether the program may have another idea of a tensor's data than its memory."""
    return recorder.is_lifted(tensor) or recorder.context.knows_memory_of(tensor)


def _asked_of_fake(name: str, *, by_user: bool = False) -> Any:
    """The stand-in for a question; some are asked by torch itself, for reasons of its own."""
    function: Callable[..., Any] = getattr(torch.Tensor, name)

    def ask(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if type(tensor) is FakeTensor:
            return getattr(FakeTensor, name)(tensor, *args, **kwargs)
        recorder = _asking_recorder()
        if recorder is None or (by_user and users_caller(1) is None) or not _knows(recorder, tensor):
            return function(tensor, *args, **kwargs)
        return getattr(recorder.as_fake(tensor), name)(*args, **kwargs)

    return functools.update_wrapper(standing_in(ask), function)


def _numpy(tensor: Any, *, force: bool = False) -> Any:
    if type(tensor) is FakeTensor:
        return FakeTensor.numpy(tensor, force=force)
    recorder = _asking_recorder()
    if recorder is None:
        return _own.numpy(tensor, force=force)
    if _knows(recorder, tensor):
        return recorder.as_fake(tensor).numpy(force=force)
    context = recorder.context

    def is_written() -> bool:
        return context.knows_memory_of(tensor) and context.storage_of(tensor).written

    return context.arrays.copy_of(tensor, force, is_written)


# Never __getitem__ and its kin: a type that had one of its own for a moment is a sequence to C from then on.
_BY_ANYBODY = ("tolist", "__dlpack__")
_BY_USERS = ("__repr__", "__format__", "data_ptr", "untyped_storage", "storage", "apply_", "map_", "map2_")
STAND_INS: dict[str, Any] = {
    "numpy": standing_in(_numpy),
    **{name: _asked_of_fake(name) for name in _BY_ANYBODY},
    **{name: _asked_of_fake(name, by_user=True) for name in _BY_USERS},
}
for _name, _stand_in in STAND_INS.items():
    stands_in_for(_stand_in, getattr(torch.Tensor, _name))
