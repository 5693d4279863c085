"""The modules that transformers makes of its models for ExecuTorch."""

from __future__ import annotations

import pytest
import torch
from transformers import T5Config, T5ForConditionalGeneration
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.integrations.executorch import Seq2SeqLMDecoderExportableModuleWithStaticCache as Decoder

import tintype
from tintype import tree

SHAPES = {
    "decoder_input_ids": None,
    "encoder_hidden_states": {1: tintype.Dim("length", max=32)},
    "cache_position": None,
}

# the recipes make a container of it whose functions compute, for the whole process, unless it is one already
tree.register_known(DynamicCache)


class FreshDecoder(Decoder):
    """The recipe with a cache of the encoder's states for every call."""

    def forward(self, decoder_input_ids, encoder_hidden_states, cache_position):
        for layer in self.static_cache.layers:
            layer.cumulative_length.copy_(cache_position[0])
        cache = EncoderDecoderCache(self.static_cache, DynamicCache(config=self.config))
        outputs = self.decoder(
            input_ids=decoder_input_ids,
            encoder_hidden_states=encoder_hidden_states,
            past_key_values=cache,
            use_cache=True,
        )
        return self.lm_head(outputs[0])


def decoder(kind: type[Decoder]) -> Decoder:
    torch.manual_seed(0)
    config = T5Config(d_model=16, d_kv=4, d_ff=32, num_layers=2, num_heads=4, vocab_size=50, dropout_rate=0.0)
    return kind(T5ForConditionalGeneration(config).eval(), max_static_cache_length=32, batch_size=1).eval()


def inputs(step: int, length: int = 10) -> tuple[torch.Tensor, ...]:
    return torch.tensor([[step]]), torch.randn(1, length, 16), torch.tensor([step])


@torch.no_grad()
def test_a_decoder_that_keeps_the_states_of_its_first_call_is_refused():
    """The second call of the model answers for the encoder's states of the first one, which a program can't."""
    model = decoder(Decoder)
    first = model(*inputs(0))
    torch.testing.assert_close(model(*inputs(0)), first)
    with pytest.raises(tintype.TintypeError, match=r"\[state-changed\].*'keys' of a DynamicLayer") as raised:
        tintype.export(decoder(Decoder), inputs(0), dynamic_shapes=SHAPES)
    assert "cache_utils.py" in str(raised.value)  # where the cache keeps them
    assert "make the DynamicLayer anew in every call of forward" in str(raised.value)  # as below


@torch.no_grad()
def test_a_decoder_with_a_fresh_cache():
    program = tintype.export(decoder(FreshDecoder), inputs(0), dynamic_shapes=SHAPES)
    model, run = decoder(FreshDecoder), tintype.interop.to_torch(program).module()
    for step in range(3):
        given = inputs(step, 7 + step)
        torch.testing.assert_close(run(*given), model(*given))
