"""Tries random programs: ``make fuzz-programs``, or ``python -m tests.fuzz_programs --seed 1 --count 20000``.

Work is done in child processes, so that a crash is noticed and a program that takes too long is stopped. What is
found is shrunk and written, one line of JSON each with the script that shows it, to the file that ``--report`` names.
``--only SEED`` tries one program and prints it.
"""

from __future__ import annotations

import argparse
import collections
import importlib
import json
import os
import random
import selectors
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

MOST_SECONDS = 20
CHUNK = 150
ALL_VARIANTS = 99


class TooSlowError(BaseException):
    """A program took too long; no error that somebody who tries something may catch."""


def limit_time(seconds: float) -> None:
    """Raise in so many seconds of computing, however busy the machine is; 0 for never."""
    signal.setitimer(signal.ITIMER_PROF, seconds, min(seconds, 1.0))


def load() -> None:
    """Load what every program needs, before processes are forked. Nothing is run: threads of autograd don't survive
    a fork."""
    warnings.simplefilter("ignore")
    for name in ("torch", "tintype", "tintype.aot", "tintype.export", "tests.fuzz_programs.judging"):
        importlib.import_module(name)


def try_seed(seed: int, variants: int, shrink_seconds: float) -> dict[str, Any]:
    """What came out for the program of a seed; what is wrong is shrunk if there is time for it."""
    from tests.fuzz_programs.judging import cases_of, choose_variants, judge, settle_sizes
    from tests.fuzz_programs.programs import write_program
    from tests.fuzz_programs.shrinking import Found, mechanism, script, shrink

    chance = random.Random(f"calls of {seed}")
    program = settle_sizes(write_program(seed), chance)
    if program is None:
        return {"seed": seed, "verdict": "unusable"}
    cases, chosen = cases_of(program, chance), choose_variants(chance, variants)
    limit_time(MOST_SECONDS)
    judgement = judge(program, cases, chosen)
    limit_time(0)
    remarks = collections.Counter(f"{remark.verdict} {remark.variant}" for remark in judgement.remarks)
    row: dict[str, Any] = {"seed": seed, "verdict": judgement.verdict, "calls": judgement.calls, "remarks": remarks,
                           "mode": program.sizes.mode}  # fmt: skip
    refusals = [remark for remark in judgement.remarks if remark.verdict == "refused"]
    worst = judgement.worst or (refusals[0] if refusals else None)
    if worst is None:
        return row
    row.update(mechanism=mechanism(worst), text=worst.text, trace=worst.trace, variant=worst.variant)
    row["all"] = sorted({mechanism(remark) for remark in judgement.remarks if remark.is_fault})
    found = Found(program, worst, cases, chosen)
    if shrink_seconds:
        limit_time(MOST_SECONDS + shrink_seconds)
        found = shrink(found, shrink_seconds)
        row["shrunk"] = True
        limit_time(0)
    row["kinds"] = sorted({statement.kind for statement in found.program.every_statement()})
    row["text"], row["script"] = found.remark.text, script(found)
    return row


def work(seeds: list[int], variants: int, shrink_seconds: float, output: int) -> None:
    """Try seeds in this process, a line of JSON each."""
    import torch

    torch.set_num_threads(1)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    os.dup2(nothing, 1)

    def too_slow(*_: Any) -> None:
        raise TooSlowError("took too long")

    signal.signal(signal.SIGPROF, too_slow)
    with os.fdopen(output, "w", encoding="utf-8") as file:
        for seed in seeds:
            file.write(json.dumps({"begin": seed}) + "\n")
            file.flush()
            try:
                row = try_seed(seed, variants, shrink_seconds)
            except TooSlowError as error:
                row = {"seed": seed, "verdict": "TIMEOUT", "mechanism": "TIMEOUT", "text": str(error)}
            except Exception as error:
                reason = f"HARNESS {type(error).__name__}: {error}"[:200]
                row = {
                    "seed": seed,
                    "verdict": "HARNESS",
                    "mechanism": reason,
                    "text": traceback.format_exc()[-3000:],
                }
            limit_time(0)
            file.write(json.dumps(row) + "\n")
            file.flush()


