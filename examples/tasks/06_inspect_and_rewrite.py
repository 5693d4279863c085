"""Look at a program, replace its activations, and fold what is constant."""

from collections import Counter

import torch

import tintype

model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).eval()
x = torch.randn(2, 4)
program = tintype.export(model, (x,))
print(program)
print(Counter(str(node.target) for node in program.graph.nodes if node.op == "call_function"))

gelu = program.rewrite(torch.ops.aten.relu.default, torch.nn.functional.gelu)
(node,) = gelu.graph.find_nodes(op="call_function", target=torch.ops.aten.gelu.default)
print(node.meta["nn_module_stack"], node.meta["from_node"])
expected = model[2](torch.nn.functional.gelu(model[0](x)))
torch.testing.assert_close(gelu.module()(x), expected)
