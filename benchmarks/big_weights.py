"""Ten gigabytes of weights: does loading map them, and do processes share them?

    python -m benchmarks.big_weights [--gigabytes 10] [--folder /var/tmp] [--write]

A program of linear layers is exported on the meta device and gets its weights from safetensors shards. Then it is
saved with weights of zeros and loaded in two processes at once. Shards and file have holes in place of the zeros, so
that they take no room on the disk; to a reader they are files like any others.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any, cast

import torch

import tintype
from benchmarks.report import REPOSITORY, add_write_argument, markdown_table, publish
from tintype.export import export
from tintype.export.program import copy_program
from tintype.serde.archive import write_archive
from tintype.serde.encode import encode_program
from tintype.serde.files import archive_entries

WIDTH = 8192
LAYER = WIDTH * WIDTH * 4  # bytes
SHARDS = 4

LOADER = """
import json, re, sys, time, torch, tintype
from pathlib import Path
def kilobytes(name):
    return int(re.search(rf"^{name}:\\s+(\\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.M).group(1))
tintype.load(sys.argv[2])
before = kilobytes("Rss")
start = time.perf_counter()
program = tintype.load(sys.argv[1])
seconds = time.perf_counter() - start
after = kilobytes("Rss")
touched = program.state_dict["0.weight"].sum().item()
print(json.dumps({"seconds": seconds, "grown": after - before}), flush=True)
sys.stdin.readline()
print(json.dumps({"private": kilobytes("Private_Dirty"), "rss": kilobytes("Rss"), "pss": kilobytes("Pss")}))
"""


def write_shards(folder: Path, names: list[str]) -> None:
    """Safetensors files of zeros, with holes in place of the zeros, and their index."""
    places = {}
    for shard in range(SHARDS):
        mine = names[shard::SHARDS]
        header: dict[str, object] = {}
        for number, name in enumerate(mine):
            header[name] = {
                "dtype": "F32", "shape": [WIDTH, WIDTH], "data_offsets": [number * LAYER, (number + 1) * LAYER],
            }  # fmt: skip
            places[name] = f"model-{shard}.safetensors"
        encoded = json.dumps(header).encode()
        with open(folder / f"model-{shard}.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(encoded)) + encoded)
            file.truncate(8 + len(encoded) + len(mine) * LAYER)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))


class FileWithHoles(io.FileIO):
    """Skips large pieces, which are zeros here."""

    def write(self, piece: Any) -> int:
        if len(piece) >= 1 << 20:
            self.seek(len(piece), os.SEEK_CUR)
            return len(piece)
        return super().write(piece) or 0


def save_with_holes(program: tintype.ExportedProgram, path: Path) -> None:
    """As tintype.save does it, but for what is zero."""
    with FileWithHoles(path, "w+") as file:
        write_archive(cast(IO[bytes], file), archive_entries(encode_program(program, metadata=True), {}))


def measure(folder: Path, gigabytes: float) -> list[list[str]]:
    layers = int(gigabytes * 1e9 / LAYER) + 1
    with torch.device("meta"):
        model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(layers)])
        program = export(model, (torch.ones(1, WIDTH),))
    write_shards(folder, list(model.state_dict()))
    start = time.perf_counter()
    program = tintype.attach_weights(program, folder)
    attach = time.perf_counter() - start
    path, small = folder / "model.tt", folder / "small.tt"
    tintype.save(export(torch.nn.ReLU(), (torch.ones(1),)), small)
    zeros = {name: torch.zeros(WIDTH, WIDTH) for name in program.state_dict}  # pages that nobody wrote to
    save_with_holes(copy_program(program, program.graph_module, state_dict=zeros), path)
    del program, zeros
    loaders = [
        subprocess.Popen(
            [sys.executable, "-c", LOADER, str(path), str(small)], cwd=REPOSITORY, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        for _ in range(2)
    ]  # fmt: skip
    first = [json.loads(loader.stdout.readline()) for loader in loaders if loader.stdout is not None]
    last = [json.loads(loader.communicate("\n")[0]) for loader in loaders]
    return [
        ["weights", f"{layers * LAYER / 1e9:.2f} GB, {layers} tensors"],
        ["attach_weights from 4 safetensors shards", f"{attach * 1e3:.0f} ms"],
        ["load", ", ".join(f"{result['seconds'] * 1e3:.0f} ms" for result in first) + " (two processes at once)"],
        ["memory that loading took", ", ".join(f"{result['grown'] / 1e3:.1f} MB" for result in first)],
        [
            f"in memory after reading one tensor of {LAYER / 1e6:.0f} MB in both",
            f"{last[0]['rss'] / 1e3:.0f} MB in one process, of which its share is {last[0]['pss'] / 1e3:.0f} MB",
        ],
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_write_argument(parser)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where files are written")
    options = parser.parse_args(arguments)
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        rows = measure(Path(folder), options.gigabytes)
    publish("big weights", markdown_table(("what", "measured"), rows), options.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
