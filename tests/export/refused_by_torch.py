"""Programs that torch.export 2.13 refuses although what they mean is clear for every input, and that tintype takes.

    python -m tests.export.refused_by_torch [--write]

asks torch.export about each of them and prints the table of docs/refused_by_torch.md; ``--write`` puts it there.
What tintype makes of them is tested in test_refused_by_torch.py.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

Arguments = tuple[Any, ...]
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "refused_by_torch.md"


@dataclass(frozen=True)
class Program:
    """A model, its ``dynamic_shapes`` over a ``Dim`` class, the example inputs and further inputs."""

    name: str
    model: nn.Module
    meaning: str
    shapes: Callable[[Any], Any]
    example: Arguments
    others: tuple[Arguments, ...]


PROGRAMS: list[Program] = []


class Function(nn.Module):
    """A function of one to three tensors as a module, which torch.export wants; arguments are x, y, z."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function


class Unary(Function):
    def forward(self, x: Any) -> Any:
        return self.function(x)


class Binary(Function):
    def forward(self, x: Any, y: Any) -> Any:
        return self.function(x, y)


class Recurrent(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> Any:
        return self.layer(x)[0]


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x)[0]


class CtcLoss(nn.Module):
    def forward(self, x: Any, targets: Any, lengths: Any, target_lengths: Any) -> torch.Tensor:
        return F.ctc_loss(x.log_softmax(-1), targets, lengths, target_lengths)


class Packed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(4, 5, batch_first=True)

    def forward(self, x: Any, y: Any) -> tuple[torch.Tensor, torch.Tensor]:
        packed = nn.utils.rnn.pack_padded_sequence(x, y, batch_first=True)
        found, last = self.layer(packed)
        padded, _ = nn.utils.rnn.pad_packed_sequence(found, batch_first=True, total_length=x.shape[1])
        return padded, last


def add(name: str, meaning: str, model: Any, shapes: Callable[[Any], Any], *inputs: Arguments) -> None:
    """Put a program on the list; functions become modules by their number of inputs."""
    if not isinstance(model, nn.Module):
        model = (Unary if len(inputs[0]) == 1 else Binary)(model)
    PROGRAMS.append(Program(name, model.eval(), meaning, shapes, inputs[0], inputs[1:]))


def crop_to_match(x: torch.Tensor) -> torch.Tensor:
    """A decoder's step: sizes are halved, rounded up, doubled and cropped."""
    up = F.interpolate(F.max_pool2d(x, 2, ceil_mode=True), scale_factor=2)
    return torch.cat([x, up[:, :, : x.shape[2], : x.shape[3]]], 1)


def shrink_and_grow(x: torch.Tensor) -> torch.Tensor:
    weight = torch.ones(2, 2, 3)
    return F.conv_transpose1d(F.conv1d(x, weight, stride=2), weight, stride=2)[..., : x.shape[-1]]


random = torch.Generator().manual_seed(0)


def noise(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes, generator=random)


integer = torch.tensor

# --- recurrent layers: torch unrolls them, once per time step of the example

add("lstm", "a sequence of any length", Recurrent(nn.LSTM(4, 5, 2, batch_first=True)),
    lambda Dim: {"x": {0: Dim("batch"), 1: Dim("length")}},
    (noise(2, 3, 4),), (noise(3, 7, 4),), (noise(1, 1, 4),))  # fmt: skip
add("gru, bidirectional", "a sequence of any length", Recurrent(nn.GRU(4, 5, bidirectional=True)),
    lambda Dim: {"x": {0: Dim("length")}}, (noise(3, 2, 4),), (noise(8, 2, 4),), (noise(1, 2, 4),))  # fmt: skip
add("rnn", "a sequence of any length", Recurrent(nn.RNN(4, 5, nonlinearity="relu")),
    lambda Dim: {"x": {0: Dim("length"), 1: Dim("batch")}}, (noise(3, 2, 4),), (noise(6, 1, 4),))  # fmt: skip

# --- examples of size 0 and 1: torch takes them for fixed

add("linear, example of one", "a batch of any size", nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)),
    lambda Dim: {"input": {0: Dim("batch")}}, (noise(1, 3),), (noise(2, 3),), (noise(64, 3),))  # fmt: skip
add("convolutions, example of one", "images of any number and size",
    nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    lambda Dim: {"input": {0: Dim("batch"), 2: Dim("height", min=8), 3: Dim("width", min=8)}},
    (noise(1, 3, 16, 16),), (noise(3, 3, 20, 9),))  # fmt: skip
add("attention, example of one", "a batch of any size", SelfAttention(),
    lambda Dim: {"x": {0: Dim("batch"), 1: Dim("length")}}, (noise(1, 5, 8),), (noise(3, 7, 8),))  # fmt: skip
add("decoding step", "one query or several", lambda x, y: F.scaled_dot_product_attention(x, y, y),
    lambda Dim: {"x": {1: Dim("new")}, "y": {1: Dim("all")}},
    (noise(2, 1, 8), noise(2, 6, 8)), (noise(2, 4, 8), noise(2, 9, 8)))  # fmt: skip
