"""BERT out of transformers, and in where transformers is not installed."""

import subprocess
import sys

import torch
from transformers import BertConfig, BertForSequenceClassification

import tintype

sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
model = BertForSequenceClassification(BertConfig(vocab_size=100, **sizes)).eval()
inputs = {"input_ids": torch.randint(0, 100, (2, 8)), "attention_mask": torch.ones(2, 8, dtype=torch.int64)}
batch, length = tintype.Dim("batch", max=64), tintype.Dim("length", min=2, max=512)
shapes = {name: {0: batch, 1: length} for name in inputs}
tintype.save(tintype.export(model, (), inputs, dynamic_shapes=shapes), "bert.tt")
torch.save((inputs, model(**inputs).logits), "expected.pt")

ELSEWHERE = """
import sys, torch, tintype
sys.modules["transformers"] = None  # as if it were not installed
inputs, logits = torch.load("expected.pt")
result = tintype.load("bert.tt", containers="plain").module()(**inputs)
torch.testing.assert_close(result.logits, logits)
"""
subprocess.run([sys.executable, "-c", ELSEWHERE], check=True)
