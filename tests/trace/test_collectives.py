"""Collectives of torch.distributed in programs, on processes that talk to each other."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
import torch

pytestmark = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()), reason="torch was built without"
)


def run_processes(module: str, size: int, folder: pathlib.Path) -> None:
    """Run a module of tests in processes of one group, and show what they say if one fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-m", module]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(size), str(folder / "meeting")],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    try:
        outputs = [process.communicate(timeout=240)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output


@pytest.mark.parametrize("size", [1, 2])
def test_collectives_do_what_eager_mode_does(size: int, tmp_path: pathlib.Path) -> None:
    run_processes("tests.trace.collective_programs", size, tmp_path)


def test_tensors_of_several_processes_are_captured_as_their_parts(tmp_path: pathlib.Path) -> None:
    run_processes("tests.trace.distributed_programs", 2, tmp_path)
