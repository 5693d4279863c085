"""Questions about tensors that no tensor without data hears: those asked of parameters and buffers, which are the
model's own tensors while it is captured, and methods that are called unbound (``torch.Tensor.stride(x)``).

Where the user's functions name such a question, torch.Tensor has a stand-in for it while the program is captured. It
is there for these programs alone: every change of a class costs Python what it remembers of it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from tintype.fake.observed import raise_unknown
from tintype.fake.tensor import FakeTensor
from tintype.ir.observations import FACTS, OF_OBJECTS
from tintype.ir.process_switches import replaced_names
from tintype.symbolic.location import standing_in, users_caller
from tintype.trace import data_questions
from tintype.trace.recorder import active_recorder

_MISSING = object()
# what answers, as torch has it: functions, and attributes in C
QUESTIONS: dict[str, Any] = {name: getattr(torch.Tensor, name) for name in FACTS if hasattr(torch.Tensor, name)}


def _heard(tensor: torch.Tensor, fact: str, arguments: tuple[Any, ...], answer: Any) -> Any:
    """The answer of a tensor with data; part of the contract where the user's program asks state."""
    recorder = active_recorder() if users_caller(2) is not None else None
    if recorder is None or not recorder.is_recording or not recorder.is_lifted(tensor):
        return answer
    if fact == "grad" and not recorder.below_autograd:
        recorder.observer.gradients_read.append((tensor, answer))
        return answer
    if fact in OF_OBJECTS and answer is not None:
        raise_unknown(f"asks for the {fact} of a parameter or buffer, which has one", "export before training")
    return recorder.observer.asked_of_state(recorder, tensor, fact, arguments, answer)


def _method(name: str, function: Callable[..., Any]) -> Any:
    def ask(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if type(tensor) is FakeTensor:
            return getattr(FakeTensor, name)(tensor, *args, **kwargs)
        return _heard(tensor, name, (*args, *kwargs.values()), function(tensor, *args, **kwargs))

    return standing_in(ask)


def _attribute(name: str, descriptor: Any) -> Any:
    def ask(tensor: Any) -> Any:
        return _heard(tensor, name, (), descriptor.__get__(tensor))

    write = _set_flag if name == "requires_grad" else descriptor.__set__
    return property(standing_in(ask), write, descriptor.__delete__)


def _set_flag(tensor: Any, value: Any) -> None:
    """``requires_grad = value``."""
    before = _requires_grad.__get__(tensor)
    _requires_grad.__set__(tensor, value)
    recorder = active_recorder()
    if type(tensor) is not FakeTensor and recorder is not None and _requires_grad.__get__(tensor) is not before:
        recorder.modes.lost_gradients.switched.append(tensor)


def _switch_flag(tensor: Any, requires_grad: bool = True) -> Any:
    """``requires_grad_()``."""
    if type(tensor) is FakeTensor or active_recorder() is None:
        return _requires_grad_(tensor, requires_grad)
    _set_flag(tensor, requires_grad)
    return tensor


_requires_grad: Any = torch._C.TensorBase.requires_grad
_requires_grad_: Any = torch.Tensor.requires_grad_
_STAND_INS = {name: (_method if FACTS[name] else _attribute)(name, there) for name, there in QUESTIONS.items()}
_STAND_INS["requires_grad_"] = standing_in(_switch_flag)
# what a program names where tensors with data have to hear it
HEARD = frozenset(_STAND_INS)


@contextmanager
def asked_of_any_tensor(names: Iterable[str]) -> Iterator[None]:
    """Within it, every tensor hears the questions among these names, and those about data."""
    asked = {**data_questions.STAND_INS, **{name: _STAND_INS[name] for name in names if name in _STAND_INS}}
    before = {name: vars(torch.Tensor).get(name, _MISSING) for name in asked}

    is_there = True
    turns = threading.Lock()  # another thread may put them aside, to import something, when the capture ends

    @contextmanager
    def put_aside() -> Iterator[None]:
        with turns:
            _set(before)
        try:
            yield
        finally:
            with turns:
                _set(asked if is_there else {})

    _set(asked)
    replaced_names.append(put_aside)
    try:
        yield
    finally:
        replaced_names.remove(put_aside)
        with turns:
            is_there = False
            _set(before)


def _set(attributes: Mapping[str, Any]) -> None:
    for name, value in attributes.items():
        if value is not _MISSING:
            setattr(torch.Tensor, name, value)
        elif name in vars(torch.Tensor):
            delattr(torch.Tensor, name)
