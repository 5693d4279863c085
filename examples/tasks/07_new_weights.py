"""Put other weights into a program: of the same model, trained further, or from a file."""

import torch

import tintype

model, x = torch.nn.Linear(4, 2), torch.randn(3, 4)
program = tintype.export(model, (x,))
trained = torch.nn.Linear(4, 2)

replaced = program.with_state(trained.state_dict())
assert torch.equal(replaced.module()(x), trained(x))
assert torch.equal(program.module()(x), model(x))  # stays as it was

try:
    program.with_state({"weight": torch.ones(5, 5), "bias": torch.ones(2)})
except tintype.TintypeError as error:
    print(error)  # names the weight, both shapes, and what to do

with torch.device("meta"):  # a model without data, and weights that come later
    empty = torch.nn.Linear(4, 2)
late = tintype.attach_weights(tintype.export(empty, (x.to("meta"),)), dict(trained.state_dict()))
assert torch.equal(late.module()(x), trained(x))
