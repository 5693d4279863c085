"""What the program asks while it is captured, and whose answer that is.

A question about an input is kept as it was asked. The answer to one about a tensor that the program computed follows
from the inputs, so all inputs that it is computed from are held to be like those of the example. Questions about what
is around the program are kept too (:mod:`tintype.trace.surroundings`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Graph, Node

from tintype.errors import CaptureError, Location
from tintype.fake.info import told_strides
from tintype.fake.observed import raise_unknown
from tintype.ir.observations import (
    NO_SUCH_ATTRIBUTE,
    OF_ATTRIBUTES,
    OF_OBJECTS,
    PLAIN_ANSWERS,
    Observation,
    answer_of,
    plain_answer,
)
from tintype.symbolic.bridge import from_torch
from tintype.symbolic.expression import Expr
from tintype.symbolic.location import user_location
from tintype.symbolic.sizes import decided_one, decided_zero
from tintype.trace.undecided import ABOUT_LAYOUTS, UndecidedAnswers
from tintype.trace.written_histories import Attached, WrittenHistories

if TYPE_CHECKING:
    from tintype.fake.info import Storage, TensorInfo
    from tintype.fake.tensor import FakeTensor
    from tintype.trace.object_questions import Comparisons
    from tintype.trace.recorder import Recorder

aten = torch.ops.aten

_GRADIENTS = frozenset({"requires_grad", "is_leaf", "grad_fn", "output_nr"})
# what a tensor has only if somebody did something to it: one that the program computed answers for itself
_DONE_TO_IT = frozenset(
    {"_backward_hooks", "_is_buffer", "_post_accumulate_grad_hooks", "retains_grad", *OF_ATTRIBUTES}
)
# for each fact of a computed tensor those of the inputs that it follows from
_FOLLOWS_FROM: dict[str, tuple[str, ...]] = {
    "is_conj": ("is_conj",),
    "is_contiguous": ("stride",),
    "is_inference": ("is_inference",),
    "is_neg": ("is_neg",),
    "is_pinned": ("is_pinned",),
    "is_shared": ("is_shared",),
    "layout": ("layout",),
    "storage_offset": ("stride", "storage_offset"),
    "stride": ("stride",),
    "is_plain": ("is_plain",),
    "tensor_class": ("is_plain",),
    **dict.fromkeys(_GRADIENTS, ("requires_grad",)),
}
# operators whose result lies in memory in the same way however their arguments do
_OF_ONE_LAYOUT = frozenset(
    {
        aten.addmm.default,
        aten.baddbmm.default,
        aten.bmm.default,
        aten.embedding.default,
        aten.layer_norm.default,
        aten.linear.default,
        aten.mm.default,
        aten.native_layer_norm.default,
    }
)
_own = torch._C.TensorBase
_ABOUT_MEMORY = frozenset({"stride", "storage_offset"})


class Observer:
    """Collects the questions of one capture."""

    def __init__(self) -> None:
        self._found: dict[tuple[Any, ...], Observation] = {}
        # the inputs that are tensors: position and example by node; and the parameters and buffers by node
        self._inputs: dict[Node, tuple[int, FakeTensor, torch.Tensor]] = {}
        self._state: dict[Node, tuple[str, torch.Tensor]] = {}
        self._walked: dict[str, set[Node]] = {}
        self._histories: dict[Graph, WrittenHistories] = {}
        self._undecided = UndecidedAnswers(_OF_ONE_LAYOUT)
        # states of generators that torch asked for or set: after which node, for what device, which, whether set
        self.generator_states: list[tuple[Node, str, torch.Tensor, bool]] = []
        # tensors of a model that is differentiated whose gradient it looked at, and what that was
        self.gradients_read: list[tuple[torch.Tensor, torch.Tensor | None]] = []
        self.catches_errors = False  # whether the program may: there is an "except" or a "with"
        # the line that last switched gradients on or off by itself
        self.switched_gradients: Any = None
        # questions about what is around the program that are answered with the opposite, to see what becomes of it
        self.pretended: frozenset[tuple[str, tuple[Any, ...]]] = frozenset()
        # questions that matter if somebody writes to a memory
        self._of_memory: list[tuple[Storage, dict[tuple[Any, ...], Observation]]] = []

    @property
    def found(self) -> list[Observation]:
        """What was asked, in order."""
        found = dict(self._found)
        for storage, questions in self._of_memory:
            found.update({key: known for key, known in questions.items() if storage.written and key not in found})
        return list(found.values())

    def asked_if_written(
        self, recorder: Recorder, fake: FakeTensor, fact: str, arguments: tuple[Any, ...], answer: Any
    ) -> None:
        """A call returned its argument because of a fact, which matters if one of the two is written to."""
        found, walked = dict(self._found), set(self._walked.get(fact, ()))
        self.asked(recorder, fake, fact, arguments, answer)
        questions = {key: known for key, known in self._found.items() if key not in found}
        self._found, self._walked[fact] = found, walked
        if questions:
            self._of_memory.append((fake.info.storage, questions))

    def add_input(self, node: Node, position: int, fake: FakeTensor, example: torch.Tensor) -> None:
        """There is an input that may be asked."""
        self._inputs[node] = (position, fake, example)

    def input_of(self, example: torch.Tensor) -> FakeTensor | None:
        """The fake of an example input that is there already."""
        return next((fake for _, fake, known in self._inputs.values() if known is example), None)

    def add_state(self, node: Node, name: str, tensor: torch.Tensor) -> None:
        """There is a parameter or buffer."""
        self._state[node] = (name, tensor)

    def note(self, subject: int | str | None, fact: str, arguments: tuple[Any, ...], answer: Any) -> None:
        """Keep a question and its answer."""
        key = (subject, fact, arguments)
        if key not in self._found:
            self._found[key] = Observation(subject, fact, arguments, _plain(answer), user_location())

    # --- tensors -------------------------------------------------------------------------------------------

    def asked(self, recorder: Recorder, fake: FakeTensor, fact: str, arguments: tuple[Any, ...], answer: Any) -> Any:
        """A tensor was asked; what it shall answer."""
        given = self._inputs.get(fake.node)
        is_input = given is not None and given[1] is fake
        if fact in _GRADIENTS or fact == "grad":
            if fact != "grad":
                self.refuse_undecided(recorder, fake, fact)
            is_the_callers = fact == "grad" or (fact == "output_nr" and is_input)
            if not recorder.below_autograd and not is_the_callers:
                return answer  # gradients are part of the program, as autograd has them
            if fake.has_own_gradient_flag:
                return True if fact == "is_leaf" else answer
            written = self._written_history(recorder, fake)
            if fact != "requires_grad" and self._histories_of(recorder).is_unnoticed_view(fake.node):
                written = Attached(False)
            if written is not None:
                return self._asked_of_written(recorder, fake, written, fact)
            source = next((known.source for known in recorder.conversions if known.result is fake), None)
            if source is not None:  # in eager mode they are one
                return self._asked_of_source(recorder, source, fact, arguments, answer)
        if given is not None and is_input:
            return self._asked_of_input(*given, fact, arguments, answer)
        if fact == "grad":
            return None  # tensors that a program computes have none
        if fact in _DONE_TO_IT:
            return answer
        if fact in ("is_leaf", "grad_fn", "output_nr"):
            answer = _about_history(fake.info.requires_grad, fact)
        if fact in ("tensor_class", "is_plain"):
            answer = "torch.Tensor" if fact == "tensor_class" else True
        if fact in ABOUT_LAYOUTS:
            self.refuse_undecided(recorder, fake, fact)
        for origin in _FOLLOWS_FROM[fact]:
            self._note_sources(fake.node, origin)
        if fact == "is_contiguous" and not answer:
            answer = _own.is_contiguous(fake, memory_format=(*arguments, torch.contiguous_format)[0])
        if fact in _GRADIENTS:
            self.note(None, "is_grad_enabled", (), recorder.modes.outermost.grad)
        if fact == "is_inference":
            self._about_inference()
        return answer

    def refuse_undecided(self, recorder: Recorder, fake: FakeTensor, fact: str) -> None:
        """Refuse a question whose answer the data decide."""
        self._undecided.refuse(recorder, fake, fact)

    def _asked_of_source(
        self, recorder: Recorder, source: FakeTensor, fact: str, arguments: tuple[Any, ...], answer: Any
    ) -> Any:
        """Ask what a conversion that changed nothing was given, which may be part of the model."""
        if source.node not in self._state:
            return self.asked(recorder, source, fact, arguments, answer)
        tensor = self._state[source.node][1]
        return self.asked_of_state(recorder, tensor, fact, arguments, getattr(tensor, fact))

    def is_memory_of_input(self, fake: FakeTensor) -> bool:
        """Whether a tensor is an input or a view of one."""
        return any(known.info.storage is fake.info.storage for _, known, _ in self._inputs.values())

    def will_hear(self, comparisons: Comparisons, *, catches_errors: bool) -> None:
        """The program compares objects on these lines, and may or may not catch errors."""
        self.catches_errors = catches_errors
        if comparisons.of_variables is not None:
            self.compares_objects(comparisons.of_variables)
        for name, tensor in self._state.values() if comparisons.of_attributes else ():
            line = comparisons.of_attributes.get(name.rpartition(".")[2])
            if line is not None:
                self.compares_with_state(name, tensor, line)

    def compares_with_state(self, name: str, tensor: torch.Tensor, line: Location | None) -> None:
        """The program may ask whether an input is a certain parameter or buffer: from now on none may be."""
        for position, fake, example in self._inputs.values():
            if example is tensor:
                raise CaptureError(
                    f"the input at position {position} is {name!r} of the model itself, and the program may compare "
                    "them by what object they are (is), which can't be captured",
                    location=line,
                    remedy="pass another tensor, such as a detached copy",
                )
            if _may_be(fake, tensor):
                key = (position, "is", (name,))
                self._found.setdefault(key, Observation(*key, False, line))

    def compares_input_with_state(self, value: Any, state: torch.Tensor, line: Location | None) -> None:
        """A program that is captured again compares what it was given with its state."""
        given = self._inputs.get(getattr(value, "node", None))  # type: ignore[arg-type]
        name = next((name for name, tensor in self._state.values() if tensor is state), None)
        if given is not None and given[1] is value and name is not None:
            key = (given[0], "is", (name,))
            self._found.setdefault(key, Observation(*key, False, line))

    def compares_objects(self, line: Location | None) -> None:
        """The program may ask which of its inputs are one object: from now on that is part of its contract."""
        inputs = sorted(self._inputs.values(), key=lambda entry: entry[0])
        for place, (position, fake, example) in enumerate(inputs):
            for other, other_fake, other_example in inputs[place + 1 :]:
                if (example is other_example) is not (fake is other_fake):
                    raise CaptureError(
                        f"the inputs at positions {position} and {other} are one tensor, and the program may compare "
                        "them by what object they are (is, id()), which can't be captured",
                        location=line,
                        remedy="pass different tensors, or compare values",
                    )
                key = (position, "is", (other,))
                self._found.setdefault(key, Observation(*key, fake is other_fake, line))

    def class_of(self, recorder: Recorder, fake: FakeTensor) -> Any:
        """The class of an input, or of a tensor that the program computed."""
        self.asked(recorder, fake, "tensor_class", (), None)
        given = self._inputs.get(fake.node)
        return type(given[2]) if given is not None and given[1] is fake else torch.Tensor

    def _asked_of_input(
        self,
        position: int,
        fake: FakeTensor,
        example: torch.Tensor,
        fact: str,
        arguments: tuple[Any, ...],
        answer: Any,
    ) -> Any:
        if fact in ("stride", "storage_offset"):
            answer = _as_in_example(answer, answer_of(example, fact, arguments))
        elif fact != "requires_grad":
            answer = answer_of(example, fact, arguments)
        if fact in OF_OBJECTS and answer is not None:
            raise_unknown(
                f"asks for the {_WORDS.get(fact, fact)} of an input, which the example input has",
                "export with an input that has none, such as x.detach()",
            )
        if fact == "getattr" and not isinstance(answer, PLAIN_ANSWERS):
            raise_unknown(
                f"asks for the attribute {arguments[0]!r} of an input, which is a {type(answer).__name__}",
                "pass it as an input of its own",
            )
        self.note(position, fact, arguments, answer)
        return answer

    def _written_history(self, recorder: Recorder, fake: FakeTensor) -> Attached | None:
        """The history of a tensor where it is another than the tensor's flag says: the program has written to it, or
        computed it from one that was written to or detached."""
        if not recorder.below_autograd:
            return None
        attached = self._histories_of(recorder).of(fake.node)
        for node in attached.writes:
            self._note_sources(node, "requires_grad")
        differs = attached.has_history or attached.requires_grad is not fake.info.requires_grad
        return attached if differs else None

    def _histories_of(self, recorder: Recorder) -> WrittenHistories:
        return self._histories.setdefault(recorder.graph, WrittenHistories(recorder.graph, recorder.modes))

    def _asked_of_written(self, recorder: Recorder, fake: FakeTensor, written: Attached, fact: str) -> Any:
        """The answer follows from what was there before, and from what was written."""
        self._note_sources(fake.node, "requires_grad")
        self.note(None, "is_grad_enabled", (), recorder.modes.outermost.grad)
        return _about_history(written.requires_grad, fact)

    def _about_inference(self) -> None:
        inputs = self._inputs.values()
        if torch.is_inference_mode_enabled() or any(example.is_inference() for _, _, example in inputs):
            raise_unknown("asks whether a tensor was made in inference mode", "export it outside of inference mode")
        self.note(None, "is_inference_mode_enabled", (), False)

    def _note_sources(self, node: Node, fact: str) -> None:
        for source in self._sources(node, fact):
            if source in self._state:
                name, tensor = self._state[source]
                if fact == "requires_grad":
                    self.note(name, fact, (), tensor.requires_grad)
                continue
            position, fake, example = self._inputs[source]
            if fact == "stride":
                strides = told_strides(fake.info)
                if _as_in_example(strides, example.stride()) is not strides:
                    raise_unknown(
                        "asks for the layout of what it computes from an input without elements, whose strides mean "
                        "nothing",
                        "export with an example that has elements",
                    )
                self.note(position, fact, (), strides)
            elif fact == "storage_offset":
                self.note(position, fact, (), fake.info.offset)
            else:
                self.note(position, fact, (), answer_of(example, fact, ()))

    def _sources(self, node: Node, fact: str) -> Iterator[Node]:
        """The inputs and state that a node is computed from, each once per fact."""
        walked = self._walked.setdefault(fact, set())
        pending = [node]
        if any(node.graph is not known.graph for known in self._inputs):  # inside of a branch or a loop body
            pending = [*self._inputs, *self._state]
        while pending:
            node = pending.pop()
            if node in walked:
                continue
            walked.add(node)
            if node in self._inputs or node in self._state:
                yield node
            elif fact not in _ABOUT_MEMORY:
                pending += reversed(node.all_input_nodes)
                if fact == "requires_grad" and node.graph in self._histories:
                    pending += self._histories[node.graph].of(node).writes
            elif node.target not in _OF_ONE_LAYOUT:
                _decide_small_sizes(node.meta.get("val"))
                pending += reversed(node.all_input_nodes)

    def asked_of_state(
        self, recorder: Recorder, tensor: torch.Tensor, fact: str, arguments: tuple[Any, ...], answer: Any
    ) -> Any:
        """A parameter or buffer was asked; what it shall answer."""
        fake = recorder.fake_of(tensor)
        if fact in _GRADIENTS:
            written = self._written_history(recorder, fake)
            if written is not None:
                return self._asked_of_written(recorder, fake, written, fact)
        if fake.node in self._state:
            self.note(self._state[fake.node][0], fact, arguments, answer)
        return answer

    def asked_for_hooks(self, recorder: Recorder, tensor: torch.Tensor) -> None:
        """The program computes the gradient of a tensor, which hooks would be called with: there must be none."""
        fake = recorder.as_fake(tensor)
        subject: int | str
        if fake.node in self._inputs:
            subject, _, real = self._inputs[fake.node]
        elif fake is not tensor and fake.node in self._state:
            subject, real = self._state[fake.node]
        else:
            return
        if real._backward_hooks:
            raise CaptureError(
                "the program computes the gradient of a tensor that has hooks, which can't be captured",
                location=user_location(),
                remedy="remove the hooks, or compute the gradient of a tensor without any (y = x.view_as(x))",
            )
        self.note(subject, "_backward_hooks", (), real._backward_hooks)

    def attribute(self, recorder: Recorder, fake: FakeTensor, name: str) -> Any:
        """An attribute that a tensor has not by its class: the value that somebody gave it, if the program may have
        it, or NO_SUCH_ATTRIBUTE."""
        if not self.asked(recorder, fake, "hasattr", (name,), False):
            return NO_SUCH_ATTRIBUTE
        return self.asked(recorder, fake, "getattr", (name,), NO_SUCH_ATTRIBUTE)

    # --- surroundings --------------------------------------------------------------------------------------

    def asked_surroundings(self, recorder: Recorder, fact: str, arguments: tuple[Any, ...], answer: Any) -> Any:
        """The program asks what is around it; what it shall be told."""
        question = fact, tuple(map(plain_answer, arguments))
        if question in self.pretended and not _is_the_programs(recorder, fact, answer):
            return not answer
        self.surroundings(recorder, fact, arguments, answer)
        return answer

    def surroundings(self, recorder: Recorder, fact: str, arguments: tuple[Any, ...], answer: Any) -> None:
        """What is around the program was asked for; unless the program itself had set it."""
        if not _is_the_programs(recorder, fact, answer):
            self.note(None, fact, tuple(map(plain_answer, arguments)), plain_answer(answer))


def _is_the_programs(recorder: Recorder, fact: str, answer: Any) -> bool:
    """Whether the program itself has set what is around it to this answer."""
    if fact == "is_grad_enabled" and recorder.modes.in_own_gradients(answer):
        return True
    return "autocast" in fact and recorder.modes.in_own_autocast()


def _decide_small_sizes(value: Any) -> None:
    """Let the program rest on which sizes of a tensor are 0 and 1, whose strides mean nothing: what has one element
    is contiguous, and a view where a larger one would be a copy."""
    for tensor in value if isinstance(value, (tuple, list)) else (value,):
        info: TensorInfo | None = getattr(tensor, "info", None)
        for size in info.sizes if info is not None else ():
            decided_zero(size)
            decided_one(size, "a size that decides how a tensor lies in memory must not be 1")


def _may_be(fake: FakeTensor, tensor: torch.Tensor) -> bool:
    """Whether an input may be a tensor of the model when the program is called, as far as dtype and sizes tell."""
    info = fake.info
    return (
        info.dtype is tensor.dtype
        and len(info.sizes) == tensor.dim()
        and all(size == given for size, given in zip(info.sizes, tensor.shape) if type(size) is int)
    )


_WORDS = {"grad": "gradient", "grad_fn": "history"}


def _as_in_example(answer: Any, example: Any) -> Any:
    """What is known of a tensor for all sizes, if the example is an instance of that: a tensor without elements has
    any strides."""
    plain = _plain(answer)
    parts = plain if isinstance(plain, tuple) else (plain,)
    hints = tuple(part.environment.hint(part) if isinstance(part, Expr) else part for part in parts)
    return answer if hints == (tuple(example) if isinstance(plain, tuple) else (example,)) else example


def _plain(answer: Any) -> Any:
    """An answer without torch's symbolic numbers."""
    if isinstance(answer, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return from_torch(answer)
    if isinstance(answer, (tuple, list)):
        return tuple(_plain(item) for item in answer)
    return answer


def _about_history(requires_grad: bool, fact: str) -> Any:
    """Answers of a tensor that the program computed, or wrote to."""
    if fact == "requires_grad":
        return requires_grad
    if fact == "is_leaf":
        return not requires_grad
    if requires_grad:
        raise_unknown(f"asks for the {fact} of a tensor with a history", "ask whether it requires a gradient")
    return None if fact == "grad_fn" else 0
