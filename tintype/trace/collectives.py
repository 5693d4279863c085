"""``torch.distributed``: collectives in a program are torch's functional ones (``torch.ops._c10d_functional``).

``dist.all_reduce(tensor)`` and its kind write to tensors that the program made before. Recorded are the functional
collective, which returns a new tensor, the wait for it, and the write as a copy. Nothing is sent while a program is
captured. A group is known by its name, which every process that runs the program must have.

An asynchronous collective is waited for where it was started: no program can see the difference but by reading a
tensor before it waited for it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tintype.errors import UnsupportedOperatorError
from tintype.fake.rules import collectives as collective_rules
from tintype.fake.tensor import FakeTensor
from tintype.ir.observations import GROUP_SIZE, SURROUNDINGS
from tintype.symbolic.location import user_location
from tintype.trace.calls import NOT_HANDLED
from tintype.trace.intercepts import intercept
from tintype.trace.plan import ON_FIRST_USE
from tintype.trace.recorder import Recorder

aten = torch.ops.aten
collectives = torch.ops.c10d
functional = torch.ops._c10d_functional

# by the numbers that torch has for them
_REDUCTIONS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor")


class _Group:
    """A process group: its name, and how many processes it has."""

    def __init__(self, group: torch.ScriptObject) -> None:
        unboxed = torch._C._distributed_c10d.ProcessGroup.unbox(group)
        self.name = str(unboxed.group_name)
        self.size = unboxed.size()


_BY_NAME: dict[str, Callable[..., Any]] = {}


def _on(*names: str) -> Callable[[Any], Any]:
    """Register a function for collectives, by name."""

    def register(function: Any) -> Any:
        _BY_NAME.update(dict.fromkeys(names, function))
        return function

    return register


# Operators are looked up when the first of them is met: few programs have collectives, and not every torch was built
# with them.


def _prepare_collectives() -> None:
    del ON_FIRST_USE["c10d"]
    for name, function in _BY_NAME.items():
        intercept(getattr(collectives, name).default)(function)


def _prepare_functional_collectives() -> None:
    prepare = ON_FIRST_USE.pop("_c10d_functional")
    for operator in collective_rules.register():
        if any(argument.name == "group_name" for argument in operator._schema.arguments):
            intercept(operator)(_noted)
    if hasattr(functional, "_wrap_tensor_autograd"):
        intercept(functional._wrap_tensor_autograd.default)(_wrap_tensor)
    else:  # it is defined by a module that is not imported yet
        ON_FIRST_USE["_c10d_functional"] = prepare


ON_FIRST_USE["c10d"] = _prepare_collectives
ON_FIRST_USE["_c10d_functional"] = _prepare_functional_collectives


def _finished() -> Any:
    """What stands for a collective that is under way: one that is finished."""
    return torch._C._distributed_c10d.FakeWork().boxed()


def _reduction(operation: Any) -> str:
    number = operation.op()
    if number >= len(_REDUCTIONS):
        raise _refused("a reduction that multiplies first (PREMUL_SUM)", "multiply, then reduce with SUM")
    return _REDUCTIONS[number]


def _noted(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """A functional collective of the program's own: which group it is of is part of what the program needs."""
    note_group(recorder, kwargs["group_name"] if "group_name" in kwargs else args[-1])
    return NOT_HANDLED


def note_group(recorder: Recorder, name: str) -> None:
    """The program needs a process group of as many processes as this one has."""
    if recorder.is_recording:
        recorder.observer.surroundings(recorder, GROUP_SIZE, (name,), SURROUNDINGS[GROUP_SIZE](name))


def _waited(recorder: Recorder, operator: Any, *args: Any) -> FakeTensor:
    """The result of a functional collective, when it is there."""
    note_group(recorder, args[-1])
    return recorder.record(functional.wait_tensor.default, recorder.record(operator, *args))


def _write(recorder: Recorder, target: torch.Tensor, value: torch.Tensor) -> None:
    """Write a result into the tensor that the program gave for it, which has as many elements."""
    recorder.inside(lambda: target.copy_(value if value.shape == target.shape else value.reshape(target.shape)))


# --- one tensor in, one tensor out -----------------------------------------------------------------------


