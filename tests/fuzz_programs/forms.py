"""What users write around operators: functions and modules that random programs call as ``forms``."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.utils.checkpoint
from torch.nn import functional

# --- gradients of one's own ----------------------------------------------------------------------------------


class Squared(torch.autograd.Function):
    """A square that keeps its argument."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(tensor)
        with torch.no_grad():  # as a forward is anyway
            return tensor * tensor

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (tensor,) = ctx.saved_tensors
        return gradients[0] * tensor * 2


class Halved(torch.autograd.Function):
    """A half, and a mask that has no gradient."""

    @staticmethod
    def forward(tensor: torch.Tensor) -> Any:
        return tensor * 0.5, tensor > 0

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * 0.5


class Scaled(torch.autograd.Function):
    """A product with a number, of which there is no gradient."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return tensor * factor

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * ctx.factor, None


class Joined(torch.autograd.Function):
    """A product of two tensors, with the gradients that are asked for."""

    @staticmethod
    def forward(ctx: Any, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(first, second)
        return first * second

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        first, second = ctx.saved_tensors
        pairs = zip((first, second), (second, first), ctx.needs_input_grad, strict=True)
        return tuple(
            (gradients[0] * other).sum_to_size(own.shape) if needed else None for own, other, needed in pairs
        )


class Overwritten(torch.autograd.Function):
    """Writes to its argument and returns it."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(tensor)
        return tensor.mul_(3)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * 3


class Unused(torch.autograd.Function):
    """Two results, of which somebody may use one only."""

    @staticmethod
    def forward(ctx: Any, first: torch.Tensor, second: torch.Tensor) -> Any:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(first)
        return first.sin(), second * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (first,) = ctx.saved_tensors
        slopes = first.cos(), 2
        return tuple(
            None if gradient is None else gradient * slope for gradient, slope in zip(gradients, slopes, strict=True)
        )


def watched(tensor: torch.Tensor, has_gradient: bool) -> torch.Tensor:
    """A hook on a gradient, which looks at it."""
    result = tensor * 2
    if has_gradient:
        result.register_hook(lambda gradient: None)
    return result


def rounded(tensor: torch.Tensor) -> torch.Tensor:
    """Rounding whose gradient is passed on."""
    return tensor + (tensor.round() - tensor).detach()


def kept_small(tensor: torch.Tensor) -> torch.Tensor:
    """Computed again for its gradient."""
    return torch.utils.checkpoint.checkpoint(lambda value: (value * 2).sin() + value, tensor, use_reentrant=False)


def in_bfloat16(function: Callable[[], torch.Tensor]) -> torch.Tensor:
    """Computed below autocast."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return function()


def partly_without_gradients(tensor: torch.Tensor) -> torch.Tensor:
    """A factor without gradients, and a part of it with them again."""
    with torch.no_grad():
        factor = tensor.abs().mean() + 1
        with torch.enable_grad():
            inner = tensor * 2
    return inner / factor


def by_a_flag(tensor: torch.Tensor, on: bool) -> torch.Tensor:
    """Gradients switched by an argument."""
    with torch.set_grad_enabled(on and torch.is_grad_enabled()):
        return tensor * 3


# --- functions -----------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    """Two results with names."""

    first: Any
    second: Any


def attention(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Scores with a mask of what comes later."""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    later = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).triu(1)
    return scores.masked_fill(later, float("-inf")).softmax(-1) @ key


def rotated(tensor: torch.Tensor) -> torch.Tensor:
    """Rotary positions."""
    half = tensor.shape[-1] // 2
    frequencies = 1.0 / (100.0 ** (torch.arange(half, dtype=tensor.dtype) / max(half, 1)))
    angles = torch.arange(tensor.shape[-2], dtype=tensor.dtype)[:, None] * frequencies
    first, second = tensor[..., :half], tensor[..., half : 2 * half]
    turned = (first * angles.cos() - second * angles.sin(), first * angles.sin() + second * angles.cos())
    return torch.cat(turned, -1)


def padded_to_even(tensor: torch.Tensor) -> torch.Tensor:
    """One more element where their number is odd."""
    return functional.pad(tensor, (0, 1)) if tensor.shape[-1] % 2 else tensor


def added_in_pairs(tensor: torch.Tensor) -> torch.Tensor:
    """A sum over rows, by halves."""
    if tensor.shape[0] <= 1:
        return tensor.sum(0)
    half = tensor.shape[0] // 2
    return added_in_pairs(tensor[:half]) + added_in_pairs(tensor[half:])


