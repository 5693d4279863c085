"""A Llama of seven billion parameters as ONNX: how much memory does it take?

    python -m benchmarks.onnx_large [--layers 32] [--folder /var/tmp] [--write]

The model is made on the meta device in half precision, exported, and gets its weights from safetensors shards of
zeros, which have holes in place of the zeros. The ONNX file and its external data are written in full, and deleted
again.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.report import REPOSITORY, add_write_argument, markdown_table, publish

SHARDS = 4
SHARD_BYTES = 4_000_000_000

EXPORTER = """
import json, re, sys, time
from pathlib import Path
import torch, tintype
from benchmarks.onnx_large import model, write_shards

def kilobytes(name):
    return int(re.search(rf"^{name}:\\s+(\\d+) kB", Path("/proc/self/status").read_text(), re.M).group(1))

folder, layers = Path(sys.argv[1]), int(sys.argv[2])
made, ids = model(layers)
write_shards(folder / "weights", {**made.state_dict(), **dict(made.named_buffers())})
tintype.onnx.export(torch.nn.ReLU(), (torch.ones(1),))  # loads the libraries
before = kilobytes("VmRSS")
length = tintype.Dim("length", min=2, max=4096)
start = time.perf_counter()
program = tintype.export(made, (ids,), dynamic_shapes=({1: length},))
captured = time.perf_counter()
program = tintype.attach_weights(program, folder / "weights")
exported = tintype.onnx.export(program)
built = time.perf_counter()
exported.save(folder / "model.onnx", max_shard_bytes=int(sys.argv[3]))
saved = time.perf_counter()
print(json.dumps({
    "parameters": sum(value.numel() for value in made.parameters()),
    "before": before, "peak": kilobytes("VmHWM"), "capture": captured - start, "build": built - captured,
    "save": saved - built, "nodes": exported.report.nodes,
}))
"""


def model(layers: int) -> tuple[Any, Any]:
    """Llama on the meta device, and an input for it."""
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=4096, intermediate_size=11008, num_hidden_layers=layers, num_attention_heads=32,
        vocab_size=32000, use_cache=False,
    )  # fmt: skip
    with torch.device("meta"):
        made = LlamaForCausalLM(config).half().eval()
        return made, torch.ones(1, 8, dtype=torch.int64)


def write_shards(folder: Path, weights: dict[str, Any]) -> None:
    """Safetensors files of zeros in half precision, with holes in place of the zeros, and their index."""
    folder.mkdir()
    places = {}
    for shard in range(SHARDS):
        header: dict[str, object] = {}
        end = 0
        for name in list(weights)[shard::SHARDS]:
            begin, end = end, end + weights[name].numel() * 2
            header[name] = {"dtype": "F16", "shape": list(weights[name].shape), "data_offsets": [begin, end]}
            places[name] = f"model-{shard}.safetensors"
        encoded = json.dumps(header).encode()
        with open(folder / f"model-{shard}.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(encoded)) + encoded)
            file.truncate(8 + len(encoded) + end)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))


def measure(folder: Path, layers: int) -> list[list[str]]:
    command = [sys.executable, "-c", EXPORTER, str(folder), str(layers), str(SHARD_BYTES)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    found = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=REPOSITORY)
    if found.returncode:
        raise SystemExit(found.stderr)
    result = json.loads(found.stdout.splitlines()[-1])
    files = sorted(folder.glob("model*.onnx*"))
    return [
        ["parameters", f"{result['parameters'] / 1e9:.2f} billion, float16"],
        ["files", f"{len(files)}, {sum(each.stat().st_size for each in files) / 1e9:.2f} GB"],
        ["ONNX nodes", str(result["nodes"])],
        ["memory before, with all libraries loaded", f"{result['before'] / 1e6:.2f} GB"],
        ["most memory while it was exported and written", f"{result['peak'] / 1e6:.2f} GB"],
        [
            "capture, translation, writing",
            f"{result['capture']:.1f} s, {result['build']:.1f} s, {result['save']:.1f} s",
        ],
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_write_argument(parser)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where files are written")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        rows = measure(Path(folder), options.layers)
    publish("onnx large", markdown_table(("what", "measured"), rows), options.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
