"""The arguments of a program: sizes, layouts and shared memory, as source that makes them."""

from __future__ import annotations

import dataclasses
import math
import random

from tests.fuzz_programs.language import Input, Number, Program

LAYOUTS = ["contiguous", "transposed", "reversed", "strided", "offset", "expanded", "channels_last"]


@dataclasses.dataclass(frozen=True)
class Case:
    """One call of a program: sizes, a layout for each tensor, what shares memory, whether gradients are wanted."""

    sizes: dict[str, int]
    layouts: tuple[str, ...] = ()  # those of the example, unless given
    shared: str = ""  # "same": the first two tensors are one; "overlap": they are views of one memory
    gradients: str = ""  # "leaf": inputs are leaves; "result": they have a history
    calls: int = 1
    seed: int = 1

    @property
    def name(self) -> str:
        """What is special about the call."""
        parts = [",".join(f"{name}={value}" for name, value in self.sizes.items())]
        if self.layouts:
            parts.append("layouts " + ",".join(self.layouts))
        if self.shared:
            parts.append(f"shared {self.shared}")
        if self.gradients:
            parts.append(f"gradients {self.gradients}")
        return "; ".join(parts)


def evaluated(expression: str, sizes: dict[str, int]) -> int:
    """A size or number at some sizes."""
    return int(eval(expression, {"__builtins__": {}}, dict(sizes)))


def input_lines(program: Program, case: Case) -> list[str]:
    """Source that makes the arguments of a call."""
    tensors = [argument for argument in program.inputs if isinstance(argument, Input)]
    layouts = case.layouts or tuple(tensor.layout for tensor in tensors)
    lines = [f"torch.manual_seed({case.seed})"]
    numbers = [argument for argument in program.inputs if isinstance(argument, Number)]
    lines += [f"{number.name} = {evaluated(number.value, case.sizes)}" for number in numbers]
    made = {
        tensor.name: tensor_source(shape(tensor, case.sizes), tensor.dtype, layout)
        for tensor, layout in zip(tensors, layouts, strict=True)
    }
    shared = shared_lines(tensors, case) if case.shared else {}
    lines += [f"{name} = {source}" for name, source in made.items() if name not in shared]
    lines += shared.values()
    if case.gradients:
        lines += gradient_lines(tensors, case)
    return lines


def shape(tensor: Input, sizes: dict[str, int]) -> tuple[int, ...]:
    """The sizes of a tensor."""
    return tuple(evaluated(size, sizes) for size in tensor.sizes)


def tensor_source(sizes: tuple[int, ...], dtype: str, layout: str) -> str:
    """Source of a tensor of random numbers with a layout, if its sizes allow that one."""
    rank = len(sizes)
    base, rest = sizes, ""
    if layout == "transposed" and rank >= 2:
        base, rest = (*sizes[:-2], sizes[-1], sizes[-2]), ".transpose(-1, -2)"
    elif layout == "reversed" and rank >= 2:
        base, rest = sizes[::-1], f".permute({', '.join(str(rank - 1 - i) for i in range(rank))})"
    elif layout == "strided" and rank >= 1:
        base, rest = (*sizes[:-1], 2 * sizes[-1]), "[..., ::2]"
    elif layout == "offset" and rank >= 1:
        base, rest = (sizes[0] + 1, *sizes[1:]), "[1:]"
    elif layout == "expanded" and rank >= 1:
        base, rest = (1, *sizes[1:]), f".expand({', '.join(map(str, sizes))})"
    elif layout == "channels_last" and rank == 4:
        rest = ".to(memory_format=torch.channels_last)"
    return random_numbers(base, dtype) + rest


