"""Checks of the inputs that a program is called with.

A quick test, generated per program, says whether everything is as it was when the program was exported. Only
when it fails is the cause looked for, here, and put into words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tintype import tree
from tintype.errors import InputMismatchError, InputStructureError
from tintype.fake.info import TensorInfo


class Expectation:
    """What one leaf of the inputs must be: a tensor like this one, or a value equal to that one."""

    __slots__ = ("path", "value")

    def __init__(self, path: tree.KeyPath, value: TensorInfo | Any) -> None:
        self.path = path
        self.value = value

    def where(self) -> str:
        """The place of this input in a call."""
        side = "*args" if self.path[0].idx == 0 else "**kwargs"
        return side + tree.path_text(self.path[1:])

    def check(self, given: Any) -> None:
        """Raise unless the given value is as expected."""
        if isinstance(self.value, TensorInfo):
            self._check_tensor(self.value, given)
        elif type(given) is not type(self.value) or given != self.value:
            raise InputMismatchError(
                f"Expected input at {self.where()} to be equal to {self.value}, but got {given}",
                remedy="the program was exported for this value only; export it again for another one",
            )

    def _check_tensor(self, expected: TensorInfo, given: Any) -> None:
        where = self.where()
        if not isinstance(given, torch.Tensor):
            raise InputMismatchError(
                f"Expected input at {where} to be a tensor, but got {type(given).__name__}",
                remedy=f"pass a tensor of size {list(expected.sizes)} and {expected.dtype}",
            )
        if given.dim() != len(expected.sizes):
            raise InputMismatchError(
                f"Expected input at {where} to have {len(expected.sizes)} dimensions "
                f"{list(expected.sizes)}, but got {given.dim()}: {list(given.shape)}",
                remedy="pass a tensor of the size the program was exported with",
            )
        for dimension, (size, actual) in enumerate(zip(expected.sizes, given.shape, strict=True)):
            if size != actual:
                raise InputMismatchError(
                    f"Expected input at {where}.shape[{dimension}] to be equal to {size}, but got {actual}",
                    remedy="export with dynamic_shapes to accept other sizes",
                )
        if given.dtype is not expected.dtype:
            raise InputMismatchError(
                f"Expected input at {where}.dtype to be {expected.dtype}, but got {given.dtype}",
                remedy=f"convert the input with .to({expected.dtype}), or export the program for {given.dtype}",
            )


def flatten_call(
    args: Sequence[Any], kwargs: dict[str, Any], in_spec: tree.TreeSpec, names: Sequence[str]
) -> list[Any]:
    """The leaves of a call's arguments, in the order of the program's inputs.

    Arguments may be given by position or by name, keywords in any order.
    """
    expected_args, expected_kwargs = in_spec.children()
    count = expected_args.num_children
    positional = list(args[:count])
    rest = list(args[count:])
    named = dict(kwargs)
    positional += [named.pop(name) for name in names[len(positional) : count] if name in named]
    ordered = {}
    for name in expected_kwargs.context:
        if name in named:
            ordered[name] = named.pop(name)
        elif rest:
            ordered[name] = rest.pop(0)
    given = ((*positional, *rest), {**ordered, **named})
    leaves, spec = tree.flatten(given)
    if spec != in_spec:
        _refuse_structure(in_spec, tree.flatten((tuple(args), dict(kwargs)))[1])
    return leaves


def _refuse_structure(expected: tree.TreeSpec, given: tree.TreeSpec) -> None:
    raise InputStructureError(
        "Trying to flatten user inputs with exported input tree spec:\n"
        f"{expected}\nbut actually got inputs with tree spec of:\n{given}",
        remedy="call the program with arguments of the structure it was exported with",
    )
