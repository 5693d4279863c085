"""What an operator writes to, and whether its result fits there."""

from __future__ import annotations

from typing import Any

from tintype.fake.info import TensorInfo
from tintype.fake.meta_kernels import NoMetaKernel, infer
from tintype.fake.tensor import is_symbolic
from tintype.symbolic.sizes import decided_same, require_same
from tintype.trace.plan import Plan, plan_for


def must_grow(
    func: Any, plan: Plan, infos: list[Any], kwarg_infos: dict[str, Any], written: list[Any], inferred: dict[Any, Any]
) -> bool:
    """Whether ``out=`` was given a tensor of another size than the result, which eager mode resizes. Raises what
    eager mode raises when a result doesn't fit into what an operator writes to in place."""
    counterpart = plan.functional
    if counterpart is None:
        return False
    inner = plan_for(counterpart)
    options = {k: v for k, v in kwarg_infos.items() if k not in plan.writes}
    if inner.rule is None and not any(is_symbolic(info) for info in flat_infos([infos, list(options.values())])):
        return False  # the operator itself fails, when it runs
    try:
        if inner.rule is not None:
            results = as_sequence(inner.rule(*infos, **options))
        else:
            results = as_sequence(infer(counterpart, infos, options, inferred))
    except (NotImplementedError, NoMetaKernel):
        return False
    for (_, target), result in zip(written, results, strict=False):
        if type(target) is not TensorInfo or type(result) is not TensorInfo or target.sizes == result.sizes:
            continue
        if not isinstance(plan.writes[0], int):
            if not decided_same(target.sizes, result.sizes):
                return True
            continue
        _require_fit(target, result)
    return False


def _require_fit(target: TensorInfo, result: TensorInfo) -> None:
    """A result fits into what it is written to; of sizes that vary that is decided as for operators out of place."""

    def message() -> str:
        return f"output with shape {list(target.sizes)} doesn't match the broadcast shape {list(result.sizes)}"

    if target.dim != result.dim:
        raise RuntimeError(message())
    for size, wanted in zip(target.sizes, result.sizes, strict=True):
        require_same(size, wanted, message)


def flat_infos(value: Any) -> list[TensorInfo]:
    """The descriptions of tensors in a value, those in lists one by one."""
    if type(value) is TensorInfo:
        return [value]
    if isinstance(value, (list, tuple)):
        return [info for item in value for info in flat_infos(item)]
    return []


def as_sequence(results: Any) -> Any:
    """Results as several, also where there is one."""
    return results if isinstance(results, (list, tuple)) else (results,)
