"""What goes wrong with sizes: unknown data, and requirements that can't hold."""

from __future__ import annotations

from typing import Any

from tintype.errors import Location, TintypeError


class RequirementError(RuntimeError):
    """Sizes that don't fit: the error that the program itself would raise, with torch's message.

    It is the program's failure, not the capture's, so it is no TintypeError.
    """

    id = "requirement"

    def __init__(self, message: str, *, condition: Any = None, location: Location | None = None) -> None:
        super().__init__(message)
        self.condition = condition
        self.location = location


class FinishedProgramError(TintypeError):
    """Somebody asked about the sizes of a program that is there already, and its contract does not tell.

    >>> import torch, tintype
    >>> shapes = {"input": {0: tintype.Dim("size")}}
    >>> program = tintype.export(torch.nn.ReLU(), (torch.ones(4),), dynamic_shapes=shapes)
    >>> value = next(iter(program.graph.nodes)).meta["val"]
    >>> try:
    ...     bool(value.shape[0] > 3)
    ... except tintype.FinishedProgramError as error:
    ...     print(error.id)
    finished-program
    """

    id = "finished-program"

    def __init__(self, condition: Any, location: Location | None) -> None:
        super().__init__(
            f"whether {condition} holds is not decided by the program's contract, and a program that was exported "
            "learns nothing more about its sizes",
            location=location,
            remedy="look at program.contract() and program.range_constraints, or export for the sizes you mean",
        )
        self.condition = condition
