"""Hand a program on as one file, with what belongs to it, and take it up where only tintype and torch are."""

import torch

import tintype

model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).eval()
batch = tintype.Dim("batch", min=1, max=64)
program = tintype.export(model, (torch.randn(2, 4),), dynamic_shapes={"input": {0: batch}})
tintype.save(program, "model.tt", extra_files={"labels.txt": "cat\ndog"})

extra: dict[str, str] = {}
loaded = tintype.load("model.tt", verify=True, extra_files=extra)
x = torch.randn(5, 4)
assert torch.equal(loaded.module()(x), model(x))
print(loaded.contract(), extra["labels.txt"].split(), sep="\n")
