"""The modes that an arm or a step leaves behind: gradients, autocast, what listens to functions (``torch.device``).

Each begins with those of its first operation; where the frame goes on, they are those of who came there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.utils._device as default_device

from tintype.errors import Location
from tintype.flow.ends import refuse
from tintype.trace.modes import (
    DEVICES,
    get_autocast_dtype,
    is_autocast_enabled,
    is_grad_enabled,
    is_inference_mode_enabled,
)
from tintype.trace.recorder import active_recorder

# by the operation at which a frame goes on
ModesAt = Mapping[int, "Modes"]


class Modes:
    """The modes that the program has switched in its thread."""

    def __init__(self) -> None:
        self._functions = _functions_of_program()
        self._device = default_device.CURRENT_DEVICE
        self._gradients = is_grad_enabled()
        self._inference = is_inference_mode_enabled()
        self._autocast = {device: is_autocast_enabled(device) for device in DEVICES}
        self._dtypes = {device: get_autocast_dtype(device) for device in DEVICES if self._autocast[device]}
        entered = _entered()
        self._entered, self._count = list(entered), entered.gradients

    def is_like(self, other: Modes) -> bool:
        """Whether a program can't tell them apart."""
        return (
            len(self._functions) == len(other._functions)
            and all(map(_is, self._functions, other._functions))
            and self._gradients is other._gradients
            and self._inference is other._inference
            and self._autocast == other._autocast
            and self._dtypes == other._dtypes
            and len(self._entered) == len(other._entered)
        )

    def restore(self, location: Location) -> None:
        """Let the thread have these modes again."""
        now = Modes()
        if now.is_like(self) and now._count == self._count:
            return
        if now._inference is not self._inference:
            raise refuse(
                "only the data decide when torch.inference_mode() is left, or entered",
                location,
                "write torch.no_grad(), or let the block end the same way for all data",
            )
        torch._C._set_grad_enabled(self._gradients)
        for device, enabled in self._autocast.items():
            if now._autocast[device] is not enabled:
                torch._C.set_autocast_enabled(device, enabled)
        for device, dtype in self._dtypes.items():
            torch._C.set_autocast_dtype(device, dtype)
        entered = _entered()
        for _ in range(len(entered), len(self._entered)):
            torch._C.autocast_increment_nesting()
        for _ in range(len(self._entered), len(entered)):
            torch._C.autocast_decrement_nesting()
        entered[:], entered.gradients = self._entered, self._count
        self._restore_functions(now)

    def _restore_functions(self, now: Modes) -> None:
        if len(now._functions) == len(self._functions) and all(map(_is, now._functions, self._functions)):
            return
        ours: list[Any] = []
        while torch._C._len_torch_function_stack():
            mode = torch._C._pop_torch_function_stack()
            ours += [mode] if _is_ours(mode) else []
        for mode in (*reversed(ours), *self._functions):
            torch._C._push_on_torch_function_stack(mode)
        default_device.CURRENT_DEVICE = self._device


def _entered() -> Any:
    recorder = active_recorder()
    assert recorder is not None
    return recorder.modes.entered


def _is(one: Any, other: Any) -> bool:
    return one is other


def _is_ours(mode: Any) -> bool:
    return type(mode).__module__.partition(".")[0] == "tintype"


def _functions_of_program() -> list[Any]:
    count = torch._C._len_torch_function_stack()
    modes = [torch._C._get_function_stack_at(index) for index in range(count)]
    return [mode for mode in modes if not _is_ours(mode)]


def joined(ways: Iterable[ModesAt], location: Location) -> dict[int, Modes]:
    """The modes of several ways by where they lead; those that lead to one operation must agree."""
    found: dict[int, Modes] = {}
    for way in ways:
        for label, modes in way.items():
            if not found.setdefault(label, modes).is_like(modes):
                raise refuse(
                    "only the data decide whether gradients, autocast, the device or modes for functions are "
                    "switched, and with them what follows",
                    location,
                    "switch in both ways or in none, or use a with block around what it is meant for",
                )
    return found
