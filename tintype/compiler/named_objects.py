"""Objects in files, by where they are found: a file holds names, never objects.

Nothing is imported for a name, and what a recorded run calls has to be one of torch's functions or has to stand by
its name in the code of the program itself, whose hashes are checked first. So a file makes a program call nothing
that its own code does not.
"""

from __future__ import annotations

import builtins
import enum
import inspect
import sys
import types
from types import FunctionType, ModuleType
from typing import Any

import torch

from tintype.compiler import known, making
from tintype.compiler.calls import canonical
from tintype.compiler.native_calls import function_of
from tintype.interpret.logged_lines import log_from
from tintype.interpret.warned_lines import warn_at
from tintype.ir import call_description

# where functions of torch's are looked for by their own name
_TORCH: dict[str, Any] = {
    "torch": torch,
    "variable_functions": torch._C._VariableFunctions,
    "tensor": torch.Tensor,
    "tensor_base": torch._C.TensorBase,
    "functional": torch.nn.functional,
    "of_torch": torch.functional,
    "c": torch._C,
    **{name: getattr(torch._C, name) for name in ("_nn", "_linalg", "_fft", "_special", "_sparse", "_nested")},
}
# methods of tensors that have another's name: x ** 2 is a function "pow"
_OPERATORS = {id(method): name for name, method in vars(torch.Tensor).items() if isinstance(method, FunctionType)}
_OWN = {"making": making, "call_description": call_description}


class NotNamedError(Exception):
    """An object has no name by which a file could refer to it, or a name stands for nothing here."""


def name_object(value: Any, function: Any) -> list[Any]:
    """Where an object is found by who compiles ``function``."""
    if value is function:
        return ["root"]
    if value is getattr(function, "__self__", None):
        return ["owner"]
    if value is getattr(inspect.unwrap(function) if callable(function) else None, "__globals__", None):
        return ["globals"]
    if isinstance(value, ModuleType):
        if sys.modules.get(value.__name__) is value:
            return ["module", value.__name__]
    elif isinstance(value, dict):
        module = sys.modules.get(str(value.get("__name__")))
        if module is not None and vars(module) is value:
            return ["namespace", module.__name__]
    elif isinstance(value, enum.Enum):
        return ["member", name_object(type(value), function), value.name]
    elif (kind := _autograd_function(value)) is not None:
        return ["autograd", name_object(kind, function)]
    else:
        found = _of_torch(value) or _by_name(value)
        if found is not None:
            return found
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None) or f"a {type(value).__name__}"
    raise NotNamedError(f"{name} has no name in a module")


def _autograd_function(value: Any) -> Any:
    """The class whose ``apply`` a function is, as runs call it."""
    if type(value) is FunctionType and value.__module__ == function_of.__module__ and value.__closure__:
        kind = value.__closure__[0].cell_contents
        if isinstance(kind, type) and issubclass(kind, torch.autograd.Function):
            return kind
    return None


def _of_torch(value: Any) -> list[Any] | None:
    if isinstance(value, torch._ops.OpOverload):
        return ["operator", value.name()]
    if isinstance(value, torch._ops.OpOverloadPacket):
        return ["packet", value._qualified_op_name]
    if type(value) is types.MethodWrapperType and value.__name__ in ("__get__", "__set__"):
        attribute = getattr(value.__self__, "__name__", None)
        if isinstance(attribute, str) and inspect.getattr_static(torch.Tensor, attribute, None) is value.__self__:
            return ["attribute", value.__name__, attribute]
    name = getattr(value, "__name__", None)
    if isinstance(name, str) and callable(value):
        for place, namespace in {**_TORCH, **_OWN}.items():
            if getattr(namespace, name, None) is value:
                return ["torch", place, name]
        if id(value) in _OPERATORS:
            return ["torch", "tensor", _OPERATORS[id(value)]]
    return None


def _by_name(value: Any) -> list[Any] | None:
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    own = str(getattr(value, "__name__", ""))
    if getattr(builtins, own, None) is value:
        return ["builtin", own]
    if isinstance(value, type) and value.__module__ == "builtins":  # the classes of functions, code, modules...
        return next((["name", "types", own] for own, known in vars(types).items() if known is value), None)
    if isinstance(value, types.BuiltinFunctionType) and module is None:  # a method that a module offers
        module, name = type(value.__self__).__module__, own
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    try:
        return ["name", module, name] if _attribute(module, name) is value else None
    except NotNamedError:
        return None


