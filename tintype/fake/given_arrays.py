"""The NumPy arrays that a program was given while it was captured, and those that it made tensors of.

``tensor.numpy()`` is the memory of the tensor in eager mode. A program gets a copy of data that is known; if it
writes to the array or to the tensor, by whatever way, the one would no longer be the other, and it is refused. The
same is true of ``torch.from_numpy(array)``, of which the program has a copy: an array may not change after that, and
the tensor only if nobody has the array when the program has run, nor another tensor of the same memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tintype.errors import Location, MutationError
from tintype.fake.info import Storage
from tintype.symbolic.location import user_location

# While a program is captured, torch.Tensor has others.
_to_array = torch._C.TensorBase.numpy
_address_of = torch._C.TensorBase.data_ptr
_storage_of = torch._C.TensorBase.untyped_storage


@dataclasses.dataclass(frozen=True)
class _Given:
    array: Any
    data: bytes
    location: Location | None
    is_written: Callable[[], bool]  # whether the program has written to the tensor


@dataclasses.dataclass(frozen=True)
class _Taken:
    real: torch.Tensor  # over the memory of the array
    array: Any  # None where nobody has seen which it is
    data: bytes
    storage: Storage  # of the program's copy
    location: Location | None

    def bounds(self) -> tuple[int, int]:
        """Where its memory begins and ends."""
        begin = _address_of(self.real)
        return begin, begin + sum((n - 1) * s for n, s in zip(self.real.shape, self.real.stride(), strict=True))

    def is_held(self) -> bool:
        """Whether somebody else has the array, or one that it is a part of."""
        if self.array is None or self.references() is None:
            return True
        return self.references() != _references_of_new(self.array.base is not None)

    def references(self) -> tuple[int, int] | None:
        """How many have the array, and what it is a part of; None for memory of others than NumPy."""
        owner = self.array
        while isinstance(owner.base, type(self.array)):
            owner = owner.base
        return (sys.getrefcount(self.array), sys.getrefcount(owner)) if owner.base is None else None


@functools.cache
def _references_of_new(is_part: bool) -> tuple[int, int] | None:
    """The same for an array that nobody has."""
    import numpy

    array = numpy.ones(2)[:1] if is_part else numpy.ones(1)
    with torch._C._DisableTorchDispatch():
        taken = _Taken(torch.from_numpy(array), array, b"", Storage(), None)
    del array
    return taken.references()


class GivenArrays:
    """The arrays of one capture, with the data that they had."""

    def __init__(self) -> None:
        self._given: list[_Given] = []
        # tensors that the program made of arrays
        self._taken: list[_Taken] = []
        self._array: Any = None  # that one is being made of

    def copy_of(self, value: torch.Tensor, force: bool, is_written: Callable[[], bool]) -> Any:
        """An array with the data of a tensor."""
        with torch._C._DisableTorchDispatch():  # the conversion itself calls operators
            array = _to_array(value, force=force).copy(order="K")
        self._given.append(_Given(array, array.tobytes(), user_location(), is_written))
        return array

    @contextlib.contextmanager
    def making_tensor_of(self, array: Any) -> Iterator[None]:
        """Within it, a tensor is made of an array."""
        before, self._array = self._array, array
        try:
            yield
        finally:
            self._array = before

    def own_copy(self, real: torch.Tensor) -> torch.Tensor:
        """What the program has of a tensor that it made: that one, or a copy where others have the memory."""
        if _storage_of(real).resizable():
            return real
        with torch._C._DisableTorchDispatch():
            return real.clone()

    def note_taken(self, real: torch.Tensor, own: torch.Tensor, storage: Storage) -> None:
        """The program made a tensor; if that is one of an array, the program has a copy of its own."""
        if own is not real:
            self._taken.append(_Taken(real, self._array, _bytes_of(real), storage, user_location()))

    def refuse_written(self) -> None:
        """Raise if a program that has run wrote to what should have been one memory: to an array, to its tensor, or
        to a tensor that was made of the array."""
        written = [_address_of(taken.real) for taken in self._taken if taken.storage.written]
        for given in self._given:
            begin = given.array.ctypes.data
            over_array = any(begin <= address < begin + given.array.nbytes for address in written)
            if over_array or given.is_written() or given.array.tobytes() != given.data:
                raise MutationError(
                    "the program writes to the memory that a tensor and the array of its numpy() have in common",
                    location=given.location,
                    remedy="write to a copy, numpy().copy(), or write with torch's operators and ask for no array",
                )
        for taken in self._taken:
            self._refuse_if_written(taken)

    def _refuse_if_written(self, taken: _Taken) -> None:
        if _bytes_of(taken.real) != taken.data:
            raise MutationError(
                "the program writes to an array of which it has made a tensor, which is the same memory",
                location=taken.location,
                remedy="make the tensor afterwards, or of a copy: torch.tensor(array)",
            )
        begin, end = taken.bounds()
        others = (other.bounds() for other in self._taken if other is not taken)
        is_shared = any(first <= end and begin <= last for first, last in others)
        if taken.storage.written and (is_shared or taken.is_held()):
            raise MutationError(
                "the program writes to a tensor that it made of an array (torch.from_numpy), whose memory is not the "
                "program's",
                location=taken.location,
                remedy="write to a copy, torch.tensor(array); what calls shall change is a buffer: "
                "self.register_buffer(name, tensor)",
            )


def _bytes_of(real: torch.Tensor) -> bytes:
    with torch._C._DisableTorchDispatch():
        return _to_array(real).tobytes()
