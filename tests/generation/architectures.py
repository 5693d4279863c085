"""Models of transformers that generate, small and with random weights, and the calls of a prefill and a decode step.

``ARCHITECTURES`` is a table of builders by name. Every :class:`Architecture` can make the arguments of a prefill for
a batch and a length of prompt, and those of the step after it, with the cache that ``generate()`` would use.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import torch
import transformers

VOCABULARY = 64
SMALL = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


@dataclasses.dataclass
class Architecture:
    """A model with what its calls are made of."""

    name: str
    model: Any
    # under what name the model takes its cache, and how an empty one is made
    cache_name: str = "past_key_values"
    make_cache: Callable[[Any], Any] = lambda model: transformers.DynamicCache(config=model.config)
    # whether a step is given a mask over all that came before
    takes_mask: bool = True
    # further arguments of a prefill, by batch
    more: Callable[[int], dict[str, Any]] = lambda batch: {}
    # what an encoder is given, by batch and length; None without one
    encoder_inputs: Callable[[int, int], dict[str, Any]] | None = None
    # tokens in front of each prompt
    prefix: tuple[int, ...] = ()

    @property
    def takes_positions(self) -> bool:
        """Whether ``generate()`` tells the model where each token stands, which a padded prompt does not."""
        return self.takes_mask and "position_ids" in inspect.signature(self.model.forward).parameters

    def prefill(self, batch: int, length: int, seed: int = 0) -> dict[str, Any]:
        """The arguments of the first call; prompts are as long as they are, with padding before them."""
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(3, VOCABULARY - 8, (batch, length), generator=generator)
        ids = torch.cat([torch.tensor([self.prefix] * batch, dtype=ids.dtype), ids], 1) if self.prefix else ids
        if self.encoder_inputs is not None:
            encoded = self.encode(self.encoder_inputs(batch, length + 3))
            start = torch.full((batch, 1), self.model.config.decoder_start_token_id)
            return {**encoded, "decoder_input_ids": start, self.cache_name: self.make_cache(self.model)}
        arguments = {"input_ids": ids, self.cache_name: self.make_cache(self.model), **self.more(batch)}
        if self.takes_mask:
            arguments["attention_mask"] = mask = torch.ones_like(ids)
            for row in range(batch if not self.prefix else 0):
                padding = (seed + row) % 3 if length > 3 else 0
                mask[row, :padding] = 0
                ids[row, :padding] = 0
        if self.takes_positions:
            arguments["position_ids"] = positions(mask)
        return arguments

    def encode(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """What a decoder is given of an encoder's inputs: its outputs."""
        with torch.no_grad():
            outputs = self.model.get_encoder()(**inputs)
        masks = {name: value for name, value in inputs.items() if name == "attention_mask"}
        return {"encoder_outputs": outputs, **masks}

    def decode(self, batch: int, length: int, seed: int = 0) -> dict[str, Any]:
        """The arguments of a step, after a prompt and what was decoded so far have taken ``length`` tokens."""
        arguments = self.prefill(batch, length, seed)
        names = ("decoder_input_ids",) if self.encoder_inputs is not None else ("input_ids",)
        with torch.no_grad():
            results = self.model(**arguments, use_cache=True)
        cache = getattr(results, self.cache_name)
        if self.encoder_inputs is not None:  # a prompt is one token here: the rest is decoded
            for _ in range(length - 1):
                step = {**arguments, names[0]: results.logits[:, -1:].argmax(-1), self.cache_name: cache}
                with torch.no_grad():
                    results = self.model(**step, use_cache=True)
                cache = getattr(results, self.cache_name)
        token = results.logits[:, -1:].argmax(-1)
        step = {name: value for name, value in arguments.items() if name not in self.more(batch)}
        step |= {names[0]: token, self.cache_name: cache}
        if self.takes_mask and self.encoder_inputs is None:
            mask = arguments["attention_mask"]
            step["attention_mask"] = torch.cat([mask, torch.ones(batch, 1, dtype=mask.dtype)], 1)
        if self.takes_positions:
            step["position_ids"] = positions(step["attention_mask"])[:, -1:]
        return step

    def eager(self, arguments: dict[str, Any]) -> Any:
        """What the model returns, on a cache of its own."""
        with torch.no_grad():
            return self.model(**copy.deepcopy(arguments))


