"""Export the two steps of a language model, save them to one file, and generate text where transformers is not.

    python examples/generate.py                      a small Llama with random weights
    python examples/generate.py --weights FOLDER     config.json and safetensors files, as Hugging Face lays them out

The first process exports four programs: prefill and decode with the cache as an input and an output, for batches and
prompts of every size, and both again with the cache as their own state. They go into one file, with the weights once.
A second process loads it, without transformers, and generates greedily and by sampling. The tokens must be those of
``model.generate()``.
"""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import tintype

LONGEST = 64  # prompt and answer, where the cache is state
TEMPERATURE, TOP_K, SEED = 0.8, 20, 7

Choice = Callable[[Tensor], Tensor]


# --- generating: nothing here knows where the model comes from ----------------------------------------------------


def greedily(logits: Tensor) -> Tensor:
    return logits.argmax(-1)


def by_sampling(logits: Tensor) -> Tensor:
    logits = logits / TEMPERATURE
    least = logits.topk(min(TOP_K, logits.shape[-1])).values[:, -1:]
    logits = logits.masked_fill(logits < least, -torch.inf)
    return torch.multinomial(logits.softmax(-1), 1).squeeze(1)


class Ending:
    """A sequence that has ended goes on with padding until all have."""

    def __init__(self, batch: int, end: int | None, padding: int) -> None:
        self.running = torch.ones(batch, dtype=torch.bool)
        self.end, self.padding = end, padding

    def __call__(self, tokens: Tensor) -> Tensor:
        tokens = torch.where(self.running, tokens, self.padding)
        if self.end is not None:
            self.running = self.running & (tokens != self.end)
        return tokens

    def __bool__(self) -> bool:
        return not self.running.any()


@torch.no_grad()
def generate(prefill: Any, decode: Any, cache: Any, ids: Tensor, mask: Tensor, count: int, choose: Choice,
             ending: Ending) -> Tensor:  # fmt: skip
    """Tokens after a batch of prompts, padded on the left; ``prefill`` and ``decode`` may be the model itself."""
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    found: list[Tensor] = []
    step, tokens = prefill, ids
    while True:
        results = step(input_ids=tokens, attention_mask=mask, position_ids=positions, past_key_values=cache)
        found.append(ending(choose(results.logits[:, -1].float())))
        if len(found) == count or ending:
            return torch.stack(found, 1)
        step, cache, tokens = decode, results.past_key_values, found[-1][:, None]
        mask = torch.cat([mask, torch.ones_like(mask[:, :1])], 1)
        positions = positions[:, -1:] + 1


@torch.no_grad()
def generate_with_state(prefill: Any, decode: Any, ids: Tensor, count: int, choose: Choice, ending: Ending) -> Tensor:
    """Tokens after one prompt, with modules whose cache is their own."""
    prefill.reset()
    found = [ending(choose(prefill(ids)[:, -1].float()))]
    while len(found) < count and not ending:
        found.append(ending(choose(decode(found[-1][:, None])[:, -1].float())))
    return torch.stack(found, 1)


