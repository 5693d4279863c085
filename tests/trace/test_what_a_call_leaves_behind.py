"""Numbers of the data in containers outside of a model, and arrays that a model holds and writes to."""

from __future__ import annotations

import array
import atexit
import collections
import contextvars
import functools
import gc
import heapq
import operator
import os
import os.path
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
import torch

import tintype

WAYS = pytest.mark.parametrize("strict", [False, True], ids=["native", "strict"])
_LIST: list = []
_TABLE: dict = {}


class _Holder:
    pass


_HOLDER = _Holder()


def _to_a_global_list(x):
    _LIST.append(x.sum().item())
    return x * 2


def _to_a_global_table(x):
    _TABLE["sum"] = x.sum().item()
    return x * 2


def _to_an_object(x):
    _HOLDER.sum = int(x.argmax())
    return x * 2


def _inside_of_a_list(x):
    _LIST.append([{"sum": x.sum().item()}])
    return x * 2


def _number_of_rows(x):
    _LIST.append(x[x > 0].shape[0])
    return x * 2


@WAYS
@pytest.mark.parametrize(
    "model", [_to_a_global_list, _to_a_global_table, _to_an_object, _inside_of_a_list, _number_of_rows]
)
def test_a_number_of_the_data_is_refused_outside_of_the_model_and_taken_away(model, strict):
    with pytest.raises(tintype.StateChangedError, match="the data decide about a number"):
        tintype.export(model, (torch.ones(3),), strict=strict)
    assert not _LIST and not _TABLE and not vars(_HOLDER)


@WAYS
def test_a_number_of_the_data_is_refused_in_a_closure(strict):
    found = ["before"]

    def model(x):
        if x.sum() > 0:
            x = x * 2
        found.append(x.max().item())
        return x

    with pytest.raises(tintype.StateChangedError, match="the data decide about a number"):
        tintype.export(model, (torch.ones(3),), strict=strict)
    assert found == ["before"]


class Counting(torch.nn.Module):
    """Counts in memory that is neither a tensor nor a container."""

    def __init__(self, write, read):
        super().__init__()
        self.array = np.zeros(3)
        self.inside = {"arrays": [np.ones((2, 2), dtype=np.int64)]}
        self.bytes = bytearray(3)
        self.numbers = array.array("i", [1, 2])
        self.write, self.read = write, read

    def forward(self, x):
        self.write(self)
        return x * self.read(self)

    def contents(self):
        arrays = self.array.tolist(), self.inside["arrays"][0].tolist()
        return *arrays, bytes(self.bytes), self.numbers.tolist()


def _count(self):
    self.array[0] += 1


def _count_inside(self):
    self.inside["arrays"][0][1] += 2


def _count_bytes(self):
    self.bytes[0] += 1


def _grow(self):
    self.numbers.append(3)


WRITES = {
    "array": (_count, lambda self: float(self.array[0])),
    "inside": (_count_inside, lambda self: int(self.inside["arrays"][0].sum())),
    "bytes": (_count_bytes, lambda self: self.bytes[0]),
    "numbers": (_grow, lambda self: len(self.numbers)),
}


@WAYS
@pytest.mark.parametrize("name", WRITES)
def test_memory_that_a_model_holds_is_as_it_was_and_its_loss_is_told(name, strict):
    model = Counting(*WRITES[name])
    before = model.contents()
    with pytest.warns(tintype.LostStateWarning):
        program = tintype.export(model, (torch.ones(2),), strict=strict)
    assert model.contents() == before
    torch.testing.assert_close(program.module()(torch.ones(2)), model(torch.ones(2)))


@WAYS
@pytest.mark.parametrize("name", WRITES)
def test_a_count_that_nobody_reads_is_no_loss(name, strict):
    model = Counting(WRITES[name][0], lambda self: 2)
    before = model.contents()
    with warnings.catch_warnings():
        warnings.simplefilter("error", tintype.LostStateWarning)
        tintype.export(model, (torch.ones(2),), strict=strict)
    assert model.contents() == before


# --- what strict captures tell -------------------------------------------------------------------------------

_NUMBERS: list = []
_NAMED: dict = {}
_MISSING = collections.defaultdict(list)
_VARIABLE = contextvars.ContextVar("variable", default=0)
_OF_THREAD = threading.local()


class Leaves:
    def __del__(self):
        _NUMBERS.append(1)


