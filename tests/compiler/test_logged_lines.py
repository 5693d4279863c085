"""Messages of compiled code name the lines of the program, as in eager mode."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import tintype

LOGGER = logging.getLogger("tests.logged_lines")
ADAPTER = logging.LoggerAdapter(LOGGER, {"user": 1})


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        logging.Formatter("%(pathname)s:%(lineno)d %(funcName)s %(module)s %(levelname)s %(message)s")
    )
    before = LOGGER.level, LOGGER.propagate
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.DEBUG)
    LOGGER.propagate = False
    yield stream
    LOGGER.removeHandler(handler)
    LOGGER.level, LOGGER.propagate = before


def for_caller(message: Any, level: int) -> None:
    LOGGER.info(message, stacklevel=level)


class Worker:
    def run(self, x: Any) -> None:
        LOGGER.warning("sizes %s", x.shape)


def caught(x: Any) -> None:
    try:
        raise ValueError("no")
    except ValueError:
        LOGGER.exception("failed")
    LOGGER.info("after")


def given(x: Any) -> None:
    try:
        raise ValueError("no")
    except ValueError as error:
        LOGGER.error("failed", exc_info=error)


def several_lines(x: Any) -> None:
    LOGGER.critical(
        "sizes %s %s",
        x.shape,
        3,
    )


PROGRAMS: dict[str, Any] = {
    "plain": lambda x: LOGGER.info("size %s", x.shape[0]),
    "method": lambda x: Worker().run(x),
    "one level up": lambda x: for_caller("up", 2),
    "the caller of the compiled function": lambda x: for_caller("out", 4),
    "adapter": lambda x: ADAPTER.warning("adapted"),
    "level": lambda x: LOGGER.log(logging.WARNING, "sum %s", float(x.sum())),
    "loop": lambda x: [LOGGER.debug("step %d", step) for step in range(2)],
    "handled exception": caught,
    "given exception": given,
    "several lines": several_lines,
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("case", PROGRAMS)
def test_messages_name_the_users_lines(case: str, backend: str, written: io.StringIO) -> None:
    def program(x: Any) -> Any:
        PROGRAMS[case](x)
        return x + 1

    def calls_of(function: Any) -> list[str]:
        found = []
        for _ in range(3):
            written.seek(0)
            written.truncate()
            function(torch.ones(2))
            found.append(written.getvalue())
        return found

    expected = calls_of(program)
    assert all(expected)
    assert calls_of(tintype.compile(program, backend=backend)) == expected


def test_messages_are_saved(tmp_path: Any, written: io.StringIO) -> None:
    compiled = tintype.compile(plain)
    compiled(torch.ones(2))
    compiled.save(tmp_path / "plain.ttc")
    loaded: Any = tintype.compile.load(tmp_path / "plain.ttc", plain)
    loaded(torch.ones(2))
    first, second = written.getvalue().splitlines()
    assert first == second and "plain" in first and loaded.engine.captures == 0


def plain(x: Any) -> Any:
    LOGGER.info("size %s", x.shape[0])
    return x + 1


def test_guards_are_told_to_who_asks_for_them(caplog: Any) -> None:
    """Not to all who log what happens, since they are many."""
    with caplog.at_level(logging.INFO):
        tintype.compile(lambda x: x + 1)(torch.ones(2))
    assert "guards" not in caplog.text
    with caplog.at_level(logging.DEBUG):
        tintype.compile(lambda x: x + 1)(torch.ones(2))
    assert "argument 0: type" in caplog.text and "__builtins__" not in caplog.text