def positions(mask: torch.Tensor) -> torch.Tensor:
    """Where each token stands, as ``generate()`` counts."""
    return (mask.cumsum(-1) - 1).masked_fill(mask == 0, 0)


def _model(cls: Any, config: Any) -> Any:
    torch.manual_seed(0)
    return cls(config).eval()


def llama() -> Architecture:
    """Grouped queries, rotary positions."""
    config = transformers.LlamaConfig(**SMALL, intermediate_size=48, num_key_value_heads=2, **TOKENS)
    return Architecture("Llama", _model(transformers.LlamaForCausalLM, config))


def qwen3() -> Architecture:
    """Normalised queries and keys."""
    config = transformers.Qwen3Config(**SMALL, intermediate_size=48, num_key_value_heads=2, head_dim=8, **TOKENS)
    return Architecture("Qwen3", _model(transformers.Qwen3ForCausalLM, config))


def gemma3() -> Architecture:
    """Layers with and without a window."""
    config = transformers.Gemma3TextConfig(
        **SMALL, intermediate_size=48, num_key_value_heads=2, head_dim=8, sliding_window=16, query_pre_attn_scalar=8,
        layer_types=["sliding_attention", "full_attention"], **TOKENS,
    )  # fmt: skip
    return Architecture("Gemma 3", _model(transformers.Gemma3ForCausalLM, config))


def mistral() -> Architecture:
    """A window in every layer."""
    config = transformers.MistralConfig(
        **SMALL, intermediate_size=48, num_key_value_heads=2, sliding_window=16, **TOKENS
    )
    return Architecture("Mistral", _model(transformers.MistralForCausalLM, config))


def mixtral() -> Architecture:
    """A mixture of experts."""
    config = transformers.MixtralConfig(
        **SMALL, intermediate_size=48, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, **TOKENS
    )
    return Architecture("Mixtral", _model(transformers.MixtralForCausalLM, config))


def qwen3_moe() -> Architecture:
    """A mixture of experts."""
    config = transformers.Qwen3MoeConfig(
        **SMALL, intermediate_size=48, moe_intermediate_size=24, num_key_value_heads=2, head_dim=8, num_experts=4,
        num_experts_per_tok=2, **TOKENS,
    )  # fmt: skip
    return Architecture("Qwen3-MoE", _model(transformers.Qwen3MoeForCausalLM, config))


def gpt2() -> Architecture:
    """Learned positions."""
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=128, **TOKENS)
    return Architecture("GPT-2", _model(transformers.GPT2LMHeadModel, config))


def falcon() -> Architecture:
    """One key for all heads, attention and feed-forward side by side."""
    config = transformers.FalconConfig(**SMALL, **TOKENS)
    return Architecture("Falcon", _model(transformers.FalconForCausalLM, config))


def bloom() -> Architecture:
    """Positions as biases of attention."""
    config = transformers.BloomConfig(vocab_size=VOCABULARY, hidden_size=32, n_layer=2, n_head=4, **TOKENS)
    return Architecture("Bloom", _model(transformers.BloomForCausalLM, config))


def mamba2() -> Architecture:
    """States in place of keys and values."""
    config = transformers.Mamba2Config(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_heads=8, head_dim=8, state_size=8, n_groups=2,
        chunk_size=8, **TOKENS,
    )  # fmt: skip
    model = _model(transformers.Mamba2ForCausalLM, config)
    return Architecture("Mamba2", model, cache_name="cache_params", takes_mask=False)


def phi3() -> Architecture:
    """A window, and queries, keys and values from one projection."""
    config = transformers.Phi3Config(
        **SMALL, intermediate_size=48, num_key_value_heads=2, sliding_window=16, **TOKENS
    )
    return Architecture("Phi-3", _model(transformers.Phi3ForCausalLM, config))


