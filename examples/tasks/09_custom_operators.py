"""An operator of one's own: captured as one node, checked, differentiable."""

import torch

import tintype


@torch.library.custom_op("shop::smooth", mutates_args=())
def smooth(x: torch.Tensor, strength: float) -> torch.Tensor:
    return torch.from_numpy(x.detach().numpy() * (1 - strength))  # any code


@smooth.register_fake
def _(x, strength):
    return torch.empty_like(x)


smooth.register_autograd(
    lambda ctx, gradient: (gradient * (1 - ctx.strength), None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "strength", inputs[1]),
)
program = tintype.export(lambda x: smooth(x, 0.25) + 1, (torch.ones(3),))
assert [str(node.target) for node in program.graph.nodes][1] == "shop.smooth.default"
x = torch.ones(5 - 2, requires_grad=True)
program.module()(x).sum().backward()
assert x.grad.tolist() == [0.75] * 3
