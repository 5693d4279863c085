"""Operators on tensors of several processes (``torch.distributed.tensor.DTensor``): what this process does for them.

torch decides how an operator's result is divided, and which of its arguments have to be divided otherwise before; the
program is what follows from that for the parts of this process, with collectives where parts are exchanged. Divisions
are decided outside of the recording: that computes with sizes alone, in torch's own fake tensors.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from tintype.errors import UnsupportedOperatorError
from tintype.ir.observations import GROUP_RANK, GROUP_SIZE
from tintype.ir.process_switches import CountedSwitch, is_capturing
from tintype.symbolic.bridge import from_torch
from tintype.symbolic.location import user_location
from tintype.symbolic.relations import eq
from tintype.tree.distributed_tensors import is_distributed

if TYPE_CHECKING:
    from tintype.trace.recorder import Recorder


def _remember_nothing() -> list[tuple[Any, Any]]:
    """torch remembers by sizes how tensors are divided otherwise, unless it traces: sizes that vary can't be keys."""
    saved = []
    for name in ("torch.distributed.tensor._redistribute", "torch.distributed._functional_collectives"):
        if name in sys.modules:
            module: Any = sys.modules[name]
            saved.append((module, module._are_we_tracing))
            module._are_we_tracing = functools.partial(_are_we_tracing, module._are_we_tracing)
    return saved


def _are_we_tracing(elsewhere: Callable[[], bool]) -> bool:
    return is_capturing() or elsewhere()


def _remember(saved: list[tuple[Any, Any]]) -> None:
    for module, function in saved:
        module._are_we_tracing = function


remembering_no_divisions = CountedSwitch(_remember_nothing, _remember)


