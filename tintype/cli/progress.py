"""What a command is doing, for commands that take longer than a second."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

Tell = Callable[[str], None]


@contextmanager
def progress(first: str) -> Iterator[Tell]:
    """A function that says on stderr what is being done next. A terminal shows the newest step, which vanishes when
    all is done; where there is none, steps that begin after the first second are lines, one in a second at most."""
    console = Console(stderr=True)
    began = told = time.monotonic()
    with console.status(first) as status:

        def tell(step: str) -> None:
            nonlocal told
            status.update(step)
            now = time.monotonic()
            if not console.is_terminal and now - told > 1:
                told = now
                print(f"{now - began:.0f} s: {step}", file=sys.stderr)

        yield tell
