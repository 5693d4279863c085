"""The recorder of a decomposition: operators arrive, and what they consist of is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import Graph, Node

from tintype.errors import CaptureError, InvalidRequestError, raise_all
from tintype.fake.context import FakeContext
from tintype.fake.info import Storage
from tintype.fake.tensor import QUESTIONS, FakeTensor
from tintype.ir.node_info import Origin
from tintype.ir.operator_facts import KEPT_WHOLE, facts_of
from tintype.ir.printing import describe_value
from tintype.trace.origin import OriginTracker
from tintype.trace.recorder import Recorder
from tintype.transforms.checked_decompositions import COMPOSITES, Table, is_torchs
from tintype.transforms.decompose_by_layout import BY_LAYOUT
from tintype.transforms.general_decompositions import GENERAL_DECOMPOSITIONS
from tintype.transforms.layouts import NEED_CONTIGUOUS, KernelLayouts, Layouts

aten = torch.ops.aten


class Decomposer(Recorder):
    """A recorder that decomposes what it can."""

    keeps_conversions = False
    # what results are compared with was recorded as facts were learned, one after the other
    uses_equalities = False

    def __init__(
        self,
        context: FakeContext,
        graph: Graph,
        table: Table,
        preserved: frozenset[Any],
        keep_core: bool,
        of_user: frozenset[Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(context, graph, OriginTracker(()), **options)
        self.table = table
        self.preserved = preserved
        self.keep_core = keep_core
        # the operators of a table whose decompositions are the user's own; None for what was asked for by nobody
        self.of_user = of_user
        self.layouts = Layouts()
        self.kernel_layouts = KernelLayouts(self.layouts)
        # whether the decomposition that is being recorded depends on what is certain about layouts
        self.asked_for_layout = False
        self._staying: dict[int, bool] = {}  # by id: to hash an operator is a call of a Python function
        # the operator that a decomposition of the user's is for, and the memories that it may not write to
        self._untouched: tuple[Any, frozenset[Storage]] = (None, frozenset())

    def stays(self, target: Any) -> bool:
        """Whether an operator is left as it is."""
        known = self._staying.get(id(target))
        if known is None:
            known = self._staying[id(target)] = self._stays(target)
        return known

    def _stays(self, target: Any) -> bool:
        if not isinstance(target, torch._ops.OpOverload):
            # one that takes functions: some passes of ours write these out
            return target not in self.table or self.of_user is not None
        if target in self.preserved:
            return True
        if target is aten.detach.default and self.keep_core:
            return True  # what gradients flow through survives decomposition
        if target in self.table or target in BY_LAYOUT:
            return False
        if self.keep_core and target in KEPT_WHOLE:
            return True
        facts = facts_of(target)
        if facts.returns_nothing:
            return True  # its kernel would have the effect now, and not when the program runs
        if self.of_user is not None and facts.may_stay_composite:
            return True  # the user's table is all there is
        return not facts.composite or (self.keep_core and torch.Tag.core in target.tags)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._recording and not self.stays(func) and func not in QUESTIONS:
            result = self.decomposed(func, args, kwargs or {})
            if result is not NotImplemented:
                return result
        if self._recording and func in NEED_CONTIGUOUS:
            args = self._contiguous(func, args)
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _is_still_called(self, node: Node) -> bool:
        return True  # what a decomposition makes anew it writes to before anybody else sees it, if at all

    def _origin(self, function: str) -> Origin:
        """That of the operator which is decomposed. One that a pass made has none: then what it consists of has none,
        either, and is nothing that the program said."""
        origin = None if self.replayed is None else self.replayed.annotated_origin()
        return Origin(None, ()) if origin is None else origin

    def _contiguous(self, func: Any, args: Any) -> list[Any]:
        """The arguments of a kernel that takes contiguous tensors, whatever the layouts of the inputs."""
        self.asked_for_layout = True
        nodes = [argument.node if type(argument) is FakeTensor else None for argument in args]
        args = list(args)
        for position in self.kernel_layouts.uncertain(func, nodes):
            args[position] = self.record(aten.contiguous.default, args[position])
        return args

    def _lies_like_an_input(self, func: Any, args: Any) -> bool:
        """Whether an operator makes memory in an order that only a call tells: ``empty_permuted``, which says an
        order, would have random numbers drawn in that of the example."""
        if func is not aten.empty_like.default or type(args[0]) is not FakeTensor:
            return False
        self.asked_for_layout = True
        return not self.layouts.is_certain(args[0].node)

    def decomposed(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """The results of an operator by its decomposition; NotImplemented where that declines."""
        own = COMPOSITES.get(func) or BY_LAYOUT.get(func)
        decomposition = self.table.get(func) or own or func.decompose
        if self._lies_like_an_input(func, args) and is_torchs(decomposition):
            return NotImplemented
        if func in self.table and self._is_users(func):  # what it needs, the new program asserts
            with self._leaving(func, [*args, *kwargs.values()]):
                return self._by_the_user(func, lambda: decomposition(*args, **kwargs))
        result = self._try(lambda: decomposition(*args, **kwargs))
        if result is NotImplemented and func in GENERAL_DECOMPOSITIONS:
            result = self._try(lambda: GENERAL_DECOMPOSITIONS[func](*args, **kwargs))
        return result

    def _is_users(self, func: Any) -> bool:
        """Whether the table's decomposition of an operator is the user's, and not one of ours that he left in it."""
        if not isinstance(func, torch._ops.OpOverload):
            return False
        return not self.keep_core if self.of_user is None else func in self.of_user

    def _by_the_user(self, func: Any, decompose: Callable[[], Any]) -> Any:
        """What a decomposition from the user's table returns."""
        try:
            result = self._recorded(decompose)
        except RecursionError as error:
            raise InvalidRequestError(
                f"the decomposition of {func} never ends: it comes back to {func}",
                remedy="use other operators there, or leave the operator out of the table",
            ) from error
        if result is not NotImplemented and not _fits_schema(func, result):
            raise InvalidRequestError(
                f"the decomposition of {func} returns {_described(result)}, but the operator "
                f"{', '.join(str(value.type) for value in func._schema.returns)}",
                remedy="a decomposition must return what the operator it replaces returns",
            )
        return result

    @contextmanager
    def _leaving(self, func: Any, given: list[Any]) -> Iterator[None]:
        """Within it, nobody may write to what an operator was given that writes to nothing."""
        before = self._untouched
        if not isinstance(func, torch._ops.OpOverload) or not facts_of(func).may_write:
            values = [part for value in given for part in (value if isinstance(value, (list, tuple)) else [value])]
            memories = {value.info.storage for value in values if type(value) is FakeTensor}
            self._untouched = (func, before[1] | memories)
        try:
            yield
        finally:
            self._untouched = before

    def mark_written(self, storages: list[Storage]) -> None:
        func, memories = self._untouched
        if not memories.isdisjoint(storages):
            raise InvalidRequestError(
                f"the decomposition of {func} writes to an argument of it, which {func} does not",
                remedy="compute a new tensor there, or write to a copy: x.clone()",
            )
        super().mark_written(storages)

    def _recorded(self, decompose: Callable[[], Any]) -> Any:
        """Run a decomposition; one that asks what only the data can tell is refused, as a program is."""
        try:
            result = self.inside(decompose)
        except Exception:
            raise_all(self.problems)  # what else it ran into with a guessed answer is no news
            raise
        raise_all(self.problems)
        return result

    def _try(self, decompose: Callable[[], Any]) -> Any:
        """What a decomposition returns; NotImplemented where the operator can do what its decomposition can't, or
        takes sizes that its decomposition doesn't."""
        attempt = Attempt(self)
        try:
            result = self._recorded(decompose)
        except (CaptureError, RuntimeError, ZeroDivisionError):
            attempt.undo()
            return NotImplemented
        if attempt.has_learned():
            attempt.undo()
            return NotImplemented
        return result


