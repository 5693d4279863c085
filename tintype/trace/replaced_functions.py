"""Functions of torch's that tell modes of themselves by a name under which somebody has put another function.

What torch has in Python, such as ``torch.nn.functional.relu``, hands itself on to a mode by its global name. Who
replaces such a function by one of his own that calls it (to log, to scale, to count) would have his own function
called again in its place.
"""

from __future__ import annotations

import os
from types import CodeType, FunctionType
from typing import Any

import torch

from tintype.symbolic.location import code_that_called

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_HANDS_ON = torch.overrides.handle_torch_function.__code__
# how many frames there are between a mode and the function that it is told of, at most
_FARTHEST = 4


def meant_function(told: Any) -> Any:
    """The function of torch's that was called, by a mode that was told of this one. Asked for functions in Python
    alone, which are few."""
    code = told.__code__
    if code.co_filename.startswith(_TORCH):
        return told
    caller = code_that_called(_HANDS_ON, _FARTHEST)
    # a function of the user's may tell modes of itself, too
    if caller is None or caller[0] is code or not caller[0].co_filename.startswith(_TORCH):
        return told
    return _function_of(*caller)


def _function_of(code: CodeType, namespace: dict[str, Any]) -> FunctionType:
    """A function by its code. Where nobody has it by name any more, one of that code does: what tells modes of itself
    hands on all of its arguments."""
    return _FUNCTIONS.get(code) or FunctionType(code, namespace, code.co_name)


_FUNCTIONS = {
    value.__code__: value
    for module in (torch.nn.functional, torch.functional, torch)
    for value in vars(module).values()
    if type(value) is FunctionType
}
