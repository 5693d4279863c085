"""What a program looked at that its ordinary contract leaves open.

A program is exported for inputs of certain sizes and dtypes. Their strides, whether they require a gradient, or
whether gradients are enabled at all may be anything when it is called: unless the program itself asked, in which case
the answer decided what was captured. Every such question is an :class:`Observation`: part of the program, checked
when it is called.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from tintype.errors import Location
from tintype.tree.distributed_tensors import group_called


@dataclasses.dataclass(frozen=True)
class Observation:
    """A question that a program asked, and the answer that it was captured with.

    ``subject`` is the position of a tensor among the program's inputs, the name of a parameter or buffer, or None for
    what is around the program (:data:`SURROUNDINGS`). ``answer`` is a number, a truth value, a dtype, a text or None,
    or a tuple of numbers; numbers may be symbolic.
    """

    subject: int | str | None
    fact: str
    arguments: tuple[Any, ...]
    answer: Any
    location: Location | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for the same question."""
        return self.subject, self.fact, self.arguments

    def question(self, name: str) -> str:
        """The question as it is asked of a subject of that name: ``x.stride(0)``, ``torch.is_grad_enabled()``."""
        arguments = f"({', '.join(map(str, self.arguments))})"
        if self.fact == KEYS:
            return f"list({self.arguments[0]})"
        if self.fact in OF_CONTAINERS:
            return f"{self.fact}{arguments}"
        if self.fact == GROUP_SIZE:
            return f"number of processes of the group {self.arguments[0]!r}"
        if self.fact == GROUP_RANK:
            return f"number of this process in the group {self.arguments[0]!r}"
        if self.subject is None:
            return f"torch.{self.fact}{arguments}"
        if self.fact == "tensor_class":
            return f"type({name})"
        if self.fact in OF_ATTRIBUTES:
            return f"{self.fact}({name}, {self.arguments[0]!r})"
        if self.fact == "is":
            other = self.arguments[0]
            return f"({name} is {repr(other) if isinstance(other, str) else f'the tensor at position {other}'})"
        return f"{name}.{self.fact}{arguments if FACTS[self.fact] else ''}"


# What can be asked of a tensor, and whether it is asked by a call. A file may name nothing else.
FACTS: dict[str, bool] = {
    # the same object as another input, by its position, or as a parameter or buffer, by its name
    "is": True,
    "_backward_hooks": False,
    "_is_buffer": False,
    "_post_accumulate_grad_hooks": False,
    # an attribute that somebody has set, by its name
    "getattr": True,
    "grad": False,
    "grad_fn": False,
    "hasattr": True,
    "is_conj": True,
    "is_contiguous": True,
    "is_inference": True,
    "is_leaf": False,
    "is_neg": True,
    "is_pinned": True,
    "is_plain": False,
    "is_shared": True,
    "layout": False,
    "output_nr": False,
    "requires_grad": False,
    "retains_grad": False,
    "storage_offset": True,
    "stride": True,
    "tensor_class": False,
}

# What is asked of a dictionary among the arguments, by the path to it: the order of its keys.
KEYS = "keys"
# What is asked of all containers among the arguments, by number: which of them are one object. The answer has for
# each the number of the first one that is the same; it matters for those that the arguments name.
SAME_OBJECTS = "same_objects"
# What is asked of an object that holds its attributes, by its number among the containers: their order.
ATTRIBUTES = "attributes"
OF_CONTAINERS = frozenset({SAME_OBJECTS, ATTRIBUTES})

NO_SUCH_ATTRIBUTE = "(no such attribute)"
OF_ATTRIBUTES: dict[str, Callable[[Any, str], Any]] = {
    "hasattr": hasattr,
    "getattr": lambda tensor, name: getattr(tensor, name, NO_SUCH_ATTRIBUTE),
}
# Facts that are an object or None; which object it is nobody may ask.
OF_OBJECTS = frozenset({"grad", "grad_fn", "_backward_hooks", "_post_accumulate_grad_hooks"})

