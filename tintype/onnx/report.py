"""What is told of an export: what is in the way, or what was checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tintype.onnx.errors import OnnxExportError

if TYPE_CHECKING:
    from tintype.onnx.translation import Failure

_MOST_LINES = 5


def failures_error(failures: Sequence[Failure]) -> OnnxExportError:
    """One error with every operator that has no form in ONNX, how often it is called and where."""
    groups: dict[tuple[str, str], list[Failure]] = {}
    for failure in failures:
        groups.setdefault((failure.operator, failure.reason), []).append(failure)
    number = len({failure.operator for failure in failures})
    lines = [f"{number} operator{'s' if number != 1 else ''} of this program can't be said in ONNX:"]
    for (name, reason), calls in groups.items():
        lines.append(f"  {name} ({len(calls)} call{'s' if len(calls) != 1 else ''}): {reason}")
        places = dict.fromkeys(str(call.location) for call in calls if call.location is not None)
        lines += [f"    at {place}" for place in list(places)[:_MOST_LINES]]
        if len(places) > _MOST_LINES:
            lines.append(f"    and at {len(places) - _MOST_LINES} more lines")
    return OnnxExportError(
        "\n".join(lines),
        remedy="give translations={torch.ops.namespace.name.overload: function}, where function(op, *args) returns "
        "what op's ONNX operators compute; or write the model with other operators",
    )


@dataclasses.dataclass
class Comparison:
    """The ONNX program beside the program it comes from, on one set of inputs."""

    sizes: str
    largest_difference: float
    where: str


@dataclasses.dataclass
class Report:
    """What was made, and what was verified.

    ``print(report)`` says it in words.
    """

    opset: int
    nodes: int
    initializers: int
    comparisons: list[Comparison] = dataclasses.field(default_factory=list)
    checked: bool = False
    notes: list[str] = dataclasses.field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"ONNX opset {self.opset}: {self.nodes} nodes, {self.initializers} initializers"]
        if self.checked:
            lines.append("onnx's checker and strict shape inference pass")
        lines += [
            f"verified on {comparison.sizes}: largest difference {comparison.largest_difference:.3g}"
            + (f" in {comparison.where}" if comparison.where else "")
            for comparison in self.comparisons
        ]
        if not self.comparisons:
            lines.append("not verified")
        lines += self.notes
        return "\n".join(lines)
