"""Operators that the recorder treats in a way of their own: conversions, constants, and questions about data."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import torch

from tintype.errors import CaptureError
from tintype.fake.rules.factories import target_device
from tintype.fake.rules.views import alias
from tintype.fake.tensor import QUESTIONS, FakeTensor, answer, make_fake
from tintype.ir.graph import append_call
from tintype.ir.node_info import NodeMeta
from tintype.ir.operator_facts import DROPOUTS
from tintype.symbolic import Expr, eq, ge, le, maximum, minimum
from tintype.symbolic.bridge import from_torch, to_torch
from tintype.symbolic.location import user_location
from tintype.symbolic.sizes import certainly_at_least, decided_same, product
from tintype.trace.calls import NOT_HANDLED
from tintype.trace.conversions import one_in_eager_mode, unchanged
from tintype.trace.plan import handle_by, plan_for
from tintype.trace.recorder import Recorder
from tintype.trace.tried_views import note_view
from tintype.trace.views_or_copies import MadeContiguous

aten = torch.ops.aten


def intercept(*operators: Any) -> Callable[[Any], Any]:
    """Register a function for operators."""

    def register(function: Any) -> Any:
        for operator in operators:
            handle_by(operator, function)
        return function

    return register


# --- conversions -----------------------------------------------------------------------------------------


@intercept(aten.to.dtype)
def _to_dtype(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    return _convert(recorder, *args, **kwargs)


def _convert(
    recorder: Recorder,
    tensor: Any,
    dtype: torch.dtype | None = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: torch.memory_format | None = None,
    *,
    device: Any = None,
    layout: Any = None,
    pin_memory: bool | None = None,
) -> Any:
    """A conversion; one that changes nothing is an alias of its argument, see :mod:`tintype.trace.conversions`."""
    fake = recorder.as_fake(tensor)
    if not isinstance(tensor, torch.Tensor):  # vmap takes a Python number for a tensor, and wants one back
        tensor = fake
    info = fake.info
    options: dict[str, Any] = {}
    if dtype is not None:
        options["dtype"] = dtype
    if device is not None:
        options["device"] = device = target_device(device)
    if layout is not None and layout is not torch.strided:
        raise CaptureError(f"a conversion to layout {layout} can't be captured", location=user_location())
    keeps_format = memory_format is None or memory_format is torch.preserve_format
    if not keeps_format:
        options["memory_format"] = memory_format
    if not copy and (dtype is None or dtype is info.dtype) and (device is None or device == info.device):
        if keeps_format:
            return unchanged(recorder, tensor, fake, options)
        # a copy or the tensor itself, as its layout says
        result = recorder.record(aten.to.dtype, fake, info.dtype, False, False, memory_format)
        if recorder.compares_tensors and recorder.is_recording:
            recorder.asked(fake, "stride", (), tuple(map(to_torch, info.strides)))
            return tensor if result.info.storage is info.storage else result
        return result
    return recorder.record(aten._to_copy.default, fake, **options)


@intercept(aten.to.device)
def _to_device(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    tensor, device, dtype, *flags = args
    names = ("non_blocking", "copy", "memory_format")
    return _convert(recorder, tensor, dtype, device=device, **dict(zip(names, flags, strict=False)), **kwargs)


@intercept(aten.to.other)
def _to_other(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    tensor, other, *flags = args
    names = ("non_blocking", "copy", "memory_format")
    options = {**dict(zip(names, flags, strict=False)), **kwargs}
    return _convert(recorder, tensor, other.dtype, device=other.device, **options)


@intercept(aten.to.dtype_layout)
def _to_dtype_layout(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    return _convert(recorder, *args, **kwargs)


@intercept(aten.type_as.default)
def _type_as(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    return _convert(recorder, args[0], args[1].dtype, device=args[1].device)


# --- memory and parts -------------------------------------------------------------------------------------


@intercept(aten.as_strided.default)
def _as_strided(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """It looks at memory as it lies there, which for what may be a copy or may not nobody knows."""
    tensor = args[0]
    if type(tensor) is FakeTensor and tensor.info.storage.frozen:
        raise CaptureError(
            "the program looks at the memory (as_strided) of the result of a branch that returned its operand: in "
            "eager mode that is the memory of the operand",
            location=user_location(),
            remedy="call as_strided on the operand, or return a copy: clone()",
        )
    recorder.observer.refuse_undecided(recorder, recorder.as_fake(tensor), "stride")
    return NOT_HANDLED


@intercept(aten.view.default)
def _view(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    if len(args) == 2 and recorder.below_autograd:  # above it torch's function says it
        note_view(recorder, *args)
    return NOT_HANDLED


@intercept(aten.view_as_real.default)
def _view_as_real(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """It takes no conjugated tensor, and ``x.real`` calls it in another way for one: whether it is, is asked."""
    fake = recorder.as_fake(args[0])
    if recorder.observer.is_memory_of_input(fake):
        recorder.asked(fake, "is_conj", (), fake.info.conjugate)
    return NOT_HANDLED


@intercept(aten.tensor_split.sections)
def _tensor_split(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """The kernel asks which parts get one more element; of a size that varies the parts are slices all the same."""
    tensor, sections, *rest = args
    dim = rest[0] if rest else kwargs.get("dim", 0)
    sizes = _info_of(recorder, tensor).sizes
    if not sizes or type(sections) is not int or sections < 1 or type(sizes[dim]) is int:
        return NOT_HANDLED
    size = sizes[dim]
    # the first parts are those that have one more
    ends = [i * (size // sections) + minimum(size % sections, i) for i in range(sections + 1)]
    cuts = [to_torch(end) for end in ends]
    pairs = itertools.pairwise(cuts)
    return recorder.inside(lambda: [aten.slice.Tensor(tensor, dim, start, end) for start, end in pairs])


@intercept(aten.pad_sequence.default)
def _pad_sequence(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """The kernel asks which sequence is the longest; with lengths that vary the answer is a number, not a branch."""
    names = ("sequences", "batch_first", "padding_value", "padding_side")
    options = {**dict(zip(names, args)), **kwargs}
    sequences = options["sequences"]
    lengths = [_info_of(recorder, sequence).sizes[0] for sequence in sequences]
    if all(type(length) is int for length in lengths):
        return NOT_HANDLED
    longest = functools.reduce(maximum, lengths)
    before = options.get("padding_side", "right") == "left"
    value = options.get("padding_value", 0.0)

    def padded(sequence: torch.Tensor, length: Any) -> torch.Tensor:
        missing = to_torch(longest - length)
        sides = [0, 0] * (sequence.dim() - 1) + ([missing, 0] if before else [0, missing])
        return aten.constant_pad_nd.default(sequence, sides, value)

    def padded_together() -> torch.Tensor:
        parts = [padded(sequence, length) for sequence, length in zip(sequences, lengths)]
        return torch.stack(parts, 0 if options.get("batch_first", False) else 1)

    return recorder.inside(padded_together)


@intercept(*DROPOUTS)
def _idle_dropout(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Dropout that drops nothing returns its argument; where it is kept, another tensor over the same memory."""
    arguments: list[Any] = [*args, *kwargs.values()]
    tensor, p, train = arguments
    if (train and p != 0) or not recorder.is_for_training or not recorder.is_recording:
        return NOT_HANDLED
    fake = recorder.as_fake(tensor)
    result = make_fake(fake.info.with_storage(fake.info.storage), recorder.context)
    meta = NodeMeta({"val": result}, recorder.origin_of("dropout"))
    name = plan_for(func).name
    result.node = append_call(recorder.graph, func, (fake.node, p, train), {}, name, meta)
    return result