class Attempt:
    """A decomposition that is tried, and taken back where it fails or holds for fewer sizes than the operator."""

    def __init__(self, recorder: Decomposer) -> None:
        self.recorder = recorder
        self.last = recorder.graph._root._prev
        environment = recorder.context.environment
        self.mark = environment.mark() if environment.symbols else None
        if self.mark is not None:
            self.numbers = recorder.numbers.copy_of_state()
            self.inferred = len(recorder.context.inferred)

    def has_learned(self) -> bool:
        """Whether something was decided about sizes meanwhile."""
        return self.mark is not None and self.recorder.context.environment.has_learned(self.mark)

    def undo(self) -> None:
        """Take back what was recorded and learned."""
        recorder = self.recorder
        graph, context = recorder.graph, recorder.context
        while (node := graph._root._prev) is not self.last:
            graph.erase_node(node)
        recorder.problems.clear()
        if self.mark is not None:
            context.environment.take_back(self.mark)
            recorder.numbers.restore(self.numbers)
            for key in list(context.inferred)[self.inferred :]:
                del context.inferred[key]


def _fits_schema(func: Any, result: Any) -> bool:
    """Whether a result has the structure that an operator's has."""
    returns = func._schema.returns
    if len(returns) == 1:
        if isinstance(returns[0].type, torch.ListType):
            return isinstance(result, (list, tuple)) and all(isinstance(item, torch.Tensor) for item in result)
        return isinstance(result, torch.Tensor) or not isinstance(returns[0].type, torch.TensorType)
    return isinstance(result, (list, tuple)) and len(result) == len(returns)


def _described(result: Any) -> str:
    if isinstance(result, (list, tuple)):
        return f"({', '.join(_described(item) for item in result)})"
    return describe_value(result) if isinstance(result, torch.Tensor) else repr(result)