def gpt_oss() -> Architecture:
    """A mixture of experts, sinks of attention, layers with and without a window."""
    config = transformers.GptOssConfig(
        **SMALL, intermediate_size=48, num_key_value_heads=2, head_dim=8, num_local_experts=4, num_experts_per_tok=2,
        sliding_window=16, layer_types=["sliding_attention", "full_attention"], **TOKENS,
    )  # fmt: skip
    return Architecture("gpt-oss", _model(transformers.GptOssForCausalLM, config))


def lfm2() -> Architecture:
    """Convolutions with a state beside attention."""
    config = transformers.Lfm2Config(
        **SMALL, intermediate_size=48, num_key_value_heads=2, layer_types=["conv", "full_attention"], **TOKENS
    )
    return Architecture("LFM2", _model(transformers.Lfm2ForCausalLM, config))


def qwen3_next() -> Architecture:
    """Linear attention beside attention, a mixture of experts."""
    config = transformers.Qwen3NextConfig(
        **SMALL, intermediate_size=48, moe_intermediate_size=24, shared_expert_intermediate_size=24,
        num_key_value_heads=2, head_dim=8, num_experts=4, num_experts_per_tok=2, linear_num_key_heads=2,
        linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8,
        layer_types=["linear_attention", "full_attention"], **TOKENS,
    )  # fmt: skip
    return Architecture("Qwen3-Next", _model(transformers.Qwen3NextForCausalLM, config))


def _encoder_decoder_cache(model: Any) -> Any:
    caches = [transformers.DynamicCache(config=model.config) for _ in range(2)]
    return transformers.EncoderDecoderCache(*caches)


def _text_for_encoder(batch: int, length: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(length)
    ids = torch.randint(3, VOCABULARY, (batch, length), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def t5() -> Architecture:
    """An encoder and a decoder, relative positions."""
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0,
        pad_token_id=0, eos_token_id=2,
    )  # fmt: skip
    model = _model(transformers.T5ForConditionalGeneration, config)
    return Architecture("T5", model, make_cache=_encoder_decoder_cache, encoder_inputs=_text_for_encoder)


def bart() -> Architecture:
    """An encoder and a decoder, learned positions."""
    config = transformers.BartConfig(
        vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, max_position_embeddings=64, **TOKENS,
    )  # fmt: skip
    model = _model(transformers.BartForConditionalGeneration, config)
    return Architecture("BART", model, make_cache=_encoder_decoder_cache, encoder_inputs=_text_for_encoder)


def whisper() -> Architecture:
    """Speech in, text out."""
    config = transformers.WhisperConfig(
        vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, num_mel_bins=8, max_source_positions=20,
        max_target_positions=64, decoder_start_token_id=1, **TOKENS,
    )  # fmt: skip
    model = _model(transformers.WhisperForConditionalGeneration, config)

    def speech(batch: int, length: int) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(length)
        return {"input_features": torch.randn(batch, 8, 40, generator=generator)}

    return Architecture("Whisper", model, make_cache=_encoder_decoder_cache, encoder_inputs=speech, takes_mask=False)


def llava() -> Architecture:
    """Pictures and text in, text out."""
    image_token = VOCABULARY - 1
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(
            hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2, image_size=8,
            patch_size=4, projection_dim=16,
        ),
        text_config=transformers.LlamaConfig(**SMALL, intermediate_size=48, num_key_value_heads=2, **TOKENS),
        image_token_index=image_token, image_seq_length=4,
    )  # fmt: skip
    model = _model(transformers.LlavaForConditionalGeneration, config)

    def pictures(batch: int) -> dict[str, Any]:
        return {"pixel_values": torch.randn(batch, 3, 8, 8, generator=torch.Generator().manual_seed(1))}

    return Architecture("Llava", model, more=pictures, prefix=(image_token,) * 4)


