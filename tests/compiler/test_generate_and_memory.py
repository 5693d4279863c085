"""Compiled models generate the same tokens; compiled functions that are dropped leave nothing behind."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest
import torch

import tintype
from tests.compiler.programs import check

pytestmark = pytest.mark.direct(reason="compiled functions are not exported")


@pytest.mark.parametrize(
    "how",
    [{}, {"do_sample": True, "top_k": 20, "temperature": 0.8}, {"num_beams": 3}],
    ids=["greedy", "sampling", "beams"],
)
def test_generate_gives_the_same_tokens(how: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=48,
        max_position_embeddings=64,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    compiled = tintype.compile(model)
    for length in (5, 7):
        ids = torch.randint(3, 64, (2, length), generator=torch.Generator().manual_seed(length))
        options = {"max_new_tokens": 8, "attention_mask": torch.ones_like(ids), **how}
        torch.manual_seed(1)
        expected = model.generate(ids, **options)
        torch.manual_seed(1)
        assert torch.equal(compiled.generate(ids, **options), expected)
    assert compiled._tintype_engine.captures > 0


def compile_and_drop(number: int) -> None:
    namespace: dict[str, Any] = {"torch": torch}
    source = (
        f"def function(x, n):\n    y = x * {number} + n\n    return y.relu() if x.shape[0] > 2 else y.sum().item()\n"
    )
    exec(compile(source, "<a function>", "exec"), namespace)
    compiled = tintype.compile(namespace["function"], backend="aot_eager" if number % 10 == 0 else "eager")
    for size in (3, 3, 2, 4):
        compiled(torch.ones(size), 2)


def test_functions_that_are_dropped_leave_nothing() -> None:
    for number in range(60):
        compile_and_drop(number)
    gc.collect()
    before = len(gc.get_objects())
    for number in range(1000):
        compile_and_drop(number)
    gc.collect()
    assert len(gc.get_objects()) - before < 2000


def test_models_that_are_dropped_leave_nothing() -> None:
    def compile_model() -> None:
        class Model(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.linear = torch.nn.Linear(3, 3)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.linear(x).relu()

        compiled = tintype.compile(Model())
        for _ in range(2):
            compiled(torch.ones(2, 3))

    for _ in range(10):
        compile_model()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(100):
        compile_model()
    gc.collect()
    assert len(gc.get_objects()) - before < 500


def test_programs_beside_another_thread() -> None:
    """What a thread does while another one captures is not heard, and does not change."""
    done = threading.Event()
    wrong: list[Any] = []

    def beside() -> None:
        while not done.is_set():
            x = torch.arange(6.0).view(2, 3)
            compiled = tintype.compile(lambda x, n: (x * n).sum(1) + x.shape[1])
            for n in (1, 2, 3):
                y = x.clone()
                if not torch.equal(compiled(y, n), (x * n).sum(1) + 3) or not torch.is_grad_enabled():
                    wrong.append(n)

    thread = threading.Thread(target=beside)
    thread.start()
    try:
        problems = [check(seed)[0] for seed in range(700, 730)]
    finally:
        done.set()
        thread.join()
    assert not any(problems) and not wrong, problems
