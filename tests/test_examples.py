"""The examples and the README's code run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((REPOSITORY / "examples").glob("*.py"))
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
README_CODE = re.findall(r"^```python\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(path)], cwd=REPOSITORY, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readmes_code_runs() -> None:
    assert README_CODE
    for code in README_CODE:
        exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
