"""Stances, the budget of captures, what is dropped, what threads do to each other, reports and logs."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import warnings
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

import tintype
from tintype.compiler import compiled as engines
from tintype.compiler import history, writing

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")


def scaled(x: torch.Tensor, factor: Any) -> torch.Tensor:
    return x * factor


X = torch.ones(2)


def test_force_eager_is_a_function_a_context_and_a_decorator() -> None:
    compiled = tintype.compile(scaled)
    with tintype.set_stance("force_eager"):
        assert compiled(X, 2)[0] == 2

    @tintype.set_stance("force_eager")
    def caller() -> torch.Tensor:
        inner = tintype.compile(scaled)  # made in the stance
        assert inner(X, 2)[0] == 2 and inner.engine.captures == 0
        return compiled(X, 3)

    assert compiled.engine.captures == 0
    assert caller()[0] == 3 and compiled.engine.captures == 0
    tintype.set_stance("force_eager")
    try:
        assert compiled(X, 4)[0] == 4 and compiled.engine.captures == 0
    finally:
        tintype.set_stance("default")
    assert compiled(X, 4)[0] == 4 and compiled.engine.captures == 1


def test_a_stance_ends_with_its_context_also_where_that_raises() -> None:
    compiled = tintype.compile(scaled)
    with pytest.raises(ZeroDivisionError), tintype.set_stance("force_eager"):
        raise ZeroDivisionError
    compiled(X, 2)
    assert compiled.engine.captures == 1


def test_eager_and_fail_on_recompile() -> None:
    compiled = tintype.compile(scaled)
    compiled(X, 2)
    with tintype.set_stance("eager_on_recompile"):
        assert compiled(X, 3)[0] == 3 and compiled(X, 2)[0] == 2
    assert compiled.engine.captures == 1
    with tintype.set_stance("fail_on_recompile"):
        assert compiled(X, 2)[0] == 2
        with pytest.raises(tintype.RecompileError, match="'scaled' would be captured again: argument 1 is 3, not 2"):
            compiled(X, 3)
        with pytest.raises(tintype.RecompileError, match="would be captured now"):
            tintype.compile(scaled)(X, 3)


def test_a_run_that_misses_in_its_middle_is_finished_in_every_stance() -> None:
    log: list[float] = []

    @tintype.compile
    def stepping(x: torch.Tensor) -> torch.Tensor:
        log.append(float(x.sum()))
        if x.sum().item() > 3:
            return x + 1
        return x - 1

    stepping(X)
    with tintype.set_stance("eager_on_recompile"):
        assert stepping(X * 4).tolist() == [5, 5] and stepping.engine.captures == 1
    with tintype.set_stance("fail_on_recompile"), pytest.raises(tintype.RecompileError):
        stepping(X * 5)
    assert log[:2] == [2.0, 8.0]


def test_eager_then_compile() -> None:
    with tintype.set_stance("eager_then_compile"):
        compiled = tintype.compile(scaled)
        assert compiled(X, 2)[0] == 2 and compiled.engine.captures == 0
        assert compiled(X, 2)[0] == 2 and compiled.engine.captures == 1
    with tintype.set_stance("aot_eager_then_compile"):
        compiled = tintype.compile(scaled)
        assert compiled(X, 2)[0] == 2 and compiled.engine.captures == 0
        assert compiled(X, 2)[0] == 2 and compiled.engine.captures == 1


def test_a_backend_is_forced() -> None:
    graphs = []

    def counting(graph_module: Any, example_inputs: list[Any]) -> Any:
        graphs.append(graph_module)
        return graph_module.forward

    compiled = tintype.compile(scaled)
    with tintype.set_stance(force_backend=counting):
        assert compiled(X, 2)[0] == 2 and compiled(X, 2)[0] == 2
    assert len(graphs) == 1 and compiled.engine.captures == 0


def test_stances_that_are_none_are_refused() -> None:
    for given in ({"stance": "lazy"}, {"stance": "force_eager", "force_backend": "eager"}):
        with pytest.raises(tintype.TintypeError):
            tintype.set_stance(**given)  # type: ignore[arg-type]
    with pytest.raises(tintype.TintypeError, match="guards can't be skipped"):
        tintype.set_stance(skip_guard_eval_unsafe=True)
    compiled = tintype.compile(scaled)
    compiled(X, 2)
    assert compiled.engine.captures == 1  # nothing was set


# --- the budget ------------------------------------------------------------------------------------------------


def test_captures_that_take_too_much_time_end_with_one_warning() -> None:
    compiled = tintype.compile(scaled, dynamic=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(40):
            assert compiled(X, step / 7)[1] == torch.tensor(step / 7)
    (warning,) = caught
    assert warning.category is tintype.RecompileWarning and warning.filename == __file__
    text = str(warning.message)
    assert "'scaled' was captured 8 times" in text and "argument 1 is" in text
    assert "captured 7 times for argument 1" in text
    assert "what helps: pass argument 1 as a tensor, torch.tensor(" in text
    assert compiled.engine.captures == 8 and not compiled.engine.is_eager
    assert "32 calls ran eagerly" in compiled.explain()
    with tintype.set_stance("fail_on_recompile"):
        assert compiled(X, 3 / 7)[0] == torch.tensor(3 / 7)  # what is known is repeated


def test_captures_go_on_where_they_are_a_small_share() -> None:
    compiled = tintype.compile(scaled, dynamic=False)
    for step in range(8):
        compiled(X, step / 7)
    assert not compiled.engine.history.may_capture()
    compiled.engine.history.seconds += 100  # many calls later
    compiled(X, 100.0)
    assert compiled.engine.captures == 9


def test_time_in_calls_is_noted_where_it_matters() -> None:
    compiled = tintype.compile(scaled, dynamic=False)
    for step in range(8):
        compiled(X, step / 7)
    before = compiled.engine.history.seconds
    for _ in range(100):
        compiled(X, 1 / 7)
    assert compiled.engine.history.seconds > before


def test_runs_that_always_miss_in_the_middle_run_eagerly_in_the_end() -> None:
    @tintype.compile
    def looking(x: torch.Tensor) -> torch.Tensor:
        return x * x.sum().item()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(40):
            x = X * step / 7
            assert torch.equal(looking(x), x * x.sum().item())
    assert looking.engine.is_eager or looking.engine.captures == 1


def test_what_helps_is_said_by_what_was_read() -> None:
    def flat(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(-1) if x.shape[0] > 0 else x

    for options, words in (({"backend": "aot_eager"}, "by padding"), ({"dynamic": False}, "mark_dynamic")):
        compiled = tintype.compile(flat, **options)
        compiled(torch.ones(2))
        with tintype.set_stance("fail_on_recompile"), pytest.raises(tintype.RecompileError, match=words):
            compiled(torch.ones(3))


def test_runs_that_are_not_used_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "LEAST_CAPTURES", 1000)
    compiled = tintype.compile(scaled)
    for step in range(engines.MOST_RUNS + 40):
        compiled(X, float(step))
        assert compiled(X, 5.0)[0] == 5
        assert compiled(X, float(step))[0] == step
    engine = compiled.engine
    assert engine.program.count <= engines.MOST_RUNS + 1
    assert len(engine.program.nodes) < 3 * engines.MOST_RUNS and len(engine.program.namespace) < 400
    captures = engine.captures
    compiled(X, 5.0)
    assert engine.captures == captures  # what is used stays


# --- memory ----------------------------------------------------------------------------------------------------


def test_no_tensor_of_a_call_is_kept_alive() -> None:
    @tintype.compile
    def several(x: torch.Tensor, parts: list[torch.Tensor]) -> torch.Tensor:
        y = x * 2
        if y.sum() > 0:
            y = y + parts[0]
        return y.relu()

    for backend in ("eager", "aot_eager"):
        compiled = tintype.compile(several.original, backend=backend)
        for _ in range(3):
            x, part = torch.ones(3), torch.ones(3, requires_grad=True)
            result = compiled(x, [part])
            alive = [weakref.ref(value) for value in (x, part, result)]
            del x, part, result
            gc.collect()
            assert [reference() for reference in alive] == [None, None, None]


def test_compiled_functions_and_modules_are_let_go_of() -> None:
    def dropped() -> list[weakref.ref[Any]]:
        class Own(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x + 1

        def function(x: torch.Tensor) -> torch.Tensor:
            return x * 2

        module = Own()
        compiled = [tintype.compile(function), tintype.compile(module)]
        for made in compiled:
            made(X)
            made(X)
        assert type(tintype.compile(module)) is type(compiled[1])
        return [weakref.ref(value) for value in (function, module, Own, compiled[0].engine)]

    references = dropped()
    gc.collect()
    assert [reference() for reference in references] == [None] * 4


def test_graphs_with_gradients_are_let_go_of() -> None:
    """Autograd's history of a value keeps other values alive, where no collector sees it."""

    def graphs() -> int:
        gc.collect()
        return sum(type(value) is torch.fx.Graph for value in gc.get_objects())

    def train() -> None:
        model = torch.nn.Linear(2, 2)
        compiled = tintype.compile(model, backend="aot_eager")
        for _ in range(3):
            compiled(X).sum().backward()

    train()
    before = graphs()
    for _ in range(5):
        train()
    assert graphs() == before