EFFECTS = {
    "a heap": lambda: heapq.heappush(_NUMBERS, 0),
    "a method that map calls": lambda: list(map(_NUMBERS.append, [1, 2])),
    "a method of the class": lambda: list.append(_NUMBERS, 1),
    "a special method": lambda: _NUMBERS.__iadd__([1]),
    "operator.iadd": lambda: operator.iadd(_NUMBERS, [1]),
    "operator.setitem": lambda: operator.setitem(_NAMED, "z", len(_NAMED)),
    "sorted in place": lambda: operator.methodcaller("extend", [2, 1])(_NUMBERS),
    "code that is made": lambda: exec("_NUMBERS.append(1)"),
    "a table that makes what it has not got": lambda: _MISSING["new"],
    "a thread": lambda: threading.Thread(target=len, args=([],)).start(),
    "a context variable": lambda: _VARIABLE.set(_VARIABLE.get() + 1),
    "a look for a file": lambda: os.path.exists(__file__),
    "a warning": lambda: warnings.warn("look", stacklevel=2),
    "the folder": lambda: os.chdir("."),
    "a process": lambda: subprocess.run(["true"], check=True),
    "a signal": lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN),
    "the end of the process": lambda: atexit.register(int),
    "a limit": lambda: sys.setrecursionlimit(sys.getrecursionlimit()),
    "threads of torch": lambda: torch.set_num_threads(torch.get_num_threads()),
    "a clock as text": lambda: time.strftime("%S"),
    "the name of the machine": socket.gethostname,
    "the garbage collector": gc.get_count,
    "the number of the process": os.getpid,
    "threads": threading.active_count,
    "a hash": lambda: hash("text"),
    "a variable of the thread": lambda: setattr(_OF_THREAD, "last", object()),
    "what happens at an object's end": Leaves,
}


@pytest.mark.parametrize("name", EFFECTS)
def test_strict_captures_tell(name):
    effect = EFFECTS[name]

    def model(x):
        effect()
        return x * 2

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = tintype.export(model, (torch.ones(3),), strict=True).report
    assert report.findings or report.notes


def test_a_list_of_the_calls_own_is_nobody_elses_affair():
    def model(x):
        found = [3, 1]
        heapq.heapify(found)
        list.append(found, 2)
        list(map(found.append, [1, 2]))
        table = collections.defaultdict(int)
        table["a"] += 1

        @torch.no_grad()
        @functools.wraps(model)
        def doubled(value):
            return value * 2

        doubled.note = 1
        return doubled(x) * found[0] * table["a"]

    with warnings.catch_warnings():
        warnings.simplefilter("error", tintype.LostEffectWarning)
        report = tintype.export(model, (torch.ones(3),), strict=True).report
    assert not report.findings


class Hooked(torch.nn.Module):
    def __init__(self, change):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.change = change

    def forward(self, x):
        self.change(self)
        return self.linear(x)


@WAYS
@pytest.mark.parametrize(
    "change",
    [
        lambda self: self.linear.register_forward_hook(lambda module, given, result: result * 2),
        lambda self: (
            self.add_module(f"more{len(self._modules)}", torch.nn.ReLU())
            or setattr(self, "change", lambda self: self.linear.register_forward_hook(lambda m, i, o: o * 3))
        ),
        lambda self: setattr(self, "forward", lambda x: x * 100),
    ],
    ids=["hook", "submodule", "forward"],
)
def test_code_that_a_call_gives_the_model_is_taken_away_and_told(change, strict):
    model = Hooked(change)
    with pytest.warns(tintype.LostStateWarning):
        tintype.export(model, (torch.ones(3),), strict=strict)
    assert not model.linear._forward_hooks and list(model._modules) == ["linear"] and "forward" not in vars(model)


@WAYS
def test_gradients_and_hooks_of_parameters_are_as_they_were(strict):
    def change(self):
        self.zero_grad()
        self.linear.requires_grad_(False)
        self.linear.weight.requires_grad_()
        self.linear.weight.register_hook(lambda gradient: gradient * 2)

    model = Hooked(change)
    model.linear.weight.grad = gradient = torch.ones(3, 3)
    model.linear.weight.register_hook(print)
    hooks = dict(model.linear.weight._backward_hooks)
    with pytest.warns(tintype.LostGradientWarning, match="hook"):
        tintype.export(model, (torch.ones(3),), strict=strict)
    assert model.linear.weight.grad is gradient and model.linear.bias.requires_grad
    assert dict(model.linear.weight._backward_hooks) == hooks
