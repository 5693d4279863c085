"""Exceptions that a program raises only because it is captured, in words."""

from __future__ import annotations

import dataclasses
import re
import traceback
from collections.abc import Iterator, Mapping, Set
from typing import Any

import numpy as np
import torch

from tintype.errors import CaptureError, DataDependentError, Location, TintypeError, UnsupportedInputError
from tintype.symbolic import Environment
from tintype.symbolic.failures import RequirementError
from tintype.symbolic.location import is_internal, location_in

_SYMBOLIC_NUMBER = re.compile(r"\bSym(Int|Float|Bool)\b")
# what C++ says when it is handed a symbolic number where it takes plain ones
_PLAIN_NUMBER_WANTED = re.compile(
    "Unable to cast Python instance of type <class 'torch.Sym|expected to contain only concrete integers"
)
# what C++ says when it reads the elements of a tensor that has none
_DATA_WANTED = re.compile("its data is not allocated yet")
_CALL = torch.nn.Module._call_impl.__code__


def wants_plain_numbers(error: Exception) -> CaptureError:
    """What to say of an exception that a program raises because a number in it varies."""
    return CaptureError(
        f"the program hands a size or number that varies to what takes only plain ones: {error}",
        location=location_in(error),
        remedy="fix it with int(...) or float(...), or compute with operators and torch's functions",
    )


def explained(error: Exception) -> CaptureError | None:
    """What to say of an exception that eager mode would not have raised; None for the program's own."""
    if isinstance(error, TypeError) and _SYMBOLIC_NUMBER.search(str(error)) is not None:
        return wants_plain_numbers(error)
    if isinstance(error, RuntimeError) and _PLAIN_NUMBER_WANTED.search(str(error)) is not None:
        return DataDependentError(
            "an operator of torch's that consists of others wants to know a number that varies, or depends on data",
            location=location_in(error),
            remedy="fix the number with int(...), or do this part outside of what is captured; tintype.export "
            "captures many operators whole that a joint graph takes apart",
        )
    if isinstance(error, RuntimeError) and _DATA_WANTED.search(str(error)) is not None:
        return DataDependentError(
            "an operator of torch's that consists of others reads the data of a tensor, which is only known when the "
            "program runs",
            location=location_in(error),
            remedy="give it numbers instead of a tensor; tintype.export captures many operators whole that a joint "
            "graph takes apart",
        )
    if isinstance(error, RuntimeError) and str(error).startswith("Creating a new Tensor subclass "):
        fact = "the program makes a tensor of a subclass that is a plain tensor with a class of its own"
        remedy = (
            "use plain tensors: causal attention by is_causal=True or a mask, others by as_subclass(torch.Tensor)"
        )
    elif _asked_for_length(error):
        fact = "the program makes a tensor from tensors in a list in a way that takes their data"
        remedy = "use torch.stack(...) or torch.tensor(...)"
    elif (script := _called_script(error)) is not None:
        fact = f"the program calls {script.original_name}, a module of TorchScript that is no submodule of the model"
        remedy = "make it one (self.name = scripted), or use the module of Python that it was made from"
    else:
        return None
    return CaptureError(fact, location=location_in(error), remedy=remedy)


def presumed(error: Exception, environment: Environment) -> DataDependentError | None:
    """What to say of an exception that may be due to what was asserted of sizes that only the data decide, where
    eager mode takes a size of 1, too; None if nothing was."""
    if isinstance(error, TintypeError):
        return None
    if isinstance(error, TypeError) and environment.has_unbacked:
        return DataDependentError(
            f"the program fails ({error}), maybe since a number that only the data decide is handed to what takes "
            "plain ones",
            location=location_in(error),
            remedy="look whether model(*args, **kwargs) runs; if so, compute with operators and torch's functions",
        )
    if not environment.presumptions:
        return None
    presumption = environment.presumptions[-1]
    where = f" ({place}{_text_of(place)})" if (place := presumption.location) is not None else ""
    return DataDependentError(
        f"the program fails where {presumption.condition} ({type(error).__name__}: {error}). Only the data decide "
        f"whether that is so; it is asserted because a size of 1 would make another program{where}",
        condition=presumption.condition,
        location=location_in(error),
        remedy="say before that line which size it is: torch._check(x.shape[0] == 1) or torch._check(x.shape[0] > 1)",
    )


def _text_of(place: Location) -> str:
    line = place.source_line()
    return f": {line}" if line else ""


def _asked_for_length(error: Exception) -> bool:
    """Whether torch asked a tensor without dimensions for its length, as constructors (``torch.FloatTensor``,
    ``new_tensor``) do with what they are given in a list, and not the program."""
    if not isinstance(error, TypeError) or str(error) != "len() of a 0-d tensor":
        return False
    users = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    users = [code for code in users if not is_internal(code.co_filename)]
    return bool(users) and "len" not in users[-1].co_names


def _called_script(error: Exception) -> torch.jit.ScriptModule | None:
    """The module of TorchScript that was being called. Those of the model are captured as scripts; of others, torch
    runs the Python code that they were made from, with one argument too many."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code is _CALL and isinstance(called := frame.f_locals.get("self"), torch.jit.ScriptModule):
            return called
    return None


def name_sizes(error: Exception, names: Mapping[str, str]) -> None:
    """Let sizes be called what the user called them in what an error says of them."""
    if not names or not isinstance(error, (TintypeError, RequirementError)):
        return
    written = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")

    def named(text: str) -> str:
        return written.sub(lambda found: names[found[0]], text)

    if isinstance(error, TintypeError):
        error.fact = named(error.fact)
        error.remedy = None if error.remedy is None else named(error.remedy)
    error.args = tuple(named(text) if isinstance(text, str) else text for text in error.args)


def not_an_input(leaf: Any) -> UnsupportedInputError:
    """The error for an argument that no program takes."""
    if isinstance(leaf, (np.ndarray, np.generic)):
        remedy = "make a tensor of it: torch.as_tensor(array)"
    elif isinstance(leaf, (Iterator, Set, range)):
        remedy = "make a list or a tuple of it: a program needs to know what is in it, and in which order"
    elif dataclasses.is_dataclass(leaf):
        remedy = f"say that it is a container: tintype.register_dataclass({type(leaf).__name__})"
    else:
        remedy = (
            "pass tensors, numbers, strings, None, functions, or containers of them; register your own containers "
            "with tintype.register_container or tintype.register_dataclass, the block masks of flex_attention with "
            "tintype.register_block_mask"
        )
    return UnsupportedInputError(
        f"a {type(leaf).__name__} is not something a captured program can take", remedy=remedy
    )


def not_a_result(leaf: Any) -> CaptureError:
    """The error for something that a model returns and no program can."""
    if dataclasses.is_dataclass(leaf):
        remedy = f"say that it is a container: tintype.register_dataclass({type(leaf).__name__})"
    else:
        remedy = (
            "return tensors, numbers, strings, None, or containers of them; register your own containers "
            "with tintype.register_container or tintype.register_dataclass"
        )
    return CaptureError(f"the program returns a {type(leaf).__name__}, which a captured program can't", remedy=remedy)


def note_place(error: Exception) -> None:
    """Say of an exception of the program's own where it was raised; the exception stays what it is."""
    place = None if isinstance(error, TintypeError) else location_in(error)
    if place is not None:
        error.add_note(
            f"  At: {place}{_text_of(place)}\n  The model itself raised this when tintype called it with "
            "the example arguments; what to do: look whether model(*args, **kwargs) runs"
        )