# --- constants -------------------------------------------------------------------------------------------


@intercept(aten.lift_fresh.default)
def _lift_fresh(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """A tensor made from Python numbers: a constant, of which the program gets a copy of its own."""
    (tensor,) = args
    if type(tensor) is FakeTensor:
        return tensor
    arrays = recorder.context.arrays
    own = arrays.own_copy(tensor)
    lifted = recorder.record(aten.lift_fresh_copy.default, recorder.constant(own))
    arrays.note_taken(tensor, own, lifted.info.storage)
    return lifted


@intercept(aten._conj.default)
def _conjugate(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Of a Python number, which gradients take the conjugate of: in double precision, as Python has it."""
    if isinstance(args[0], torch.Tensor):
        return NOT_HANDLED
    return recorder.record(aten.scalar_tensor.default, complex(args[0]).conjugate(), dtype=torch.complex128)


@intercept(aten._to_copy.default)
def _copy_of_number(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Of a Python number, which ``vmap`` takes for a tensor."""
    if isinstance(args[0], torch.Tensor):
        return NOT_HANDLED
    return recorder.record(func, recorder.fake_of(args[0]), **kwargs)


@intercept(aten.randint_like.default, aten.randint_like.low_dtype)
def _randint_like(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """torch's function lets gradients end there; autograd takes the operator for one whose derivative is missing."""
    info = recorder.as_fake(args[0]).info
    if not recorder.below_autograd or not (kwargs.get("dtype") or info.dtype).is_floating_point:
        return NOT_HANDLED
    return recorder.record(func, recorder.record(aten.detach.default, args[0]), *args[1:], **kwargs)


@intercept(aten.resolve_conj.default, aten.resolve_neg.default)
def _resolved(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """It is its argument, or a copy of one that is only marked as conjugated or negated: a question for the input."""
    fake = recorder.as_fake(args[0])
    fact = "is_conj" if func is aten.resolve_conj.default else "is_neg"
    if recorder.is_recording:
        is_copy = fake.info.conjugate if fact == "is_conj" else fake.info.negative
        ask = recorder.observer.asked if is_copy or recorder.compares_tensors else recorder.observer.asked_if_written
        ask(recorder, fake, fact, (), is_copy)
    return NOT_HANDLED


@intercept(aten.contiguous.default)
def _contiguous(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """It may be its argument; which it is matters where one of the two becomes another tensor."""
    result = recorder.record(func, *args, **kwargs)
    if recorder.is_recording and type(result) is FakeTensor:
        call = MadeContiguous(recorder.as_fake(args[0]), result, *args[1:], **kwargs)
        question = (call.source, "is_contiguous", (call.memory_format,))
        if recorder.compares_tensors and recorder.asked(*question, call.is_one):
            return args[0]
        recorder.made_contiguous.append(call)
    return result


@intercept(aten.detach_.default)
def _detach_in_place(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """The tensor has no history from here on, and is the tensor that it was. ``torch.tensor`` says that of what
    it has just made."""
    tensor = recorder.as_fake(args[0])
    is_new = tensor.node is recorder.graph._root._prev and tensor.node.target is aten.lift_fresh_copy.default
    if recorder.below_autograd and recorder.is_recording and not is_new:
        for fake in one_in_eager_mode(recorder, tensor):
            recorder.record(func, fake)
            fake.forget_gradient()
    return args[0]


@intercept(aten.detach.default)
def _detach_what_was_made(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """torch's functions that make tensors (``zeros``, ``arange``) detach what they return, which says nothing; nor
    does it where a class of tensors is at work below autograd."""
    if recorder.is_in_kernel:
        return recorder.record(aten.alias.default, args[0])
    (tensor,) = args
    if type(tensor) is not FakeTensor or not recorder.is_unseen(tensor):
        return NOT_HANDLED
    made = make_fake(alias(tensor.info), recorder.context)
    made.node = tensor.node
    if not recorder.below_autograd:  # who looks for the tensor that a node made finds the one that the program gets
        made.node.meta["val"] = made
    return made


# --- questions about metadata ----------------------------------------------------------------------------


def _info_of(recorder: Recorder, tensor: Any) -> Any:
    return (recorder.as_fake(tensor)).info


@intercept(aten.sym_size.int, aten.size.int)
def _size(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    return to_torch(_info_of(recorder, args[0]).sizes[args[1]])


@intercept(aten.sym_stride.int, aten.stride.int)
def _stride(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    return to_torch(_info_of(recorder, args[0]).strides[args[1]])


@intercept(*QUESTIONS)
def _question(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """What torch asks of tensors with symbolic sizes, or of what torch's transforms wrap around them."""
    tensor = args[0]
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    tensor = recorder.as_fake(tensor)
    return answer(func, (tensor, *args[1:], *kwargs.values()))


@intercept(aten._has_same_storage_numel.default)
def _is_about_to_compare(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """What autograd asks, forwards, before it compares how a tensor and its tangent lie in memory. It goes on to ask
    whether there are elements at all, since it need not compare any further if there are none."""
    numel = product(_info_of(recorder, args[0]).sizes)
    condition = eq(numel, 0) if isinstance(numel, Expr) else None
    recorder.context.environment.denied_next = condition if isinstance(condition, Expr) else None
    return NOT_HANDLED


@intercept(aten.amax.default)
def _largest(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Autograd's formula for the tangent of ``logsumexp`` takes the largest elements if there are any, and has just
    asked whether. Of a size that may be 0 they are taken with a number in front that none is less than."""
    environment = recorder.context.environment
    if not environment.said_full:
        return NOT_HANDLED
    environment.said_full = False
    tensor, *options = args
    info = _info_of(recorder, tensor)
    pad = [0] * (2 * info.dim)
    for dim in options[0] if options and info.dtype.is_floating_point else ():
        pad[2 * (info.dim - 1 - dim % info.dim)] = 0 if certainly_at_least(info.sizes[dim], 1) else 1
    if not any(pad):
        return NOT_HANDLED
    padded = recorder.record(aten.constant_pad_nd.default, tensor, pad, -math.inf)
    return recorder.record(func, padded, *options, **kwargs)


# --- promises about numbers ------------------------------------------------------------------------------
# They are learned here and asserted by the finished program, once each (tintype.transforms.assertions).


@intercept(aten._assert_scalar.default)
def _assert_scalar(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    condition = from_torch(args[0])
    if isinstance(condition, Expr):
        recorder.context.environment.require(condition, args[1], location=user_location())
    elif not condition:
        raise RuntimeError(args[1])
    return None


@intercept(aten.sym_constrain_range.default)
def _constrain_range(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    _learn_bounds(recorder, args, kwargs, 0)
    return None


@intercept(aten.sym_constrain_range_for_size.default)
def _constrain_range_for_size(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    _learn_bounds(recorder, args, kwargs, 0, size=True)
    return recorder.record_as(func, args, kwargs, None) if isinstance(from_torch(args[0]), Expr) else None


def _learn_bounds(recorder: Recorder, args: Any, kwargs: Any, position: int, *, size: bool = False) -> None:
    number = from_torch(args[position])
    names = ("min", "max")
    limits = {**dict(zip(names, args[position + 1 :])), **kwargs}
    low, high = limits.get("min"), limits.get("max")
    if size:
        low = max(low or 0, 0)
    environment = recorder.context.environment
    text = f"Invalid value range for {number} between [{low}, {high}]"
    if low is not None:
        environment.require(ge(number, from_torch(low)), text, location=user_location())
    if high is not None:
        environment.require(le(number, from_torch(high)), text, location=user_location())


@intercept(aten.is_same_size.default)
def _is_same_size(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    infos, _ = recorder.convert(args)
    return decided_same(infos[0].sizes, infos[1].sizes)


@intercept(aten._has_compatible_shallow_copy_type.default)
def _assign_data(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    recorder.problems.append(
        CaptureError(
            "the program assigns to the .data of a tensor, which can't be captured",
            location=user_location(),
            remedy="write to the tensor in place instead: with torch.no_grad(): tensor.copy_(value)",
        )
    )
    return False


# --- defaults that the functional form lacks ---------------------------------------------------------------


@intercept(aten.bernoulli_.float)
def _bernoulli(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """``bernoulli.p``, the form without mutation, has no default for its probability."""
    return NOT_HANDLED if len(args) > 1 or "p" in kwargs else recorder.record(func, args[0], 0.5, **kwargs)


# --- profiling -------------------------------------------------------------------------------------------


@intercept(
    torch.ops.profiler._record_function_enter.default,
    torch.ops.profiler._record_function_enter_new.default,
    torch.ops.profiler._record_function_exit.default,
    torch.ops.profiler._record_function_exit._RecordFunction,
)
def _record_function(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """``torch.profiler.record_function`` names a stretch of time for a profiler, of which a program knows nothing."""
    return func(*args, **kwargs)


# --- diagonals -------------------------------------------------------------------------------------------


@intercept(aten.fill_diagonal_.default)
def _fill_diagonal(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """By views of the tensor: the kernel counts from the start of the memory, where another input may not begin."""
    names = ("tensor", "fill_value", "wrap")
    options = {**dict(zip(names, args)), **kwargs}
    tensor, value = args[0], options["fill_value"]
    sizes = _info_of(recorder, tensor).sizes
    if len(sizes) == 2 and options.get("wrap", False):
        is_fixed = all(type(size) is int for size in sizes)
        if not (is_fixed and sizes[0] <= sizes[1] + 1):
            recorder.record(aten.masked_fill_.Scalar, tensor, _wrapped_diagonal(recorder, tensor), value)
            return tensor
    elif len(sizes) != 2 and (len(sizes) < 2 or any(to_torch(size) != to_torch(sizes[0]) for size in sizes)):
        return NOT_HANDLED  # it is refused
    diagonal = tensor
    for _ in sizes[1:]:
        diagonal = recorder.record(aten.diagonal.default, diagonal, 0, 0, 1)
    recorder.record(aten.fill_.Scalar, diagonal, value)
    return tensor


def _wrapped_diagonal(recorder: Recorder, tensor: Any) -> Any:
    """Where the diagonal of a matrix goes that begins again a row below its end."""
    rows, columns = (to_torch(size) for size in _info_of(recorder, tensor).sizes)

    def places() -> Any:
        row = torch.arange(rows, device=tensor.device) % (columns + 1)
        return row.unsqueeze(1) == torch.arange(columns, device=tensor.device)

    return recorder.inside(places)
