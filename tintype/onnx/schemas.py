"""What a builder needs to know of ONNX's operators, looked up once for each operator and opset."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from tintype.onnx.libraries import ir, onnx

_Option = onnx.defs.OpSchema.FormalParameterOption
_DTYPES: dict[str, ir.DataType] = {
    f"tensor({name})": ir.DataType[name.upper()]
    for name in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16",
        "float", "double", "string", "complex64", "complex128",
    )
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Parameter:
    """An input or output of an operator. ``variable`` names the type that it shares with others; ``only`` is its
    dtype where the operator allows a single one, and ``takes_bfloat16`` says whether that is among several."""

    name: str
    variable: str
    variadic: bool
    only: ir.DataType | None
    is_sequence: bool
    takes_bfloat16: bool


@dataclasses.dataclass(frozen=True)
class Schema:
    """An operator at one version of the opset."""

    name: str
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    attributes: dict[str, ir.AttributeType]
    positions: dict[str, int]


def _parameter(described: Any, allowed: dict[str, list[str]]) -> Parameter:
    types = allowed.get(described.type_str, [described.type_str])
    only = _DTYPES.get(types[0]) if len(types) == 1 else None
    is_sequence = all(name.startswith("seq(") for name in types)
    is_variadic, takes_bfloat16 = described.option == _Option.Variadic, "tensor(bfloat16)" in types
    return Parameter(described.name, described.type_str, is_variadic, only, is_sequence, takes_bfloat16)


@functools.cache
def schema_of(name: str, opset: int, domain: str = "") -> Schema | None:
    """The schema of an operator in an opset; None where that has no such operator."""
    try:
        found = onnx.defs.get_schema(name, opset, domain)
    except onnx.defs.SchemaError:
        return None
    if found.deprecated:
        return None
    allowed = {constraint.type_param_str: list(constraint.allowed_type_strs) for constraint in found.type_constraints}
    inputs = tuple(_parameter(described, allowed) for described in found.inputs)
    return Schema(
        name,
        inputs,
        tuple(_parameter(described, allowed) for described in found.outputs),
        {
            key: ir.AttributeType[str(attribute.type).rpartition(".")[2]]
            for key, attribute in found.attributes.items()
        },
        {parameter.name: position for position, parameter in enumerate(inputs)},
    )