def smolvlm() -> Architecture:
    """Pictures and text in, text out."""
    image_token = VOCABULARY - 1
    config = transformers.SmolVLMConfig(
        vision_config={
            "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
            "image_size": 8, "patch_size": 4,
        },
        text_config={
            "model_type": "llama", **SMALL, "intermediate_size": 48, "num_key_value_heads": 2,
            "max_position_embeddings": 128, **TOKENS,
        },
        image_token_id=image_token, scale_factor=2, pad_token_id=0,
    )  # fmt: skip
    model = _model(transformers.SmolVLMForConditionalGeneration, config)

    def pictures(batch: int) -> dict[str, Any]:
        return {"pixel_values": torch.randn(batch, 1, 3, 8, 8, generator=torch.Generator().manual_seed(1))}

    return Architecture("SmolVLM", model, more=pictures, prefix=(image_token,))


def gemma3_vision() -> Architecture:
    """Pictures and text in, text out; any number of pictures."""
    image_token = VOCABULARY - 1
    config = transformers.Gemma3Config(
        vision_config={
            "model_type": "siglip_vision_model", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
            "num_attention_heads": 2, "image_size": 8, "patch_size": 4, "vision_use_head": False,
        },
        text_config={
            "model_type": "gemma3_text", **SMALL, "intermediate_size": 48, "num_key_value_heads": 2, "head_dim": 8,
            "sliding_window": 16, "query_pre_attn_scalar": 8,
            "layer_types": ["sliding_attention", "full_attention"], **TOKENS,
        },
        mm_tokens_per_image=4, image_token_id=image_token, boi_token_index=VOCABULARY - 2,
        eoi_token_index=VOCABULARY - 3,
    )  # fmt: skip
    model = _model(transformers.Gemma3ForConditionalGeneration, config)

    def pictures(batch: int) -> dict[str, Any]:
        return {"pixel_values": torch.randn(batch, 3, 8, 8, generator=torch.Generator().manual_seed(1))}

    return Architecture("Gemma 3 vision", model, more=pictures, prefix=(image_token,) * 4)


class PicturesOfOneSize(transformers.Qwen2_5_VLForConditionalGeneration):
    """A model that goes through its pictures by what ``image_grid_thw`` says of them, where that is no input."""

    def forward(self, *args: Any, pixel_values: Any = None, position_ids: Any = None, **kwargs: Any) -> Any:
        if pixel_values is not None:
            kwargs["image_grid_thw"] = torch.tensor([[1, 4, 4]] * (len(pixel_values) // 16))
        return super().forward(*args, pixel_values=pixel_values, position_ids=position_ids, **kwargs)


def qwen2_5_vl() -> Architecture:
    """Pictures and text in, text out; the vision part goes through its pictures by their sizes."""
    image_token, start, end = VOCABULARY - 1, VOCABULARY - 2, VOCABULARY - 3
    rotary = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
    config = transformers.Qwen2_5_VLConfig(
        vision_config={
            "depth": 2, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2, "out_hidden_size": 32,
            "patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 1, "window_size": 16,
            "fullatt_block_indexes": [1],
        },
        text_config={
            **SMALL, "intermediate_size": 48, "num_key_value_heads": 2, "rope_parameters": rotary,
            "max_position_embeddings": 128, **TOKENS,
        },
        image_token_id=image_token, vision_start_token_id=start, vision_end_token_id=end,
        video_token_id=VOCABULARY - 4,
    )  # fmt: skip
    model = _model(PicturesOfOneSize, config)

    def pictures(batch: int) -> dict[str, Any]:
        return {"pixel_values": torch.randn(batch * 16, 48, generator=torch.Generator().manual_seed(1))}

    return Architecture("Qwen2.5-VL", model, more=pictures, prefix=(start, *(image_token,) * 4, end))


ARCHITECTURES: dict[str, Callable[[], Architecture]] = {
    builder.__name__: builder
    for builder in (
        llama, qwen3, gemma3, mistral, phi3, mixtral, qwen3_moe, gpt_oss, gpt2, falcon, bloom, mamba2, lfm2,
        qwen3_next, t5, bart, whisper, llava, smolvlm, gemma3_vision, qwen2_5_vl,
    )
}  # fmt: skip
