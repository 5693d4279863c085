"""What a recorder answers when a fake is asked for what it does not have: data, copies, its class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from tintype.errors import CaptureError, DataDependentError, TintypeError, raise_all
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import append_call, set_meta
from tintype.ir.node_info import NodeMeta
from tintype.symbolic.bridge import to_torch
from tintype.symbolic.interruptions import Interruption
from tintype.symbolic.location import user_location
from tintype.trace.calls import NeedsRecordingError
from tintype.trace.known_values import known_value
from tintype.trace.plan import plan_for

if TYPE_CHECKING:
    from torch.fx import Graph

    from tintype.fake.context import FakeContext
    from tintype.ir.node_info import Origin
    from tintype.trace.example_answers import ExampleAnswers
    from tintype.trace.modes import Modes
    from tintype.trace.numbers import Numbers
    from tintype.trace.object_questions import Comparisons
    from tintype.trace.observing import Observer

aten = torch.ops.aten


class NeedsControlFlow(Interruption):
    """The program branches on data: capture again, with both arms of such branches."""


class Answers:
    """The part of a recorder that fakes turn to; see :class:`tintype.fake.context.Session`."""

    # whether the program may ask which of its tensors are one object (``is``)
    compares_tensors = False

    if TYPE_CHECKING:
        below_autograd: bool
        keeps_conversions: bool
        stops_at_branches: bool
        context: FakeContext
        graph: Graph
        modes: Modes
        numbers: Numbers
        observer: Observer
        problems: list[TintypeError]
        constant_inputs: dict[Node, torch.Tensor]
        example: ExampleAnswers | None

        @property
        def is_recording(self) -> bool: ...

        def inside(self, function: Callable[[], Any]) -> Any: ...

        def origin_of(self, function: str) -> Origin: ...

        def watch_functions(self) -> None: ...

    def known_value(self, fake: FakeTensor, purpose: str) -> torch.Tensor:
        """The data of a fake that the program asks for; refused where it is not constant."""
        value = known_value(self.constant_of, fake)
        if value is None and self.example is not None:
            return self.example.data(fake, purpose)
        if value is None:
            raise DataDependentError(
                f"the program asks for the data of a tensor ({purpose}), which is only known when it runs",
                location=user_location(),
                remedy="compute with torch operators, or wrap the code into a custom operator",
            )
        return value

    def values_of(self, fake: FakeTensor) -> Any:
        """The elements of a fake as nested lists."""
        if not fake.info.sizes:
            return self.inside(fake.item)
        return [self.values_of(row) for row in self.inside(lambda: torch.unbind(fake))]

    def constant_of(self, node: Node) -> torch.Tensor | None:
        """The tensor behind a constant input of the graph."""
        return self.constant_inputs.get(node)

    def record_number(self, func: Any, fake: FakeTensor) -> Any:
        """A number that is only known when the program runs, as an operator gives it."""
        environment = self.context.environment
        dtype = fake.info.dtype
        if dtype is torch.bool:
            number = environment.unbacked_bool()
        elif dtype.is_floating_point:
            number = environment.unbacked_float()
        elif dtype.is_complex:
            raise DataDependentError(
                "the program asks for the value of a complex tensor, which is only known when it runs",
                location=user_location(),
                remedy="ask for its real and imaginary parts one by one",
            )
        else:
            number = environment.unbacked_int()
        result = to_torch(number)
        if self.is_recording:
            self.watch_functions()
            node = append_call(self.graph, func, (fake.node,), {}, plan_for(func).name)
            set_meta(node, NodeMeta({"val": result}, self.origin_of(plan_for(func).name)))
            self.numbers.define(number, node)
        return result

    def data_dependent(self, question: str, remedy: str) -> bool:
        """Note that the program branches on data, and go on as if the answer were yes.

        Going on finds the other problems of the program. A question from the same line again means a loop
        that may never end: then it is time to report.
        """
        if not self.is_recording:
            raise NeedsRecordingError(question)
        location = user_location()
        problem = DataDependentError(
            f"{question}, which is only known when the program runs", location=location, remedy=remedy
        )
        if self.stops_at_branches:
            raise NeedsControlFlow(problem)
        asked_again = any(known.location == location for known in self.problems)
        if not asked_again:
            self.problems.append(problem)
        if asked_again or location is None:
            raise_all(self.problems)
        return True

    def has_hook(self, kind: str, hook: Any) -> None:
        """The program wants to hear of a gradient, which autograd alone could tell it."""
        if self.below_autograd and self.is_recording:
            self.modes.lost_gradients.add_hook(kind, hook)

    def asks_for_gradients(self, tensors: Sequence[Any]) -> None:
        """The program has autograd compute gradients of these tensors."""

    def will_compare(self, comparisons: Comparisons) -> None:
        """The program may ask which of its tensors are one object: what returns its argument in eager mode does."""
        if comparisons.of_tensors:
            self.keeps_conversions, self.compares_tensors = False, True

    def compares_objects(self) -> None:
        """The program asks which of its tensors are one object."""
        if self.is_recording:
            self.observer.compares_objects(user_location())

    def copy_of(self, fake: FakeTensor) -> FakeTensor:
        """A deep copy that the program asked for (``copy.deepcopy``)."""
        self._refuse_copy_with_gradient(fake)
        return self.inside(lambda: aten.clone.default(aten.detach.default(fake)))

    def alias_of(self, fake: FakeTensor) -> FakeTensor:
        """A shallow copy that the program asked for (``copy.copy``)."""
        self._refuse_copy_with_gradient(fake)
        return self.inside(lambda: aten.detach.default(fake))

    def _refuse_copy_with_gradient(self, fake: FakeTensor) -> None:
        """Copies have no history, and their flag makes them leaves of their own, which a program can't have."""
        if fake.info.requires_grad:
            raise CaptureError(
                "the program copies a tensor that requires a gradient (copy.copy, copy.deepcopy), which can't be "
                "captured",
                location=user_location(),
                remedy="write what is meant: x.clone(), x.detach() or x.detach().clone()",
            )
