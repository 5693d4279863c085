"""Statements on modules, objects, futures and exceptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tintype.errors import CaptureError
from tintype.interop.torchscript.control_flow import ScriptRaisedError
from tintype.interop.torchscript.heap import ScriptDict, ScriptInstance, ScriptList
from tintype.interop.torchscript.mirror import Mirror
from tintype.interop.torchscript.tables import computes, handles
from tintype.interop.torchscript.values import UNINITIALIZED, Future, UnknownText, is_symbolic
from tintype.symbolic.location import user_location

if TYPE_CHECKING:
    from tintype.interop.torchscript.interpreter import Interpreter
    from tintype.interop.torchscript.reading import Statement

# Classes whose objects only tell a profiler of what runs.
_PROFILING = ("torch.autograd.profiler.record_function",)
# A mark only: the conversions are in the graph, see reading.py.
_AUTOCAST = "autocast_mode"
# Context managers of torch's that set the gradient mode, with what they set it to.
_GRADIENT_MODES = {
    "torch.autograd.grad_mode.no_grad": False,
    "torch.autograd.grad_mode.enable_grad": True,
    "torch.autograd.grad_mode.inference_mode": False,
}


def _class_name(instance: Any) -> str:
    name: str = instance.type.qualified_name() if instance.type is not None else ""
    return name.removeprefix("__torch__.")


# --- attributes ------------------------------------------------------------------------------------------


@handles("prim::GetAttr")
def _get_attribute(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    owner, name = args[0], statement.name
    if isinstance(owner, Mirror):
        return interpreter.read(owner, name)
    if isinstance(owner, ScriptInstance):
        return owner.get(name)
    if isinstance(owner, tuple) and hasattr(owner, name):
        return getattr(owner, name)
    raise CaptureError(f"the attribute {name!r} of a {type(owner).__name__} is read", location=user_location())


@handles("prim::SetAttr")
def _set_attribute(interpreter: Interpreter, statement: Statement, args: list[Any]) -> None:
    owner, value = args
    if isinstance(owner, Mirror):
        interpreter.write(owner, statement.name, value)
    elif isinstance(owner, ScriptInstance):
        interpreter.heap.changes(owner)
        owner.content[statement.name] = value
    else:
        raise CaptureError(
            f"the attribute {statement.name!r} of a {type(owner).__name__} is written to", location=user_location()
        )


@computes("prim::HasAttr")
def _has_attribute(owner: Any, name: Any) -> Any:
    return hasattr(owner, name)


@handles("prim::CreateObject")
def _create(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    return ScriptInstance({}, interpreter.heap.now, statement.type)


@handles("prim::ModuleContainerIndex")
def _index_modules(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    container, key = args
    if is_symbolic(key):
        raise CaptureError(
            "a module is chosen by a number that is only known when the program runs", location=user_location()
        )
    children = container._modules
    if isinstance(key, int):
        names = list(children)
        if not -len(names) <= key < len(names):
            raise ScriptRaisedError("IndexError: Index out of range")
        return children[names[key]]
    if key not in children:
        raise ScriptRaisedError(f"KeyError: {key}")
    return children[key]


# --- calls -----------------------------------------------------------------------------------------------


@handles("prim::CallMethod")
def _call_method(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    owner, name = args[0], statement.name
    if isinstance(owner, Mirror):
        return interpreter.call_method(owner, name, args[1:])
    if isinstance(owner, ScriptInstance):
        if _class_name(owner) in _PROFILING or (_class_name(owner) in _GRADIENT_MODES and name == "__init__"):
            return None
        procedure = statement.procedure.called(statement, owner_type=owner.type)
        return interpreter.run_procedure(procedure, args)
    raise CaptureError(
        f"the method {name!r} of a {type(owner).__name__} is called, which only runs outside of a graph",
        location=user_location(),
    )


@handles("prim::CallFunction")
def _call_function(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    return interpreter.run_procedure(statement.procedure.called(statement), args[1:])


@handles("prim::Enter")
def _enter(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    manager = args[0]
    name = _class_name(manager)
    if name in _PROFILING or _AUTOCAST in name:
        return manager
    if name in _GRADIENT_MODES:
        manager.content["prev"] = torch.is_grad_enabled()
        torch._C._set_grad_enabled(_GRADIENT_MODES[name])
        return None
    return interpreter.run_procedure(statement.procedure.called(statement, "__enter__"), args)


@handles("prim::Exit")
def _exit(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    manager = args[0]
    name = _class_name(manager)
    if name in _PROFILING or _AUTOCAST in name:
        return None
    if name in _GRADIENT_MODES:
        torch._C._set_grad_enabled(manager.content["prev"])
        return None
    return interpreter.run_procedure(statement.procedure.called(statement, "__exit__"), args)


@handles("prim::fork")
def _fork(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    return Future(interpreter.run_procedure(statement.procedure.forked(statement), args))


@computes("aten::wait", "prim::awaitable_wait")
def _wait(future: Any) -> Any:
    return future.value if isinstance(future, Future) else future


@computes("prim::awaitable_nowait")
def _no_wait(value: Any) -> Any:
    return Future(value)


# --- exceptions and messages -------------------------------------------------------------------------------


@handles("prim::RaiseException")
def _raise(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    text = args[0].text if isinstance(args[0], UnknownText) else str(args[0])
    kind = args[1] if len(args) > 1 and isinstance(args[1], str) else ""
    raise ScriptRaisedError(f"{kind.rpartition('.')[2]}: {text}" if kind else text)


@computes("prim::Print", "aten::warn", "profiler::_record_function_exit", "profiler::_record_function_enter_new")
def _tell(*values: Any) -> None:
    """What a script says while it runs is no part of a program."""


# --- kinds of values -------------------------------------------------------------------------------------


@computes("prim::Uninitialized")
def _uninitialized() -> Any:
    return UNINITIALIZED


@computes("prim::unchecked_cast", "prim::unchecked_unwrap_optional")
def _same(value: Any) -> Any:
    return value


@computes("aten::_unwrap_optional")
def _unwrap(value: Any) -> Any:
    if value is None:
        raise ScriptRaisedError("Unwrapping null optional")
    return value


@computes("prim::EnumName")
def _enum_name(value: Any) -> Any:
    return value.name


@computes("prim::EnumValue")
def _enum_value(value: Any) -> Any:
    return value.value


@computes("aten::eq.enum", "aten::eq.device")
def _equal(one: Any, other: Any) -> Any:
    return one == other


@computes("aten::ne.enum", "aten::ne.device")
def _unequal(one: Any, other: Any) -> Any:
    return one != other


_CLASSES: dict[str, Any] = {
    "TensorType": torch.Tensor,
    "StringType": str,
    "ComplexType": complex,
    "NoneType": type(None),
    "DeviceObjType": torch.device,
}


@handles("prim::isinstance")
def _isinstance(interpreter: Interpreter, statement: Statement, args: list[Any]) -> Any:
    return any(_is_of(args[0], type) for type in statement.node.tys("types"))


def _is_of(value: Any, type: Any) -> bool:
    kind = type.kind()
    if kind == "BoolType":
        return isinstance(value, (bool, torch.SymBool))
    if kind == "IntType":
        return isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool)
    if kind == "FloatType":
        return isinstance(value, (float, torch.SymFloat))
    if kind == "OptionalType":
        return value is None or _is_of(value, type.getElementType())
    if kind == "AnyType":
        return True
    if kind == "ListType":
        return isinstance(value, ScriptList) and all(_is_of(item, type.getElementType()) for item in value.content)
    if kind == "DictType":
        of, keys = type.getValueType(), type.getKeyType()
        return isinstance(value, ScriptDict) and all(
            _is_of(key, keys) and _is_of(item, of) for key, item in value.content.items()
        )
    if kind == "ClassType":
        return isinstance(value, ScriptInstance) and value.type.qualified_name() == type.qualified_name()
    if kind == "TupleType":
        types = type.elements()
        return (
            isinstance(value, tuple)
            and len(types) == len(value)
            and all(_is_of(item, of) for item, of in zip(value, types, strict=True))
        )
    if kind in _CLASSES:
        return isinstance(value, _CLASSES[kind])
    raise CaptureError(f"the script asks whether a value is a {type}", location=user_location())