def call_distributed(recorder: Recorder, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """What an operator returns for tensors of several processes."""
    from torch.distributed.tensor import DTensor

    dispatcher = DTensor._op_dispatcher
    _note_place(recorder, args, kwargs)
    handler = dispatcher._custom_op_handlers.get(func)
    call = dispatcher.unwrap_to_op_info(func, args, kwargs)
    if handler is not None:
        with contextlib.suppress(UnsupportedOperatorError):  # it may need no division
            _division(recorder, dispatcher.sharding_propagator, call.schema)  # which torch remembers for the handler
        return recorder.inside(lambda: handler(func, args, kwargs))
    call.output_sharding = _division(recorder, dispatcher.sharding_propagator, call.schema)
    return recorder.inside(lambda: _computed(dispatcher, func, args, kwargs, call))


def _note_place(recorder: Recorder, args: Any, kwargs: Any) -> None:
    """The program is that of one process of its groups: the part that it has depends on which one that is."""
    if not recorder.is_recording:
        return
    for value in tree_leaves((args, kwargs)):
        for group in value.device_mesh.get_all_groups() if is_distributed(type(value)) else ():
            recorder.observer.surroundings(recorder, GROUP_SIZE, (group.group_name,), group.size())
            recorder.observer.surroundings(recorder, GROUP_RANK, (group.group_name,), group.rank())


def _division(recorder: Recorder, propagator: Any, schema: Any) -> Any:
    """How the arguments and results of an operator are divided."""
    try:
        if _has_varying_sizes(schema):
            return _division_of_varying(recorder, propagator, schema)
        outermost = recorder
        while outermost.recording is None:
            outermost = outermost.parent  # type: ignore[attr-defined]
        with outermost.recording.suspended():
            return propagator.propagate_op_sharding(schema)
    except NotImplementedError as error:
        raise UnsupportedOperatorError(
            f"{schema.op} is not defined for tensors of several processes (DTensor): {error}",
            location=user_location(),
            remedy="compute it on the parts (tensor.to_local()) or on the whole (tensor.full_tensor())",
        ) from error


def _division_of_varying(recorder: Recorder, propagator: Any, schema: Any) -> Any:
    """The same for tensors whose sizes vary.

    torch compares what several divisions would cost, and asks whether sizes can be divided: which of them is taken is
    open, as all are right. Only that the one that was taken divides its tensors evenly is part of the program."""
    environment = recorder.context.environment
    mark = environment.mark()
    decide = _with_our_fakes(propagator).propagate_op_sharding_non_cached
    division, _ = recorder.unrecorded(lambda: decide(schema))
    _, guards, assertions, specializations, _ = mark.counts
    if (len(environment.assertions), len(environment.specializations)) == (assertions, specializations):
        learned = environment.guards[guards:]
        environment.take_back(mark)
        for guard in learned:
            if not _is_of_choice(guard.condition):
                environment.guard(guard.condition, location=guard.location)
    wanted = division.redistribute_schema or schema
    for spec in tree_leaves((wanted.args_schema, wanted.kwargs_schema, division.output_spec)):
        if getattr(spec, "tensor_meta", None) is not None:
            _require_even(environment, spec)
    return division


def _is_of_choice(condition: Any) -> bool:
    """Whether a condition is about costs or about divisibility."""
    if condition.kind == "float" or condition.operation == "mod":
        return True
    return any(map(_is_of_choice, condition.parts()))


def _require_even(environment: Any, spec: Any) -> None:
    sizes = list(spec.tensor_meta.shape)
    for mesh_dimension, placement in enumerate(spec.placements):
        dimension = getattr(placement, "dim", None)
        if dimension is not None and isinstance(sizes[dimension], torch.SymInt):
            count = spec.mesh.size(mesh_dimension)
            size = from_torch(sizes[dimension])
            environment.require(
                eq(size % count, 0),
                f"a tensor of {size} is divided over {count} processes, which is captured for sizes that vary only "
                "where all of them get as much",
            )
            sizes[dimension] = sizes[dimension] // count


def _has_varying_sizes(schema: Any) -> bool:
    for value in tree_leaves((schema.args_schema, schema.kwargs_schema)):
        meta = getattr(value, "tensor_meta", None)
        if any(isinstance(size, torch.SymInt) for size in ((value,) if meta is None else meta.shape)):
            return True
    return False


def _with_our_fakes(propagator: Any) -> Any:
    """Who decides on divisions, for tensors of sizes that vary: results are described by our fakes."""
    from torch.distributed.tensor._sharding_prop import ShardingPropagator

    class WithOurFakes(ShardingPropagator):
        def _propagate_tensor_meta(self, op_schema: Any) -> Any:
            return _described(op_schema.op(*op_schema.gen_fake_args(), **op_schema.gen_fake_kwargs()))

        _propagate_tensor_meta_non_cached = _propagate_tensor_meta

    made = object.__new__(WithOurFakes)
    vars(made).update(vars(propagator))
    return made


def _described(result: Any) -> Any:
    from torch.distributed.tensor._dtensor_spec import TensorMeta

    if isinstance(result, (tuple, list)):
        return type(result)(map(_described, result))
    is_tensor = isinstance(result, torch.Tensor)
    return TensorMeta(result.shape, result.stride(), result.dtype) if is_tensor else None


def _computed(dispatcher: Any, func: Any, args: Any, kwargs: dict[str, Any], call: Any) -> Any:
    """The results, computed on the parts."""
    results = dispatcher._dispatch_get_local_results_slow_path(func, args, call)
    schema, division = call.schema, call.output_sharding
    if schema.is_inplace_op() or schema.is_out_variant_op() or func is torch.ops.aten.equal.default:
        return dispatcher._dispatch_fast_path_python_tail(
            func, args, kwargs, call.compute_mesh, division, results, True,
            schema.is_inplace_op(), schema.is_out_variant_op(),
        )  # fmt: skip
    return dispatcher.wrap(results, division.output_spec)


def redistributed_like(tensor: Any, other: Any) -> Any:
    """A tensor of several processes, divided as another one is."""
    if tensor.placements == other.placements:
        return tensor
    return tensor.redistribute(other.device_mesh, other.placements)