def _attribute(module: str, name: str) -> Any:
    found: Any = sys.modules.get(module)
    if found is None:
        raise NotNamedError(f"the module {module} is not loaded")
    for part in name.split("."):
        found = inspect.getattr_static(found, part, None) if isinstance(found, type) else vars(found).get(part)
        if isinstance(found, (staticmethod, classmethod)):
            found = found.__func__
        if found is None or not hasattr(found, "__dict__"):
            break
    if found is None:
        raise NotNamedError(f"{module} has no {name}")
    return found


def find_object(name: list[Any], function: Any) -> Any:
    """The object that a file means."""
    match name:
        case ["root"]:
            return function
        case ["owner"]:
            return _there(getattr(function, "__self__", None), "the method's object")
        case ["globals"]:
            return _there(getattr(inspect.unwrap(function), "__globals__", None), "the function's globals")
        case ["module", str(module)]:
            return _there(sys.modules.get(module), f"the module {module}")
        case ["namespace", str(module)]:
            return vars(_there(sys.modules.get(module), f"the module {module}"))
        case ["member", list(kind), str(member)]:
            return _there(getattr(find_object(kind, function), "__members__", {}).get(member), member)
        case ["autograd", list(kind)]:
            found = find_object(kind, function)
            if not (isinstance(found, type) and issubclass(found, torch.autograd.Function)):
                raise NotNamedError(f"{kind[-1]} is no torch.autograd.Function")
            return function_of(found)
        case ["operator", str(qualified)]:
            return _operator(qualified)
        case ["packet", str(qualified)]:
            return _operator(f"{qualified}.")
        case ["attribute", ("__get__" | "__set__") as how, str(attribute)]:
            descriptor = inspect.getattr_static(torch.Tensor, attribute, None)
            return canonical(getattr(_there(descriptor, f"torch.Tensor.{attribute}"), how))
        case ["torch", str(place), str(own)]:
            return _there(getattr({**_TORCH, **_OWN}.get(place), own, None), own)
        case ["builtin", str(own)]:
            return _there(getattr(builtins, own, None), own)
        case ["name", str(module), str(own)]:
            return _attribute(module, own)
    raise NotNamedError(f"{name} is no name")


def _there(value: Any, words: str) -> Any:
    if value is None:
        raise NotNamedError(f"{words} is not there")
    return value


def _operator(qualified: str) -> Any:
    full, _, overload = qualified.partition(".")
    namespace, _, own = full.partition("::")
    packets = getattr(torch.ops, namespace)
    packet = getattr(packets, own, None) if own.isidentifier() else None
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        raise NotNamedError(f"there is no operator {qualified}")
    if not overload and qualified.endswith("."):
        return packet
    return _there(getattr(packet, overload or "default", None), qualified)


# functions of torch's that reach out to files
_REFUSED = ("from_file", "image")


def _is_operator(function: Any) -> bool:
    """Whether it computes tensors from tensors, as far as one knows."""
    if isinstance(function, torch._ops.OpOverload):
        return function._schema.name.partition("::")[2] not in _REFUSED and function.namespace not in _REFUSED
    if isinstance(function, torch._ops.OpOverloadPacket):
        return not function._qualified_op_name.startswith(_REFUSED) and function.__name__ not in _REFUSED
    name = str(getattr(function, "__name__", ""))
    if getattr(torch.nn.functional, name, None) is function:
        return True
    return known.is_of_torch(function) and name not in _REFUSED and getattr(torch._C, name, None) is not function


class Callables:
    """What recorded runs of a program may call: functions of torch's, and what its code names."""

    def __init__(self) -> None:
        self.names = {"__call__", "get", "_nothing", *known.MUTATING}

    def add(self, code: types.CodeType) -> None:
        """Take the names in the code of a function whose hash was checked."""
        self.names.update(code.co_names, code.co_freevars, code.co_varnames)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self.add(constant)

    def check(self, function: Any) -> None:
        """Refuse a function that the program could not call."""
        name = str(getattr(function, "__name__", ""))
        if name in self.names or id(function) in known.STATE_WRITES or id(function) in known.PURE:
            return
        if isinstance(function, FunctionType) and (
            vars(making).get(name) is function or function in (warn_at, log_from)
        ):
            return
        if type(function) is types.MethodWrapperType or _is_operator(function):
            return
        if isinstance(function, type) and function in (types.MethodType, *known.CONTAINERS):
            return
        raise NotNamedError(f"the program's code does not name {name or function!r}, which a run in the file calls")
