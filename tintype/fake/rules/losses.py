"""Losses: elementwise or over classes, then reduced to one number unless told not to."""

from __future__ import annotations

import torch

from tintype.fake.info import TensorInfo
from tintype.fake.promotion import real_of, result_type, to_float
from tintype.fake.rules.elementwise import broadcast, elementwise
from tintype.fake.rules.registry import rule
from tintype.fake.rules.views import wrap_dimension
from tintype.symbolic import Size
from tintype.symbolic.sizes import contiguous_strides, decided_same, require_same

_NO_REDUCTION = 0
_MEAN = 1


def _fresh(self: TensorInfo, sizes: tuple[Size, ...]) -> TensorInfo:
    return TensorInfo(sizes, contiguous_strides(sizes), self.dtype, self.device)


def _number(self: TensorInfo, dtype: torch.dtype | None = None) -> TensorInfo:
    return TensorInfo((), (), dtype or self.dtype, self.device)


# --- elementwise -----------------------------------------------------------------------------------------


@rule("mse_loss", "smooth_l1_loss")
def difference_loss(
    self: TensorInfo, target: TensorInfo, reduction: int = _MEAN, scale: float = 1.0, **named: float
) -> TensorInfo:
    loss = elementwise([self, target], result_type(self, target))
    return loss if reduction == _NO_REDUCTION else _number(self, loss.dtype)


@rule("l1_loss")
def l1_loss(self: TensorInfo, target: TensorInfo, reduction: int = _MEAN) -> TensorInfo:
    loss = elementwise([self, target], result_type(self, target))
    if loss.dtype.is_complex:
        loss.dtype = loss.dtype.to_real()
    return loss if reduction == _NO_REDUCTION else _number(self, loss.dtype)


@rule("huber_loss", "soft_margin_loss")
def loss_of_the_inputs_kind(
    self: TensorInfo, target: TensorInfo, reduction: int = _MEAN, delta: float = 1.0
) -> TensorInfo:
    """Kernels that make room for a result of the input's dtype, whatever that of the target."""
    loss = elementwise([self, target], self.dtype)
    return loss if reduction == _NO_REDUCTION else _number(self)


@rule("multi_margin_loss")
def multi_margin_loss(
    self: TensorInfo,
    target: TensorInfo,
    p: float = 1,
    margin: float = 1,
    weight: TensorInfo | None = None,
    reduction: int = _MEAN,
) -> TensorInfo:
    """The loss of one sample is a number, which torch's meta kernel has as a list of one."""
    if reduction == _NO_REDUCTION and not target.sizes:
        return _number(self)
    raise NotImplementedError("torch's meta kernel checks more")


@rule("multilabel_margin_loss_forward")
def multilabel_margin_loss(self: TensorInfo, target: TensorInfo, reduction: int) -> tuple[TensorInfo, TensorInfo]:
    if reduction == _NO_REDUCTION and len(target.sizes) < 2 and self.sizes == target.sizes:
        return _number(self), _fresh(self, target.sizes)
    raise NotImplementedError("torch's meta kernel checks more")


@rule("binary_cross_entropy")
def binary_cross_entropy(
    self: TensorInfo, target: TensorInfo, weight: TensorInfo | None = None, reduction: int = _MEAN
) -> TensorInfo:
    if reduction != _NO_REDUCTION:
        return _number(self)
    return TensorInfo(self.sizes, elementwise([self], self.dtype).strides, self.dtype, self.device)


@rule("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    self: TensorInfo,
    target: TensorInfo,
    weight: TensorInfo | None = None,
    pos_weight: TensorInfo | None = None,
    reduction: int = _MEAN,
) -> TensorInfo:
    if reduction == _NO_REDUCTION:
        raise NotImplementedError("the memory order depends on which formula is used")
    if self.dtype.is_complex or target.dtype.is_complex:
        raise NotImplementedError("which of them are promoted, and when, depends on the formula")
    operands = [operand for operand in (self, target, weight, pos_weight) if operand is not None]
    broadcast([operand.sizes for operand in operands])
    # the kernel begins with the target and goes on in place
    return _number(self, target.dtype if target.dtype.is_floating_point else result_type(*operands))


@rule("kl_div")
def kl_divergence(
    self: TensorInfo, target: TensorInfo, reduction: int = _MEAN, *, log_target: bool = False
) -> TensorInfo:
    if reduction == _NO_REDUCTION:
        raise NotImplementedError("the memory order depends on which formula is used")
    broadcast([self.sizes, target.sizes])
    return _number(self, result_type(self, target))


# --- over classes ----------------------------------------------------------------------------------------


def _class_dimension(self: TensorInfo) -> int:
    return 0 if self.dim == 1 else 1