def accumulated(tensor: torch.Tensor) -> torch.Tensor:
    """A loop over rows that hands a value on."""
    total, found = torch.zeros_like(tensor[0]), []
    for i, row in enumerate(tensor):
        total = total * 0.5 + row * (i + 1)
        found.append(total)
    return torch.stack(found)


def by_generator(tensor: torch.Tensor) -> torch.Tensor:
    """What a generator makes, in a closure."""
    seen: list[torch.Tensor] = []

    def parts() -> Iterator[torch.Tensor]:
        for factor in (1, 2, 3):
            seen.append(tensor * factor)
            yield seen[-1]

    return sum(parts(), torch.zeros(())) + len(seen)  # type: ignore[no-any-return]


def viewed_if_possible(tensor: torch.Tensor) -> torch.Tensor:
    """A view of two rows, where there can be one."""
    try:
        return tensor.view(2, -1) * 1
    except RuntimeError:
        return tensor * 2


@functools.lru_cache(maxsize=4)
def triangle(size: int) -> torch.Tensor:
    """A mask that is made once."""
    return torch.ones(size, size).tril()


def plus_one_(tensor: torch.Tensor) -> torch.Tensor:
    """Writes to its argument and returns it."""
    return tensor.add_(1)


def halved_(tensors: list[torch.Tensor]) -> None:
    """Writes to all that it is given."""
    for tensor in tensors:
        tensor.div_(2)


def chosen(tensor: torch.Tensor, **options: Any) -> torch.Tensor:
    """A function by its name."""
    table = {"sin": torch.sin, "double": lambda value: value * 2}
    return table[options.get("kind", "sin")](tensor)


def sampled(image: torch.Tensor, place: float, **options: Any) -> torch.Tensor:
    """An image at places that are made from a number."""
    places = torch.arange(8, dtype=image.dtype).reshape(1, 2, 2, 2) * 0.2 - place
    return functional.grid_sample(image[None, None], places, **{"align_corners": False, **options})


def bag(indices: torch.Tensor, table: torch.Tensor, offsets: torch.Tensor | None = None, **options: Any) -> Any:
    """Rows of a table that are added up."""
    rows = table.reshape(table.shape[0], -1)
    if "per_sample_weights" in options:
        options["per_sample_weights"] = options["per_sample_weights"].to(rows.dtype)
    return functional.embedding_bag(indices % rows.shape[0], rows, offsets, **options)


def called_with_others(tensor: torch.Tensor) -> torch.Tensor:
    """A layer that is called with other weights than its own."""
    size = tensor.shape[-1]
    layer = torch.nn.Linear(3, 2, device="meta")
    weights = {"weight": torch.ones(2, size, dtype=tensor.dtype), "bias": tensor.reshape(-1)[:2]}
    return torch.func.functional_call(layer, weights, (tensor,))


def of_several_models(tensor: torch.Tensor) -> torch.Tensor:
    """Several layers at once, by their weights one above the other."""
    weights = torch.stack([torch.ones(2, tensor.shape[-1]), torch.full((2, tensor.shape[-1]), 0.5)])
    return torch.func.vmap(functional.linear, in_dims=(None, 0))(tensor, weights.to(tensor.dtype))


# --- modules -------------------------------------------------------------------------------------------------


class Tied(torch.nn.Module):
    """Two layers of one weight."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.into, self.out = torch.nn.Linear(size, size), torch.nn.Linear(size, size)
        self.out.weight = self.into.weight

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.out(self.into(tensor).relu())


class OfOneMemory(torch.nn.Module):
    """A buffer under two names that is written to, and a part of another that nobody writes to."""

    def __init__(self) -> None:
        super().__init__()
        whole, same = torch.arange(4.0), torch.ones(3)
        self.register_buffer("whole", whole)
        self.register_buffer("part", whole[1:3])
        self.register_buffer("one", same)
        self.register_buffer("other", same)

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        self.one.mul_(2)
        return tensor * self.part.sum() + self.other.sum() + self.whole[0]


class Hooked(torch.nn.Module):
    """A layer with hooks before and behind it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(size, size)
        self.layer.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
        self.layer.register_forward_hook(lambda module, args, result: result + args[0])

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.layer(tensor)


class Average(torch.nn.Module):
    """A moving average that is replaced, and a count."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("count", torch.tensor(0))

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        self.count += 1
        with torch.no_grad():
            self.mean = self.mean * 0.9 + tensor.reshape(-1, tensor.shape[-1]).mean(0) * 0.1
        return (tensor - self.mean) / self.count


class Cache(torch.nn.Module):
    """Rows that were seen, at a place that moves on."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(8, size))
        self.register_buffer("place", torch.tensor([0]))

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        row = tensor.detach().reshape(-1, tensor.shape[-1])[:1].to(self.rows.dtype)
        self.rows.index_copy_(0, self.place % 8, row)
        self.place += 1
        known = torch.arange(8) < self.place
        return tensor + (self.rows * known[:, None]).sum(0)


