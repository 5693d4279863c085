"""Tokens that programs of a prefill and a decode step generate, beside those of ``generate()``."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
import transformers

import tintype
from tests.generation.architectures import Architecture, positions

# twenty prompts in batches of one to four: the longest prompt of each batch
BATCHES = ((1, 5), (2, 9), (3, 7), (4, 12), (1, 17), (2, 6), (3, 21), (4, 8))
COUNT = 12


def tokens_of_programs(
    architecture: Architecture, prefill: Any, decode: Any, arguments: dict[str, Any], count: int = COUNT
) -> torch.Tensor:
    """Greedily, with modules of the two programs."""
    tokens_name = "decoder_input_ids" if architecture.encoder_inputs is not None else "input_ids"
    pictures = architecture.more(1).keys()
    found: list[torch.Tensor] = []
    module = prefill
    while True:
        with torch.no_grad():
            results = module(**arguments)
        found.append(results.logits[:, -1:].argmax(-1))
        if len(found) == count:
            return torch.cat(found, 1)
        arguments = {name: value for name, value in arguments.items() if name not in pictures}
        arguments |= {tokens_name: found[-1], architecture.cache_name: results[architecture.cache_name]}
        if architecture.takes_mask and architecture.encoder_inputs is None:
            mask = arguments["attention_mask"]
            arguments["attention_mask"] = torch.cat([mask, torch.ones_like(mask[:, :1])], 1)
        if architecture.takes_positions:
            arguments["position_ids"] = positions(arguments["attention_mask"])[:, -1:]
        module = decode


def tokens_of_generate(
    architecture: Architecture, batch: int, length: int, seed: int, count: int = COUNT
) -> torch.Tensor:
    """As the library generates them, and no end before there are as many as are wanted."""
    if architecture.encoder_inputs is not None:
        inputs = architecture.encoder_inputs(batch, length + 3)
    else:
        own = (architecture.cache_name, "position_ids")
        arguments = architecture.prefill(batch, length, seed)
        inputs = {name: value for name, value in arguments.items() if name not in own}
    # those of speech models do more than generate; some models note in attributes where they are
    found = transformers.GenerationMixin.generate(
        copy.deepcopy(architecture.model), **inputs, max_new_tokens=count, min_new_tokens=count, do_sample=False,
        num_beams=1, eos_token_id=None, forced_eos_token_id=None,
    )  # fmt: skip
    return found[:, -count:]


def wrong_batches(
    architecture: Architecture, prefill: tintype.ExportedProgram, decode: tintype.ExportedProgram
) -> Iterator[str]:
    """Which of the batches have other tokens, or are refused."""
    modules = prefill.module(), decode.module()
    for seed, (batch, length) in enumerate(BATCHES):
        expected = tokens_of_generate(architecture, batch, length, seed)
        try:
            tokens = tokens_of_programs(architecture, *modules, architecture.prefill(batch, length, seed))
        except RuntimeError as error:
            yield f"batch {batch}, length {length}: refused, {str(error).splitlines()[0]}"
            continue
        if not torch.equal(tokens, expected):
            yield f"batch {batch}, length {length}: {tokens.tolist()} and not {expected.tolist()}"
