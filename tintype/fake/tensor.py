"""The tensor that a program sees while it is being captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tintype import tree
from tintype.errors import CaptureError, TensorWithoutDataError, UnsupportedInputError
from tintype.fake.info import Storage, TensorInfo, is_channels_last, is_dense, same_strides, strides_for_format
from tintype.fake.observed import ObservedTensor, raise_unknown
from tintype.symbolic.bridge import from_torch, to_torch
from tintype.symbolic.location import user_location, users_caller
from tintype.symbolic.messages import is_for_people
from tintype.symbolic.sizes import product

if TYPE_CHECKING:
    from tintype.fake.context import FakeContext

aten = torch.ops.aten
_make = torch.Tensor._make_wrapper_subclass
_own = torch._C.TensorBase  # while a program is captured, torch.Tensor has other methods for some of these
_set_conjugate = torch._C._set_conj
_set_negative = torch._C._set_neg


def _told_at_once(descriptor: Any, tell: Callable[[TensorInfo], Any]) -> Any:
    """An attribute that a fake has. Where functions are heard by its own session alone, torch would ask that, which
    has nothing to add, in a call from C++ into Python."""
    own = descriptor.__get__

    def get(tensor: Any) -> Any:
        session = tensor.context.session if _modes_see_functions() == 1 else None
        is_alone = session is not None and _mode_at(0) is session.function_mode
        return tell(tensor.info) if is_alone else own(tensor)

    return property(get)


# Such a mode, which may have its own idea of a position, gets to see the index as the program wrote it.
_modes_see_functions = torch._C._len_torch_function_stack
_mode_at = torch._C._get_function_stack_at
_pop_mode = torch._C._pop_torch_function_stack
_push_mode = torch._C._push_on_torch_function_stack


class FakeTensor(ObservedTensor):
    """A tensor with everything but data: user code may ask it for its size, dtype or device as usual.

    ``info`` is what shape rules work on, ``node`` is the graph node that made it.
    """

    __slots__ = ("node",)

    node: Any

    # Torch functions must not be intercepted: every access to .shape would go through Python.
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        known = answer(func, args)
        if known is not NotImplemented:
            return known
        error = TensorWithoutDataError(
            f"{func} was called on a tensor without data, outside of the capture it belongs to",
            location=user_location(),
            remedy="a tensor seen while a program was captured escaped from it (through a global, an attribute, "
            "a list or a thread); keep only what the program returns, and compute in its own thread",
        )
        for fake in tree.leaves((args, kwargs or {})):
            if isinstance(fake, FakeTensor):
                fake.context.used_outside(error)
        raise error

    device = _told_at_once(_own.device, lambda info: info.device)
    dtype = _told_at_once(_own.dtype, lambda info: info.dtype)
    shape = _told_at_once(_own.shape, lambda info: torch.Size(map(to_torch, info.sizes)))

    @property
    def fake_mode(self) -> FakeContext:
        """The context that all fakes of one capture share."""
        return self.context

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        known = self._shown_value()
        return self._description() if known is None else repr(known)

    __str__ = __repr__

    def __format__(self, format_spec: str) -> str:
        known = self._shown_value()
        return self._description() if known is None else format(known, format_spec)

    def _shown_value(self) -> torch.Tensor | None:
        """The tensor with data, if the program may look at its text; refused where the data is not known."""
        frame = users_caller(2)
        if frame is None or self.context.session is None or is_for_people(frame):
            return None
        return self.context.known_value(self, "as text")

    def _description(self) -> str:
        info = self.info
        sizes = ", ".join(str(size) for size in info.sizes)
        device = "" if info.device.type == "cpu" else f", device={str(info.device)!r}"
        return f"FakeTensor(size=({sizes}), dtype={info.dtype}{device})"

    def __copy__(self) -> Any:
        return self.context.alias_of(self)

    def __deepcopy__(self, memo: dict[Any, Any]) -> Any:
        key = ("memory", id(self.info.storage))
        if memo.setdefault(key, self) is not self and self.context.session is not None:
            raise CaptureError(
                "the program makes a deep copy of several tensors that share memory (copy.deepcopy), which can't be "
                "captured: the copies share memory, too",
                location=user_location(),
                remedy="copy the one that has all the memory, and take views of the copy",
            )
        return self.context.copy_of(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.context.session is not None:
            raise_unknown("stores a tensor (pickle, torch.save)", "store tensors outside of the program")
        return _rebuild, (self.info.sizes, self.info.strides, self.info.dtype, str(self.info.device))

    def __getitem__(self, index: Any) -> Any:
        if _is_single_flag(index):
            return super().unsqueeze(0)[index.reshape(1)]
        modes = _modes_see_functions()
        if modes == 1 and self.context.session is not None and _mode_at(0) is self.context.session.function_mode:
            mode = _pop_mode()  # as torch does it, without its way there
            try:
                return mode.__torch_function__(_own.__getitem__, (), (self, index))
            finally:
                _push_mode(mode)
        return _own.__getitem__(self, index if modes else with_numbers(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        if _is_single_flag(index):
            super().unsqueeze(0)[index.reshape(1)] = value
        else:
            _own.__setitem__(self, index if _modes_see_functions() else with_numbers(index), value)

    def requires_grad_(self, requires_grad: bool = True) -> FakeTensor:
        if requires_grad and not self.info.requires_grad and self.context.session is not None:
            self.context.session.has_hook("requires_grad_() of a tensor, which requires none in the program", None)
        super().requires_grad_(requires_grad)
        session = self.context.session
        if session is not None and not session.below_autograd:
            return self  # gradients are autograd's business alone
        self.info = self.info.with_storage(self.info.storage)
        self.info.requires_grad = requires_grad
        self.has_own_gradient_flag = requires_grad
        return self

    def forget_gradient(self) -> None:
        """The program has detached the tensor from what it was computed from."""
        super().requires_grad_(False)
        self.info = self.info.with_storage(self.info.storage)
        self.info.requires_grad = False

    def contiguous(self, memory_format: torch.memory_format = torch.contiguous_format) -> Any:
        # torch's own method answers by itself where the example lies in that format; other inputs may not
        return _contiguous(self, memory_format=memory_format)

    def tolist(self) -> Any:
        return self.context.values_of(self)

    def numpy(self, *, force: bool = False) -> Any:
        value = self.context.known_value(self, "numpy()")
        return self.context.arrays.copy_of(value, force, lambda: self.info.storage.written)

    def __array__(self, dtype: Any = None) -> Any:
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)


_contiguous = aten.contiguous.default._op  # the operator without the function of Python's around it


def with_numbers(index: Any) -> Any:
    """An index in which numbers that tensors hold are numbers: torch would want them as plain ones."""
    kind = type(index)
    if kind is int:
        return index
    if isinstance(index, torch.Tensor):  # a buffer is one with data
        return index.item() if not index.dim() and index.dtype in _INDEX_DTYPES else index
    if kind is slice:
        return slice(*map(with_numbers, (index.start, index.stop, index.step)))
    if kind is tuple:
        return tuple(map(with_numbers, index))
    return index


_INDEX_DTYPES = frozenset({torch.int64, torch.int32, torch.int16, torch.int8})


def _is_single_flag(index: Any) -> bool:
    """Whether an index is a mask without dimensions: it takes all or nothing, and torch would ask for its value."""
    return type(index) is FakeTensor and not index.info.sizes and index.info.dtype is torch.bool


def make_fake(info: TensorInfo, context: FakeContext, node: Any = None) -> FakeTensor:
    """The fake for an info. A fresh info gets its storage here."""
    if info.storage is None:
        info.storage = Storage()
    if context.environment.symbols and is_symbolic(info):
        fake = _make_symbolic(info)
    else:
        fake = _make(
            FakeTensor,
            info.sizes,  # type: ignore[arg-type]
            info.strides,  # type: ignore[arg-type]
            info.offset or None,  # type: ignore[arg-type]  # to parse a number takes torch longer than to find none
            None,
            info.dtype,
            torch.strided,
            info.device,
            False,
            info.requires_grad,
        )
    fake.info = info
    fake.node = node
    fake.context = context
    if info.conjugate:
        _set_conjugate(fake, True)
    if info.negative:
        _set_negative(fake, True)
    return fake


def is_symbolic(info: TensorInfo) -> bool:
    """Whether some size, stride or offset is not a plain number."""
    for number in info.sizes:
        if type(number) is not int:
            return True
    for number in info.strides:
        if type(number) is not int:
            return True
    return type(info.offset) is not int


def _make_symbolic(info: TensorInfo) -> FakeTensor:
    """A fake whose sizes torch asks us for (see :func:`answer`).

    Given symbolic sizes, torch would work out how many elements there are and whether they are contiguous for every
    single tensor, through our symbols, which takes longer than all the rest of recording an operator.
    """
    dummies = _DUMMIES[len(info.sizes)]
    return _make(
        FakeTensor,
        dummies,
        dummies,
        None,
        None,
        info.dtype,
        torch.strided,
        info.device,
        False,
        info.requires_grad,
        "sizes",
    )


# numbers in the place of sizes and strides, which nobody gets to see
_DUMMIES = [(2,) * dimensions for dimensions in range(65)]


def answer(func: Any, args: Any) -> Any:
    """What torch wants to know of a tensor with symbolic sizes; NotImplemented for any other operator."""
    question = QUESTIONS.get(func)
    if question is None or not args or type(args[0]) is not FakeTensor:
        return NotImplemented
    if func in _LOOKS_AT_LAYOUT:
        args[0].context.environment.settle_assumptions()
    return question(args[0].info, *args[1:])


def _contiguous_in(info: TensorInfo, memory_format: torch.memory_format = torch.contiguous_format) -> bool:
    if memory_format is torch.contiguous_format:
        return info.is_contiguous()
    if info.dim != (4 if memory_format is torch.channels_last else 5):
        return False
    return same_strides(info.sizes, info.strides, strides_for_format(info, memory_format))


QUESTIONS: dict[Any, Callable[..., Any]] = {
    aten.sym_size.default: lambda info: [to_torch(size) for size in info.sizes],
    aten.size.default: lambda info: [to_torch(size) for size in info.sizes],
    aten.sym_stride.default: lambda info: [to_torch(stride) for stride in info.strides],
    aten.stride.default: lambda info: [to_torch(stride) for stride in info.strides],
    aten.sym_numel.default: lambda info: to_torch(product(info.sizes)),
    aten.numel.default: lambda info: to_torch(product(info.sizes)),
    aten.sym_storage_offset.default: lambda info: to_torch(info.offset),
    aten.storage_offset.default: lambda info: to_torch(info.offset),
    aten.dim.default: lambda info: info.dim,
    aten.is_contiguous.default: _contiguous_in,
    aten.is_contiguous.memory_format: _contiguous_in,
    aten.is_strides_like_format.default: lambda info, memory_format: is_channels_last(info),
    aten.is_non_overlapping_and_dense.default: lambda info: is_dense(info.sizes, info.strides),
}


_LOOKS_AT_LAYOUT = frozenset(
    {
        aten.sym_stride.default,
        aten.stride.default,
        aten.is_contiguous.default,
        aten.is_contiguous.memory_format,
        aten.is_strides_like_format.default,
        aten.is_non_overlapping_and_dense.default,
    }
)


def describe(real: torch.Tensor, storage: Storage | None = None) -> TensorInfo:
    """The info of a tensor with data."""
    if real.layout is not torch.strided:
        raise UnsupportedInputError(
            f"a tensor with layout {real.layout} can't be captured here: only tintype.export takes sparse tensors",
            remedy="convert it with to_dense() outside of the program",
        )
    if real.is_quantized:
        raise UnsupportedInputError(
            "a quantized tensor can't be captured",
            remedy="dequantize() it outside of the program, or use the int8 tensor and its scale",
        )
    dtype, offset = real.dtype, real.storage_offset()
    return TensorInfo(
        tuple(real.size()),
        tuple(real.stride()),
        dtype,
        real.device,
        offset if type(offset) is int else from_torch(offset),
        storage,
        real.requires_grad,
        dtype.is_complex and real.is_conj(),
        real.is_neg(),
    )


def _rebuild(sizes: Any, strides: Any, dtype: torch.dtype, device: str) -> torch.Tensor:
    """A pickled fake comes back as a tensor on the meta device: the capture it belonged to is gone."""
    return torch.empty_strided(sizes, strides, dtype=dtype, device="meta")
