"""The architecture sweep: ``python -m tests.sweep.architectures``, for some of them ``--only "gpt*,opt" --trace``.

Architectures of transformers are built small from their configurations with random weights, exported, decomposed,
and compared with eager mode at both stages. They are not those of the benchmarks: what works for those must work for
what nobody looked at.
"""

from __future__ import annotations

import argparse
import fnmatch
import logging
import os
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

import tintype
from benchmarks.report import replace_section
from tests.sweep.judging import CORRECT, DECOMPOSED, EAGER_FAILS, ERROR, EXPORT, REFUSED, WRONG, first_line
from tests.sweep.processes import Finished, run_jobs
from tintype import tree
from tintype.errors import TintypeError

# By what they take as input.
ARCHITECTURES = {
    "text": """
        albert apertus arcee bert-generation big_bird biogpt bitnet camembert canine codegen cohere cohere2 convbert
        ctrl data2vec-text deberta deberta-v2 deepseek_v2 deepseek_v3 diffllama doge ernie ernie4_5 esm eurobert
        exaone4 falcon_h1 falcon_mamba flaubert fnet gemma gemma3_text glm glm4 gpt_bigcode gpt_neo gpt_neox gpt_oss
        gptj granite granitemoe granitemoehybrid helium ibert jamba jetmoe lfm2 llama4_text longformer luke mamba
        megatron-bert minimax mistral mobilebert modernbert modernbert-decoder mpnet mpt mra nemotron nystromformer
        olmo olmo2 olmoe openai-gpt opt persimmon phi phi3 phimoe qwen2 qwen2_moe qwen3_moe qwen3_next
        recurrent_gemma rembert roberta roberta-prelayernorm roc_bert roformer rwkv seed_oss smollm3 splinter
        squeezebert stablelm starcoder2 xglm xlm xlm-roberta-xl xlnet yoso
    """,
    "two texts": """
        bart bigbird_pegasus blenderbot blenderbot-small fsmt led longt5 m2m_100 marian mbart mt5 mvp pegasus
        pegasus_x plbart prophetnet switch_transformers umt5
    """,
    "images": """
        beit bit convnext convnextv2 cvt data2vec-vision deit dinov2_with_registers dinov3_vit dpt efficientnet
        focalnet glpn hgnet_v2 ijepa levit mobilenet_v1 mobilenet_v2 mobilevit mobilevitv2 poolformer pvt pvt_v2
        regnet siglip_vision_model swiftformer swinv2 textnet vit_mae vit_msn vitdet yolos clip_vision_model
    """,
    "sound": """
        data2vec-audio hubert sew sew-d unispeech unispeech-sat wav2vec2-bert wav2vec2-conformer wavlm
    """,
}
KINDS = {name: kind for kind, names in ARCHITECTURES.items() for name in names.split()}

# What makes a configuration small, by the names that configurations give it.
SMALL: dict[str, Any] = {
    **dict.fromkeys(("vocab_size", "text_vocab_size"), 128),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "emb_dim", "attention_hidden_size"), 32),
    **dict.fromkeys(
        ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers"), 2
    ),
    **dict.fromkeys(("num_decoder_layers", "num_encoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "num_heads", "n_head", "n_heads", "encoder_attention_heads"), 4),
    **dict.fromkeys(("decoder_attention_heads", "num_decoder_attention_heads", "num_encoder_attention_heads"), 4),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim", "n_inner"), 64),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "ffn_hidden_size"), 32),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "context_length"), 128),
    **dict.fromkeys(("num_experts_per_tok", "num_key_value_heads"), 2),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "kv_lora_rank", "q_lora_rank"), 8),
    "qk_head_dim": 16,
    "rotary_dim": 4,
    "head_dim": 8,
    "d_kv": 8,
    "embedding_size": 32,
    "image_size": 64,
    "pad_token_id": 0,
}

HYBRID = ["linear_attention", "full_attention"]

# Where the small numbers don't fit together, or one is called otherwise.
SPECIAL: dict[str, dict[str, Any]] = {
    "deepseek_v2": {"num_key_value_heads": 4, "num_experts_per_tok": 2},
    "deepseek_v3": {"num_key_value_heads": 4},
    "esm": {"vocab_size": 128, "mask_token_id": 2, "pad_token_id": 1},
    "granitemoehybrid": {
        "layer_types": ["linear_attention", "full_attention"],
        "mamba_n_heads": 8,
        "mamba_d_head": 8,
    },
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "nemotron": {"num_key_value_heads": 4},
    "qwen3_next": {"layer_types": HYBRID},
    "swinv2": {"embed_dim": 24, "num_layers": 4, "window_size": 4},
}

TOLERANCE = 1e-4


def tiny_config(name: str) -> Any:
    """The configuration of an architecture, small."""
    from transformers import AutoConfig

    config = AutoConfig.for_model(name)
    shrink(config)
    for attribute, value in SPECIAL.get(name, {}).items():
        setattr(config, attribute, value)
    return config


def shrink(config: Any) -> None:
    """Make a configuration, and those inside of it, small."""
    for attribute, value in vars(config).copy().items():
        if attribute in SMALL and isinstance(value, int) and not isinstance(value, bool):
            setattr(config, attribute, SMALL[attribute])
        elif hasattr(value, "to_diff_dict"):
            shrink(value)


