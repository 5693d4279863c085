"""Images of varying height and width, by following the advice of the error."""

import torch

import tintype


class EncoderDecoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.down = torch.nn.ModuleList([torch.nn.Conv2d(3, 3, 3, 2, 1) for _ in range(3)])
        self.up = torch.nn.ModuleList([torch.nn.ConvTranspose2d(3, 3, 2, 2) for _ in range(3)])

    def forward(self, x):
        kept = []
        for layer in self.down:
            kept.append(x)
            x = layer(x)
        for layer in self.up:
            x = layer(x) + kept.pop()
        return x


model, x = EncoderDecoder().eval(), torch.randn(1, 3, 64, 64)
shapes = {"x": {2: tintype.Dim("H", min=32, max=512), 3: tintype.Dim("W", min=32, max=512)}}
try:
    program = tintype.export(model, (x,), dynamic_shapes=shapes)
except tintype.ConstraintViolationError as error:
    program = tintype.export(model, (x,), dynamic_shapes=error.suggested)  # H = 8*_H, W = 8*_W
torch.testing.assert_close(program.module()(y := torch.randn(1, 3, 96, 128)), model(y))
