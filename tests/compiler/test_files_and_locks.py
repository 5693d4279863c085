"""``with`` of what is written in C (files, locks) is done by each call, and switches of libraries are looked at."""

from __future__ import annotations

import io
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import tintype

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_files_are_closed_where_the_program_closes_them(backend: str, tmp_path: Path) -> None:
    path = tmp_path / "log.txt"

    def function(x: torch.Tensor) -> Any:
        with open(path, "a") as file:
            file.write("a")
        with open(path) as file:
            text = file.read()
        return x * len(text), file.closed

    compiled = tintype.compile(function, backend=backend)
    for call in range(1, 6):
        result, is_closed = compiled(torch.ones(2))
        assert result.tolist() == [call, call] and is_closed


def test_what_raises_in_a_file_closes_it() -> None:
    files: list[io.StringIO] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        with files[-1] as file:
            file.write("a")
            return x.view(2)

    compiled = tintype.compile(function)
    for size in (2, 2, 3, 2, 3):
        files.append(io.StringIO())
        if size == 2:
            assert compiled(torch.ones(size)).shape == (2,)
        else:
            with pytest.raises(RuntimeError, match="invalid for input"):
                compiled(torch.ones(size))
        assert files[-1].closed


@pytest.mark.parametrize("make", [threading.Lock, threading.RLock])
def test_locks_are_taken(make: Any) -> None:
    lock, count = make(), [0]

    def function(x: torch.Tensor) -> torch.Tensor:
        with lock:
            before = count[0]
            x = x + 1
            count[0] = before + 1
        return x * 2

    compiled = tintype.compile(function)
    for _ in range(3):
        compiled(torch.ones(2))
    assert count == [3]

    results: list[torch.Tensor] = []
    waiting = threading.Thread(target=lambda: results.append(compiled(torch.ones(2))))
    with lock:
        waiting.start()
        waiting.join(0.1)
        assert not results and count == [3]
        count[0] = 10  # which is read when the lock is taken, not when the call begins
    waiting.join()
    assert len(results) == 1 and count == [11]


def test_locks_are_let_go_where_something_raises() -> None:
    lock = threading.Lock()

    def function(x: torch.Tensor) -> torch.Tensor:
        with lock:
            y = x.view(2)
        return y * lock.acquire(blocking=False) if lock.release() is None else y  # raises: it is not held

    compiled = tintype.compile(function)
    for size in (2, 2, 3, 2):
        with pytest.raises(RuntimeError, match="unlocked" if size == 2 else "invalid for input"):
            compiled(torch.ones(size))
        assert lock.acquire(blocking=False)
        lock.release()


def test_switches_of_torchs() -> None:
    compiled = tintype.compile(lambda x: x * 2 if torch.backends.mkldnn.enabled else x)
    x, is_on = torch.ones(2), torch.backends.mkldnn.enabled
    for enabled in (True, False, False, True):
        with torch.backends.mkldnn.flags(enabled=enabled):
            assert compiled(x).tolist() == [1 + enabled] * 2
    assert torch.backends.mkldnn.enabled == is_on
