"""After a capture, also one that fails, the model, torch and Python are as they were before."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import random
import subprocess
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import tintype
from tests.export.modes import MODES, capture


class Outcome(Exception):
    """The program's own error."""


class Model(nn.Module):
    """Everything that a capture could leave something in."""

    def __init__(self, ending: str = "well") -> None:
        super().__init__()
        self.ending = ending
        self.layer = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.frozen = nn.Linear(4, 4).requires_grad_(False).eval()
        self.dropout = nn.Dropout(0.5)
        self.register_buffer("steps", torch.zeros(()))
        self.register_buffer("cache", torch.zeros(4), persistent=False)
        self.table = torch.arange(4.0)
        self.history: list[Any] = [1]
        self.settings = {"depth": 1}
        self.count = 0
        self.last: Any = None
        self.layer.register_forward_hook(lambda module, args, result: result + 1)
        self.layer.register_full_backward_hook(lambda module, inputs, outputs: None)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        self.count += 1
        self.history.append(self.count)
        self.settings["depth"] += 1
        self.settings[f"new {self.count}"] = 0
        self.steps += 1
        self.cache.copy_(value[0])
        value = self.dropout(self.frozen(self.norm(self.layer(value)))) + self.table + torch.rand(4)
        if self.ending == "error":
            with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
                self.new_attribute = 5
                torch.set_grad_enabled(False)
                raise Outcome("mine")
        if self.ending == "interrupt":
            raise KeyboardInterrupt
        if self.ending == "exit":
            raise SystemExit(3)
        if self.ending in ("data-dependent", "control flow"):
            return value if value.sum() > 0 else -value
        if self.ending == "assigned":
            value = value + (0 if self.last is None else self.last)
            self.last = value
        if self.ending == "operator":
            return torch.ops.aten.set_.source_Tensor(value, value.clone())
        return value


ENDINGS: dict[str, Any] = {
    "well": None,
    "control flow": None,
    "error": Outcome,
    "interrupt": KeyboardInterrupt,
    "exit": SystemExit,
    "data-dependent": tintype.CaptureError,
    "assigned": tintype.CaptureError,
    "operator": tintype.CaptureError,
}


def objects_of(model: nn.Module) -> dict[str, Any]:
    """Every attribute of every module by identity, and what containers hold."""
    seen: dict[str, Any] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        for name, value in vars(module).items():
            seen[f"{path}:{name}"] = id(value)
            if isinstance(value, dict):
                seen[f"{path}:{name} holds"] = [(key, id(item)) for key, item in value.items()]
            elif isinstance(value, (list, set, tuple)):
                seen[f"{path}:{name} holds"] = [id(item) for item in value]
    return seen


def tensors_of(model: nn.Module) -> dict[str, Any]:
    """Values, versions and flags of every tensor of a model."""
    found = {**dict(model.named_parameters()), **dict(model.named_buffers()), "table": model.table}
    return {
        name: (tensor.detach().tolist(), tensor.requires_grad, tensor.grad, tensor._version, tensor.data_ptr())
        for name, tensor in found.items()
    }


