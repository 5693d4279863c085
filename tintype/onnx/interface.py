"""What an ONNX model's inputs and outputs are to the caller of the program that it comes from.

ONNX has a flat list of tensors on each side. The program has arguments in containers, numbers that it was
specialised on, results that are constants, state that a call changes, and assertions; this is the table between
the two.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import msgspec

from tintype import tree
from tintype.export.refused_calls import Calling
from tintype.onnx.errors import OnnxRequestError

METADATA_KEY = "tintype.interface"


@dataclasses.dataclass
class InputLeaf:
    """One leaf of the arguments: an input of the model (by name), or a value that it was specialised on."""

    kind: str  # "tensor", "int", "float", "bool" or "constant"
    name: str | None = None
    dtype: str | None = None
    sizes: list[int | str] | None = None
    value: Any = None


@dataclasses.dataclass
class OutputLeaf:
    """One leaf of the results: an output of the model (by name), or a constant."""

    kind: str
    name: str | None = None
    value: Any = None
    dtype: str | None = None


@dataclasses.dataclass
class NewValue:
    """An output that is the new value of an argument (a leaf's position) or of state (an initializer)."""

    output: str
    leaf: int | None = None
    state: str | None = None


@dataclasses.dataclass
class Check:
    """An output that has to be true."""

    output: str
    message: str
    at: str | None = None  # the line of the model that asserts it


@dataclasses.dataclass
class Interface:
    """The whole table."""

    inputs: list[InputLeaf]
    outputs: list[OutputLeaf]
    new_values: list[NewValue]
    checks: list[Check]
    in_spec: tree.TreeSpec
    out_spec: tree.TreeSpec
    argument_names: list[str]
    # the keyword arguments that may be given by position too
    positional: list[str] = dataclasses.field(default_factory=list)

    def calling(self) -> Calling:
        """How the model may be called besides as its example was."""
        return Calling(self.positional)

    def to_text(self) -> str:
        """The table as it stands in the metadata of a model."""
        from tintype.serde.structure import encode_tree
        from tintype.serde.values import ValueEncoder

        encoder = ValueEncoder()
        trees = [msgspec.to_builtins(encode_tree(spec, encoder)) for spec in (self.in_spec, self.out_spec)]
        return json.dumps(
            {
                "inputs": [_plain(leaf) for leaf in self.inputs],
                "outputs": [_plain(leaf) for leaf in self.outputs],
                "new_values": [_plain(value) for value in self.new_values],
                "checks": [_plain(check) for check in self.checks],
                "arguments": self.argument_names,
                "positional": self.positional,
                "structure": trees,
            }
        )

    @staticmethod
    def from_text(text: str) -> Interface:
        """The table that a model's metadata have."""
        from tintype.serde import schema
        from tintype.serde.structure import decode_tree
        from tintype.serde.values import ValueDecoder

        try:
            read = json.loads(text)
            trees = [None if each is None else msgspec.convert(each, schema.Tree) for each in read["structure"]]
            decoder = ValueDecoder()
            in_spec, out_spec = (decode_tree(each, decoder) for each in trees)
            return Interface(
                [InputLeaf(**leaf) for leaf in read["inputs"]],
                [OutputLeaf(**leaf) for leaf in read["outputs"]],
                [NewValue(**value) for value in read["new_values"]],
                [Check(**check) for check in read["checks"]],
                in_spec,
                out_spec,
                list(read["arguments"]),
                list(read.get("positional", ())),
            )
        except (ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
            raise OnnxRequestError(f"the metadata of this model can't be read: {error}") from error


def _plain(part: Any) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(part).items() if value is not None}
