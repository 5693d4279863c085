"""An ``if`` on the data: captured as it stands, or written out with cond."""

import torch

import tintype


def normalized(x):
    if x.abs().max() > 1:
        x = x / x.abs().max()
    return x


def written_out(x):
    largest = x.abs().max()
    return tintype.cond(largest > 1, lambda x, n: x / n, lambda x, n: x.clone(), (x, largest))


small, large = torch.tensor([0.1, -0.5]), torch.tensor([4.0, -8.0])
for function in (normalized, written_out):
    program = tintype.export(function, (small,))
    for x in (small, large):
        assert torch.equal(program.module()(x), normalized(x))
print(program)
