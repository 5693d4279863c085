"""Train a program: its module has the model's parameters, and gradients flow through it."""

import torch

import tintype

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
x = torch.randn(64, 2)
target = x[:, :1] * x[:, 1:]
shapes = {"input": {0: tintype.Dim("batch")}}
module = tintype.export_for_training(model, (x,), dynamic_shapes=shapes).module()
optimizer = torch.optim.Adam(module.parameters(), lr=0.02)
losses = []
for _ in range(200):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(module(x), target)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")
assert losses[-1] < losses[0] / 4
