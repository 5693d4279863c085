"""The corpus of real models: a folder outside this repository with corpus.py and bench.py in it."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.report import REPOSITORY

ENVIRONMENT_VARIABLE = "TINTYPE_BENCH_CORPUS"
DEFAULT = Path("..") / "shared" / "bench"  # from the repository's root


def add_corpus_argument(parser: argparse.ArgumentParser) -> None:
    """The option that says where the corpus lies."""
    parser.add_argument(
        "--corpus",
        type=Path,
        help=f"folder of the model corpus (default: ${ENVIRONMENT_VARIABLE}, or {DEFAULT} from here)",
    )


def corpus_folder(option: Path | None) -> Path | None:
    """The corpus's folder, or None when it is not on this machine."""
    chosen = option or Path(os.environ.get(ENVIRONMENT_VARIABLE) or REPOSITORY / DEFAULT)
    folder = chosen.resolve()
    if (folder / "corpus.py").is_file():
        return folder
    if option is not None or os.environ.get(ENVIRONMENT_VARIABLE):
        raise SystemExit(f"no corpus.py in {chosen}")
    return None


def load_cases(folder: Path) -> dict[str, Any]:
    """The corpus's cases by name; `case.build()` gives (module, args, kwargs)."""
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    sys.path.insert(0, str(folder))
    cases: dict[str, Any] = importlib.import_module("corpus").CASES
    return cases
