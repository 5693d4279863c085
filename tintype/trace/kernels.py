"""What operators without a shape rule return: found by running kernels on fakes, unrecorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from tintype.errors import DataDependentError, UnsupportedOperatorError
from tintype.fake.context import FakeContext
from tintype.fake.info import TensorInfo
from tintype.fake.meta_kernels import NoMetaKernel, freeze
from tintype.fake.meta_kernels import infer as infer_by_meta_kernel
from tintype.symbolic.bridge import from_torch, to_torch
from tintype.symbolic.location import user_location
from tintype.trace.calls import NOT_HANDLED, Call, NeedsRecordingError
from tintype.trace.written_sizes import flat_infos

if TYPE_CHECKING:
    from tintype.trace.recorder import Recorder

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def worked_out(recorder: Recorder, call: Call) -> Any:
    """The results of an operator, by its shape rule where it has one."""
    rule = call.plan.rule
    return infer(recorder, call) if rule is None else rule(*call.infos, **call.kwarg_infos)


def infer(recorder: Recorder, call: Call) -> Any:
    """The results of an operator without a shape rule; NOT_HANDLED if its kernel has to be recorded."""
    operator = call.operator
    custom = _fake_kernel(operator)
    if custom is not None:
        try:
            return _run_fake_kernel(recorder, custom, call)
        except RuntimeError as error:
            if "no fake impl registered" not in str(error):
                raise
            return _by_example(recorder, call, error)
    if call.plan.composite:
        return _infer_composite(recorder, call)
    try:
        return infer_by_meta_kernel(operator, call.infos, call.kwarg_infos, recorder.context.inferred)
    except NoMetaKernel as error:
        decomposition = torch._decomp.decomposition_table.get(operator)
        if decomposition is not None:
            return _run_fake_kernel(recorder, decomposition, call)
        return _by_example(recorder, call, error)


def _by_example(recorder: Recorder, call: Call, error: Exception) -> Any:
    """The results that an operator has for the example of a draft; in any other capture nobody knows them."""
    if recorder.example is None or not recorder.is_recording:
        raise _unknown_result(call.operator, str(error)) from error
    return recorder.example.results(call, first_sentence(str(error)))


def _run_fake_kernel(recorder: Recorder, kernel: Callable[..., Any], call: Call) -> Any:
    """Results by running Python code on fakes."""
    with torch._library.fake_impl.set_ctx_getter(lambda: _FakeKernelContext(recorder.context)):
        try:
            results, _ = recorder.unrecorded(lambda: kernel(*call.args, **call.kwargs))
        except NeedsRecordingError as error:
            raise DataDependentError(
                f"{error}: a fake kernel has no data to look at",
                location=user_location(),
                remedy="describe the result by the sizes and dtypes of the arguments alone",
            ) from error
    return _to_infos(results, recorder)


def _infer_composite(recorder: Recorder, call: Call) -> Any:
    """Results of a composite operator by its kernel; NOT_HANDLED if it turns out to alias or write."""
    operator, infos, kwarg_infos = call.operator, call.infos, call.kwarg_infos
    cache, environment = recorder.context.inferred, recorder.context.environment
    key: Any
    try:
        key = (operator, freeze(infos), tuple((k, freeze(v)) for k, v in kwarg_infos.items()))
        template = cache.get(key)
    except TypeError:
        key = template = None
    if template is not None:
        return _from_template(template)
    symbols = len(environment.symbols)
    try:
        results, written = recorder.unrecorded(lambda: operator.decompose(*call.args, **call.kwargs))
    except NeedsRecordingError:
        return NOT_HANDLED
    except RuntimeError as error:
        if "data is not allocated" not in str(error):
            raise
        return _by_example(recorder, call, error)  # a kernel that reads memory itself, whatever it is registered as
    if len(environment.symbols) != symbols:
        return NOT_HANDLED  # numbers that depend on data must come from nodes
    results = _to_infos(results, recorder)
    inputs = {info.storage for info in flat_infos([infos, list(kwarg_infos.values())])}
    aliases = any(not inputs.isdisjoint((info.storage, *info.storage.sources)) for info in flat_infos(results))
    if aliases or any(storage in inputs for storage in written):
        results = NOT_HANDLED
    if key is not None:
        cache[key] = results
    return _from_template(results)


def _unknown_result(func: Any, reason: str) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(
        f"the result of {func} can't be known without running it: it has neither a shape rule nor a meta kernel "
        f"({first_sentence(reason)})",
        location=user_location(),
        remedy=f"register one: torch.library.register_fake({func.name()!r}, ...)",
    )


def first_sentence(text: str) -> str:
    """The beginning of a long message."""
    return text.strip().partition("\n")[0].partition(". ")[0].rstrip(".")


class _FakeKernelContext:
    """What ``torch.library.get_ctx()`` gives the fake kernel of a custom operator."""

    def __init__(self, context: FakeContext) -> None:
        self._environment = context.environment

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> Any:
        """A size that only the data decide."""
        return to_torch(self._environment.unbacked_int(lower=min, upper=max))

    def create_unbacked_symint(self, *, min: int = 2, max: int | None = None) -> Any:
        """The old name of :meth:`new_dynamic_size`."""
        return self.new_dynamic_size(min=min, max=max)


def _to_infos(value: Any, recorder: Recorder) -> Any:
    if isinstance(value, torch.Tensor):
        return (recorder.as_fake(value)).info
    if isinstance(value, (list, tuple)):
        return [_to_infos(item, recorder) for item in value]
    if isinstance(value, _SYMBOLIC):
        return from_torch(value)
    return value


def _from_template(results: Any) -> Any:
    """Fresh infos from cached ones: a description is shared by all tensors that look alike, a storage not."""
    if type(results) is TensorInfo:
        return results.with_storage(None)
    if isinstance(results, (list, tuple)):
        return [_from_template(item) for item in results]
    return results


def _fake_kernel(func: Any) -> Callable[..., Any] | None:
    """The function that the author of a custom operator registered for this purpose."""
    if func.namespace == "aten":
        return None
    name = func.name().partition(".")[0]
    return torch._library.simple_registry.singleton.find(name).fake_impl.kernel


def take_any_layout(last: Node) -> None:
    """Let a kernel that was recorded after a node, and writes to some of its arguments alone, take the others in any
    layout: it asked for contiguous ones, which goes unseen where the example is."""
    node = last._next
    while node.op != "root":
        if node.target is torch.ops.aten.view.default and node.args[0] <= last:  # type: ignore[operator]
            node.target = torch.ops.aten.reshape.default
        node = node._next