# --- threads ---------------------------------------------------------------------------------------------------


def test_threads_call_and_first_call_one_function() -> None:
    @tintype.compile
    def mixed(x: torch.Tensor, times: int, log: list[float]) -> torch.Tensor:
        y = x
        for _ in range(times):
            y = y * 2
        log.append(float(y.sum()))
        if y.sum() > 20:
            return y + times
        return y - times

    def expected(x: torch.Tensor, times: int) -> torch.Tensor:
        y = x * 2**times
        return y + times if y.sum() > 20 else y - times

    problems: list[str] = []
    begin = threading.Barrier(4)

    def work(number: int) -> None:
        begin.wait()
        for step in range(60):
            x, times = torch.full((2,), float(step % 7)), (step + number) % 6
            log: list[float] = []
            result = mixed(x, times, log)
            if not torch.equal(result, expected(x, times)) or log != [float((x * 2**times).sum())]:
                problems.append(f"{number}, {step}: {result}, {log}")

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not problems
    assert "no guard explains" not in mixed.engine.why_eager and "known already" not in mixed.engine.why_eager


def test_other_threads_see_nothing_of_a_capture() -> None:
    inside, outside = threading.Event(), threading.Event()
    seen: list[Any] = []

    def waiting(x: torch.Tensor) -> torch.Tensor:
        inside.set()
        assert outside.wait(30)
        return x + 1

    waits = tintype.compile.disable(lambda: (inside.set(), outside.wait(30)))

    @tintype.compile
    def slow(x: torch.Tensor) -> torch.Tensor:
        waits()
        return x + 1

    thread = threading.Thread(target=lambda: seen.append(slow(X)))
    thread.start()
    assert inside.wait(30)
    assert not tintype.compile.is_compiling() and not torch._C._len_torch_function_stack()
    assert torch.equal(X * 3, torch.full((2,), 3.0))
    outside.set()
    thread.join()
    assert seen[0].tolist() == [2, 2]


