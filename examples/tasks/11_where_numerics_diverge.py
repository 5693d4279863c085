"""Find the line where a model in bfloat16 parts from the one in float32."""

import torch

import tintype


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 8)
        self.second = torch.nn.Linear(8, 4)

    def forward(self, x):
        x = torch.tanh(self.first(x))
        x = (x + 1000) - 1000  # harmless in float32
        return self.second(x)


torch.manual_seed(0)
model, x = Model().eval(), torch.randn(4, 8)
program = tintype.export(model, (x,))
low = program.to(torch.bfloat16)  # takes the same inputs in its dtype
found = tintype.compare(program, low, (x,), tolerance=0.05)
print(found)
assert not found.agree and found.first.location.line == 16, found.first
