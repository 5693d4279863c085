"""What all fakes of one capture share."""

from __future__ import annotations

import threading
from typing import Any, Protocol

import torch

from tintype.errors import CaptureError, TintypeError
from tintype.fake.given_arrays import GivenArrays
from tintype.fake.info import Storage, TensorInfo
from tintype.fake.tensor import FakeTensor, describe, make_fake
from tintype.symbolic.environment import Environment
from tintype.symbolic.evaluation import Translation
from tintype.tree.sparse import SparseParts

_memory_of = torch._C.TensorBase.untyped_storage  # while a program is captured, torch.Tensor has another


class Session(Protocol):
    """Who answers a fake's questions about values: the recorder that made it."""

    below_autograd: bool
    problems: list[TintypeError]
    rows: list[Any]
    # what hears the functions that the program calls, where something does
    function_mode: Any

    def known_value(self, fake: FakeTensor, purpose: str) -> torch.Tensor: ...

    def values_of(self, fake: FakeTensor) -> Any: ...

    def copy_of(self, fake: FakeTensor) -> FakeTensor: ...

    def alias_of(self, fake: FakeTensor) -> FakeTensor: ...

    def has_hook(self, kind: str, hook: Any) -> None: ...

    def compares_objects(self) -> None: ...

    def class_of(self, fake: Any) -> Any: ...

    def asked(self, fake: Any, fact: str, arguments: tuple[Any, ...], answer: Any) -> Any: ...


class FakeContext:
    """The symbols, storages and cached inferences of one capture."""

    def __init__(self, environment: Environment | None = None) -> None:
        self.environment = environment if environment is not None else Environment()
        self.session: Session | None = None
        self._thread = threading.get_ident()
        # results of torch's meta kernels by operator and arguments: layers repeat
        self.inferred: dict[Any, Any] = {}
        self._storages: dict[int, tuple[Any, Storage]] = {}
        # sparse tensors of the model, with what they consist of, by their ids
        self.sparse_tensors: dict[int, tuple[torch.Tensor, SparseParts]] = {}
        # what stands for custom objects while their methods are captured, by their identities
        self.fake_objects: dict[int, tuple[Any, Any]] = {}
        self.arrays = GivenArrays()

    def copy(self) -> tuple[FakeContext, Translation | None]:
        """A context for what is made of a finished program, which may learn more about its sizes, and the way of
        expressions into it; None where the program has none."""
        if not self.environment.symbols:
            return FakeContext(), None
        environment, translation = self.environment.copy()
        return FakeContext(environment), translation

    def storage_of(self, real: torch.Tensor) -> Storage:
        """The storage that stands for a real tensor's memory."""
        memory = _memory_of(real)
        key = memory._cdata
        entry = self._storages.get(key)
        if entry is None:
            entry = (memory, Storage())  # the memory is kept alive so that its address stays its own
            self._storages[key] = entry
        return entry[1]

    def know_memory_of(self, real: torch.Tensor, storage: Storage) -> None:
        """Let a storage stand for a real tensor's memory, unless one does."""
        memory = _memory_of(real)
        self._storages.setdefault(memory._cdata, (memory, storage))

    def knows_memory_of(self, real: torch.Tensor) -> bool:
        """Whether a storage stands for a real tensor's memory."""
        return _memory_of(real)._cdata in self._storages

    def used_outside(self, error: TintypeError) -> None:
        """A tensor was computed with where nobody records. A thread that the program has started fails alone, and the
        program may go on without its result."""
        if self.session is not None and threading.get_ident() != self._thread:
            self.session.problems.append(error)

    def release_memory(self) -> None:
        """Let go of the real memory that storages stand for, once no more tensors will be described."""
        self.arrays = GivenArrays()
        self._storages.clear()
        self.sparse_tensors.clear()
        self.fake_objects.clear()

    def fake_of(self, real: torch.Tensor, node: Any = None) -> FakeTensor:
        """A new fake that looks like a real tensor."""
        info = describe(real)  # first: a tensor that can't be described has no storage to ask for either
        info.storage = self.storage_of(real)
        return make_fake(info, self, node)

    def fake_from(self, info: TensorInfo, node: Any = None) -> FakeTensor:
        """A new fake for an info."""
        return make_fake(info, self, node)

    def _ask(self) -> Session:
        if self.session is None:
            raise CaptureError("the capture that this tensor belongs to has ended")
        return self.session

    def known_value(self, fake: FakeTensor, purpose: str) -> torch.Tensor:
        """The data of a fake, where it follows from constants alone."""
        return self._ask().known_value(fake, purpose)

    def values_of(self, fake: FakeTensor) -> Any:
        """The elements of a fake as nested lists of numbers, symbolic where unknown."""
        return self._ask().values_of(fake)

    def alias_of(self, fake: FakeTensor) -> FakeTensor:
        """A shallow copy: another tensor of the same memory."""
        return make_fake(fake.info, self, fake.node) if self.session is None else self.session.alias_of(fake)

    def copy_of(self, fake: FakeTensor) -> FakeTensor:
        """A deep copy: recorded as a clone during a capture, a plain copy of the description after it."""
        if self.session is None:
            info = fake.info
            copy = TensorInfo(
                info.sizes, info.strides, info.dtype, info.device, info.offset, None, info.requires_grad
            )
            return make_fake(copy, self)
        return self.session.copy_of(fake)
