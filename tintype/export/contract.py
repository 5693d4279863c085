"""What inputs a program accepts, and which line of the user's program made it so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tintype.export.constraints import ContractLine


class Contract:
    """The sizes that a program accepts: ranges, relations, specialisations and runtime assertions.

    >>> import torch, tintype
    >>> batch = tintype.Dim("batch", min=1, max=64)
    >>> ep = tintype.export(torch.nn.ReLU(), (torch.ones(4, 3),), dynamic_shapes={"input": {0: batch}})
    >>> print(ep.contract())
    input.shape[0] = batch, 1 <= batch <= 64
    """

    def __init__(self, lines: Sequence[ContractLine]) -> None:
        self.lines = tuple(lines)

    def __iter__(self) -> Iterator[ContractLine]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    def __str__(self) -> str:
        return "\n".join(_text(line) for line in self.lines) or "all sizes are those of the example inputs"


def _text(line: ContractLine) -> str:
    if line.location is None:
        return line.text
    return f"{line.text}  # {line.location}: {line.location.source_line()}"
