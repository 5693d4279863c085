"""The command line: export, look, run, compare."""

import pathlib
import subprocess
import sys

pathlib.Path("shop.py").write_text("""
import torch
def model():
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
""")


def tintype(*arguments: str) -> None:
    print("$ tintype", *arguments)
    subprocess.run([sys.executable, "-m", "tintype", *arguments], check=True)


tintype("check", "shop:model", "--input", "input=2x3:float32")
tintype("export", "shop:model", "model.tt", "--input", "input=2x3:float32", "--dynamic", "input.0=batch:1:64")
tintype("info", "model.tt")
tintype("tree", "model.tt")
tintype("run", "model.tt", "--input", "input=[[1, 2, 3]]")
tintype("decompose", "model.tt", "core.tt")
tintype("compare", "model.tt", "core.tt")
tintype("bench", "model.tt", "--calls", "5")
