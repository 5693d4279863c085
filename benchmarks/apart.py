"""Models of the corpus one after the other, each in a process of its own: what the checks of real models share."""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.model_corpus import add_corpus_argument, corpus_folder, load_cases
from benchmarks.report import REPOSITORY, add_write_argument

Result = dict[str, Any]


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cases", help="names of models, separated by commas (default: all)")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    add_corpus_argument(parser)
    add_write_argument(parser)


def chosen_models(options: argparse.Namespace, check: Callable[[Any], Result]) -> tuple[Path, list[str]]:
    """The corpus and the names of the models to look at. In the process of one model: look at it, and end."""
    folder = corpus_folder(options.corpus)
    if folder is None:
        raise SystemExit("the corpus of models is not on this machine")
    cases = load_cases(folder)
    if options.one:
        with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")
            result = check(cases[options.one])
        print(json.dumps(result))
        raise SystemExit(0)
    return folder, options.cases.split(",") if options.cases else list(cases)


def run_apart(arguments: list[str], name: str, corpus: Path) -> Result | str:
    """What a module's check says of one model, in a process of its own; the last line of its error if it fails."""
    command = [sys.executable, "-m", *arguments, "--one", name, "--corpus", str(corpus)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["no output"])[-1]
    result: Result = json.loads(done.stdout.splitlines()[-1])
    return result
