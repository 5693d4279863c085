"""The NumPy arrays that a program was given while it was captured.

``tensor.numpy()`` is the memory of the tensor in eager mode. A program gets a copy of data that is known; if it
writes to the array or to the tensor, by whatever way, the one would no longer be the other, and it is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from tintype.errors import Location, MutationError
from tintype.fake.info import Storage
from tintype.symbolic.location import user_location

# While a program is captured, torch.Tensor has others.
_to_array = torch._C.TensorBase.numpy
_address_of = torch._C.TensorBase.data_ptr


@dataclasses.dataclass(frozen=True)
class _Given:
    array: Any
    data: bytes
    location: Location | None
    is_written: Callable[[], bool]  # whether the program has written to the tensor


class GivenArrays:
    """The arrays of one capture, with the data that they had."""

    def __init__(self) -> None:
        self._given: list[_Given] = []
        # tensors that the program made of arrays: where their memory begins, and what stands for it
        self._taken: list[tuple[int, Storage]] = []

    def copy_of(self, value: torch.Tensor, force: bool, is_written: Callable[[], bool]) -> Any:
        """An array with the data of a tensor."""
        with torch._C._DisableTorchDispatch():  # the conversion itself calls operators
            array = _to_array(value, force=force).copy(order="K")
        self._given.append(_Given(array, array.tobytes(), user_location(), is_written))
        return array

    def note_taken(self, real: torch.Tensor, storage: Storage) -> None:
        """The program made a tensor of an array, one of these maybe."""
        if self._given:
            self._taken.append((_address_of(real), storage))

    def refuse_written(self) -> None:
        """Raise if a program that has run wrote to what should have been one memory: to an array, to its tensor, or
        to a tensor that was made of the array."""
        written = [address for address, storage in self._taken if storage.written]
        for given in self._given:
            begin = given.array.ctypes.data
            over_array = any(begin <= address < begin + given.array.nbytes for address in written)
            if over_array or given.is_written() or given.array.tobytes() != given.data:
                raise MutationError(
                    "the program writes to the memory that a tensor and the array of its numpy() have in common",
                    location=given.location,
                    remedy="write to a copy, numpy().copy(), or write with torch's operators and ask for no array",
                )