# What can be asked of a program's surroundings: functions of torch's, by the name that they are found by.
_NAMES = (
    "are_deterministic_algorithms_enabled", "get_autocast_cpu_dtype", "get_autocast_dtype", "get_autocast_gpu_dtype",
    "get_default_device", "get_default_dtype", "get_deterministic_debug_mode", "get_float32_matmul_precision",
    "get_num_interop_threads", "get_num_threads", "initial_seed", "is_anomaly_check_nan_enabled",
    "is_anomaly_enabled", "is_autocast_cpu_enabled", "is_autocast_enabled",
    "is_deterministic_algorithms_warn_only_enabled",
    "is_grad_enabled", "is_inference_mode_enabled", "is_warn_always_enabled",
    # what the machine has
    "accelerator.is_available", "backends.cuda.is_built", "backends.cudnn.is_available", "backends.mkl.is_available",
    "backends.mkldnn.is_available", "backends.mps.is_available", "backends.openmp.is_available",
    "cuda.current_device", "cuda.device_count", "cuda.get_device_capability", "cuda.get_device_name",
    "cuda.is_available", "cuda.is_bf16_supported", "xpu.is_available",
    # how its libraries are to compute; torch.backends asks these
    "backends.mha.get_fastpath_enabled",
    "_C._get_blas_preferred_backend", "_C._get_cpu_allow_fp16_reduced_precision_reduction", "_C._get_cpu_capability",
    "_C._get_cublas_allow_bf16_reduced_precision_reduction", "_C._get_cublas_allow_fp16_accumulation",
    "_C._get_cublas_allow_fp16_reduced_precision_reduction", "_C._get_cublas_allow_tf32", "_C._get_cudnn_allow_tf32",
    "_C._get_cudnn_benchmark", "_C._get_cudnn_depthwise_kernel", "_C._get_cudnn_deterministic",
    "_C._get_cudnn_enabled", "_C._get_cudnn_sdp_enabled", "_C._get_deterministic_algorithms",
    "_C._get_deterministic_algorithms_warn_only", "_C._get_deterministic_fill_uninitialized_memory",
    "_C._get_fa3_sdp_enabled", "_C._get_flash_sdp_enabled", "_C._get_float32_matmul_precision",
    "_C._get_fp32_precision_getter", "_C._get_linalg_preferred_backend", "_C._get_math_sdp_allow_fp16_bf16_reduction",
    "_C._get_math_sdp_enabled", "_C._get_mem_efficient_sdp_enabled", "_C._get_miopen_immediate",
    "_C._get_mkldnn_deterministic", "_C._get_mkldnn_enabled", "_C._get_nnpack_enabled", "_C._get_onednn_allow_tf32",
    "_C._get_overrideable_sdp_enabled", "_C._get_qengine", "_C._get_sdp_priority_order", "_C._get_warnAlways",
    "_C._is_any_autocast_enabled", "_C._is_fwd_grad_enabled", "_C._is_multithreading_enabled",
    "_C._is_view_replay_enabled", "_C._is_xnnpack_enabled",
)  # fmt: skip


def _found(name: str) -> Any:
    value: Any = torch
    for part in name.split("."):
        value = getattr(value, part, None)
    return value


# By name, what answers; builds of torch differ in what they have.
SURROUNDINGS: dict[str, Callable[..., Any]] = {
    name: function for name in _NAMES if (function := _found(name)) is not None
}


# The process groups that a program's collectives are of, by name: their size, and which of its processes this one is.
GROUP_SIZE, GROUP_RANK = "distributed.group_size", "distributed.group_rank"


def _group_answer(name: Any, ask: Callable[[Any], int]) -> int | None:
    group = group_called(name)
    return None if group is None else ask(group)


SURROUNDINGS[GROUP_SIZE] = lambda name: _group_answer(name, lambda group: group.size())
SURROUNDINGS[GROUP_RANK] = lambda name: _group_answer(name, lambda group: group.rank())


def answer_of(tensor: torch.Tensor, fact: str, arguments: tuple[Any, ...]) -> Any:
    """What a tensor answers: one with data for itself, one without as the capture that it belongs to says."""
    in_capture = getattr(tensor, "answer_in_capture", None)
    if in_capture is not None:
        return in_capture(fact, arguments)
    if fact == "tensor_class":
        return class_name(tensor)
    if fact == "is_plain":
        return type(tensor) in (torch.Tensor, torch.nn.Parameter)
    if fact in OF_ATTRIBUTES:
        return OF_ATTRIBUTES[fact](tensor, *arguments)
    if fact == "_is_buffer":
        return bool(getattr(tensor, fact, False))
    found = getattr(tensor, fact)
    if FACTS[fact]:
        return found(memory_format=arguments[0]) if arguments and fact == "is_contiguous" else found(*arguments)
    return (None if found is None else "a tensor or function") if fact in OF_OBJECTS else found


def class_name(tensor: torch.Tensor) -> str:
    """The class of a tensor by name; the class itself need not be known to who reads a file."""
    kind = type(tensor)
    return f"{kind.__module__}.{kind.__qualname__}"


def same_answer(given: Any, expected: Any) -> bool:
    """Whether two answers are the same; numbers may be symbolic while a program is captured."""
    if isinstance(expected, tuple):
        return (
            isinstance(given, (tuple, list))
            and len(given) == len(expected)
            and all(map(same_answer, given, expected))
        )
    return bool((str(given) if isinstance(expected, str) else given) == expected)


PLAIN_ANSWERS = (bool, int, str, type(None), torch.dtype, torch.layout, torch.memory_format)


def plain_answer(answer: Any) -> Any:
    """An answer as it is kept: enumerations and devices by their text."""
    if isinstance(answer, (tuple, list)):
        return tuple(map(plain_answer, answer))
    return answer if isinstance(answer, PLAIN_ANSWERS) else str(answer)
