"""What a recording computes once, though the program computes it again and again.

A replayed CUDA graph takes a few microseconds for each kernel, however small. Some compute what is known already:
tensors that are made of numbers alone are the same in every replay, and an operator that is called again with what it
was called with before (for the mask that each layer turns into numbers) gives the same again. A run that is looked at
tells which those are, and another run of the same operators leaves them out. Attention of one query gets other
kernels (:mod:`tintype.compiler.one_query`).
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from tintype.compiler import one_query
from tintype.ir.call_values import value_key
from tintype.ir.operator_facts import facts_of

# Whether torch's factories detach what they made depends on who else holds it; nothing is computed.
_UNCOUNTED = torch.ops.aten.detach.default


@dataclasses.dataclass(frozen=True)
class Noted:
    """One call of an operator, with the memory that it reads and writes to by the address of its record."""

    operator: Any
    # (memory, how it lies there) for tensors
    arguments: Any
    read: frozenset[int]
    written: frozenset[int]
    # the memory of its results, where it computes all of them from its arguments and does nothing else
    computed: tuple[int, ...] | None


class Noting(TorchDispatchMode):
    """Notes the operators of a run."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Noted] = []
        # what calls with numbers alone computed, or with what such calls did, by their positions
        self.constants: dict[int, Any] = {}
        # what there is in place of calls, by their positions
        self.quicker: dict[int, Callable[..., Any]] = {}
        self._of_constants: set[int] = set()
        # no other memory has the address of a record that is here
        self._records: dict[int, StorageWeakRef] = {}
        self.has_others = False

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if operator is _UNCOUNTED:
            return operator(*args, **kwargs)
        arguments = self._described((list(args), kwargs))
        read = frozenset(map(self._memory_of, _tensors_in((args, kwargs))))
        written = frozenset(map(self._memory_of, _tensors_in(_written(operator, args, kwargs))))
        result = operator(*args, **kwargs)
        computed = self._computed(operator, result, read)
        if computed is not None and read <= self._of_constants:
            self.constants[len(self.calls)] = result
            self._of_constants.update(computed)
        self._of_constants -= written
        if (quicker := one_query.quicker(operator, args, kwargs, result)) is not None:
            self.quicker[len(self.calls)] = quicker
        self.calls.append(Noted(operator, arguments, read, written, computed))
        return result

    def _memory_of(self, tensor: torch.Tensor) -> int:
        if tensor.layout is not torch.strided:
            self.has_others = True
            return 0
        memory = tensor.untyped_storage()
        address: int = memory._cdata
        if address not in self._records:
            self._records[address] = StorageWeakRef(memory)
        return address

    def _described(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            lies = (value.storage_offset(), value.stride()) if value.layout is torch.strided else ()
            kind = (value.shape, value.dtype, value.device, value.is_conj(), value.is_neg())
            return (torch.Tensor, self._memory_of(value), lies, *kind)
        if isinstance(value, (list, tuple)):
            return (type(value), *map(self._described, value))
        if isinstance(value, dict):
            return (dict, *((name, self._described(item)) for name, item in value.items()))
        return value_key(value)

    def _computed(self, operator: Any, result: Any, read: frozenset[int]) -> tuple[int, ...] | None:
        facts = facts_of(operator)
        parts = result if isinstance(result, tuple) else (result,)
        if facts.may_write or facts.has_effect or facts.aliases:
            return None
        if not all(isinstance(part, torch.Tensor) for part in parts):
            return None
        found = tuple(map(self._memory_of, parts))
        return found if read.isdisjoint(found) else None  # a view is one whatever its schema says

    def plan(self) -> Plan:
        """What another run of these operators leaves out: what nothing ever writes to."""
        if self.has_others:
            return Plan([], {}, {}, {})
        changed = frozenset[int]().union(*(call.written for call in self.calls))
        same_as: dict[int, int] = {}  # memory that holds what other memory holds
        writes: collections.Counter[int] = collections.Counter()
        seen: dict[Any, int] = {}
        again: dict[int, int] = {}

        def current(described: Any) -> Any:
            if type(described) is not tuple:
                return described
            if described[:1] == (torch.Tensor,):
                memory = described[1]
                return (*described, same_as.get(memory, memory), writes[memory])[2:]
            return tuple(map(current, described))

        for position, call in enumerate(self.calls):
            writes.update(call.written)
            if call.computed is None or not changed.isdisjoint(call.computed):
                continue
            first = seen.setdefault((call.operator, current(call.arguments)), position)
            if first != position:
                again[position] = first
                of_first = self.calls[first].computed or ()
                same_as |= {mine: same_as.get(its, its) for mine, its in zip(call.computed, of_first, strict=True)}
        constants = {
            position: result
            for position, result in self.constants.items()
            if changed.isdisjoint(self.calls[position].computed or ())
        }
        return Plan([call.operator for call in self.calls], again, constants, self.quicker)


class Plan:
    """What runs of the same operators leave out, and what they do in another way."""

    def __init__(
        self,
        operators: list[Any],
        again: dict[int, int],
        constants: dict[int, Any],
        quicker: dict[int, Callable[..., Any]],
    ) -> None:
        self.operators = operators
        self.quicker = quicker
        self.constants = constants | {at: constants[first] for at, first in again.items() if first in constants}
        self.again = {position: first for position, first in again.items() if position not in self.constants}
        self.last_use = {first: position for position, first in self.again.items()}

    @property
    def left_out(self) -> int:
        """How many operators are not called."""
        return len(self.again) + len(self.constants)

    @property
    def changes_nothing(self) -> bool:
        """Whether every operator is called as it was."""
        return not (self.left_out or self.quicker)

    def applied(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """A function that gives what a run gives, which calls these operators."""
        if self.changes_nothing:
            return run

        def shortened(*inputs: Any) -> Any:
            with Shortened(self):
                return run(*inputs)

        return shortened


class Shortened(TorchDispatchMode):
    """A run that leaves out what a plan says."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self._position = -1
        self._kept: dict[int, Any] = {}
        self._rows = one_query.Rows()

    def __torch_dispatch__(
        self, operator: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if operator is _UNCOUNTED:
            return operator(*args)
        self._position = position = self._position + 1
        plan = self.plan
        if position >= len(plan.operators) or plan.operators[position] is not operator:
            raise RuntimeError("the operators of a run are others than those of the run before")
        if position in plan.constants:
            return plan.constants[position]
        first = plan.again.get(position)
        if first is not None:
            return self._kept.pop(first) if plan.last_use[first] == position else self._kept[first]
        quicker = plan.quicker.get(position)
        result = operator(*args, **(kwargs or {})) if quicker is None else quicker(self._rows, *args)
        if position in plan.last_use:
            self._kept[position] = result
        return result


def _tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors_in(item)
    elif isinstance(value, dict):
        yield from _tensors_in(list(value.values()))


def _written(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """The arguments that a call writes to."""
    facts = facts_of(operator)
    names = [argument.name for argument in operator._schema.arguments]
    found = list(facts.hidden_writes_of(args))
    for place in facts.writes:
        if isinstance(place, int) and place < len(args):
            found.append(args[place])
        else:
            found.append(kwargs.get(names[place] if isinstance(place, int) else place))
    return found
