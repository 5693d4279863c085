"""A UNet of diffusers for varying batches, heights and widths."""

import torch
from diffusers import UNet2DModel

import tintype

model = UNet2DModel(
    sample_size=16, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
).eval()  # fmt: skip
inputs = {"sample": torch.randn(2, 3, 16, 16), "timestep": torch.tensor(5)}
half = tintype.Dim("half", min=4, max=32)
width = tintype.Dim("half_width", min=4, max=32)
shapes = {"sample": {0: tintype.Dim("batch", max=8), 2: 2 * half, 3: 2 * width}, "timestep": None}
program = tintype.export(model, (), inputs, dynamic_shapes=shapes)
other = {"sample": torch.randn(3, 3, 24, 32), "timestep": torch.tensor(7)}
torch.testing.assert_close(program.module()(**other).sample, model(**other).sample)
print(program.contract())
