"""Hand a program on: to torch.export's tools, to ONNX Runtime, to torch.compile."""

import torch

import tintype

model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).eval()
x = torch.randn(2, 4)
program = tintype.export(model, (x,), dynamic_shapes={"input": {0: tintype.Dim("batch")}})

theirs = tintype.interop.to_torch(program)
assert isinstance(theirs, torch.export.ExportedProgram)
torch.export.save(theirs, "model.pt2")
back = tintype.interop.from_torch(torch.export.load("model.pt2"))
assert tintype.compare(model, back, (x,)).agree

onnx_program = tintype.onnx.export(program)
onnx_program.save("model.onnx")
assert tintype.compare(program, onnx_program).agree

compiled = torch.compile(program.module(), backend="aot_eager")
torch.testing.assert_close(compiled(x), model(x))