def _check_classes(self: TensorInfo, target: TensorInfo, weight: TensorInfo | None) -> tuple[Size, ...]:
    """The sizes of the loss of each sample."""
    where = wrap_dimension(_class_dimension(self), self.dim)
    samples = self.sizes[:where] + self.sizes[where + 1 :]
    if len(target.sizes) != len(samples):
        raise RuntimeError(
            f"Expected a target with sizes {list(samples)}, but got {list(target.sizes)} for input of size "
            f"{list(self.sizes)}"
        )
    for size, wanted in zip(target.sizes, samples, strict=True):
        require_same(size, wanted, lambda: f"Expected target size {list(samples)}, got {list(target.sizes)}")
    if weight is not None and self.sizes:
        require_same(
            weight.sizes[0],
            self.sizes[where],
            "weight tensor should be defined either for all classes or no classes",
        )
    return samples


def _check_batch(self: TensorInfo, target: TensorInfo) -> None:
    if self.dim > 1 and target.sizes:
        size, wanted = self.sizes[0], target.sizes[0]
        if type(size) is int and type(wanted) is int and size != wanted:
            raise ValueError(f"Expected input batch_size ({size}) to match target batch_size ({wanted}).")


@rule("nll_loss_nd", "nll_loss", "nll_loss2d")
def nll_loss(
    self: TensorInfo,
    target: TensorInfo,
    weight: TensorInfo | None = None,
    reduction: int = _MEAN,
    ignore_index: Size = -100,
) -> TensorInfo:
    if self.dim < 1:
        raise RuntimeError(f"Expected 1 or more dimensions (got {self.dim})")
    _check_batch(self, target)
    samples = _check_classes(self, target, weight)
    return _number(self) if reduction != _NO_REDUCTION else _fresh(self, samples)


@rule("nll_loss_forward", "nll_loss2d_forward")
def nll_loss_forward(
    self: TensorInfo, target: TensorInfo, weight: TensorInfo | None, reduction: int, ignore_index: Size
) -> tuple[TensorInfo, TensorInfo]:
    samples = _check_classes(self, target, weight)
    loss = _number(self) if reduction != _NO_REDUCTION else _fresh(self, samples)
    return loss, _number(self)


@rule("cross_entropy_loss")
def cross_entropy_loss(
    self: TensorInfo,
    target: TensorInfo,
    weight: TensorInfo | None = None,
    reduction: int = _MEAN,
    ignore_index: Size = -100,
    label_smoothing: float = 0.0,
) -> TensorInfo:
    if self.dim < 1:
        raise RuntimeError(f"Expected 1 or more dimensions (got {self.dim})")
    if target.dtype.is_floating_point and self.dim == target.dim and decided_same(self.sizes, target.sizes):
        if reduction == _NO_REDUCTION:
            where = _class_dimension(self)
            return _fresh(self, self.sizes[:where] + self.sizes[where + 1 :])
        return _number(self, result_type(self, target))
    if label_smoothing > 0.0 and reduction == _NO_REDUCTION:
        raise NotImplementedError("the memory order depends on the smoothing")
    _check_batch(self, target)
    samples = _check_classes(self, target, weight)
    return _number(self) if reduction != _NO_REDUCTION else _fresh(self, samples)


# --- reduced ---------------------------------------------------------------------------------------------


def _reduced(operands: list[TensorInfo], reduction: int) -> TensorInfo:
    if reduction == _NO_REDUCTION:
        raise NotImplementedError("the memory order depends on the formula")
    if any(operand.dtype is not operands[0].dtype for operand in operands):
        raise NotImplementedError("which of them are promoted, and when, depends on the formula")
    return _number(operands[0], real_of(to_float(result_type(*operands))))


@rule("poisson_nll_loss")
def poisson_nll_loss(
    input: TensorInfo, target: TensorInfo, log_input: bool, full: bool, eps: float, reduction: int
) -> TensorInfo:
    broadcast([input.sizes, target.sizes])
    return _reduced([input, target], reduction)


@rule("hinge_embedding_loss")
def hinge_embedding_loss(
    self: TensorInfo, target: TensorInfo, margin: float = 1.0, reduction: int = _MEAN
) -> TensorInfo:
    broadcast([self.sizes, target.sizes])
    return _reduced([self], reduction)


@rule("margin_ranking_loss", "cosine_embedding_loss")
def pair_loss(
    input1: TensorInfo, input2: TensorInfo, target: TensorInfo, margin: float = 0.0, reduction: int = _MEAN
) -> TensorInfo:
    return _reduced([input1, input2, target], reduction)


@rule("triplet_margin_loss")
def triplet_margin_loss(
    anchor: TensorInfo,
    positive: TensorInfo,
    negative: TensorInfo,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = _MEAN,
) -> TensorInfo:
    return _reduced([anchor, positive, negative], reduction)


@rule("ctc_loss.IntList", "ctc_loss.Tensor")
def ctc_loss(
    log_probs: TensorInfo,
    targets: TensorInfo,
    input_lengths: object,
    target_lengths: object,
    blank: int = 0,
    reduction: int = _MEAN,
    zero_infinity: bool = False,
) -> TensorInfo:
    return _reduced([log_probs], reduction)