def process_state() -> dict[str, Any]:
    """What torch and Python hold per thread and per process."""
    return {
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "autocast cache": torch.is_autocast_cache_enabled(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "function modes": torch._C._len_torch_function_stack(),
        "excluded keys": str(torch._C._dispatch_tls_local_exclude_set()),
        "included keys": str(torch._C._dispatch_tls_local_include_set()),
        "random numbers": torch.get_rng_state().tolist(),
        "compiling": (torch.compiler.is_compiling(), torch.compiler.is_exporting()),
        "collector": (gc.isenabled(), gc.get_threshold()),
        "anomaly": torch.is_anomaly_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "module call": nn.Module.__call__,
        "saved tensor hooks": torch._C._autograd._saved_tensors_hooks_is_enabled(),
    }


def example() -> tuple[torch.Tensor]:
    return (torch.ones(3, 4, requires_grad=True),)


def attempt(mode: str, model: nn.Module, ending: str, inputs: tuple[torch.Tensor, ...]) -> None:
    expected = ENDINGS[ending]
    if expected is None:
        capture(mode, model, inputs)
    else:
        with pytest.raises(expected):
            capture(mode, model, inputs, control_flow="refuse")


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_model_is_as_before(mode: str, ending: str) -> None:
    model = Model(ending)
    objects, tensors = objects_of(model), tensors_of(model)
    flags = {name: module.training for name, module in model.named_modules()}
    attempt(mode, model, ending, example())
    assert objects_of(model) == objects
    assert tensors_of(model) == tensors
    assert {name: module.training for name, module in model.named_modules()} == flags
    assert list(vars(model)) == list(vars(Model(ending)))


@pytest.mark.parametrize("ending", ENDINGS)
def test_torch_and_python_are_as_before(mode: str, ending: str) -> None:
    model, inputs = Model(ending), example()
    before = process_state()
    attempt(mode, model, ending, inputs)
    assert process_state() == before


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_inputs_are_as_before(mode: str, ending: str) -> None:
    (value,) = inputs = example()
    attempt(mode, Model(ending), ending, inputs)
    assert value.grad is None
    assert value.is_leaf
    assert value._version == 0
    assert torch.equal(value, torch.ones(3, 4))


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_model_works_afterwards(ending: str) -> None:
    model = Model(ending)
    attempt("export", model, ending, example())
    model.ending = "well"
    result = model(*example())
    assert type(result) is torch.Tensor
    result.sum().backward()
    assert type(model.layer.weight.grad) is torch.Tensor
    capture("export", model, example())


def test_mutated_inputs_are_as_before(mode: str) -> None:
    def function(value: torch.Tensor, items: list[torch.Tensor]) -> torch.Tensor:
        items[0].add_(1)
        return value.mul_(2)

    value, items = torch.ones(3), [torch.zeros(3)]
    capture(mode, function, (value, items))
    assert value.tolist() == [1, 1, 1]
    assert items[0].tolist() == [0, 0, 0]


def _appends(items: list[Any]) -> None:
    items.append(items[0])


def _replaces(items: list[Any]) -> None:
    items[0] = items[0] + 1


def _adds_a_key(items: list[Any]) -> None:
    items[1]["new"] = items[0]


def _takes_a_key(items: list[Any]) -> None:
    items[1].pop("old")


@pytest.mark.parametrize("change", [_appends, _replaces, _adds_a_key, _takes_a_key])
def test_changes_of_a_list_or_dictionary_that_is_given_are_refused(change: Callable[..., None]) -> None:
    """The caller would see them, and a captured program gives back tensors alone."""

    def function(items: list[Any]) -> torch.Tensor:
        change(items)
        return items[0] * 2

    def copies(items: list[Any]) -> torch.Tensor:
        items = [items[0], dict(items[1])]
        change(items)
        return items[0] * 2

    items = [torch.zeros(3), {"old": torch.ones(3)}]
    with pytest.raises(tintype.errors.StateChangedError, match=r"is given as \*args\[0\]"):
        tintype.export(function, (items,))
    assert len(items) == 2 and list(items[1]) == ["old"] and type(items[0]) is torch.Tensor
    assert torch.equal(tintype.export(copies, (items,)).module()(items), copies(items))


@pytest.mark.parametrize("enabled", [True, False])
def test_state_of_the_collector(enabled: bool) -> None:
    was = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        capture("decomposed", Model(), example())
        assert gc.isenabled() is enabled
        attempt("export", Model("error"), "error", example())
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()


@pytest.mark.parametrize("grad", [True, False])
def test_grad_mode_of_the_caller(grad: bool) -> None:
    with torch.set_grad_enabled(grad):
        for ending in ("well", "error"):
            attempt("export", Model(ending), ending, example())
            assert torch.is_grad_enabled() is grad


def test_numpy_and_python_random_numbers_are_the_programs_own_business() -> None:
    """Only torch's generator is put back; a capture itself draws nothing from the others."""
    random.seed(1)
    np.random.seed(1)
    first = (random.random(), np.random.rand())
    random.seed(1)
    np.random.seed(1)
    capture("export", nn.Sequential(nn.Linear(4, 4), nn.Dropout()), example())
    assert (random.random(), np.random.rand()) == first


def test_the_model_can_be_freed() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    program = tintype.export(model, example())
    reference = weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None
    assert program.module()(*example()).shape == (3, 4)


def test_a_failed_capture_frees_the_model() -> None:
    model = Model("error")
    reference = weakref.ref(model)
    with pytest.raises(Outcome):
        tintype.export(model, example())
    del model
    gc.collect()
    assert reference() is None


@pytest.mark.direct("the model notes how often it is called")
def test_globals_of_torch_are_not_patched() -> None:
    """But for those on the page of patches, which are put back."""
    names = ["Tensor.__add__", "nn.functional.linear", "nn.Module.__call__", "nn.Module.__getattr__", "stack"]
    assignment = nn.Module.__setattr__

    def found() -> list[Any]:
        values = []
        for name in names:
            value: Any = torch
            for part in name.split("."):
                value = getattr(value, part)
            values.append(value)
        return values

    inside: list[list[Any]] = []

    class Looks(nn.Module):
        def forward(self, value: torch.Tensor) -> torch.Tensor:
            inside.append(found())
            return value + 1

    before = found()
    tintype.export(Looks(), example())
    assert inside == [before]
    assert found() == before
    assert nn.Module.__setattr__ is assignment


def test_export_inside_of_a_program() -> None:
    """A program that exports another one while it is captured: taken or refused, but all is put back."""
    inner = nn.Linear(4, 4)

    class Outer(nn.Module):
        def forward(self, value: torch.Tensor) -> torch.Tensor:
            program = tintype.export(inner, (torch.ones(3, 4),))
            return value * len(program.graph.nodes)

    model, inputs = Outer(), example()
    before = process_state()
    with contextlib.suppress(tintype.TintypeError):
        tintype.export(model, inputs)
    assert process_state() == before
    assert torch.compiler.is_compiling() is False


def test_fakes_do_not_escape_unnoticed() -> None:
    kept: dict[str, Any] = {}
    hidden = types.SimpleNamespace(kept=kept)

    def function(value: torch.Tensor) -> torch.Tensor:
        hidden.kept["fake"] = value * 2
        return value + 1

    tintype.export(function, example())
    with pytest.raises(tintype.CaptureError, match="outside of the capture"):
        kept["fake"] + 1


_kept: list[Any] = ["before"]
_last: Any = None


class KeepsOutside(nn.Module):
    last: Any = None
    every: list[Any] = []

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        global _last
        if self.where == "a global":
            _last = value * 2
        elif self.where == "a list among the globals":
            _kept.append(value * 2)
        elif self.where == "the class":
            KeepsOutside.last = value * 2
        else:
            KeepsOutside.every.append(value * 2)
        return value + 1


@pytest.mark.parametrize("where", ["a global", "a list among the globals", "the class", "a list of the class"])
def test_tensors_kept_outside_of_the_model_are_refused(where: str) -> None:
    """What is left behind would be no tensor, and the program would not do it."""
    with pytest.raises(tintype.errors.StateChangedError, match=r"only change registered buffers"):
        tintype.export(KeepsOutside(where), example())
    assert _last is None and _kept == ["before"]
    assert KeepsOutside.last is None and KeepsOutside.every == []


def test_tensors_kept_in_a_closure_are_refused() -> None:
    kept: list[Any] = []
    last = None

    def appends(value: torch.Tensor) -> torch.Tensor:
        kept.append(value * 2)
        return value + 1

    def assigns(value: torch.Tensor) -> torch.Tensor:
        nonlocal last
        last = value * 2
        return value + 1

    for function in (appends, assigns):
        with pytest.raises(tintype.errors.StateChangedError, match="that is not its own"):
            tintype.export(function, example())
    assert kept == [] and last is None


@functools.cache
def _remembered(count: int) -> torch.Tensor:
    return torch.arange(count).float()


class Remembers(nn.Module):
    @functools.cache  # noqa: B019
    def table(self, count: int) -> torch.Tensor:
        return torch.arange(count).float()

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value * _remembered(3) + self.table(3)


@pytest.mark.parametrize("filled", [False, True])
def test_functions_that_remember_their_results_keep_none_of_a_capture(filled: bool) -> None:
    _remembered.cache_clear()
    remembered, table = _remembered, Remembers.table
    model, value = Remembers(), torch.ones(2, 3)
    if filled:
        model(value)
    for run in (tintype.export(model, (value,)).module(), tintype.aot.function(model)):
        assert torch.equal(run(value), model(value))
    assert type(_remembered(3)) is torch.Tensor and _remembered is remembered
    assert type(model.table(3)) is torch.Tensor and Remembers.table is table
    assert torch.equal(model(value), value * torch.arange(3.0) + torch.arange(3.0))


def test_assigned_gradients_are_refused() -> None:
    class Assigns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            self.weight.grad = value * 2
            return value * self.weight

    model = Assigns()
    model.weight.grad = before = torch.zeros(3)
    with pytest.raises(tintype.errors.StateChangedError, match="the gradient of 'weight'"):
        tintype.export(model, (torch.ones(3),))
    assert model.weight.grad is before


def test_a_refused_assignment_is_shown_with_its_line() -> None:
    with pytest.raises(tintype.errors.StateChangedError) as caught:
        tintype.export(KeepsOutside("the class"), example())
    assert caught.value.location is not None and caught.value.location.function == "forward"


# --- threads -----------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def frequent_switches() -> Iterator[None]:
    """Let threads take turns often, so that what can get mixed up does."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def in_threads(functions: list[Callable[[], Any]]) -> Iterator[Any]:
    barrier = threading.Barrier(len(functions))

    def run(function: Callable[[], Any]) -> Any:
        barrier.wait()
        return function()

    with ThreadPoolExecutor(len(functions)) as pool:
        yield from [future.result() for future in [pool.submit(run, function) for function in functions]]


class Deep(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(6)])
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        assert torch.compiler.is_compiling() or type(value) is torch.Tensor
        self.calls += 1
        for layer in self.layers:
            value = torch.relu(layer(value)) + value
        return value * self.calls


@pytest.mark.parametrize("mode", MODES)
def test_threads_export_different_models(mode: str) -> None:
    models = [Deep(width) for width in (3, 4, 5, 6)]
    inputs = [torch.randn(2, width) for width in (3, 4, 5, 6)]
    before = process_state()
    for _ in range(5):
        tasks = [lambda m=m, v=v: capture(mode, m, (v,)) for m, v in zip(models, inputs, strict=True)]
        for model, value, program in zip(models, inputs, in_threads(tasks), strict=True):
            torch.testing.assert_close(program.module()(value), value_of(model, value))
    assert process_state() == before


@pytest.mark.parametrize("mode", MODES)
def test_threads_export_the_same_model(mode: str) -> None:
    model, value = Deep(4), torch.randn(2, 4)
    objects = objects_of(model)
    before = process_state()
    for _ in range(5):
        programs = list(in_threads([lambda: capture(mode, model, (value,))] * 4))
        texts = {program.code for program in programs}
        assert len(texts) == 1
        for program in programs:
            torch.testing.assert_close(program.module()(value), value_of(model, value))
    assert objects_of(model) == objects
    assert process_state() == before


class Assigning(Deep):
    """Assigns to attributes while it runs: one capture must not see what another one assigned."""

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        self.calls = self.calls + 1
        for layer in self.layers:
            value = torch.relu(layer(value)) + value
            self.latest = [tuple(value.shape)]
        return value * self.calls


def test_threads_export_a_model_that_assigns_to_itself() -> None:
    model, value = Assigning(4), torch.randn(2, 4)
    objects = objects_of(model)
    for _ in range(20):
        for program in in_threads([lambda: tintype.export(model, (value,))] * 2):
            assert objects_of(model) == objects
            assert list(program.graph_signature.buffers_to_mutate.values()) == ["calls"]
            assert type(program.state_dict["calls"]) is torch.Tensor
            torch.testing.assert_close(program.module()(value), program.module()(value))


def test_random_numbers_of_another_thread_do_not_repeat() -> None:
    """The generator is the process's: a capture must not wind it back under the feet of other threads."""
    model, value = Deep(4), torch.randn(2, 4)
    drawn: list[float] = []
    stop = threading.Event()

    def draw() -> None:
        while not stop.is_set():
            drawn.append(torch.rand((), dtype=torch.float64).item())

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        for _ in range(20):
            tintype.export(model, (value,))
    finally:
        stop.set()
        thread.join()
    assert len(set(drawn)) == len(drawn)


def value_of(model: Deep, value: torch.Tensor) -> torch.Tensor:
    """What the model computes, without counting the call."""
    result = model(value)
    model.calls.zero_()
    return result


def test_a_thread_exports_while_another_runs_eagerly() -> None:
    model, value = Deep(4), torch.randn(2, 4)
    other = Deep(4)
    expected = value_of(other, value)
    stop = threading.Event()
    wrong: list[Any] = []

    def run() -> None:
        while not stop.is_set():
            result = value_of(other, value)
            if type(result) is not torch.Tensor or not torch.equal(result, expected):
                wrong.append(result)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        for _ in range(20):
            capture("decomposed", model, (value,))
    finally:
        stop.set()
        thread.join()
    assert not wrong


def test_threads_with_a_failing_capture() -> None:
    value = torch.ones(3, 4)

    def fails(ending: str) -> None:
        with pytest.raises(ENDINGS[ending]):
            tintype.export(Model(ending), (value,), control_flow="refuse")

    before = process_state()
    for _ in range(5):
        program, *_ = in_threads(
            [
                lambda: tintype.export(nn.Linear(4, 4), (value,)),
                lambda: fails("error"),
                lambda: fails("data-dependent"),
            ]
        )
        assert program.module()(value).shape == (3, 4)
        assert torch.compiler.is_compiling() is False
    after = process_state()
    del before["random numbers"], after["random numbers"]
    assert after == before


@pytest.mark.parametrize("fails", [False, True])
def test_gradient_flags_are_put_back(fails: bool) -> None:
    class Freezing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.register_buffer("state", torch.ones(4))

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            self.layer.weight.requires_grad_(False)
            self.state.requires_grad_(True)
            if fails:
                raise KeyError("the program's own")
            return self.layer(value) + self.state

    model = Freezing()
    with pytest.raises(KeyError) if fails else contextlib.nullcontext():
        tintype.export(model, (torch.randn(2, 4),))
    assert model.layer.weight.requires_grad and not model.state.requires_grad


def _lengths(value: torch.Tensor) -> torch.Tensor:
    return value * len(list(range(value.shape[0])))


def test_export_inside_of_a_program_whose_functions_are_rewritten() -> None:
    """Functions that make Python sequences of a size that varies run other code during a capture."""
    code = _lengths.__code__
    shapes = {"value": {0: tintype.Dim("n")}}

    def outer(value: torch.Tensor) -> torch.Tensor:
        inner = tintype.export(_lengths, (torch.ones(3),), dynamic_shapes=shapes)
        return _lengths(value) * len(inner.graph.nodes)

    with contextlib.suppress(tintype.TintypeError):
        tintype.export(outer, (torch.ones(5),), dynamic_shapes=shapes)
    program = tintype.export(_lengths, (torch.ones(3),), dynamic_shapes=shapes)
    torch.testing.assert_close(program.module()(torch.ones(7)), _lengths(torch.ones(7)))
    assert _lengths.__code__ is code


USES_THE_COMPILER = """
import sys, torch, tintype
from torch.utils.checkpoint import checkpoint

def model(x):
    return checkpoint(torch.sin, x, use_reentrant=False) * x.stride(0) * torch.is_grad_enabled()

tintype.export(model, (torch.ones(3),))
assert "torch._dynamo" in sys.modules

class Chooses(torch.nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

torch.export.export(Chooses(), (torch.ones(2),))

@torch.compile(backend="eager", fullgraph=True)
def compiled(x):
    return x + torch.tensor([1.0, 2.0]) if torch.is_grad_enabled() else x * torch.Tensor.stride(x, 0)

assert compiled(torch.ones(2)).tolist() == [2.0, 3.0]
"""


def test_a_program_that_is_the_first_to_use_torchs_compiler() -> None:
    """It notes which functions torch has when it is imported, which checkpoint() does."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", USES_THE_COMPILER], check=True, timeout=300)


def _numbers() -> Iterator[int]:
    for number in range(10):
        yield number + 1


class Taking(nn.Module):
    """Takes an element of what it holds, or only holds it."""

    def __init__(self, source: Any, takes: bool = True) -> None:
        super().__init__()
        self.source = [source]
        self.takes = takes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        element = next(self.source[0]) if self.takes else 1
        return x * (element[0] if isinstance(element, tuple) else element)


SOURCES: dict[str, Callable[[], Any]] = {
    "list": lambda: iter([1, 2, 3]),
    "tuple": lambda: iter((1, 2, 3)),
    "generator": _numbers,
    "count": lambda: itertools.count(1),
    "cycle": lambda: itertools.cycle([1, 2]),
    "zip": lambda: zip([1, 2], [3, 4]),
    "map": lambda: map(int, ["1", "2"]),
}


@pytest.mark.parametrize("name", SOURCES)
def test_elements_of_an_iterator_that_is_not_the_programs_own(name: str) -> None:
    with pytest.raises(tintype.CaptureError, match="takes elements from a"):
        tintype.export(Taking(SOURCES[name]()), (torch.ones(2),))
    source = SOURCES[name]()
    module = tintype.export(Taking(source, takes=False), (torch.ones(2),)).module()
    assert torch.equal(module(torch.ones(2)), torch.ones(2))
    assert next(source) == next(SOURCES[name]())


@pytest.mark.parametrize("fails", [False, True])
def test_iterators_are_put_back_where_that_can_be_done(fails: bool) -> None:
    source = iter([1, 2, 3])

    def program(x: torch.Tensor) -> torch.Tensor:
        taken = x * next(source)
        if fails:
            raise Outcome
        return taken

    with pytest.raises(Outcome if fails else tintype.CaptureError):
        tintype.export(program, (torch.ones(2),))
    assert next(source) == 1


def test_containers_that_hold_themselves():
    cyclic = []
    cyclic.append(cyclic)
    kept = []

    def f(x):
        kept.append(cyclic)
        return x + 1

    assert torch.equal(tintype.export(f, (torch.ones(2),)).module()(torch.ones(2)), torch.full((2,), 2.0))

    def g(x):
        cyclic.append(x * 2)
        return x

    with pytest.raises(tintype.TintypeError, match="put a tensor into a list"):
        tintype.export(g, (torch.ones(2),))
    assert len(cyclic) == 1


def test_torchs_tables_of_functions_have_none_of_ours() -> None:
    """The first that asks for them may be a program; torch knows functions by identity from then on."""
    script = """
import torch, tintype

def program(x):
    with torch.device("cpu"):
        return x + torch.tensor([1.0, 2.0]) + torch.ones(2)

tintype.export(program, (torch.randn(2),))
torch.set_default_device("meta")
print(torch.get_default_device(), torch.tensor([1.0]).device, torch.ones(2).device)
torch.set_default_device(None)
known = torch.overrides.get_testing_overrides()
print(torch.tensor in torch.overrides.get_ignored_functions(), torch.add in known)
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["meta", "meta", "meta", "True", "True"]


def test_tensors_are_no_sequences_to_c_code_after_a_capture() -> None:
    """A class that had ``__getitem__`` of its own for a moment keeps the slot of sequences: torch.tensor would go
    through the elements of a tensor that has none."""
    script = """
import torch, tintype

x = torch.randn(3)
tintype.export(lambda x: torch.tensor([x[0], x[1]]) * 2 + float(f"{2.0}"), (x,))
print(torch.equal(torch.tensor([x[0], x[1]]), x[:2]))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["True"]


def test_a_class_may_have_anything_where_the_name_of_its_module_is() -> None:
    odd = type("Odd", (), {"__module__": property(lambda self: "nowhere"), "__call__": lambda self, x: x * 2})

    class Holds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.odd = odd()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.odd(x)

    assert torch.equal(tintype.export(Holds(), (torch.ones(2),)).module()(torch.ones(2)), torch.full((2,), 2.0))
