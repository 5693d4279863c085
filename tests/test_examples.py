"""The examples and the code of all pages run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

REPOSITORY = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((REPOSITORY / "examples").glob("*.py"))
# the pages of errors show calls that fail, and have a test of their own
PAGES = [
    str(page.relative_to(REPOSITORY))
    for page in [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
    if re.search(r"^ *```python", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_runs(path: Path) -> None:
    done = subprocess.run([sys.executable, str(path)], cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


TASKS = sorted((REPOSITORY / "examples" / "tasks").glob("*.py"))
NEEDED = {"02_bert.py": "transformers", "05_diffusers_unet.py": "diffusers", "12_hand_on.py": "onnxruntime"}


@pytest.mark.parametrize("path", TASKS, ids=lambda path: path.name)
def test_an_everyday_task(path: Path, tmp_path: Path) -> None:
    """Each in at most 30 lines."""
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 30
    if path.name in NEEDED:
        pytest.importorskip(NEEDED[path.name])
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_twelve_tasks() -> None:
    assert len(TASKS) == 12


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_runs(page: str, tmp_path: Path) -> None:
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    found = re.findall(r"^( *)```python\n(.*?)^ *```", text, flags=re.DOTALL | re.MULTILINE)
    blocks = [textwrap.dedent(block) for _, block in found]
    assert blocks
    script = tmp_path / "page.py"  # a file, so that source lines can be found
    script.write_text("\n\n".join(blocks), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}  # pages may write files, but not into the repository
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_of_generation_takes_weights(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.Qwen3Config(
        vocab_size=128, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.Qwen3ForCausalLM(config).save_pretrained(tmp_path)
    command = [sys.executable, "examples/generate.py", "--weights", str(tmp_path), "--tokens", "6"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("the tokens of model.generate()") == 3