add("empty past", "a cache that is empty at first", lambda x, y: torch.cat([x, y], 1).softmax(1),
    lambda Dim: {"x": {1: Dim("past")}, "y": {1: Dim("new")}},
    (noise(2, 0, 4), noise(2, 1, 4)),
    (noise(2, 5, 4), noise(2, 1, 4)), (noise(2, 2, 4), noise(2, 3, 4)))  # fmt: skip
add("empty batch", "a batch of any size, none included", lambda x: x.flatten(1).sum(0),
    lambda Dim: {"x": {0: Dim("batch")}}, (noise(0, 3, 4),), (noise(5, 3, 4),))  # fmt: skip
add("pairwise similarity of one", "every row of one with every row of the other",
    lambda x, y: F.cosine_similarity(x[:, None], y[None], -1),
    lambda Dim: {"x": {0: Dim("first")}, "y": {0: Dim("second")}},
    (noise(1, 3), noise(1, 3)), (noise(4, 3), noise(2, 3)), (noise(1, 3), noise(2, 3)))  # fmt: skip

# --- sizes that fit, which has to be proved

add("pad to a multiple", "the padded size is divisible",
    lambda x: F.pad(x, (0, (4 - x.shape[0] % 4) % 4)).view(-1, 4),
    lambda Dim: {"x": {0: Dim("length")}}, (noise(9),), (noise(11),), (noise(8),), (noise(0),))  # fmt: skip
add("pad by a negative remainder", "the padded size is divisible",
    lambda x: F.pad(x, (0, -x.shape[0] % 4)).view(-1, 4),
    lambda Dim: {"x": {0: Dim("length")}}, (noise(9),), (noise(11),), (noise(8),))  # fmt: skip
