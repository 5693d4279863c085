"""How long a decoded token takes beside eager mode, what an export costs, and how large files are."""

from __future__ import annotations

import io
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers

import tintype
from tests.generation.architectures import Architecture, positions
from tests.generation.judging import EXAMPLE, export

STEPS, ROUNDS = 24, 8
# how often both steps are exported, and how many forward passes are taken between
EXPORTS, FORWARDS = 5, 4


def timed_tokens(architecture: Architecture, step: Callable[..., Any], batch: int = 1) -> Iterator[float]:
    """The times of decode steps, one after the other, after a prompt."""
    arguments = architecture.decode(batch, 8)
    tokens_name = "decoder_input_ids" if architecture.encoder_inputs is not None else "input_ids"
    has_mask = architecture.takes_mask and architecture.encoder_inputs is None
    for _ in range(STEPS):
        with torch.no_grad():
            start = time.thread_time()  # without what the machine does meanwhile
            results = step(**arguments)
            yield time.thread_time() - start
        arguments |= {
            tokens_name: results.logits[:, -1:].argmax(-1),
            architecture.cache_name: results[architecture.cache_name],
        }
        if has_mask:
            mask = arguments["attention_mask"]
            arguments["attention_mask"] = torch.cat([mask, torch.ones_like(mask[:, :1])], 1)
        if architecture.takes_positions:
            arguments["position_ids"] = positions(arguments["attention_mask"])[:, -1:]


def token_ratio(architecture: Architecture, decode: tintype.ExportedProgram) -> float:
    """A decoded token's time with a program, in that of eager mode, which takes turns with it, token by token.

    The lower quartiles: what else the machine does only ever adds to a time.
    """
    module = decode.module()
    pairs: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        eager, program = timed_tokens(architecture, architecture.model), timed_tokens(architecture, module)
        pairs += zip(eager, program, strict=True)
    eager_time, program_time = (statistics.quantiles(times, n=4)[0] for times in zip(*pairs, strict=True))
    return program_time / eager_time


def export_forwards(architecture: Architecture) -> float:
    """The time of an export of both steps, in forward passes of eager mode over the same examples.

    Medians of times in turns, of a thread's own time: what else the machine does is not counted. What the first
    export of a process does once (loading modules) was done before.
    """
    exports: dict[str, list[float]] = {"prefill": [], "decode": []}
    forwards: list[float] = []
    for _ in range(EXPORTS):
        for step, times in exports.items():
            arguments = getattr(architecture, step)(*EXAMPLE)
            start = time.thread_time()
            with torch.no_grad():
                tintype.export(architecture.model, (), arguments, dynamic_shapes="auto")
            times.append(time.thread_time() - start)
            for _ in range(FORWARDS):
                arguments = getattr(architecture, step)(*EXAMPLE)
                start = time.thread_time()
                with torch.no_grad():
                    architecture.model(**arguments)
                forwards.append(time.thread_time() - start)
    return sum(map(statistics.median, exports.values())) / statistics.median(forwards)


def file_ratio() -> float:
    """The size of a file of prefill and decode in that of a file of decode alone, for a model of 40 MB."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=8000, hidden_size=512, intermediate_size=1024, num_hidden_layers=2, num_attention_heads=8
    )
    architecture = Architecture("Llama", transformers.LlamaForCausalLM(config).eval())
    programs = {step: export(architecture, step) for step in ("prefill", "decode")}
    return size_of(programs) / size_of(programs["decode"])


def size_of(programs: Any) -> int:
    """How many bytes a file has."""
    file = io.BytesIO()
    tintype.save(programs, file)
    return file.getbuffer().nbytes
