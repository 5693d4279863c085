"""``--through``: the whole suite with every exported program sent through a file, a retrace or a decomposition first.

    python -m pytest --through saved tests/export tests/trace

A test that is about the very program that ``export`` returns (its tensors are the model's, its operators are those
that were written) says so with the marker ``direct``, with the reason.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import warnings
from collections.abc import Callable
from typing import Any

import hypothesis
import pytest

import tintype
from tests.own_exceptions import watch_exceptions
from tests.sources_stay import watch_passes

# The same examples every time, so that a change is judged by what it changed; TINTYPE_RANDOM=1 looks for new ones.
hypothesis.settings.register_profile("repeatable", derandomize=True, database=None)
hypothesis.settings.register_profile("random", derandomize=False)
hypothesis.settings.load_profile("random" if os.environ.get("TINTYPE_RANDOM") else "repeatable")


def saved(program: tintype.ExportedProgram, *call: Any) -> tintype.ExportedProgram:
    """The program as it comes back from a file."""
    file = io.BytesIO()
    tintype.save(program, file)
    return tintype.load(file)


def decomposed(program: tintype.ExportedProgram, *call: Any) -> tintype.ExportedProgram:
    """The program in core operators."""
    return program.run_decompositions()


def retraced(program: tintype.ExportedProgram, args: Any, kwargs: Any, options: Any) -> tintype.ExportedProgram:
    """The program captured once more."""
    return tintype.export(program.module(), args, kwargs, **options)


def export_strictly(export: Any, mod: Any, args: Any, kwargs: Any = None, **options: Any) -> Any:
    """A program that was interpreted, and is the one that a native capture gives, node for node."""
    if options.get("strict"):
        return export(mod, args, kwargs, **options)
    found = []
    for strict in (True, False):
        with warnings.catch_warnings() if not strict else contextlib.nullcontext():
            if not strict:
                warnings.simplefilter("ignore")
            # on one line: it is the line of what has none
            found.append(export(mod, args, kwargs, **{**options, "strict": strict}))
    program, natively = found
    assert program.code == natively.code
    contracts = [[line for line in made.contract() if line.kind != "left out"] for made in (program, natively)]
    assert contracts[0] == contracts[1]
    for one, other in zip(program.graph.nodes, natively.graph.nodes, strict=True):
        assert one.meta.get("nn_module_stack") == other.meta.get("nn_module_stack"), one
        assert one.meta.get("stack_trace") == other.meta.get("stack_trace"), one
    return program


WAYS: dict[str, Callable[..., tintype.ExportedProgram]] = {
    "saved": saved,
    "decomposed": decomposed,
    "retraced": retraced,
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--backwards", action="store_true", help="run the last test first")
    parser.addoption(
        "--through", choices=sorted([*WAYS, "strict"]), help="what happens to every exported program before its test"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--backwards"):
        items.reverse()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "direct(reason): the test is about what export itself returns")


@pytest.fixture(autouse=True)
def _passes_leave_their_source(monkeypatch: pytest.MonkeyPatch) -> None:
    watch_passes(monkeypatch)


@pytest.fixture(autouse=True)
def _exceptions_are_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    watch_exceptions(monkeypatch)


@pytest.fixture(autouse=True)
def _programs_go_through(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = request.config.getoption("--through")
    if chosen is None or request.node.get_closest_marker("direct") is not None:
        return
    export = tintype.export
    if chosen == "strict":
        monkeypatch.setattr(tintype, "export", functools.partial(export_strictly, export))
        return
    way = WAYS[chosen]
    inside = False

    def export_and_send(mod: Any, args: Any, kwargs: Any = None, **options: Any) -> tintype.ExportedProgram:
        nonlocal inside
        program = export(mod, args, kwargs, **options)
        if inside:
            return program
        inside = True
        try:
            return way(program, args, kwargs, options)
        finally:
            inside = False

    monkeypatch.setattr(tintype, "export", export_and_send)
