"""A UNet of diffusers for varying batches, heights and widths, by following the advice of the error."""

import torch
from diffusers import UNet2DModel

import tintype

model = UNet2DModel(
    sample_size=16, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
).eval()  # fmt: skip
inputs = {"sample": torch.randn(2, 3, 16, 16), "timestep": torch.tensor(5)}
sizes = {0: tintype.Dim("batch"), 2: tintype.Dim("H"), 3: tintype.Dim("W")}
try:
    program = tintype.export(model, (), inputs, dynamic_shapes={"sample": sizes, "timestep": None})
except tintype.ConstraintViolationError as error:
    print(error)  # batch = Dim('batch', max=63), H = 2*_H, W = 2*_W, with the lines of diffusers that need it
    program = tintype.export(model, (), inputs, dynamic_shapes=error.suggested)
other = {"sample": torch.randn(3, 3, 24, 32), "timestep": torch.tensor(7)}
torch.testing.assert_close(program.module()(**other).sample, model(**other).sample)
print(program.contract())