# --- reports ---------------------------------------------------------------------------------------------------


def test_the_page_has_segments_breaks_guards_and_times(tmp_path: Path) -> None:
    @tintype.compile
    def broken(x: torch.Tensor, factor: int) -> torch.Tensor:
        y = x * factor
        if y.sum().item() > 3:
            return y + 1
        return y.clone() if factor < 9 else y

    broken(X, 1)
    broken(X, 3)
    broken(X, 1)
    report = broken.explain()
    assert "captured again: argument 1 is 3, not 1" in report
    page = report.html
    for part in ("<h1>broken</h1>", "argument 1 is 3, not 1", "break: ", "if y.sum().item() &gt; 3", " ms</td>"):
        assert part in page, part
    report.save(str(tmp_path / "report.html"))
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == page


def test_logs_are_asked_for_by_a_variable() -> None:
    program = """
import torch, tintype

@tintype.compile
def f(x, n):
    y = x * n
    print(float(y.sum()))
    return y

f(torch.ones(2), 2)
f(torch.ones(2), 3)
"""
    environment = {**os.environ, "TINTYPE_LOGS": "guards,breaks,recompiles,kernels"}
    result = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "TINTYPE_LOGS has kernels; what there is: guards, breaks, recompiles, all" in result.stderr
    assert "tintype.compile.recompiles: f is captured again: argument 1 is 3, not 2" in result.stderr
    assert "tintype.compile.guards: f: argument 1: value 2" in result.stderr
    assert "tintype.compile.breaks: f: print" in result.stderr


