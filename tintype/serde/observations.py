"""What a program looked at, to and from the schema."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch

from tintype.errors import FileFormatError
from tintype.export.given import is_of_containers
from tintype.export.key_order import is_dictionary_at
from tintype.ir.observations import FACTS, KEYS, OF_ATTRIBUTES, OF_CONTAINERS, SURROUNDINGS, Observation
from tintype.ir.signature import ExportGraphSignature, InputKind, TensorArgument
from tintype.serde import schema
from tintype.serde.symbols import decode_location, encode_location
from tintype.serde.values import ValueDecoder, ValueEncoder
from tintype.symbolic import Expr
from tintype.symbolic.bridge import from_torch, to_torch
from tintype.tree import TreeSpec

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_PLAIN = (bool, int, str, type(None), torch.dtype, torch.layout, torch.memory_format, Expr)


def encode_observations(
    observations: Sequence[Observation], values: ValueEncoder, locations: bool
) -> list[schema.Observation]:
    """The questions of a program, with the lines that asked them where those are wanted."""
    return [
        schema.Observation(
            observation.subject,
            observation.fact,
            [values.encode(value) for value in observation.arguments],
            values.encode(_for_file(observation.answer)),
            encode_location(observation.location) if locations else None,
        )
        for observation in observations
    ]


def _for_file(answer: Any) -> Any:
    return tuple(map(_for_file, answer)) if isinstance(answer, tuple) else to_torch(answer)


def decode_observations(
    observations: Sequence[schema.Observation],
    values: ValueDecoder,
    signature: ExportGraphSignature,
    in_spec: TreeSpec,
) -> list[Observation]:
    """The questions of a program; each must be one that can be asked of what it names."""
    inputs = [spec for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT]
    state = {spec.target for spec in signature.input_specs if isinstance(spec.arg, TensorArgument)}
    decoded = []
    for entry in observations:
        subject = entry.subject
        of_keys = subject is None and entry.fact == KEYS
        of_objects = subject is None and entry.fact in OF_CONTAINERS
        if entry.fact not in (SURROUNDINGS if subject is None else FACTS) and not (of_keys or of_objects):
            raise FileFormatError(f"{entry.fact!r:.80} is nothing that a program can ask for")
        if isinstance(subject, int):
            known = 0 <= subject < len(inputs) and isinstance(inputs[subject].arg, TensorArgument)
        else:
            known = subject is None or subject in state
        if not known:
            raise FileFormatError(f"the program asks {subject!r:.80}, which is no tensor that it has")
        arguments = tuple(_from_file(values.decode(value)) for value in entry.arguments)
        answer = _from_file(values.decode(entry.answer))
        if of_keys and not (is_dictionary_at(in_spec, arguments) and _is_texts(answer)):
            raise FileFormatError("the program goes by the order of keys that it does not take")
        if of_objects and not is_of_containers(in_spec, entry.fact, arguments, answer):
            raise FileFormatError("the program compares containers that it does not take")
        if entry.fact == "is" and not _is_other(arguments, len(inputs), state):
            raise FileFormatError("the program compares an input with one that is not there")
        if entry.fact in OF_ATTRIBUTES and not (len(arguments) == 1 and type(arguments[0]) is str):
            raise FileFormatError("the program asks for an attribute that has no name")
        for value in (*arguments, *(answer if isinstance(answer, tuple) else (answer,))):
            if not isinstance(value, _PLAIN):
                raise FileFormatError(f"an answer can't be a {type(value).__name__}")
        decoded.append(Observation(subject, entry.fact, arguments, answer, decode_location(entry.location)))
    return decoded


def _is_other(arguments: tuple[Any, ...], count: int, state: Collection[str | None]) -> bool:
    """Whether an input is compared with an input or with state that is there."""
    if len(arguments) != 1:
        return False
    (other,) = arguments
    return other in state if type(other) is str else type(other) is int and 0 <= other < count


def _is_texts(answer: Any) -> bool:
    return isinstance(answer, tuple) and all(type(text) is str for text in answer)


def _from_file(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(map(_from_file, value))
    return from_torch(value) if isinstance(value, _SYMBOLIC) else value