class Pool:
    """Child processes that try chunks of seeds; one that dies is replaced and its seed noted."""

    def __init__(self, seeds: list[int], variants: int, workers: int, shrink_seconds: float = 0.0) -> None:
        chunk = 1 if shrink_seconds else CHUNK
        self._chunks = [seeds[i : i + chunk] for i in range(0, len(seeds), chunk)][::-1]
        self._shrink_seconds = shrink_seconds
        self._variants = variants
        self._workers = workers
        self._selector = selectors.DefaultSelector()
        self._running: dict[int, dict[str, Any]] = {}

    def _start(self, seeds: list[int]) -> None:
        reader, writer = os.pipe()
        sys.stdout.flush()
        process = os.fork()
        if process == 0:
            os.close(reader)
            try:
                work(seeds, self._variants, self._shrink_seconds, writer)
            finally:
                os._exit(0)
        os.close(writer)
        self._running[reader] = {"process": process, "seeds": seeds, "rest": b"", "at": None}
        self._selector.register(reader, selectors.EVENT_READ)

    def rows(self, end: float) -> Any:
        """What comes out, until everything is done or the time is over."""
        while (self._chunks or self._running) and time.monotonic() < end:
            while self._chunks and len(self._running) < self._workers:
                self._start(self._chunks.pop())
            for key, _ in self._selector.select(timeout=1.0):
                yield from self._read(key.fd)
        for state in self._running.values():
            os.kill(state["process"], signal.SIGKILL)
            os.waitpid(state["process"], 0)

    def _read(self, reader: int) -> Any:
        state = self._running[reader]
        data = os.read(reader, 1 << 16)
        *whole, state["rest"] = (state["rest"] + data).split(b"\n")
        for line in whole:
            row = json.loads(line)
            if "begin" in row:
                state["at"] = row["begin"]
                continue
            state["at"] = None
            state["last"] = row["seed"]
            yield row
        if not data:
            self._selector.unregister(reader)
            os.close(reader)
            del self._running[reader]
            _, status = os.waitpid(state["process"], 0)
            if state["at"] is not None:
                yield {
                    "seed": state["at"],
                    "verdict": "CRASH",
                    "mechanism": f"CRASH {status}",
                    "text": f"status {status}",
                }
                rest = state["seeds"][state["seeds"].index(state["at"]) + 1 :]
                if rest:
                    self._chunks.append(rest)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="the first seed is a million times this")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--time", type=float, default=3600, help="stop after so many seconds")
    parser.add_argument("--variants", type=int, default=3, help="beside the program itself, chosen for each program")
    parser.add_argument("--shrunk", type=int, default=2, help="how many programs of each mechanism are shrunk")
    parser.add_argument("--without", default="", help="a regular expression: templates to leave out")
    parser.add_argument("--report", type=Path, default=Path("fuzz_programs.jsonl"))
    parser.add_argument("--only", type=int, help="try the program of one seed, in all variants, and print it")
    options = parser.parse_args(arguments)
    os.environ["TINTYPE_FUZZ_WITHOUT"] = options.without
    if options.only is not None:
        return show(options.only)
    load()
    first = options.seed * 1_000_000
    pool = Pool(list(range(first, first + options.count)), options.variants, options.workers)
    begin = time.monotonic()
    rows, shown = [], begin
    for row in pool.rows(begin + options.time):
        rows.append(row)
        if row["verdict"] not in ("ok", "refused", "unusable", "skipped"):
            print(f"seed {row['seed']}: {row['mechanism']}", flush=True)
        if time.monotonic() - shown > 15:
            shown = time.monotonic()
            print(progress(rows, shown - begin), flush=True)
    print(progress(rows, time.monotonic() - begin))
    with options.report.open("w", encoding="utf-8") as report:
        for row in shrunk_rows(rows, options):
            report.write(json.dumps(row) + "\n")
            report.flush()
    return summary(rows)


def shrunk_rows(rows: list[dict[str, Any]], options: argparse.Namespace) -> Any:
    """What was found, with two programs of each mechanism shrunk."""
    count: collections.Counter[str] = collections.Counter()
    chosen = []
    for row in sorted((row for row in rows if "script" in row), key=lambda row: len(row["script"])):
        count[row["mechanism"]] += 1
        if count[row["mechanism"]] <= options.shrunk:
            chosen.append(row["seed"])
    yield from (row for row in rows if "mechanism" in row and row["seed"] not in set(chosen))
    pool = Pool(chosen, options.variants, options.workers, shrink_seconds=10.0)
    yield from pool.rows(time.monotonic() + options.time)


def progress(rows: list[dict[str, Any]], seconds: float) -> str:
    """One line about how far it is."""
    counts = collections.Counter(row["verdict"] for row in rows)
    listed = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    return f"{len(rows)} programs in {seconds:.0f} s: {listed}"


def summary(rows: list[dict[str, Any]]) -> int:
    """Print what was found, by mechanism; 1 if there are faults."""
    from tests.fuzz_programs.judging import FAULTS

    remarks: collections.Counter[str] = collections.Counter()
    for row in rows:
        remarks.update(row.get("remarks", {}))
    print(f"{sum(row.get('calls', 0) for row in rows)} calls compared with eager mode")
    for name, count in sorted(remarks.items()):
        print(f"{count:7} {name}")
    found: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
    for row in rows:
        if "mechanism" in row:
            found[row["mechanism"]].append(row)
    for name, same in sorted(found.items(), key=lambda item: -len(item[1])):
        print(f"{len(same):6} {name}   (seed {same[0]['seed']})")
    bad = sum(row["verdict"] in [*FAULTS, "CRASH", "TIMEOUT", "HARNESS"] for row in rows)
    judged = sum(row["verdict"] not in ("unusable", "skipped") for row in rows)
    refused = sum(row["verdict"] == "refused" for row in rows)
    print(f"{judged} programs judged: {bad} faults, {refused} refused ({100 * refused / max(judged, 1):.1f} %)")
    return 1 if bad else 0


def show(seed: int) -> int:
    """Try one program, and print what it is and what came out."""
    from tests.fuzz_programs.programs import write_program

    print(write_program(seed).source())
    row = try_seed(seed, ALL_VARIANTS, 20.0)
    for key, value in row.items():
        print(f"{key}: {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
