"""Questions about a tensor that its sizes and dtype don't answer: strides, gradients, classes, memory.

The answer may be another one when the captured program runs. Where the user's program asks (not torch on its way to
an operator), the capture takes note of the question; what no captured program could know is refused.
"""

from __future__ import annotations

import dis
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from tintype.errors import CaptureError
from tintype.fake.info import told_strides
from tintype.ir.observations import FACTS, OF_ATTRIBUTES
from tintype.symbolic.bridge import to_torch
from tintype.symbolic.location import program_caller, user_location, users_caller

if TYPE_CHECKING:
    from tintype.fake.context import FakeContext
    from tintype.fake.info import TensorInfo

# As torch knows them: while a program is captured, torch.Tensor may have others by these names.
_own = torch._C.TensorBase
_register_hook = torch.Tensor.register_hook
_register_accumulated_hook = torch.Tensor.register_post_accumulate_grad_hook
_storage = torch.Tensor.storage


class ObservedTensor(torch.Tensor):
    """A tensor without data that tells its capture what the program asks of it."""

    # slots are found much more quickly than what is in an object's dictionary
    __slots__ = ("context", "info")

    info: TensorInfo
    context: FakeContext
    # whether the program itself said that the tensor requires a gradient (requires_grad_())
    has_own_gradient_flag = False
    # whether it is a parameter or a buffer that the program made
    is_own_parameter = False
    is_own_buffer = False
    # what it lies in memory like, where that does not follow from its node
    layout_of: Any = None
    # whether only the data decide which object it is in eager mode, and if it has a history
    is_undecided = False
    has_undecided_history = False
    # whether the program wants to keep its gradient
    keeps_gradient = False
    # the attributes that are ours, or torch's own notes of symbolic sizes, not what the program attached to a tensor
    names_of_fakes = frozenset(
        {
            *("context", "has_own_gradient_flag", "info", "is_own_buffer", "is_own_parameter", "keeps_gradient"),
            *("has_undecided_history", "is_undecided", "layout_of"),
            *("node", "_sym_sizes_capsule", "_sym_sizes_capsule_len"),
            *("_sym_strides_capsule", "_sym_strides_capsule_len"),
        }
    )

    def _ask(self, fact: str, arguments: tuple[Any, ...], answer: Any) -> Any:
        """The answer to a question; the capture hears of it if the user's program asks."""
        if users_caller(2) is None or self.context.session is None:
            return answer
        return self.context.session.asked(self, fact, arguments, answer)

    def answer_in_capture(self, fact: str, arguments: tuple[Any, ...]) -> Any:
        """The answer to a question that a captured program asks, while it is captured again."""
        answer = None
        if fact in OF_ATTRIBUTES:
            answer = OF_ATTRIBUTES[fact](self, *arguments)
        elif fact not in ("tensor_class", "is_plain"):
            answer = getattr(self, fact)(*arguments) if FACTS[fact] else getattr(self, fact)
        return answer if self.context.session is None else self.context.session.asked(self, fact, arguments, answer)

    def _refuse(self, question: str, remedy: str) -> None:
        """Raise if the user's program asks what can't be known."""
        if users_caller(2) is not None and self.context.session is not None:
            raise_unknown(question, remedy)

    # --- layout --------------------------------------------------------------------------------------------

    def is_contiguous(self, memory_format: torch.memory_format = torch.contiguous_format) -> bool:
        arguments = () if memory_format is torch.contiguous_format else (memory_format,)
        return self._ask("is_contiguous", arguments, _own.is_contiguous(self, memory_format=memory_format))

    def stride(self, dim: Any = None) -> Any:
        arguments = () if dim is None else (int(dim),)
        answer = _own.stride(self, *arguments)
        strides = told_strides(self.info)
        if strides is not self.info.strides:
            answer = to_torch(strides[dim]) if arguments else tuple(map(to_torch, strides))
        return self._ask("stride", arguments, answer)

    def storage_offset(self) -> Any:
        return self._ask("storage_offset", (), to_torch(self.info.offset))

    def is_conj(self) -> bool:
        return self._ask("is_conj", (), _own.is_conj(self))

    def is_neg(self) -> bool:
        return self._ask("is_neg", (), _own.is_neg(self))

    def is_shared(self) -> bool:
        return self._ask("is_shared", (), False)

    def is_pinned(self, device: Any = None) -> bool:
        return self._ask("is_pinned", () if device is None else (str(device),), False)

    @property
    def layout(self) -> torch.layout:  # type: ignore[override]
        return self._ask("layout", (), torch.strided)

    @property
    def is_sparse(self) -> bool:  # type: ignore[override]
        return self._ask("layout", (), torch.strided) is torch.sparse_coo

    @property
    def is_sparse_csr(self) -> bool:  # type: ignore[override]
        return self._ask("layout", (), torch.strided) is torch.sparse_csr

    @property
    def is_mkldnn(self) -> bool:  # type: ignore[override]
        return self._ask("layout", (), torch.strided) is torch._mkldnn  # type: ignore[attr-defined]

    # --- gradients -----------------------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        return self._ask("requires_grad", (), _get(self, "requires_grad"))

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    @property
    def is_leaf(self) -> bool:  # type: ignore[override]
        return self._ask("is_leaf", (), _get(self, "is_leaf"))

    @property
    def grad_fn(self) -> Any:  # type: ignore[override]
        return self._ask("grad_fn", (), _get(self, "grad_fn"))

    @property
    def grad(self) -> Any:
        return self._ask("grad", (), _get(self, "grad"))

    @grad.setter
    def grad(self, value: Any) -> None:
        self._refuse("sets the gradient of a tensor (x.grad = ...)", "return the gradient instead")
        _descriptor("grad").__set__(self, value)

    @grad.deleter
    def grad(self) -> None:
        _descriptor("grad").__delete__(self)

    _grad = grad  # older names
    _grad_fn = grad_fn

    @property
    def output_nr(self) -> int:  # type: ignore[override]
        return self._ask("output_nr", (), _get(self, "output_nr"))

    @property
    def retains_grad(self) -> bool:  # type: ignore[override]
        return self.keeps_gradient or self._ask("retains_grad", (), False)

    @property
    def _backward_hooks(self) -> Any:
        own = _get(self, "_backward_hooks")
        return self._ask("_backward_hooks", (), None) if own is None else own

    @_backward_hooks.setter
    def _backward_hooks(self, value: Any) -> None:
        _descriptor("_backward_hooks").__set__(self, value)

    @property
    def _post_accumulate_grad_hooks(self) -> Any:
        own = _get(self, "_post_accumulate_grad_hooks")
        return self._ask("_post_accumulate_grad_hooks", (), None) if own is None else own

    @_post_accumulate_grad_hooks.setter
    def _post_accumulate_grad_hooks(self, value: Any) -> None:
        _descriptor("_post_accumulate_grad_hooks").__set__(self, value)

    @property
    def grad_dtype(self) -> Any:
        self._refuse("asks for the dtype of a gradient (grad_dtype)", "ask for the dtype of the tensor")
        return _get(self, "grad_dtype")

    @grad_dtype.setter
    def grad_dtype(self, value: Any) -> None:
        raise_unknown("sets the dtype of a gradient (grad_dtype)", "do so outside of the program")

    def register_hook(self, hook: Any) -> Any:
        self._has_hook("a hook on the gradient of a tensor", hook)
        return _register_hook(self, hook)

    def register_post_accumulate_grad_hook(self, hook: Any) -> Any:
        self._has_hook("a hook on the gradient of a tensor", hook)
        return _register_accumulated_hook(self, hook)

    def retain_grad(self) -> None:
        self._has_hook("the gradient of a tensor (retain_grad())", None)
        if not self.is_leaf:
            _own.retain_grad(self)
        self.keeps_gradient = True

    def _has_hook(self, kind: str, hook: Any) -> None:
        if self.context.session is not None:
            self.context.session.has_hook(kind, hook)

    def is_inference(self) -> bool:
        return self._ask("is_inference", (), _own.is_inference(self))

    # --- classes -------------------------------------------------------------------------------------------

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The class that the tensor has for the program; also what ``isinstance`` looks at besides the type."""
        frame = users_caller(1)
        if frame is None or self.context.session is None or self.is_own_parameter:
            return type(self)
        asking = program_caller(1)  # the user's, or one of Python's library: functools.singledispatch
        assert asking is not None
        if asking.f_code.co_code[asking.f_lasti] != _LOAD_ATTRIBUTE:  # isinstance(x, list): a tensor is none
            return torch.Tensor
        return self.context.session.class_of(self)

    @property
    def _is_param(self) -> bool:
        """What ``isinstance(x, nn.Parameter)`` asks."""
        return self.is_own_parameter or self._ask("tensor_class", (), "") == _PARAMETER

    @_is_param.setter
    def _is_param(self, value: bool) -> None:
        self.is_own_parameter = value

    @property
    def _is_buffer(self) -> bool:
        """What ``isinstance(x, nn.Buffer)`` asks."""
        return self.is_own_buffer or self._ask("_is_buffer", (), False)

    @_is_buffer.setter
    def _is_buffer(self, value: bool) -> None:
        self.is_own_buffer = value

    # --- identity ------------------------------------------------------------------------------------------

    def refuse_if_undecided(self) -> None:
        """Raise for a question about which object the tensor is, where only the data decide that."""
        if self.is_undecided and self.context.session is not None:
            raise CaptureError(
                "the program asks which object a tensor is (is, id(), a key, a search in a list) that a branch or a "
                "loop on data made: in eager mode it is one of several",
                location=user_location(),
                remedy="keep in a variable of its own what the program wants to know: a number, or a truth value",
            )

    def __hash__(self) -> int:
        if self.is_undecided and users_caller(1) is not None:
            self.refuse_if_undecided()
        return id(self)

    # --- memory, of which there is none ----------------------------------------------------------------------

    def data_ptr(self) -> NoReturn:
        raise CaptureError(
            "Cannot access data pointer of a tensor without data (data_ptr() while a program is captured)",
            location=user_location(),
            remedy="wrap code that needs the memory itself into a custom operator (torch.library.custom_op)",
        )

    const_data_ptr = data_ptr

    def untyped_storage(self) -> Any:
        self._refuse("asks for the memory of a tensor (untyped_storage())", _CUSTOM)
        return _own.untyped_storage(self)

    def storage(self) -> Any:
        self._refuse("asks for the memory of a tensor (storage())", _CUSTOM)
        return _storage(self)

    def share_memory_(self) -> NoReturn:
        raise_unknown("moves a tensor to shared memory (share_memory_())", "do so outside of the program")

    def __dlpack__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise_unknown("hands the memory of a tensor to another library (__dlpack__)", _CUSTOM)

    @property
    def __cuda_array_interface__(self) -> NoReturn:
        if self.info.device.type != "cuda":
            raise AttributeError("a tensor that is not on a CUDA device has no __cuda_array_interface__")
        raise_unknown("hands the memory of a tensor to another library (__cuda_array_interface__)", _CUSTOM)

    @property
    def _version(self) -> int:  # type: ignore[override]
        self._refuse("asks how often a tensor was written to (_version)", _CUSTOM)
        return _get(self, "_version")

    @property
    def _base(self) -> Any:  # type: ignore[override]
        self._refuse("asks what a tensor is a view of (_base)", "keep the tensor that the view was made from")
        return _get(self, "_base")

    def _is_view(self) -> bool:
        self._refuse("asks whether a tensor is a view (_is_view())", "keep the tensor that the view was made from")
        return _own._is_view(self)

    def as_subclass(self, cls: Any) -> NoReturn:
        raise_unknown("makes a tensor of a subclass (as_subclass())", "use plain tensors")

    @property
    def _cdata(self) -> int:  # type: ignore[override]
        self._refuse("asks for the address of a tensor (_cdata)", "compare tensors with is")
        return _get(self, "_cdata")

    def _use_count(self) -> NoReturn:
        raise_unknown("asks how often a tensor is referred to (_use_count())", _CUSTOM)

    def _typed_storage(self) -> Any:
        self._refuse("asks for the memory of a tensor (_typed_storage())", _CUSTOM)
        return torch.Tensor._typed_storage(self)

    def storage_type(self) -> NoReturn:
        raise_unknown("asks for the memory of a tensor (storage_type())", "ask for its dtype and device")

    def apply_(self, function: Any) -> NoReturn:
        raise_unknown("calls a Python function for every element (apply_())", _CUSTOM)

    def map_(self, tensor: torch.Tensor, function: Any) -> NoReturn:
        raise_unknown("calls a Python function for every element (map_())", _CUSTOM)

    def map2_(self, first: torch.Tensor, second: torch.Tensor, function: Any) -> NoReturn:
        raise_unknown("calls a Python function for every element (map2_())", _CUSTOM)

    def is_set_to(self, tensor: torch.Tensor) -> NoReturn:
        raise_unknown("asks whether two tensors have the same memory (is_set_to())", _CUSTOM)


_LOAD_ATTRIBUTE = dis.opmap["LOAD_ATTR"]
_CUSTOM = "wrap code that needs the memory itself into a custom operator (torch.library.custom_op)"
_PARAMETER = "torch.nn.parameter.Parameter"


def _get(tensor: torch.Tensor, name: str) -> Any:
    """An attribute as torch itself knows it."""
    return _descriptor(name).__get__(tensor)


def _descriptor(name: str) -> Any:
    return getattr(torch._C.TensorBase, name)


def raise_unknown(question: str, remedy: str) -> NoReturn:
    """Refuse a question that has no answer while a program is captured."""
    raise CaptureError(f"the program {question}, which can't be captured", location=user_location(), remedy=remedy)