def build(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """A model with random weights, and inputs for it."""
    from transformers import AutoModel

    torch.manual_seed(0)
    config = tiny_config(name)
    model = AutoModel.from_config(config).eval()
    return model, inputs_for(name, config, model.main_input_name)


def inputs_for(name: str, config: Any, main_input: str) -> dict[str, Any]:
    torch.manual_seed(1)
    if KINDS[name] == "images":
        side = config.image_size if isinstance(getattr(config, "image_size", None), int) else 64
        return {"pixel_values": torch.randn(2, getattr(config, "num_channels", 3), side, side)}
    if KINDS[name] == "sound":
        return {
            main_input: torch.randn(2, 64, sound_width(config)) if "features" in main_input else torch.randn(2, 4000)
        }
    tokens = torch.randint(3, 100, (2, 16))
    inputs = {main_input: tokens, "attention_mask": torch.ones_like(tokens)}
    if KINDS[name] == "two texts":
        inputs["decoder_input_ids"] = torch.randint(3, 100, (2, 7))
    return inputs


def sound_width(config: Any) -> int:
    """How many features a frame of sound has."""
    for attribute in ("feature_projection_input_dim", "input_feat_per_channel", "num_mel_bins"):
        if hasattr(config, attribute):
            return getattr(config, attribute)
    return 80


def judge(name: str) -> Iterator[tuple[str, str, str, str]]:
    """Stage, verdict, message and traceback, for each stage that an architecture reaches."""
    try:
        model, inputs = build(name)
        expected = run(model, inputs)
    except Exception as error:
        yield EXPORT, EAGER_FAILS, first_line(error), traceback.format_exc(limit=-4)
        return
    program = None
    for stage in (EXPORT, DECOMPOSED):
        try:
            with torch.no_grad():
                program = tintype.export(model, (), inputs) if program is None else program.run_decompositions()
            difference = compare(expected, run(program.module(), inputs))
        except TintypeError as error:
            yield stage, REFUSED, first_line(error), traceback.format_exc(limit=-4)
            return
        except Exception as error:
            yield stage, ERROR, first_line(error), traceback.format_exc(limit=-4)
            return
        yield stage, WRONG if difference else CORRECT, difference, ""


def run(module: nn.Module, inputs: dict[str, Any]) -> Any:
    """One call, with the same random numbers each time."""
    torch.manual_seed(2)
    with torch.no_grad():
        return module(**inputs)


def compare(expected: Any, actual: Any) -> str:
    """What differs, or nothing."""
    wanted, structure = tree.flatten(expected)
    given, given_structure = tree.flatten(actual)
    if structure != given_structure:
        return f"structure {given_structure} instead of {structure}"
    for position, (a, b) in enumerate(zip(wanted, given, strict=True)):
        if not isinstance(a, torch.Tensor):
            if a != b:
                return f"result {position} is {b!r} instead of {a!r}"
        elif (a.shape, a.dtype, a.stride()) != (b.shape, b.dtype, b.stride()):
            return f"result {position}: {_kind(b)} instead of {_kind(a)}"
        elif not torch.allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True):
            return f"result {position} differs by {(a - b).abs().max():.1e}"
    return ""


def _kind(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype} of size {tuple(tensor.shape)} with strides {tensor.stride()}"


def table(finished: list[Finished]) -> str:
    """The outcomes that are not plainly correct one by one, the others by their names."""
    verdicts = [(job.job, *judgement) for job in finished for judgement in job.messages]
    counts = Counter((stage, verdict) for _, stage, verdict, _, _ in verdicts)
    lines = ["| stage | correct | refused | wrong | error | eager fails |", "|---|---|---|---|---|---|"]
    for stage in (EXPORT, DECOMPOSED):
        cells = [str(counts[stage, verdict]) for verdict in (CORRECT, REFUSED, WRONG, ERROR, EAGER_FAILS)]
        lines.append(f"| {stage} | {' | '.join(cells)} |")
    rest = [entry for entry in verdicts if entry[2] != CORRECT]
    if rest:
        lines += ["", "| architecture | stage | verdict | reason |", "|---|---|---|---|"]
        lines += [f"| {name} | {stage} | {verdict} | {_cell(message)} |" for name, stage, verdict, message, _ in rest]
    good = sorted(name for name, stage, verdict, _, _ in verdicts if (stage, verdict) == (DECOMPOSED, CORRECT))
    return "\n".join([*lines, "", f"Correct at both stages: {', '.join(good)}."])


def _cell(message: str) -> str:
    return " ".join(message.split()).replace("|", "\\|")[:300]


def work(name: str) -> Iterator[tuple[str, str, str, str]]:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    yield from judge(name)


def main() -> int:
    """Run the sweep; 1 if something is wrong or breaks."""
    parser = argparse.ArgumentParser(prog="python -m tests.sweep.architectures", description=__doc__)
    parser.add_argument("--only", metavar="PATTERN", help="architectures to take: names or patterns, comma-separated")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS", help="per architecture")
    parser.add_argument("--markdown", type=Path, metavar="PAGE", help="put the table into a page")
    parser.add_argument("--trace", action="store_true", help="print tracebacks")
    options = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)
    tintype.export(nn.ReLU(), (torch.ones(2),)).run_decompositions()  # loaded once, for all processes
    import transformers.models.auto.modeling_auto  # noqa: F401

    patterns = options.only.split(",") if options.only else ["*"]
    names = [n for n in KINDS if any(fnmatch.fnmatchcase(n, p) for p in patterns)]
    finished = []
    for job in run_jobs(names, work, workers=options.jobs, timeout=options.timeout, memory=12 << 30):
        if job.failure is not None:
            job.messages.append((EXPORT, ERROR, job.failure.strip().splitlines()[-1], job.failure))
        finished.append(job)
        if options.trace:
            print("".join(f"--- {job.job}, {stage}\n{trace}" for stage, _, _, trace in job.messages if trace))
    text = table(finished)
    print(text)
    if options.markdown is not None:
        replace_section(options.markdown, "architectures", text)
    bad = any(verdict in (WRONG, ERROR) for job in finished for _, verdict, _, _ in job.messages)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
