"""Containers of transformers: ModelOutput and caches, as outputs and as inputs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import transformers
from torch import nn

import tintype
from tests.export.modes import assert_same, capture, compare


@pytest.fixture(scope="module")
def llama() -> Any:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=32,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def bert() -> Any:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=32, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2
    )
    return transformers.BertModel(config).eval()


def ids(*sizes: int) -> torch.Tensor:
    return torch.randint(1, 32, sizes or (2, 6))


def test_model_output(mode: str, bert: Any) -> None:
    program = compare(mode, bert, (), {"input_ids": ids(), "attention_mask": torch.ones(2, 6, dtype=torch.int64)})
    result = program.module()(input_ids=ids(), attention_mask=torch.ones(2, 6, dtype=torch.int64))
    assert type(result) is transformers.modeling_outputs.BaseModelOutputWithPoolingAndCrossAttentions
    assert result.last_hidden_state.shape == (2, 6, 16)
    assert result["pooler_output"] is result.pooler_output


def test_model_output_as_a_tuple(mode: str, bert: Any) -> None:
    compare(mode, bert, (ids(),), {"return_dict": False})


def test_hidden_states_and_attentions(mode: str, bert: Any) -> None:
    compare(mode, bert, (ids(),), {"output_hidden_states": True})


def test_model_output_made_by_the_program(mode: str) -> None:
    from transformers.modeling_outputs import BaseModelOutput

    class Model(nn.Module):
        def forward(self, value: torch.Tensor) -> BaseModelOutput:
            return BaseModelOutput(last_hidden_state=value + 1, hidden_states=(value, value * 2))

    program = compare(mode, Model(), (torch.randn(3, 4),))
    assert type(program.module()(torch.randn(3, 4))) is BaseModelOutput


def test_loss(mode: str, llama: Any) -> None:
    compare(mode, llama, (), {"input_ids": ids(), "labels": ids(), "use_cache": False})


class WithCache(nn.Module):
    """A step of generation: the cache comes in as its tensors and goes out as its tensors."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> Any:
        cache = transformers.DynamicCache(ddp_cache_data=pairs) if pairs else transformers.DynamicCache()
        result = self.model(input_ids, past_key_values=cache, use_cache=True)
        return result.logits, [(layer.keys, layer.values) for layer in result.past_key_values.layers]


def test_cache_made_inside(mode: str, llama: Any) -> None:
    model = WithCache(llama)
    compare(mode, model, (ids(), []))


def test_cache_taken_apart_and_put_together(mode: str, llama: Any) -> None:
    model = WithCache(llama)
    with torch.no_grad():
        _, pairs = model(ids(), [])
    compare(mode, model, (ids(2, 1), [tuple(pair) for pair in pairs]), gradients=False)


def test_dynamic_cache_as_output(mode: str, llama: Any) -> None:
    value = ids()
    result = capture(mode, llama, (value,), {"use_cache": True}).module()(value, use_cache=True)
    expected = llama(value, use_cache=True)
    assert_same(result.logits, expected.logits)
    assert type(result.past_key_values) is transformers.DynamicCache
    for mine, theirs in zip(result.past_key_values.layers, expected.past_key_values.layers, strict=True):
        assert_same((mine.keys, mine.values), (theirs.keys, theirs.values))
    following = ids(2, 1)  # what came out is a cache that eager mode can go on with
    again = llama(following, past_key_values=result.past_key_values).logits
    assert_same(again, llama(following, past_key_values=expected.past_key_values).logits)


def test_dynamic_cache_as_input(mode: str, llama: Any) -> None:
    def filled() -> Any:
        torch.manual_seed(1)
        cache = transformers.DynamicCache()
        with torch.no_grad():
            llama(ids(), past_key_values=cache, use_cache=True)
        return cache

    arguments = {"input_ids": ids(2, 1), "use_cache": True}
    example = filled()
    before = [layer.keys for layer in example.layers]
    module = capture(mode, llama, (), {**arguments, "past_key_values": example}).module()
    assert all(layer.keys is keys for layer, keys in zip(example.layers, before, strict=True))
    result = module(**arguments, past_key_values=filled())
    expected = llama(**arguments, past_key_values=filled())
    assert_same(result.logits, expected.logits)
    assert_same(result.past_key_values.layers[1].keys, expected.past_key_values.layers[1].keys)


def test_cache_of_another_length_is_refused(llama: Any) -> None:
    def filled(length: int) -> Any:
        return llama(ids(2, length), use_cache=True).past_key_values

    arguments = {"input_ids": ids(2, 1), "use_cache": True}
    module = tintype.export(llama, (), {**arguments, "past_key_values": filled(5)}).module()
    with pytest.raises(tintype.errors.InputMismatchError, match="past_key_values"):
        module(**arguments, past_key_values=filled(6))


class WithStaticCache(nn.Module):
    """A cache of fixed size whose tensors are buffers of the module."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.cache = transformers.StaticCache(config=model.config, max_cache_len=8)
        self.cache.early_initialization(2, 1, 8, torch.float32, torch.device("cpu"))
        for number, layer in enumerate(self.cache.layers):
            self.register_buffer(f"keys_{number}", layer.keys, persistent=False)
            self.register_buffer(f"values_{number}", layer.values, persistent=False)
            self.register_buffer(f"length_{number}", layer.cumulative_length, persistent=False)

    def forward(self, input_ids: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        for number in range(len(self.cache.layers)):
            self.get_buffer(f"length_{number}").copy_(position[0])
        result = self.model(input_ids, position_ids=position.unsqueeze(0), past_key_values=self.cache, use_cache=True)
        return result.logits


def test_static_cache_in_buffers(mode: str, llama: Any) -> None:
    model, eager = WithStaticCache(llama), WithStaticCache(copy.deepcopy(llama))
    with torch.no_grad():
        program = capture(mode, model, (ids(2, 1), torch.tensor([0])))
        module = program.module()
        for step in range(3):
            inputs = (ids(2, 1), torch.tensor([step]))
            assert_same(module(*inputs), eager(*inputs))
    assert not any(buffer.any() for name, buffer in model.named_buffers() if name.startswith(("keys", "values")))
