"""torchao's quantized weights on a small Llama: exported, saved, decomposed and unflattened, against eager mode.

Run by ``make clients``, in the environment that has torchao: ``python -m tests.clients.quantized_weights``.
"""

from __future__ import annotations

import copy
import io
import sys
from typing import Any

import torch

import tintype


def llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 128}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, use_cache=False)).eval().bfloat16()


def configurations() -> dict[str, Any]:
    from torchao import quantization

    group = quantization.PerGroup(32)
    dynamic = quantization.Int8DynamicActivationIntxWeightConfig
    return {
        "int8 weights": quantization.Int8WeightOnlyConfig(),
        "int8 weights, dynamic": quantization.Int8DynamicActivationInt8WeightConfig(),
        "int4 weights": quantization.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=group),
        "int4 weights, dynamic": dynamic(weight_dtype=torch.int4, weight_granularity=group),
        "float8 weights": quantization.Float8WeightOnlyConfig(),
    }


def saved(program: tintype.ExportedProgram) -> Any:
    file = io.BytesIO()
    tintype.save(program, file)
    return tintype.load(file).module()


FORMS: dict[str, Any] = {
    "exported": lambda program: program.module(),
    "saved": saved,
    "decomposed": lambda program: program.run_decompositions().module(),
    "unflattened": tintype.unflatten,
}


def main() -> int:
    from torchao.quantization import quantize_

    failures = 0
    for name, configuration in configurations().items():
        model = copy.deepcopy(llama())
        quantize_(model, configuration)
        tokens, others = torch.randint(0, 128, (1, 8)), torch.randint(0, 128, (1, 13))
        lengths = {"input_ids": {1: tintype.Dim("length", min=2)}}
        program = tintype.export(model, (), {"input_ids": tokens}, dynamic_shapes=lengths)
        for form, make in FORMS.items():
            run = make(program)
            results = [(run(input_ids=ids).logits, model(ids).logits) for ids in (tokens, others)]
            close = all(torch.allclose(got, wanted, atol=2e-2, rtol=2e-2) for got, wanted in results)
            equal = all(torch.equal(got, wanted) for got, wanted in results)
            failures += not close
            print(f"{name:24} {form:12} {'equal' if equal else 'close' if close else 'WRONG'}")
    return failures


if __name__ == "__main__":
    sys.exit(main())