add("blocks, rounded up", "as many blocks as are needed",
    lambda x: F.pad(x, (0, (x.shape[0] + 3) // 4 * 4 - x.shape[0])).view((x.shape[0] + 3) // 4, 4),
    lambda Dim: {"x": {0: Dim("length")}}, (noise(9),), (noise(11),), (noise(8),), (noise(1),))  # fmt: skip
add("crop to match", "what was rounded up is at least as large", crop_to_match,
    lambda Dim: {"x": {2: Dim("height", min=4), 3: Dim("width", min=4)}},
    (noise(1, 2, 8, 8),), (noise(1, 2, 9, 11),), (noise(1, 2, 4, 7),))  # fmt: skip
add("shrink and grow", "a slice up to a size that may be larger", shrink_and_grow,
    lambda Dim: {"x": {2: Dim("width", min=4)}},
    (noise(1, 2, 9),), (noise(1, 2, 10),), (noise(1, 2, 4),))  # fmt: skip
add("split by a third", "two parts that make the whole",
    lambda x: x.split([x.shape[0] // 3, x.shape[0] - x.shape[0] // 3]),
    lambda Dim: {"x": {0: Dim("length")}}, (noise(10),), (noise(11),), (noise(0),))  # fmt: skip
add("swap halves", "half of a size is within it",
    lambda x: torch.cat([x[x.shape[0] // 2 :], x[: x.shape[0] // 2]]),
    lambda Dim: {"x": {0: Dim("length")}}, (noise(10),), (noise(11),), (noise(1),))  # fmt: skip
add("upper half", "half of a size is within it", lambda x: x.topk(x.shape[0] // 2 + 1).values,
    lambda Dim: {"x": {0: Dim("length", min=1)}}, (noise(5),), (noise(9),), (noise(1),))  # fmt: skip
add("median filter", "windows of a signal", lambda x: x.unfold(0, 3, 1).median(-1).values,
    lambda Dim: {"x": {0: Dim("length", min=3)}}, (noise(5),), (noise(9),), (noise(3),))  # fmt: skip
add("spectrogram", "windows of a signal",
    lambda x: torch.stft(x, 8, window=torch.ones(8), return_complex=True).abs(),
    lambda Dim: {"x": {0: Dim("length", min=16)}}, (noise(32),), (noise(65),), (noise(16),))  # fmt: skip
add("three parts", "parts that differ by one at most", lambda x: x.tensor_split(3),
    lambda Dim: {"x": {0: Dim("length")}}, (noise(9),), (noise(11),), (noise(1),), (noise(13),))  # fmt: skip
add("evenly spaced", "as many steps as there are rows", lambda x: x * torch.linspace(0, 1, x.shape[0]),
    lambda Dim: {"x": {0: Dim("length")}}, (noise(5),), (noise(9),), (noise(1),), (noise(0),))  # fmt: skip
add("maximum over time", "a window as wide as the input", lambda x: F.max_pool1d(x, x.shape[-1]).squeeze(2),
    lambda Dim: {"x": {2: Dim("length", min=1)}},
    (noise(2, 3, 7),), (noise(2, 3, 1),), (noise(2, 3, 30),))  # fmt: skip
add("mean of an image", "a window as large as the image", lambda x: F.avg_pool2d(x, kernel_size=x.shape[2:]),
    lambda Dim: {"x": {2: Dim("height", min=1), 3: Dim("width", min=1)}},
    (noise(2, 3, 4, 6),), (noise(2, 3, 1, 9),), (noise(2, 3, 8, 1),))  # fmt: skip
add("half as many means", "pooling to half of the size", lambda x: F.adaptive_avg_pool1d(x, x.shape[2] // 2),
    lambda Dim: {"x": {2: Dim("length", min=2)}},
    (noise(1, 3, 8),), (noise(1, 3, 2),), (noise(1, 3, 9),))  # fmt: skip
add("patches", "windows half as high as the image", lambda x: F.unfold(x, (x.shape[2] // 2, 2)),
    lambda Dim: {"x": {2: Dim("height", min=2)}},
    (noise(2, 3, 8, 4),), (noise(2, 3, 2, 4),), (noise(2, 3, 7, 4),))  # fmt: skip
add("half a window", "windows half as wide as the signal", lambda x: x.unfold(0, x.shape[0] // 2, 1).mean(1),
    lambda Dim: {"x": {0: Dim("length", min=2)}}, (noise(8),), (noise(2),), (noise(33),))  # fmt: skip
add("band", "a diagonal as far out as the last but four", lambda x: (x[:, None] * x).diagonal(x.shape[0] - 5),
    lambda Dim: {"x": {0: Dim("length", min=5)}}, (noise(8),), (noise(5),), (noise(33),))  # fmt: skip
add("there and back", "a signal of the length that went in",
    lambda x: torch.istft(torch.stft(x, 8, window=torch.hann_window(8), return_complex=True), 8,
                          window=torch.hann_window(8), length=x.shape[-1]),
    lambda Dim: {"x": {1: Dim("length", min=8)}}, (noise(2, 32),), (noise(2, 65),), (noise(2, 9),))  # fmt: skip
add("padded as it was", "sequences of different lengths, padded to the length that went in", Packed(),
    lambda Dim: {"x": {0: Dim("batch"), 1: Dim("length")}, "y": {0: Dim("batch")}},
    (noise(3, 7, 4), integer([7, 5, 2])),
    (noise(2, 9, 4), integer([8, 1])), (noise(1, 3, 4), integer([3])))  # fmt: skip

# --- numbers and sizes that the data decide

add("one-hot", "as many classes as the largest one says", lambda x: F.one_hot(x),
    lambda Dim: {"x": {0: Dim("length")}}, (integer([0, 1, 3]),), (integer([1, 0, 0, 7]),))  # fmt: skip
add("steps from data", "as many steps as a tensor says", lambda x: torch.linspace(0, 1, x.item()),
    lambda Dim: None, (integer(5),), (integer(9),), (integer(1),))  # fmt: skip
add("ctc loss", "lengths are data, the number of frames varies", CtcLoss(),
    lambda Dim: {"x": {0: Dim("frames")}, "targets": None, "lengths": None, "target_lengths": None},
    (noise(9, 2, 5), integer([[1, 2], [3, 4]]), integer([9, 9]), integer([2, 2])),
    (noise(12, 2, 5), integer([[1, 2], [3, 1]]), integer([9, 12]), integer([2, 1])))  # fmt: skip

# --- numbers as inputs

add("named integer", "an integer that is half of a size", lambda x, y: x.view(y, 2) + y,
    lambda Dim: {"x": {0: 2 * Dim("half", max=9)}, "y": Dim("half", max=9)},
    (noise(6), 3), (noise(14), 7), (noise(2), 1))  # fmt: skip
add("float", "a factor that varies", lambda x, y: x * y + y,
    lambda Dim: {"x": None, "y": Dim.DYNAMIC}, (noise(3), 0.5), (noise(3), 2.5))  # fmt: skip


def what_torch_says(program: Program) -> str | None:
    """The first lines of torch.export's refusal; None when it takes the program and runs it on all inputs."""
    from torch.export import Dim, export

    try:
        exported = export(program.model, program.example, dynamic_shapes=program.shapes(Dim)).module()
        for inputs in (program.example, *program.others):
            exported(*inputs)
    except Exception as error:
        return first_lines(f"{type(error).__name__}: {error}")
    return None


def first_lines(text: str) -> str:
    """The beginning of a message, in one line, without advice on how to find out more."""
    text = re.sub(r"! For more information, run with[^\n]*", "!", text)
    text = re.sub(r"\s+", " ", text).strip()
    return text if len(text) <= 190 else text[:190].rpartition(" ")[0] + " ..."


def table() -> str:
    rows = ["| program | what it means | torch.export 2.13 |", "|---|---|---|"]
    for program in PROGRAMS:
        said = what_torch_says(program)
        cell = "takes it" if said is None else f"`{said.replace('|', '/').replace('`', '')}`"
        rows.append(f"| {program.name} | {program.meaning} | {cell} |")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="also put the table into docs/refused_by_torch.md")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    text = table()
    print(text)
    if options.write:
        from benchmarks.report import replace_section

        replace_section(DOCUMENT, "table", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
