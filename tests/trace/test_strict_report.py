"""What strict=True tells: everything that a model does besides computing, in one report with lines."""

from __future__ import annotations

import collections
import logging
import os
import pathlib
import queue
import random
import time
import warnings
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import tintype

CALLS = 0
SEEN: list[Any] = []
TABLE: dict[str, Any] = {}
RECENT: collections.deque[Any] = collections.deque()


ARRAY = np.zeros(2)
BYTES = bytearray(b"abc")
GENERATOR = np.random.default_rng(0)
DRAWS = random.Random(0)
QUEUE: queue.Queue[int] = queue.Queue()
SIMPLE_QUEUE: queue.SimpleQueue[int] = queue.SimpleQueue()


class Options:
    level = 0


OPTIONS = Options()
HIDDEN = {"inner": {"options": Options()}}


class Amount:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __add__(self, other: Amount) -> Amount:
        TABLE["added"] = True
        return Amount(self.value + other.value)

    def __mul__(self, other: Amount) -> Amount:
        return Amount(self.value * other.value)


def counting() -> Any:
    count = 0

    def function(x: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        return x * 2

    return function


def assign_global(x: torch.Tensor) -> torch.Tensor:
    global CALLS
    CALLS += 1
    return x + 1


def append(x: torch.Tensor) -> torch.Tensor:
    SEEN.append("called")
    return x + 1


def append_by_item(x: torch.Tensor) -> torch.Tensor:
    TABLE["calls"] = 3
    return x + 1


def append_to_deque(x: torch.Tensor) -> torch.Tensor:
    RECENT.appendleft("called")
    return x + 1


def set_attribute(x: torch.Tensor) -> torch.Tensor:
    OPTIONS.level = 3
    return x + 1


def set_attribute_of_hidden_object(x: torch.Tensor) -> torch.Tensor:
    found = next(iter(HIDDEN.values()))["options"]
    found.level = 7
    return x + 1


def set_attribute_by_function(x: torch.Tensor) -> torch.Tensor:
    setattr(OPTIONS, "level", 4)  # noqa: B010
    return x + 1


def set_class_attribute(x: torch.Tensor) -> torch.Tensor:
    Options.level = 5
    return x + 1


def write_in_a_branch(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        x = x + 1
        SEEN.append("called")
    else:
        SEEN.append("called")
    return x


def read_clock(x: torch.Tensor) -> torch.Tensor:
    return x + time.time() * 0


def read_environment(x: torch.Tensor) -> torch.Tensor:
    return x + len(os.environ["PATH"]) * 0


def read_environment_by_method(x: torch.Tensor) -> torch.Tensor:
    return x + len(os.environ.get("PATH", "")) * 0


def prints(x: torch.Tensor) -> torch.Tensor:
    print("called")
    return x + 1


def draw_from_numpy(x: torch.Tensor) -> torch.Tensor:
    return x * GENERATOR.normal()


def draw_by_class(x: torch.Tensor) -> torch.Tensor:
    return x * random.Random.random(DRAWS)


def log_to_root(x: torch.Tensor) -> torch.Tensor:
    logging.warning("called")  # noqa: LOG015
    return x + 1


def set_attribute_of_input(x: torch.Tensor) -> torch.Tensor:
    x.foo = 3  # type: ignore[attr-defined]
    return x + 1


def set_attribute_of_result(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    setattr(y, "foo", 3)  # noqa: B010
    return y


def write_array(x: torch.Tensor) -> torch.Tensor:
    ARRAY[0] += 1
    return x + 1


def write_array_by_function(x: torch.Tensor) -> torch.Tensor:
    np.add(ARRAY, 1, out=ARRAY)
    return x + 1


def write_array_by_method(x: torch.Tensor) -> torch.Tensor:
    ARRAY.fill(1)
    return x + 1


def write_bytes(x: torch.Tensor) -> torch.Tensor:
    BYTES[0] = 65
    return x + 1


def put_into_queue(x: torch.Tensor) -> torch.Tensor:
    QUEUE.put(1)
    return x + 1


def put_into_simple_queue(x: torch.Tensor) -> torch.Tensor:
    SIMPLE_QUEUE.put(1)
    return x + 1


def write_file(x: torch.Tensor) -> torch.Tensor:
    with open(os.devnull, mode="a") as file:
        file.write("called")
    return x + 1


def write_path(x: torch.Tensor) -> torch.Tensor:
    pathlib.Path(os.devnull).write_text("called")
    return x + 1


def set_environment(x: torch.Tensor) -> torch.Tensor:
    os.environ["TINTYPE_TEST"] = "1"
    return x + 1


def set_environment_by_method(x: torch.Tensor) -> torch.Tensor:
    os.environ.pop("TINTYPE_TEST", None)
    return x + 1


def run_operator_natively(x: torch.Tensor) -> torch.Tensor:
    return (Amount(x) + Amount(x)).value


TOLD = {
    assign_global: ("write", "the global 'CALLS': 0 became 1", "CALLS += 1"),
    counting(): ("write", "a variable of a closure: 0 became 1", "count += 1"),
    append: ("write", "a list: [] became ['called']", 'SEEN.append("called")'),
    append_by_item: ("write", "a dict: {} became {'calls': 3}", 'TABLE["calls"] = 3'),
    append_to_deque: ("write", "a deque: deque([]) became deque(['called'])", 'RECENT.appendleft("called")'),
    set_attribute: ("write", "'level' of a Options: <nothing> became 3", "OPTIONS.level = 3"),
    set_attribute_of_hidden_object: ("write", "'level' of a Options: <nothing> became 7", "found.level = 7"),
    set_attribute_by_function: ("write", "'level' of a Options: <nothing> became 4", 'setattr(OPTIONS, "level", 4)'),
    set_class_attribute: ("write", "'level' of Options: 0 became 5", "Options.level = 5"),
    write_in_a_branch: ("write", "a list: [] became ['called']", 'SEEN.append("called")'),
    read_clock: ("read", "the program reads a clock (time)", "time.time()"),
    read_environment: ("read", "the program reads the environment (os.environ)", 'os.environ["PATH"]'),
    read_environment_by_method: ("read", "the program reads the environment (os.environ)", "os.environ.get"),
    prints: ("output", "the program prints", 'print("called")'),
    draw_from_numpy: ("read", "draws a random number (normal)", "GENERATOR.normal()"),
    draw_by_class: ("read", "draws a random number (random)", "random.Random.random"),
    log_to_root: ("output", "writes to a log (warning)", "logging.warning"),
    set_attribute_of_input: ("write", "sets the attribute 'foo' of a tensor", "x.foo = 3"),
    set_attribute_of_result: ("write", "sets the attribute 'foo' of a tensor", "setattr(y"),
    write_array: ("write", "a ndarray: array([0., 0.]) became array([1., 0.])", "ARRAY[0] += 1"),
    write_array_by_function: ("write", "a ndarray: array([0., 0.]) became array([1., 1.])", "np.add"),
    write_array_by_method: ("write", "a ndarray: array([0., 0.]) became array([1., 1.])", "ARRAY.fill"),
    write_bytes: ("write", "a bytearray: b'abc' became b'Abc'", "BYTES[0] = 65"),
    put_into_simple_queue: ("output", "changes a queue (put)", "SIMPLE_QUEUE.put"),
    write_file: ("output", "writes to files (open)", "open("),
    write_path: ("output", "writes to files (write_text)", "write_text"),
    set_environment: ("write", "writes to the environment (os.environ)", "os.environ["),
    set_environment_by_method: ("write", "writes to the environment (os.environ)", "os.environ.pop"),
    run_operator_natively: ("native", "in Amount.__add__, which native code calls", "Amount(x) + Amount(x)"),
}


@pytest.fixture(autouse=True)
def as_before() -> Any:
    yield
    globals()["CALLS"] = 0
    for container in (SEEN, TABLE, RECENT):
        container.clear()
    Options.level = 0
    ARRAY.fill(0)
    BYTES[:] = b"abc"
    os.environ.pop("TINTYPE_TEST", None)
    for options in (OPTIONS, HIDDEN["inner"]["options"]):
        vars(options).clear()


def strictly(model: Any, *args: Any, export: Any = tintype.export, **options: Any) -> tuple[Any, list[Any]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = export(model, args, strict=True, **options)
    return program, [warning for warning in caught if issubclass(warning.category, tintype.LostEffectWarning)]


def test_an_attribute_of_a_tensor_is_told_also_after_another_capture_has_read_one_of_that_name() -> None:
    value = torch.ones(2)
    value.foo = 2  # type: ignore[attr-defined]
    tintype.export(lambda x: x + 1 if hasattr(x, "foo") else x, (value,))
    program, _ = strictly(set_attribute_of_input, torch.ones(2))
    assert len(program.report.findings) == 1


@pytest.mark.parametrize("function", TOLD, ids=lambda function: function.__qualname__)
def test_what_is_told(function: Any) -> None:
    kind, text, code = TOLD[function]
    program, told = strictly(function, torch.ones(2))
    (finding,) = program.report.findings
    assert finding.kind == kind and text in finding.text
    assert code in finding.location.source_line()
    assert len(told) == 1 and str(finding) in str(told[0].message)
    assert told[0].filename == __file__
    (line,) = [line for line in program.contract() if line.kind == "left out"]
    assert finding.text in line.text and line.location == finding.location


def test_what_methods_of_the_standard_library_write() -> None:
    program, told = strictly(put_into_queue, torch.ones(2))
    texts = [finding.text for finding in program.report.findings]
    assert "a deque: deque([]) became deque([1])" in texts and len(told) == 1
    assert any("'unfinished_tasks' of a Queue: 0 became 1" in text for text in texts)
    assert all("QUEUE.put" in finding.location.source_line() for finding in program.report.findings)
    QUEUE.queue.clear()


def plain(x: torch.Tensor) -> torch.Tensor:
    items = [x]
    items.append(x * 2)
    table = dict(zip("a", [x], strict=True))
    table["b"] = x
    made = collections.defaultdict(list)
    made["a"].append(x)
    options = Options()
    options.level = 3
    count = 0

    def inner() -> None:
        nonlocal count
        count += 1

    inner()
    copied = dict(HIDDEN)
    copied["other"] = {}
    array = np.zeros(2)
    array[0] = 1
    array += ARRAY
    octets = bytearray(ARRAY.nbytes)
    octets[0] = 1
    waiting: queue.Queue[int] = queue.Queue()
    waiting.put(1)
    between = x * 2
    between.foo = 3  # type: ignore[attr-defined]
    amount = Amount(x) * Amount(x)
    return items[1] + table["b"] + made["a"][0] + amount.value * count


def test_nothing_is_told_of_what_a_call_makes_itself() -> None:
    program, told = strictly(plain, torch.ones(2))
    assert not told and not program.report and not program.report.findings
    notes = program.report.notes
    assert ["Amount.__mul__" in notes[0].text, "Amount.__init__" in notes[1].text, len(notes)] == [True, True, 2]
    assert str(program.report) == "Nothing that the model does is missing in the program."
    assert not [line for line in program.contract() if line.kind == "left out"]
    assert tintype.export(plain, (torch.ones(2),)).report is None


def several(x: torch.Tensor) -> torch.Tensor:
    global CALLS
    CALLS += 1
    SEEN.append(1)
    OPTIONS.level = 2
    print("several")
    return x * CALLS


class Loss(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return several(self.linear(x)).sum()


@pytest.mark.parametrize(
    "export", [tintype.export, tintype.export_for_training, tintype.export_joint, tintype.draft_export]
)
def test_everything_in_one_report(export: Any) -> None:
    program, told = strictly(Loss(), torch.ones(3, 2), export=export)
    if export is tintype.draft_export:
        assert any(decision.kind == "lost-effect" for decision in program.report.decisions)
        return
    kinds = [finding.kind for finding in program.report.findings]
    assert kinds == ["state", "write", "write", "write", "output"]  # the second call would multiply by 2
    assert len(told) == 1
    assert "It does not have these changes" in str(told[0].message)


def test_the_report_stays_with_programs_made_of_a_program() -> None:
    program, _ = strictly(append, torch.ones(2))
    assert program.run_decompositions().report == program.report


class Noting(torch.nn.Module):
    last = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = x.shape[0]
        return x + 1


def test_what_a_model_writes_down_for_itself_is_a_note() -> None:
    program, told = strictly(Noting(), torch.ones(2))
    assert not told
    (note,) = program.report.notes
    assert "'last' of a Noting: <nothing> became 2" in note.text and "self.last =" in note.location.source_line()


def keep_tensors(x: torch.Tensor) -> torch.Tensor:
    HIDDEN["inner"]["options"].level = x
    found = next(iter(HIDDEN.values()))
    found["kept"] = x * 2
    return x + 1


def test_tensors_put_outside_are_refused_together_and_taken_back() -> None:
    with pytest.raises(tintype.StateChangedError) as raised:
        strictly(keep_tensors, torch.ones(2))
    assert len(raised.value.problems) == 2  # type: ignore[attr-defined]
    assert "HIDDEN" in raised.value.problems[0].location.source_line()  # type: ignore[attr-defined]
    assert "found[" in raised.value.problems[1].location.source_line()  # type: ignore[attr-defined]
    assert "kept" not in HIDDEN["inner"] and HIDDEN["inner"]["options"].level == 0


def change_arguments(x: torch.Tensor, table: dict[str, Any], items: list[Any]) -> torch.Tensor:
    table["a"] = x
    items.append(x)
    return x + 1


def test_arguments_that_are_changed_are_refused_together() -> None:
    with pytest.raises(tintype.StateChangedError) as raised:
        strictly(change_arguments, torch.ones(2), {"a": torch.ones(2)}, [])
    lines = [problem.location.source_line() for problem in raised.value.problems]  # type: ignore[attr-defined]
    assert lines == ['table["a"] = x', "items.append(x)"]


class Asking:
    """Its attributes are computed: a question may run its code."""

    def __getattribute__(self, name: str) -> Any:
        SEEN.append(name)
        return object.__getattribute__(self, name)


def test_looking_runs_no_code_of_the_users() -> None:
    asking = Asking()

    def function(x: torch.Tensor) -> torch.Tensor:
        table = {"asking": asking}
        return x + len(table)

    tintype.export(function, (torch.ones(2),))
    natively, SEEN[:] = SEEN.copy(), []
    strictly(function, torch.ones(2))
    assert natively == SEEN


def test_a_profiler_is_not_disturbed() -> None:
    import sys

    def profile(frame: Any, event: str, argument: Any) -> None: ...

    sys.setprofile(profile)
    try:
        program, _ = strictly(run_operator_natively, torch.ones(2))
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(None)
    assert torch.equal(program.module()(torch.ones(2)), torch.full((2,), 2.0))


class MakesOnDemand(collections.OrderedDict[str, Any]):
    """Gives what it makes, as the tables of activations of transformers do."""

    made: ClassVar[list[Any]] = []

    def __getitem__(self, key: Any) -> Any:
        self.made.append(key)
        return super().__getitem__(key)()

    def __setitem__(self, key: Any, value: Any) -> None:
        self.made.append(("set", key))
        super().__setitem__(key, value)

    def clear(self) -> None:
        raise AssertionError


ON_DEMAND = MakesOnDemand(relu=torch.nn.ReLU, cell=lambda: torch.nn.Linear(2, 2))


class TakesFromTable(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = ON_DEMAND["relu"](x)
        own = MakesOnDemand(one=list)
        if x.sum() > 100:
            own["two"] = dict
        else:
            own["two"] = dict
        return x + len(own)


def test_containers_of_the_programs_own_classes_are_looked_at_without_their_methods() -> None:
    MakesOnDemand.made.clear()
    program = tintype.export(TakesFromTable(), (torch.ones(2),), strict=True)
    assert {key for key in MakesOnDemand.made if not isinstance(key, tuple)} == {"relu"}
    assert torch.equal(program.module()(torch.ones(2)), torch.full((2,), 3.0))
