"""Arguments that come to an unflattened program in other containers than those it was exported with."""

from __future__ import annotations

import abc
from typing import Any

from tintype import tree
from tintype.errors import InputStructureError


class FlatArgsAdapter(abc.ABC):
    """Says what the program's inputs are where a call has another structure than the example; see ``unflatten``.

    >>> import torch, tintype
    >>> class Reversed(tintype.FlatArgsAdapter):
    ...     def adapt(self, target_spec, input_spec, input_args, metadata=None, obj=None):
    ...         return input_args[::-1][: target_spec.num_leaves]
    >>> program = tintype.export(lambda x, y: x - y, (torch.ones(2), torch.ones(2)))
    >>> module = tintype.unflatten(program, flat_args_adapter=Reversed())
    >>> module(torch.zeros(1), torch.ones(2), torch.full((2,), 5.0)).tolist()
    [4.0, 4.0]
    """

    @abc.abstractmethod
    def adapt(
        self,
        target_spec: tree.TreeSpec,
        input_spec: tree.TreeSpec,
        input_args: list[Any],
        metadata: dict[str, Any] | None = None,
        obj: Any = None,
    ) -> list[Any]:
        """The leaves that the program takes (``target_spec``), from those of a call (``input_spec``, ``input_args``).

        ``obj`` is the module that is called."""

    def get_flat_arg_paths(self) -> list[str]:
        """Names of the leaves that the adapter looks at; none unless it says so."""
        return []


def adapted(
    adapter: FlatArgsAdapter, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call with the structure that the program takes; a call that has it is left as it is."""
    wanted = module._in_spec
    leaves, given = tree.flatten((args, kwargs))
    if tree.same_structure(given, wanted):
        return args, kwargs
    fitting = list(adapter.adapt(wanted, given, leaves, None, module))
    if len(fitting) != wanted.num_leaves:
        raise InputStructureError(
            f"the adapter of arguments returned {len(fitting)} values, but the program takes {wanted.num_leaves}",
            remedy="return one value per leaf of target_spec, in its order",
        )
    args, kwargs = tree.unflatten(fitting, wanted)
    return args, kwargs
