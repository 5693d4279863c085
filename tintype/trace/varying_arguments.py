"""Operators that want a plain integer where a program gives one that varies: windows of pooling as wide as the input.

torch asks such a number for its value before anybody sees the call, which would fix it. Where the shape rule of the
operator is right for any number, the recorder gets the call as it is; when the program runs, the number is plain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from tintype.trace.direct_calls import call_directly, is_direct

if TYPE_CHECKING:
    from tintype.trace.recorder import Recorder

aten = torch.ops.aten
functional: Any = torch.nn.functional

Arguments: TypeAlias = tuple[Any, ...]
Call: TypeAlias = "Callable[[Recorder, Arguments, dict[str, Any]], Any]"


def _varies(value: Any) -> bool:
    return any(map(_varies, value)) if isinstance(value, (list, tuple)) else type(value) is torch.SymInt


def _whole(operator: Any) -> Call:
    """Calls of functions whose parameters are those of an operator."""
    parameters = operator._schema.arguments
    positions = {parameter.name: position for position, parameter in enumerate(parameters)}
    takes_list = [parameter.type.kind() == "ListType" for parameter in parameters]

    def call(recorder: Recorder, args: Arguments, kwargs: dict[str, Any]) -> Any:
        if not (_varies(args) or _varies(tuple(kwargs.values()))) or not is_direct(recorder):
            return NotImplemented
        values = list(args)
        for name in sorted(kwargs, key=lambda name: positions.get(name, 0)):
            position = positions.get("self" if name == "input" else name, -1)
            if position < len(values):
                return NotImplemented
            values += [parameter.default_value for parameter in parameters[len(values) : position]]
            values.append(kwargs[name])
        # a number may stand for a list of one
        for position, value in enumerate(values):
            if takes_list[position] and type(value) in (int, torch.SymInt):
                values[position] = [value]
        return call_directly(recorder, operator, tuple(values), {})

    return call


def _maximum_pooling(operator: Any) -> Call:
    """Calls of torch.nn.functional's functions, written in Python."""
    whole = _whole(operator)

    def call(recorder: Recorder, args: Arguments, kwargs: dict[str, Any]) -> Any:
        options = {name: value for name, value in kwargs.items() if name != "return_indices" and value is not None}
        return whole(recorder, args, options)

    return call


def _patches(recorder: Recorder, args: Arguments, kwargs: dict[str, Any]) -> Any:
    """torch.nn.functional.unfold, which takes a number for two alike."""
    names = ("kernel_size", "dilation", "padding", "stride")
    given = {"dilation": 1, "padding": 0, "stride": 1, **dict(zip(names, args[1:], strict=False)), **kwargs}
    pairs = [value if isinstance(value, (list, tuple)) else [value, value] for value in map(given.get, names)]
    return _IMAGES_TO_COLUMNS(recorder, (*args[:1], *map(list, pairs)), {})


_IMAGES_TO_COLUMNS = _whole(aten.im2col.default)

_FUNCTIONS: dict[Any, Arguments] = {
    aten.unfold.default: (torch.Tensor.unfold,),
    aten.diagonal.default: (torch.diagonal, torch.Tensor.diagonal),
    aten.diag_embed.default: (torch.diag_embed, torch.Tensor.diag_embed),
    aten.avg_pool1d.default: (torch.avg_pool1d,),
    aten.avg_pool2d.default: (torch._C._nn.avg_pool2d,),
    aten.avg_pool3d.default: (torch._C._nn.avg_pool3d,),
    aten.adaptive_avg_pool1d.default: (torch.adaptive_avg_pool1d,),
    aten.one_hot.default: (torch._C._nn.one_hot,),
    aten.im2col.default: (),
    aten.istft.default: (torch._C._VariableFunctions.istft, torch.istft, torch.Tensor.istft),
    aten._pad_packed_sequence.default: (torch._C._VariableFunctions._pad_packed_sequence,),
}
_MAXIMUM = {
    aten.max_pool1d.default: functional.max_pool1d,
    aten.max_pool2d.default: functional.max_pool2d,
    aten.max_pool3d.default: functional.max_pool3d,
    aten.max_pool1d_with_indices.default: functional.max_pool1d_with_indices,
    aten.max_pool2d_with_indices.default: functional.max_pool2d_with_indices,
    aten.max_pool3d_with_indices.default: functional.max_pool3d_with_indices,
}

VARYING_ARGUMENTS: dict[Any, Call] = {
    **{
        function: _whole(operator)
        for operator, functions in _FUNCTIONS.items()
        for function in (*functions, operator, operator._op)
    },
    **{function: _maximum_pooling(operator) for operator, function in _MAXIMUM.items()},
    **{form: _whole(operator) for operator in _MAXIMUM for form in (operator, operator._op)},
    functional.unfold: _patches,
}


def called(recorder: Recorder, operator: Any, args: Arguments, kwargs: dict[str, Any]) -> Any:
    """What an operator gives, numbers that vary among its arguments or not."""
    call = VARYING_ARGUMENTS.get(operator)
    result = NotImplemented if call is None else call(recorder, args, kwargs)
    return operator(*args, **kwargs) if result is NotImplemented else result
