"""A process per operator, forked from this one: a crash or a hang is the result of one operator."""

from __future__ import annotations

import os
import resource
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing import connection, get_context
from typing import Any

_FORK = get_context("fork")


@dataclass
class Finished:
    """Everything a job sent before it ended, and how it ended (None: well)."""

    job: Any
    messages: list[Any] = field(default_factory=list)
    failure: str | None = None
    seconds: float = 0.0


class Worker:
    """One running job."""

    def __init__(self, job: Any, work: Callable[[Any], Iterable[Any]], memory: int) -> None:
        self.finished = Finished(job)
        self.started = time.monotonic()
        self.receiver, sender = _FORK.Pipe(duplex=False)
        self.process = _FORK.Process(target=_work, args=(job, work, memory, sender), daemon=True)
        self.process.start()
        sender.close()
        self.ended = False

    def receive(self) -> None:
        """Take what the job has sent so far."""
        try:
            while self.receiver.poll():
                self._take(self.receiver.recv())
        except (EOFError, OSError):
            self._end()

    def _take(self, message: tuple[str, Any]) -> None:
        kind, content = message
        if kind == "failure":
            self.finished.failure = content
        else:
            self.finished.messages.append(content)

    def _end(self) -> None:
        self.process.join()
        code = self.process.exitcode
        if code and self.finished.failure is None:
            self.finished.failure = f"crashed: {signal.Signals(-code).name if code < 0 else f'exit status {code}'}"
        self.ended = True

    def stop(self, reason: str) -> None:
        """End a job that takes too long."""
        self.process.kill()
        self.process.join()
        self.finished.failure = reason
        self.ended = True

    def close(self) -> Finished:
        """Give the result back."""
        self.receiver.close()
        self.finished.seconds = time.monotonic() - self.started
        return self.finished


def run_jobs(
    jobs: Iterable[Any], work: Callable[[Any], Iterable[Any]], *, workers: int, timeout: float, memory: int
) -> Iterator[Finished]:
    """Run ``work`` on every job, several at a time; what it yields comes back in ``messages``."""
    waiting = iter(jobs)
    running: list[Worker] = []
    while True:
        while len(running) < workers and (job := next(waiting, None)) is not None:
            running.append(Worker(job, work, memory))
        if not running:
            return
        connection.wait([worker.receiver for worker in running], timeout=1.0)
        for worker in list(running):
            worker.receive()
            if not worker.ended and time.monotonic() - worker.started > timeout:
                worker.stop(f"took longer than {timeout:.0f} s")
            if worker.ended:
                running.remove(worker)
                yield worker.close()


def _work(job: Any, work: Callable[[Any], Iterable[Any]], memory: int, sender: Any) -> None:
    """In the new process: do the job and send its results one by one."""
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 2)
    try:
        for message in work(job):
            sender.send(("message", message))
    except BaseException:
        sender.send(("failure", traceback.format_exc(limit=-4)))
    sender.close()
    os._exit(0)  # no clean-up of a process that shares everything with its parent
