"""What the program asks while it is captured, and whose answer that is.

A question about an input is kept as it was asked. The answer to one about a tensor that the program computed follows
from the inputs, so all inputs that it is computed from are held to be like those of the example. Questions about what
is around the program (is a gradient wanted? is autocast on?) are kept too; changing it for good is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from tintype.errors import CaptureError
from tintype.fake.observed import raise_unknown
from tintype.ir.observations import SURROUNDINGS, Observation, answer_of
from tintype.ir.process_switches import CountedSwitch
from tintype.symbolic.bridge import from_torch
from tintype.symbolic.location import user_location, users_frame

if TYPE_CHECKING:
    from tintype.fake.tensor import FakeTensor
    from tintype.trace.recorder import Recorder

aten = torch.ops.aten

_GRADIENTS = frozenset({"requires_grad", "is_leaf", "grad_fn"})
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
_ABOUT_MEMORY = frozenset({"stride", "storage_offset"})


class Observer:
    """Collects the questions of one capture."""

    def __init__(self) -> None:
        self._found: dict[tuple[Any, ...], Observation] = {}
        # the inputs that are tensors: position and example by node; and the parameters and buffers by node
        self._inputs: dict[Node, tuple[int, FakeTensor, torch.Tensor]] = {}
        self._state: dict[Node, tuple[str, torch.Tensor]] = {}
        self._walked: dict[str, set[Node]] = {}
        # the line that last switched gradients on or off by itself
        self.switched_gradients: Any = None

    @property
    def found(self) -> list[Observation]:
        """What was asked, in order."""
        return list(self._found.values())

    def add_input(self, node: Node, position: int, fake: FakeTensor, example: torch.Tensor) -> None:
        """There is an input that may be asked."""
        self._inputs[node] = (position, fake, example)

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
        if fact in _GRADIENTS or fact == "grad":
            if not recorder.below_autograd:
                return answer  # gradients are part of the program, as autograd has them
            if fake.has_own_gradient_flag:
                return True if fact == "is_leaf" else answer
        given = self._inputs.get(fake.node)
        if given is not None and given[1] is fake:
            return self._asked_of_input(*given, fact, arguments, answer)
        if fact == "grad":
            return None  # tensors that a program computes have none
        if fact in ("is_leaf", "grad_fn"):
            answer = self._about_history(fake, fact)
        if fact in ("tensor_class", "is_plain"):
            answer = "torch.Tensor" if fact == "tensor_class" else True
        for origin in _FOLLOWS_FROM[fact]:
            self._note_sources(fake.node, origin)
        if fact in _GRADIENTS:
            self.note(None, "is_grad_enabled", (), recorder.modes.grad)
        if fact == "is_inference":
            self._about_inference()
        return answer

    def _asked_of_input(
        self,
        position: int,
        fake: FakeTensor,
        example: torch.Tensor,
        fact: str,
        arguments: tuple[Any, ...],
        answer: Any,
    ) -> Any:
        if fact not in ("stride", "is_contiguous", "storage_offset", "requires_grad"):
            answer = answer_of(example, fact, arguments)
        if fact in ("grad", "grad_fn") and answer is not None:
            raise_unknown(
                f"asks for the {_WORDS[fact]} of an input, which the example input has",
                "export with an input that has none, such as x.detach()",
            )
        self.note(position, fact, arguments, answer)
        return answer

    def _about_history(self, fake: FakeTensor, fact: str) -> Any:
        """``is_leaf`` and ``grad_fn`` of a tensor that the program computed."""
        if fact == "is_leaf":
            return not fake.info.requires_grad
        if fake.info.requires_grad:
            raise_unknown("asks for the grad_fn of a tensor that has one", "ask whether it requires a gradient")
        return None

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
                self.note(position, fact, (), fake.info.strides)
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
            elif fact not in _ABOUT_MEMORY or node.target not in _OF_ONE_LAYOUT:
                pending += reversed(node.all_input_nodes)

    def asked_of_state(self, recorder: Recorder, tensor: torch.Tensor, fact: str, answer: Any) -> None:
        """A parameter or buffer was asked, by a program that is captured again."""
        known = self._state.get(recorder.fake_of(tensor).node)
        if known is not None:
            self.note(known[0], fact, (), answer)

    # --- surroundings --------------------------------------------------------------------------------------

    def surroundings(self, recorder: Recorder, fact: str, arguments: tuple[Any, ...], answer: Any) -> None:
        """What is around the program was asked for; unless the program itself had set it."""
        modes = recorder.modes
        if fact == "is_grad_enabled" and answer is not modes.grad:
            return
        if "autocast" in fact and modes.in_own_autocast():
            return
        self.note(None, fact, arguments, answer)


_WORDS = {"grad": "gradient", "grad_fn": "history"}


def _plain(answer: Any) -> Any:
    """An answer without torch's symbolic numbers."""
    if isinstance(answer, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return from_torch(answer)
    if isinstance(answer, (tuple, list)):
        return tuple(_plain(item) for item in answer)
    return answer


# --- torch's functions ----------------------------------------------------------------------------------


# What changes torch for everything that runs afterwards.
_SETTERS: dict[str, Any] = {
    "cuda.manual_seed": torch.cuda,
    "cuda.manual_seed_all": torch.cuda,
    "get_rng_state": torch,
    "manual_seed": torch,
    "random.fork_rng": torch.random,
    "random.get_rng_state": torch.random,
    "random.manual_seed": torch.random,
    "random.seed": torch.random,
    "random.set_rng_state": torch.random,
    "seed": torch,
    "set_autocast_dtype": torch,
    "set_autocast_enabled": torch,
    "set_default_device": torch,
    "set_default_dtype": torch,
    "set_default_tensor_type": torch,
    "set_rng_state": torch,
    "use_deterministic_algorithms": torch,
}
_set_gradients = torch.set_grad_enabled.__init__


def _asking_recorder() -> Recorder | None:
    """The recorder of the program whose own code called the caller; None if torch did, or nothing is captured."""
    from tintype.trace.recorder import active_recorder

    if users_frame(sys._getframe(2)) is None:
        return None
    recorder = active_recorder()
    return recorder if recorder is not None and recorder.is_recording else None


def _watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def ask(*args: Any, **kwargs: Any) -> Any:
        answer = function(*args, **kwargs)
        recorder = _asking_recorder()
        if recorder is not None:
            recorder.observer.surroundings(recorder, name, (*args, *kwargs.values()), answer)
        return answer

    return ask


def _refused(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        if _asking_recorder() is not None:
            raise CaptureError(
                f"the program calls torch.{name}, whose effect can't be captured",
                location=user_location(),
                remedy="call it before the program; for numbers that are random in the same way every time, make "
                "them once and keep them in a buffer",
            )
        return function(*args, **kwargs)

    return refuse


def _watched_gradients(self: Any, mode: bool) -> None:
    recorder = _asking_recorder()
    if recorder is not None:
        recorder.observer.switched_gradients = user_location()
    _set_gradients(self, mode)


def _watch() -> list[tuple[Any, str, Any]]:
    before: list[tuple[Any, str, Any]] = []

    def put(owner: Any, name: str, value: Any) -> None:
        before.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    for name, function in SURROUNDINGS.items():
        put(torch, name, _watched(name, function))
    for name, owner in _SETTERS.items():
        attribute = name.rpartition(".")[2]
        put(owner, attribute, _refused(name, getattr(owner, attribute)))
    put(torch.set_grad_enabled, "__init__", _watched_gradients)
    return before


def _stop_watching(before: list[tuple[Any, str, Any]]) -> None:
    for owner, name, value in before:
        setattr(owner, name, value)


# While a program is captured, these functions of torch's tell the capture that its program calls them.
watching_surroundings = CountedSwitch(_watch, _stop_watching)


def refuse_changed_seed(before: int) -> None:
    """Raise if a program that has run left another seed behind."""
    if SURROUNDINGS["initial_seed"]() != before:
        raise CaptureError(
            "the program sets the seed of torch's random numbers (torch.default_generator), which can't be captured",
            remedy="set the seed before the program, and draw with torch's operators alone",
        )


def refuse_changed_gradient_mode(recorder: Recorder) -> None:
    """Raise if a program that has run leaves gradients switched on or off for what comes after it."""
    if torch.is_grad_enabled() is not recorder.modes.grad:
        raise CaptureError(
            "the program switches gradients on or off (torch.set_grad_enabled) and leaves them so, which can't be "
            "captured",
            location=recorder.observer.switched_gradients,
            remedy="use it as a statement: with torch.set_grad_enabled(...):",
        )