class Stack(torch.nn.Module):
    """Layers in a list, one of them called twice, with what goes around them."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(size, size) for _ in range(2))
        self.norms = torch.nn.ModuleDict({"first": torch.nn.LayerNorm(size), "last": torch.nn.LayerNorm(size)})

    def forward(self, tensor: torch.Tensor) -> dict[str, Any]:
        states = [tensor]
        for layer in (*self.layers, self.layers[0]):
            states.append(states[-1] + layer(self.norms["first"](states[-1])).relu())
        return {"last": self.norms["last"](states[-1]), "states": tuple(states)}


class Frozen(torch.nn.Module):
    """A layer of which the weight is frozen."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(size, 3)
        self.layer.weight.requires_grad_(False)

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.layer(tensor)


class Attention(torch.nn.Module):
    """Attention of two heads, taken apart and put together as models do it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.all = torch.nn.Linear(size, 3 * 2 * 2)
        self.out = torch.nn.Linear(4, size)

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        batch, length, _ = tensor.shape
        query, key, value = self.all(tensor).view(batch, length, 3, 2, 2).permute(2, 0, 3, 1, 4).unbind(0)
        found = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(found.transpose(1, 2).reshape(batch, length, 4))


class Unrolled(torch.nn.Module):
    """A cell of a recurrent layer that is called for each row."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.cell = torch.nn.GRUCell(size, 3)

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(1, 3)
        found = []
        for row in tensor.reshape(-1, tensor.shape[-1]).split(1):
            state = self.cell(row, state)
            found.append(state)
        return torch.cat(found)


class Watched(torch.nn.Module):
    """Hooks that take keyword arguments, write to a buffer, and are called though nothing is changed."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(size, 2)
        self.register_buffer("seen", torch.zeros(()))
        self.layer.register_forward_pre_hook(self._before, with_kwargs=True)
        self.layer.register_forward_hook(self._after, with_kwargs=True, always_call=True)

    def _before(self, module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        return (), {"input": kwargs["input"] + 1}

    def _after(self, module: torch.nn.Module, args: Any, kwargs: Any, result: torch.Tensor) -> None:
        self.seen += result.detach().sum()

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.layer(input=tensor) + self.seen


class Counting(torch.nn.Module):
    """Counts of what it was given, in parts of a buffer, and the norm of its weight before each call."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))
        self.register_buffer("counts", torch.zeros(2, size, dtype=torch.int64))

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        rows = tensor.detach().reshape(-1, tensor.shape[-1])
        positive, others = self.counts.unbind(0)
        positive += (rows > 0).sum(0)
        others.copy_(rows.shape[0] - (rows > 0).sum(0))
        share = positive / self.counts.sum(0).clamp(min=1)
        return tensor * self.weight / self.weight.norm() + share


class Codebook(torch.nn.Module):
    """The nearest of some vectors, which move to what they stand for in training."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("vectors", torch.arange(3.0 * size).reshape(3, size) / 4)

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        rows = tensor.reshape(-1, tensor.shape[-1])
        nearest = torch.cdist(rows.detach(), self.vectors.to(rows.dtype)).argmin(1)
        if self.training:
            chosen = functional.one_hot(nearest, 3).to(self.vectors.dtype)
            means = chosen.t() @ rows.detach().to(self.vectors.dtype) / chosen.sum(0).clamp(min=1)[:, None]
            self.vectors[chosen.sum(0) > 0] = (self.vectors * 0.9 + means * 0.1)[chosen.sum(0) > 0]
        found = self.vectors[nearest].to(rows.dtype)
        return (rows + (found - rows).detach()).reshape(tensor.shape)


class Masked(torch.nn.Module):
    """Attention of rows to those before them, with a mask that is a buffer and cut to size."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mask", torch.ones(9, 9, dtype=torch.bool).tril(), persistent=False)
        self.scale = size**-0.5

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        rows = tensor.reshape(-1, tensor.shape[-1])[:9]
        scores = rows @ rows.t() * self.scale
        length = rows.shape[0]
        return scores.masked_fill(~self.mask[:length, :length], torch.finfo(scores.dtype).min).softmax(-1) @ rows


class Recalled(torch.nn.Module):
    """A layer called with weights that were computed from its own."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(size, size)

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        weights = {name: value * 0.5 for name, value in self.layer.named_parameters()}
        return torch.func.functional_call(self.layer, weights, (tensor,)) + self.layer(tensor)