def random_numbers(sizes: tuple[int, ...], dtype: str) -> str:
    """Source of a tensor of random numbers."""
    listed = ", ".join(map(str, sizes))
    whole = f"({listed},)" if len(sizes) == 1 else f"({listed})"
    if dtype == "int64":
        return f"torch.randint(0, 3, {whole})"
    if dtype == "bool":
        return f"(torch.rand({whole}) > 0.5)"
    option = "" if dtype == "float32" else f", dtype=torch.{dtype}"
    return f"torch.randn({whole}{option})"


def can_share(program: Program, sizes: dict[str, int]) -> list[str]:
    """The ways in which the first two tensors can share memory."""
    tensors = [argument for argument in program.inputs if isinstance(argument, Input)]
    if len(tensors) < 2 or tensors[0].dtype != tensors[1].dtype:
        return []
    first, second = (shape(tensor, sizes) for tensor in tensors[:2])
    if not math.prod(first) or not math.prod(second):
        return []
    return ["overlap", "apart", "same"] if first == second else ["overlap", "apart"]


def shared_lines(tensors: list[Input], case: Case) -> dict[str, str]:
    """Source of the first two tensors, as parts of one memory."""
    first, second = tensors[:2]
    one, two = shape(first, case.sizes), shape(second, case.sizes)
    if case.shared == "same":
        made = tensor_source(one, first.dtype, (case.layouts or (first.layout,))[0])
        return {first.name: f"{first.name} = {made}", second.name: f"{second.name} = {first.name}"}
    begin = math.prod(one) // 2 if case.shared == "overlap" else math.prod(one)
    total = max(math.prod(one), begin + math.prod(two))
    return {
        first.name: f"memory = {random_numbers((total,), first.dtype)}\n"
        f"{first.name} = memory[:{math.prod(one)}].view({one})",
        second.name: f"{second.name} = memory[{begin}:{begin + math.prod(two)}].view({two})",
    }


def gradient_lines(tensors: list[Input], case: Case) -> list[str]:
    """Source that makes tensors require gradients; the leaves are in the list ``leaves``.

    A leaf is no view in autograd's eyes (``.data``): where the base of a view requires no gradients, autograd forgets
    those of all its views as soon as one of them is written to without gradients, and no program can know the base.
    """
    lines = ["leaves = []"]
    for tensor in tensors:
        if tensor.dtype.startswith(("float", "bfloat", "complex")):
            lines.append(f"{tensor.name} = {tensor.name}.data.requires_grad_()")
            lines.append(f"leaves.append({tensor.name})")
            if case.gradients == "result":
                lines.append(f"{tensor.name} = {tensor.name} * 1")
    return lines


def dynamic_shapes(program: Program) -> str | None:
    """Source of the argument ``dynamic_shapes`` of export."""
    mode = program.sizes.mode
    if mode == "static":
        return None
    if mode == "all":
        return '"auto"'
    entries = []
    for argument in program.inputs:
        if isinstance(argument, Number):
            entries.append(_entry(argument.value, mode) or "None")
            continue
        found = {i: _entry(size, mode) for i, size in enumerate(argument.sizes)}
        entries.append("{" + ", ".join(f"{i}: {entry}" for i, entry in found.items() if entry) + "}")
    return f"({', '.join(entries)},)"


def _entry(expression: str, mode: str) -> str | None:
    if expression.isdigit():
        return None
    return expression if mode == "dim" else "tintype.Dim.AUTO"


def dimension_lines(program: Program) -> list[str]:
    """Source of the Dims that ``dynamic_shapes`` mentions."""
    if program.sizes.mode != "dim":
        return []
    lines = []
    for name in program.sizes.example:
        least = program.sizes.minimum.get(name, 0)
        lines.append(f'{name} = tintype.Dim("{name}", max=64)' if not least else
                     f'{name} = tintype.Dim("{name}", min={least}, max=64)')  # fmt: skip
    return lines


def other_layouts(program: Program, chance: random.Random) -> tuple[str, ...]:
    """A layout for each tensor."""
    return tuple(chance.choice(LAYOUTS) for argument in program.inputs if isinstance(argument, Input))