def test_a_capture_writes_what_it_changed_and_not_all_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "LEAST_CAPTURES", 1000)
    compiled = tintype.compile(lambda x, key: x + 1 if key else x)
    written = []
    real = writing.Writer.function

    def counted(self: Any) -> str:
        written.append(1)
        return real(self)

    monkeypatch.setattr(writing.Writer, "function", counted)
    for count in range(1, 33):
        written.clear()
        compiled(X, "a" * count)
        # of the capture before: the way to it, the new run, and its siblings when they become many; then it alone
        assert len(written) <= 7 if count <= writing.MANY_CHILDREN + 1 else len(written) == 1


def test_what_is_called_once_is_captured_and_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    real = writing.Writer.function

    def counted(self: Any) -> str:
        written.append(1)
        return real(self)

    monkeypatch.setattr(writing.Writer, "function", counted)
    compiled = tintype.compile(lambda x: x + 1)
    assert torch.equal(compiled(X), X + 1) and compiled.engine.captures == 1
    assert not written
    before = compiled.engine.history.capture_seconds
    assert torch.equal(compiled(X), X + 1) and compiled.engine.captures == 1
    assert written
    assert compiled.engine.history.capture_seconds > before  # to write it is part of what the capture costs
    written.clear()
    assert torch.equal(compiled(X), X + 1)
    assert not written


def test_one_of_many_runs_is_found_by_the_value_that_it_begins_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "LEAST_CAPTURES", 1000)
    effects: list[Any] = []

    def keyed(x: torch.Tensor, key: Any) -> torch.Tensor:
        y = x + len(effects)
        if key == "note" or key == 3:
            effects.append(key)
        return y * len(str(key)) if key else y.sin()

    compiled = tintype.compile(keyed, dynamic=False)
    keys = [1, 2, 3, 4, 5, 6, 7, True, False, "1", None, 1.0, -0.0, 0.0, 0, "a", "note", (1,), [1], {}, torch.float32]
    for key in [*keys, *reversed(keys), *keys]:
        effects.clear()
        expected = keyed(X, key)
        effects_expected = list(effects)
        effects.clear()
        assert torch.equal(compiled(X, key), expected) and effects == effects_expected, key


class Unhashable:
    def __hash__(self) -> int:
        raise AssertionError("nothing asks for it in eager mode")


def test_looking_for_one_of_many_runs_calls_no_code_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "LEAST_CAPTURES", 1000)
    compiled = tintype.compile(lambda x, key: x * (key if isinstance(key, int) else 20), dynamic=False)
    for key in [*range(10), Unhashable(), 3, Unhashable()]:
        assert torch.equal(compiled(X, key), X * (key if isinstance(key, int) else 20))


def test_what_is_different_is_not_looked_for_where_nothing_is_said_about_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "LARGEST_SHARE", 0.0)  # however slow the machine is
    asked: list[Any] = []
    real = engines.failed_guards
    monkeypatch.setattr(engines, "failed_guards", lambda *given: asked.append(given) or real(*given))
    compiled = tintype.compile(lambda x, key: x * len(key), dynamic=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tintype.RecompileWarning)
        for count in range(40):
            assert torch.equal(compiled(X, "a" * count), X * count)
    assert compiled.engine.captures == 8 and len(asked) == 8  # seven captures again, and the warning
