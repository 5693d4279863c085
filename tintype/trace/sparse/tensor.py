"""The sparse tensor that a program sees while it is captured, and who says what operators do with it.

Programs have no sparse values: an operator on a sparse tensor is recorded as operators on its indices and values. So
every pass, every file and every other tool takes programs of sparse models as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tintype.errors import UnsupportedInputError, UnsupportedOperatorError
from tintype.ir.operator_facts import facts_of
from tintype.symbolic.location import user_location
from tintype.trace.plan import handle_by
from tintype.tree.sparse import SparseParts, is_sparse

if TYPE_CHECKING:
    from tintype.trace.recorder import Recorder

aten = torch.ops.aten


class MeetsSparse(UnsupportedInputError):
    """A sparse tensor of the model, or a constant that is one, is an argument of an operator."""

    def __init__(self) -> None:
        super().__init__(
            "a sparse tensor can't be captured here", remedy="convert it with to_dense(), or use tintype.export"
        )


class SparseTensor(torch.Tensor):
    """A sparse tensor whose indices and values are tensors of the program."""

    sparse_parts: SparseParts
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, parts: SparseParts) -> Any:
        values = parts.values
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            [size if type(size) is int else 2 for size in parts.size],  # nobody sees these: the class is asked
            dtype=values.dtype,
            layout=parts.layout,
            device=values.device,
            dispatch_sizes_strides_policy="sizes",
            dispatch_layout=True,
        )
        made.sparse_parts = parts
        return made

    def __init__(self, parts: SparseParts) -> None:
        super().__init__()

    def _nnz(self) -> Any:
        return QUESTIONS[aten._nnz.default](self.sparse_parts)  # torch's own method returns plain numbers

    def __tensor_flatten__(self) -> Any:
        """So that it counts as a tensor that consists of others; it is taken apart by its parts."""
        return list(self.sparse_parts.tensors()), self.sparse_parts.structure

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return SparseTensor(SparseParts({**inner, "size": tuple(size)}, context))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        question = QUESTIONS.get(func)
        if question is not None and isinstance(args[0], cls):
            return question(args[0].sparse_parts)
        return NotImplemented

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        parts = self.sparse_parts
        return f"SparseTensor(size={tuple(parts.size)}, values={parts.values!r}, layout={parts.layout})"


def _count(parts: SparseParts) -> Any:
    count: Any = 1
    for size in parts.size:
        count = count * size
    return count


QUESTIONS: dict[Any, Callable[[SparseParts], Any]] = {
    aten.sym_size.default: lambda parts: list(parts.size),
    aten.size.default: lambda parts: list(parts.size),
    aten.sym_numel.default: _count,
    aten.numel.default: _count,
    aten.dim.default: lambda parts: len(parts.size),
    torch.ops.prim.layout.default: lambda parts: parts.layout,
    aten.is_coalesced.default: lambda parts: parts.coalesced,
    aten.sparse_dim.default: lambda parts: parts.sparse_dim,
    aten.dense_dim.default: lambda parts: len(parts.size) - parts.sparse_dim - parts.batch_dim,
    aten._nnz.default: lambda parts: parts.values.shape[parts.batch_dim],
    aten._dimI.default: lambda parts: parts.sparse_dim,
    aten._dimV.default: lambda parts: len(parts.size) - parts.sparse_dim,
}


# --- operators -------------------------------------------------------------------------------------------

HANDLERS: dict[Any, Callable[..., Any]] = {}


def sparse(*operators: Any) -> Callable[[Any], Any]:
    """Register what operators do with sparse tensors; NotImplemented for arguments that it has no answer to."""

    def register(function: Any) -> Any:
        for operator in operators:
            HANDLERS[operator] = function
        return function

    return register


def makes_sparse(*operators: Any) -> Callable[[Any], Any]:
    """The same for operators that make sparse tensors of strided ones."""

    def register(function: Any) -> Any:
        for operator in operators:
            HANDLERS[operator] = function
            handle_by(operator, call_sparse)
        return function

    return register


def call_sparse(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """What an operator returns where an argument or the result is sparse."""
    args, kwargs = _known(recorder, args), _known(recorder, kwargs)
    question = QUESTIONS.get(func)
    if question is not None:
        return question(args[0].sparse_parts)
    result: Any = NotImplemented
    handler = HANDLERS.get(func)
    if handler is not None:
        result = recorder.inside(lambda: handler(*args, **kwargs))
    elif isinstance(func, torch._ops.OpOverload) and facts_of(func).composite:
        result = recorder.inside(lambda: func.decompose(*args, **kwargs))
    if result is NotImplemented:
        layouts = sorted({str(value.layout) for value in _tensors((args, kwargs)) if isinstance(value, SparseTensor)})
        raise UnsupportedOperatorError(
            f"{func} of a tensor with layout {', '.join(layouts) or 'torch.strided'} can't be captured: tintype does "
            "not know what it is in terms of indices and values",
            location=user_location(),
            remedy="use to_dense() before it, or compute with indices() and values()",
        )
    return result


def _known(recorder: Recorder, value: Any) -> Any:
    """Arguments with sparse tensors of the model as those that the capture knows."""
    if isinstance(value, (list, tuple)):
        return type(value)(_known(recorder, item) for item in value)
    if isinstance(value, dict):
        return {name: _known(recorder, item) for name, item in value.items()}
    if isinstance(value, torch.Tensor) and not isinstance(value, SparseTensor) and is_sparse(value):
        return known_tensor(recorder, value)
    return value


def known_tensor(recorder: Recorder, real: torch.Tensor) -> SparseTensor:
    """A sparse tensor of the model as one that the capture knows."""
    known = recorder.context.sparse_tensors.get(id(real))
    if known is None:
        recorder.context.sparse_tensors[id(real)] = known = (real, SparseParts.of(real.detach()))
    return SparseTensor(known[1])


def _tensors(value: Any) -> Any:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors(item)]
    return [value] if isinstance(value, torch.Tensor) else []


def made(layout: torch.layout, indices: tuple[Any, ...], values: Any, size: Any, coalesced: bool = False) -> Any:
    """A sparse tensor of a program."""
    return SparseTensor(SparseParts.made_of(layout, indices, values, size, coalesced))


def coo(indices: Any, values: Any, size: Any, coalesced: bool = False) -> Any:
    """One whose indices are coordinates."""
    return made(torch.sparse_coo, (indices,), values, size, coalesced)


def with_values(tensor: SparseTensor, values: Any) -> Any:
    """The same places with other values."""
    parts = tensor.sparse_parts
    return made(parts.layout, parts.indices, values, parts.size, parts.coalesced)