@_on("allreduce_", "allreduce_coalesced_")
def _all_reduce(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    tensors, group, reduction, *rest = args
    if func is collectives.allreduce_.default and rest and rest[0] is not None:
        raise _refused("all_reduce of a sparse tensor", "make it dense: to_dense()")
    for tensor in tensors:
        value = _waited(recorder, functional.all_reduce.default, tensor, _reduction(reduction), _Group(group).name)
        _write(recorder, tensor, value)
    return _result(func, tensors)


@_on("broadcast_")
def _broadcast(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    tensors, group, root, *_ = args
    for tensor in tensors:
        _write(recorder, tensor, _waited(recorder, functional.broadcast.default, tensor, root, _Group(group).name))
    return _result(func, tensors)


@_on("_allgather_base_", "allgather_into_tensor_coalesced_")
def _all_gather_into_tensor(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    outputs, inputs, group = _as_list(args[0]), _as_list(args[1]), _Group(args[2])
    for output, value in zip(outputs, inputs, strict=True):
        _write(recorder, output, _gathered(recorder, value, group))
    return _result(func, args[0])


def _gathered(recorder: Recorder, value: torch.Tensor, group: _Group) -> FakeTensor:
    if not value.dim():
        value = recorder.inside(functools.partial(torch.reshape, value, (1,)))
    return _waited(recorder, functional.all_gather_into_tensor.default, value, group.size, group.name)


@_on("_reduce_scatter_base_", "reduce_scatter_tensor_coalesced_")
def _reduce_scatter_tensor(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    outputs, inputs, group, reduction = _as_list(args[0]), _as_list(args[1]), _Group(args[2]), _reduction(args[3])
    for output, value in zip(outputs, inputs, strict=True):
        _write(recorder, output, _reduce_scattered(recorder, value, reduction, group))
    return _result(func, args[0])


def _reduce_scattered(recorder: Recorder, value: torch.Tensor, reduction: str, group: _Group) -> FakeTensor:
    return _waited(recorder, functional.reduce_scatter_tensor.default, value, reduction, group.size, group.name)


@_on("alltoall_base_")
def _all_to_all_single(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    output, value, group, output_sizes, input_sizes, *_ = args
    known = _Group(group)
    value = _exchanged(
        recorder,
        value,
        output_sizes or [output.shape[0] // known.size] * known.size,
        input_sizes or [value.shape[0] // known.size] * known.size,
        known,
    )
    _write(recorder, output, value)
    return _result(func, output)


def _exchanged(
    recorder: Recorder, value: torch.Tensor, output_sizes: Sequence[Any], input_sizes: Sequence[Any], group: _Group
) -> FakeTensor:
    operator = functional.all_to_all_single.default
    return _waited(recorder, operator, value, list(output_sizes), list(input_sizes), group.name)


# --- lists of tensors ------------------------------------------------------------------------------------


@_on("allgather_")
def _all_gather(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    group = _Group(args[2])
    for outputs, value in zip(args[0], args[1], strict=True):
        if any(output.shape != value.shape for output in outputs):
            raise _refused(
                "all_gather into tensors of other sizes", "pad the tensors of all processes to one size first"
            )
        gathered = _gathered(recorder, value, group)
        parts = recorder.inside(functools.partial(torch.chunk, gathered, group.size))
        for output, part in zip(outputs, parts, strict=True):
            _write(recorder, output, part)
    return _result(func, args[0])


@_on("reduce_scatter_")
def _reduce_scatter(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    group, reduction = _Group(args[2]), _reduction(args[3])
    for output, inputs in zip(args[0], args[1], strict=True):
        stacked = recorder.inside(functools.partial(torch.stack, list(inputs)))
        _write(recorder, output, _reduce_scattered(recorder, stacked, reduction, group))
    return _result(func, args[0])


@_on("alltoall_")
def _all_to_all(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    outputs, inputs, group = args[0], args[1], _Group(args[2])
    flat = recorder.inside(lambda: torch.cat([value.reshape(-1) for value in inputs]))
    sizes = [output.numel() for output in outputs]
    received = _exchanged(recorder, flat, sizes, [value.numel() for value in inputs], group)
    parts = recorder.inside(lambda: aten.split_with_sizes.default(received, sizes))
    for output, part in zip(outputs, parts, strict=True):
        _write(recorder, output, part)
    return _result(func, outputs)


# --- no tensors ------------------------------------------------------------------------------------------


@_on("barrier")
def _barrier(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """All processes are there when all of them have contributed to a sum."""
    device = args[0].device
    nothing = recorder.record(aten.zeros.default, [1], dtype=torch.uint8, device=device)
    _waited(recorder, functional.all_reduce.default, nothing, "sum", _Group(args[1]).name)
    return _result(func, None)


# --- what functional collectives return to Python --------------------------------------------------------


def _wrap_tensor(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    """Outside of a program the result waits when it is used first; in a program it waits where it is made."""
    return recorder.record(functional.wait_tensor.default, args[0])


# --- the rest --------------------------------------------------------------------------------------------

_REFUSED = {
    "reduce_": ("reduce", "use all_reduce"),
    "gather_": ("gather", "use all_gather"),
    "scatter_": ("scatter", "use broadcast and take the part of this process"),
    "send": ("send", "use all_to_all_single, or send outside of the program"),
    "recv_": ("recv", "use all_to_all_single, or receive outside of the program"),
    "recv_any_source_": ("recv", "use all_to_all_single, or receive outside of the program"),
    "allgather_coalesced_": ("all_gather_coalesced", "use all_gather for each tensor"),
    "monitored_barrier_": ("monitored_barrier", "use barrier"),
}


@_on(*_REFUSED)
def _refuse(recorder: Recorder, func: Any, args: Any, kwargs: Any) -> Any:
    name, remedy = _REFUSED[func.overloadpacket.__name__]
    raise _refused(f"torch.distributed.{name}", remedy)


def _refused(what: str, remedy: str) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(f"{what} can't be captured", location=user_location(), remedy=remedy)


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _result(func: Any, written: Any) -> Any:
    """What an operator returns: often what it wrote to, always something to wait for."""
    return (written, _finished()) if len(func._schema.returns) > 1 else _finished()