def padded(prompts: list[list[int]], padding: int) -> tuple[Tensor, Tensor]:
    """Prompts as one tensor, and which tokens of it are prompts."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[padding] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    return ids, mask


# --- the first process: transformers is here ----------------------------------------------------------------------


def small_llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def model_from(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()


def with_static_cache(model: Any) -> torch.nn.Module:
    """The model with a cache of fixed size as buffers: its calls need nothing but tokens."""
    from transformers import StaticCache

    class WithCache(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model
            self.cache = StaticCache(config=model.config, max_cache_len=LONGEST)
            config = model.config.get_text_config()
            heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
            width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
            self.cache.early_initialization(1, heads, width, model.dtype, model.device)
            for number, layer in enumerate(self.cache.layers):
                for name in ("keys", "values", "cumulative_length"):
                    self.register_buffer(f"{name}_{number}", getattr(layer, name), persistent=False)

        def forward(self, input_ids: Tensor) -> Tensor:
            logits: Tensor = self.model(input_ids=input_ids, past_key_values=self.cache, use_cache=True).logits
            return logits

    return WithCache().eval()


@torch.no_grad()
def export_steps(model: Any) -> dict[str, tintype.ExportedProgram]:
    """Prefill and decode, with the cache as input and output and as state."""
    from transformers import DynamicCache

    ids, mask = torch.randint(3, 100, (2, 6)), torch.ones(2, 6, dtype=torch.long)
    positions = mask.cumsum(-1) - 1
    first = {"input_ids": ids, "attention_mask": mask, "position_ids": positions}
    cache = model(**first, past_key_values=DynamicCache(config=model.config)).past_key_values
    second = {"input_ids": ids[:, :1], "attention_mask": torch.ones(2, 7, dtype=torch.long),
              "position_ids": positions[:, -1:] + 1}  # fmt: skip
    stateful = with_static_cache(model)
    length = tintype.Dim("length", min=2, max=LONGEST)
    return {
        "prefill": tintype.export(
            model, (), {**first, "past_key_values": DynamicCache(config=model.config)}, dynamic_shapes="auto"
        ),
        "decode": tintype.export(model, (), {**second, "past_key_values": cache}, dynamic_shapes="auto"),
        "prefill with state": tintype.export(stateful, (ids[:1],), dynamic_shapes={"input_ids": {1: length}}),
        "decode with state": tintype.export(stateful, (ids[:1, :1],)),
    }


def expected_tokens(model: Any, request: dict[str, Any]) -> dict[str, Any]:
    """What ``model.generate()`` says, and how fast the same loop is with the model."""
    from transformers import DynamicCache

    count, end = request["count"], request["end"]
    ids, mask = padded(request["prompts"], request["padding"])
    options = {"max_new_tokens": count, "pad_token_id": request["padding"], "eos_token_id": end}
    sampling = {"do_sample": True, "temperature": TEMPERATURE, "top_k": TOP_K, "top_p": 1.0}

    def new(ids: Tensor, mask: Tensor, **choices: Any) -> Tensor:
        torch.manual_seed(SEED)
        tokens: Tensor = model.generate(ids, attention_mask=mask, **options, **choices)
        return tokens[:, ids.shape[1] :]

    alone = [padded([prompt], request["padding"]) for prompt in request["prompts"]]
    expected = {
        "greedy": new(ids, mask, do_sample=False).tolist(),
        "sampled": new(ids, mask, **sampling).tolist(),
        "with state": [new(*prompt, do_sample=False)[0].tolist() for prompt in alone],
    }
    start = time.perf_counter()
    ending = Ending(len(ids), end, request["padding"])
    tokens = generate(model, model, DynamicCache(config=model.config), ids, mask, count, greedily, ending)
    return {**expected, "tokens per second": tokens.numel() / (time.perf_counter() - start)}


def main(options: argparse.Namespace) -> int:
    model = small_llama() if options.weights is None else model_from(options.weights)
    config = model.generation_config
    end = config.eos_token_id if isinstance(config.eos_token_id, int) else None
    chance = torch.Generator().manual_seed(1)
    limit = min(model.config.get_text_config().vocab_size, 500)
    prompts = [torch.randint(3, limit, (size,), generator=chance).tolist() for size in (9, 4, 13, 6)]
    request = {"prompts": prompts, "count": options.tokens, "end": end, "padding": config.pad_token_id or 0}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "llm.tt"
        start = time.perf_counter()
        programs = export_steps(model)
        exported = time.perf_counter()
        tintype.save(programs, path)
        tintype.save(programs["decode"], alone := Path(folder) / "decode.tt")
        sizes = path.stat().st_size, alone.stat().st_size
        print(f"exported {len(programs)} programs in {exported - start:.2f} s; the file of all has {sizes[0]} bytes, "
              f"of decode alone {sizes[1]}")  # fmt: skip
        command = [sys.executable, __file__, "--serve", str(path)]
        done = subprocess.run(command, input=json.dumps(request), stdout=subprocess.PIPE, text=True, check=True)
    found, expected = json.loads(done.stdout), expected_tokens(model, request)
    for kind in ("greedy", "sampled", "with state"):
        same = found[kind] == expected[kind]
        print(f"{kind:11} {'the tokens of model.generate()' if same else 'OTHER TOKENS than model.generate()'}: "
              f"{found[kind][0][:8]} ...")  # fmt: skip
        if not same:
            return 1
    print(
        f"programs {found['tokens per second']:.0f} tokens per second, eager mode {expected['tokens per second']:.0f}"
    )
    return 0


# --- the second process: no transformers --------------------------------------------------------------------------


def serve(path: Path, request: dict[str, Any]) -> dict[str, Any]:
    """Answer a request with the programs of a file."""
    programs = tintype.load(path)
    prefill, decode = programs["prefill"].module(), programs["decode"].module()
    empty_cache = programs["prefill"].example_inputs[1]["past_key_values"]
    ids, mask = padded(request["prompts"], request["padding"])
    count = request["count"]

    def answer(choose: Choice) -> Tensor:
        torch.manual_seed(SEED)
        ending = Ending(len(ids), request["end"], request["padding"])
        return generate(prefill, decode, copy.deepcopy(empty_cache), ids, mask, count, choose, ending)

    stateful = tintype.modules({name: programs[f"{name} with state"] for name in ("prefill", "decode")})
    answers = []
    for prompt in request["prompts"]:
        ending = Ending(1, request["end"], request["padding"])
        answers.append(generate_with_state(**stateful, ids=torch.tensor([prompt]), count=count, choose=greedily,
                                           ending=ending)[0].tolist())  # fmt: skip
    greedy, sampled = answer(greedily), answer(by_sampling)
    start = time.perf_counter()
    answer(greedily)
    seconds = time.perf_counter() - start
    assert "transformers" not in sys.modules
    return {"greedy": greedy.tolist(), "sampled": sampled.tolist(), "with state": answers,
            "tokens per second": greedy.numel() / seconds}  # fmt: skip


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, help="a folder with config.json and safetensors files")
    parser.add_argument("--tokens", type=int, default=24, help="how many to generate")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        print(json.dumps(serve(given.serve, json.load(sys.stdin))))
        sys.exit(0)
    sys.exit(main(given))
