"""``call_torchbind``: a method of a TorchBind object, as a step of a program.

``call_torchbind(object, name, *arguments)`` calls a method. While a program is captured, that of the fake class which
somebody registered for the object's class (``torch._library.register_fake_class``) says what the result looks like,
and the object itself is left alone. A call may change its object, so it is never dropped, and never done twice.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from tintype import tree
from tintype.errors import CaptureError, UnsupportedOperatorError
from tintype.fake.tensor import FakeTensor, make_fake
from tintype.ir.graph import append_call, append_item
from tintype.ir.node_info import NodeMeta
from tintype.ir.operators import HigherOrderOperator, declare
from tintype.ops.gradients import differentiable
from tintype.ops.subgraphs import captured
from tintype.symbolic.bridge import from_torch, to_torch
from tintype.symbolic.location import user_location
from tintype.trace.plan import captures
from tintype.trace.recorder import Recorder
from tintype.trace.state import identity

target = torch.ops.higher_order.call_torchbind
_fake_classes = torch._library.fake_class_registry.global_fake_class_registry


def run(owner: torch.ScriptObject, method: str, *args: Any, **kwargs: Any) -> Any:
    """The method itself."""
    return getattr(owner, method)(*args, **kwargs)


@captures(target)
def capture(recorder: Recorder, owner: torch.ScriptObject, method: str, *args: Any, **kwargs: Any) -> Any:
    fake = _fake_object(recorder, owner, method)
    if any(differentiable(recorder, tree.leaves((args, kwargs)))):
        raise UnsupportedOperatorError(
            f"gradients flow through {method}() of a TorchBind object, whose derivative is not known",
            location=user_location(),
            remedy="keep gradients away from it: detach() its arguments",
        )
    if not hasattr(fake, method):
        raise UnsupportedOperatorError(
            f"{type(fake).__qualname__}, which stands for {_class_name(owner)}, has no method {method}()",
            location=user_location(),
            remedy="define it in the class that is registered with torch._library.register_fake_class",
        )
    results, _ = recorder.unrecorded(lambda: getattr(fake, method)(*args, **kwargs))
    _, nodes = recorder.convert((owner, method, *args))
    _, keyword_nodes = recorder.convert(kwargs.values())
    meta = NodeMeta({}, recorder.origin_of("call_torchbind"))
    keywords = dict(zip(kwargs, keyword_nodes, strict=True))
    node = append_call(recorder.graph, target, tuple(nodes), keywords, "call_torchbind", meta)
    if isinstance(results, (tuple, list)):
        values = [_result(recorder, value, method) for value in results]
        meta["val"] = tuple(values)
        for index, value in enumerate(values):
            item = append_item(recorder.graph, node, index, NodeMeta({"val": value}, meta.origin))
            _come_from(recorder, value, item)
        return type(results)(values)
    meta["val"] = value = _result(recorder, results, method)
    _come_from(recorder, value, node)
    return value


def _result(recorder: Recorder, value: Any, method: str) -> Any:
    """A value of the program like one that a fake gave: a number is only known when the program runs."""
    environment = recorder.context.environment
    if isinstance(value, torch.Tensor):
        return make_fake(recorder.as_fake(value).info.with_storage(None), recorder.context)
    if value is None:
        return None
    if isinstance(value, (bool, torch.SymBool)):
        return to_torch(environment.unbacked_bool())
    if isinstance(value, (int, torch.SymInt)):
        return to_torch(environment.unbacked_int())
    if isinstance(value, (float, torch.SymFloat)):
        return to_torch(environment.unbacked_float())
    raise CaptureError(
        f"{method}() of a TorchBind object returns a {type(value).__name__}, which a program can't",
        location=user_location(),
        remedy="let the method return tensors and numbers, or a tuple of them",
    )


def _come_from(recorder: Recorder, value: Any, node: Any) -> None:
    if type(value) is FakeTensor:
        value.node = node
        recorder.numbers.define_sizes(node, value.info.sizes)
    elif value is not None:
        recorder.watch_functions()
        recorder.numbers.define_value(node, from_torch(value))


def _class_name(owner: torch.ScriptObject) -> str:
    """The name that a class is registered by: ``library::Queue``."""
    *_, library, name = owner._type().qualified_name().split(".")
    return f"{library}::{name}"


def _fake_object(recorder: Recorder, owner: torch.ScriptObject, method: str) -> Any:
    """What stands for an object in this capture."""
    known = recorder.context.fake_objects.get(identity(owner))
    if known is None:
        name = _class_name(owner)
        registered = owner._type().qualified_name()
        if not _fake_classes.has_impl(registered):
            raise UnsupportedOperatorError(
                f"{method}() of a TorchBind object can't be captured: nothing says what methods of {name} return for "
                "tensors without data",
                location=user_location(),
                remedy=f'register a class of Python that does: @torch._library.register_fake_class("{name}")',
            )
        with torch._C._DisableTorchDispatch():
            state = owner.__obj_flatten__()  # type: ignore[attr-defined]
        fakes = tuple((key, tree.map_leaves(functools.partial(_as_fake, recorder), value)) for key, value in state)
        made, _ = recorder.unrecorded(lambda: _fake_classes.get_impl(registered).__obj_unflatten__(fakes))
        recorder.context.fake_objects[identity(owner)] = known = (owner, made)
    return known[1]


def _as_fake(recorder: Recorder, value: Any) -> Any:
    return recorder.context.fake_of(value) if isinstance(value, torch.Tensor) else value


declare(
    HigherOrderOperator(
        target, {}, lambda node: [], run, functools.partial(captured, capture, run), has_effect=True, copies=True
    )
)
