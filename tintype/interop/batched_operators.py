"""``torch.vmap`` over operators that take functions, while a program is captured.

torch's own rules take the functions for graphs of its compiler, which return tuples: a function that returns a tensor
would be taken for a tuple of its rows. In a capture functions are what the user wrote.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tintype import tree
from tintype.errors import BranchMismatchError, MutationError, UnsupportedOperatorError
from tintype.ir.process_switches import is_capturing
from tintype.symbolic.location import user_location
from tintype.trace.recorder import active_recorder

functorch = torch._C._functorch
higher_order = torch.ops.higher_order
_VMAP = functorch.TransformType.Vmap
_OTHERS = (functorch.TransformType.Grad, functorch.TransformType.Jvp)
_MISSING = object()


def take_over() -> list[Any]:
    """Put our rules into torch's tables; returns what was there."""
    before = []
    for table, transform, stand_in_for in _places():
        theirs = table.get(transform, _MISSING)
        before.append(theirs)
        table[transform] = stand_in_for(theirs)
    return before


def give_back(before: list[Any]) -> None:
    """Undo :func:`take_over`."""
    for (table, transform, _), rule in zip(_places(), before, strict=True):
        if rule is _MISSING:
            table.pop(transform, None)
        else:
            table[transform] = rule


@functools.cache
def _places() -> list[tuple[dict[Any, Any], Any, Callable[[Any], Any]]]:
    """The tables, the places in them, and what makes the stand-in for a rule of torch's: exports of small models are
    quick, and make none twice."""
    found: list[tuple[dict[Any, Any], Any, Callable[[Any], Any]]] = []
    for operator, rule in _RULES.items():
        for transform in (_VMAP, *_OTHERS):
            ours = rule if transform == _VMAP else functools.partial(_refuse, operator)
            stand_in_for = functools.cache(functools.partial(functools.partial, _dispatched, transform, ours))
            found.append((operator.functorch_table, transform, stand_in_for))
    return found


def _dispatched(
    transform: Any, ours: Callable[..., Any], theirs: Any, interpreter: Any, *args: Any, **kwargs: Any
) -> Any:
    """Our rule for threads that capture, torch's for all others."""
    if is_capturing():
        return ours(interpreter, *args, **kwargs)
    if theirs is _MISSING:
        raise KeyError(transform)
    return theirs(interpreter, *args, **kwargs)


def _refuse(operator: Any, *args: Any, **kwargs: Any) -> Any:
    raise UnsupportedOperatorError(
        f"{operator.name()} can't be captured inside of torch.func's grad, vjp or jvp",
        location=user_location(),
        remedy="choose with torch.where there, or use tintype.export_joint for gradients",
    )


def _cond(interpreter: Any, pred: Any, true_fn: Any, false_fn: Any, operands: Sequence[Any]) -> Any:
    """Both functions are called, and each element gets what its truth value says."""
    if not isinstance(pred, torch.Tensor):
        return (true_fn if pred else false_fn)(*operands)
    (first, spec), (second, other) = (tree.flatten(_called(function, operands)) for function in (true_fn, false_fn))
    if not tree.same_structure(spec, other):
        raise BranchMismatchError(
            f"the functions of cond return different structures: {spec} and {other}", location=user_location()
        )
    pairs = zip(first, second, strict=True)
    return tree.unflatten([_chosen(pred, one, two) for one, two in pairs], spec)


def _called(function: Any, operands: Sequence[Any]) -> Any:
    """What a function returns that is called for elements that want it and for others: it may write to nothing."""
    recorder = active_recorder()
    assert recorder is not None
    last = recorder.graph._root._prev
    results = function(*operands)
    node = last.next
    while node is not recorder.graph._root:
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
            raise MutationError(
                f"a function of a cond inside of torch.vmap writes to a tensor ({node.target}), and it is called for "
                "all elements of the batch",
                location=user_location(),
                remedy="compute new tensors there",
            )
        node = node.next
    return results


def _chosen(pred: torch.Tensor, one: Any, two: Any) -> Any:
    if not isinstance(one, torch.Tensor) and not isinstance(two, torch.Tensor) and one == two:
        return one
    return torch.where(pred.reshape(()) if pred.dim() else pred, one, two)


def _map(interpreter: Any, function: Any, xs: Sequence[Any], args: Sequence[Any]) -> Any:
    rows = [_with_batch_at(interpreter, x, 1) for x in xs]
    others = [_apart(interpreter, value) for value in args]
    dims = (*(0 if batched else None for _, batched in rows), *(dim for _, dim in others))
    batched_function = _vmapped(interpreter, function, dims)
    with interpreter.lower():
        result = higher_order.map_impl(batched_function, tuple(x for x, _ in rows), tuple(v for v, _ in others))
        result = _batch_in_front(result)
    return _together(interpreter, result)


def _scan(
    interpreter: Any, combine: Any, init: Sequence[Any], xs: Sequence[Any], additional: Sequence[Any] = ()
) -> Any:
    carried = [_batched(interpreter, value) for value in init]
    rows = [_with_batch_at(interpreter, x, 1) for x in xs]
    others = [_apart(interpreter, value) for value in additional]
    dims = (*(0 for _ in carried), *(0 if batched else None for _, batched in rows), *(dim for _, dim in others))
    batched_combine = _vmapped(interpreter, combine, dims)
    with interpreter.lower():
        results = higher_order.scan(batched_combine, carried, [x for x, _ in rows], tuple(v for v, _ in others))
        count = len(carried)
        results = type(results)([*results[:count], *_batch_in_front(list(results[count:]))])
    return _together(interpreter, results)


def _associative_scan(interpreter: Any, combine: Any, xs: Sequence[Any], additional: Sequence[Any] = ()) -> Any:
    rows = [_batched(interpreter, x) for x in xs]
    others = [_apart(interpreter, value) for value in additional]
    dims = (*(0 for _ in range(2 * len(rows))), *(dim for _, dim in others))
    batched_combine = _vmapped(interpreter, combine, dims)
    with interpreter.lower():
        moved = [x.movedim(0, 1) for x in rows]
        results = higher_order.associative_scan(batched_combine, moved, tuple(value for value, _ in others))
        results = _batch_in_front(results)
    return _together(interpreter, results)


def _while_loop(
    interpreter: Any, cond_fn: Any, body_fn: Any, carried_inputs: Sequence[Any], additional: Sequence[Any] = ()
) -> Any:
    """Steps are made as long as an element wants some; those that are done keep what they have."""
    carried = tuple(_batched(interpreter, value) for value in carried_inputs)
    others = [_apart(interpreter, value) for value in additional]
    dims = (*(0 for _ in carried), *(dim for _, dim in others))
    wants, step = _vmapped(interpreter, cond_fn, dims), _vmapped(interpreter, body_fn, dims)

    def goes_on(*values: Any) -> Any:
        return wants(*values).any()

    def body(*values: Any) -> Any:
        going = wants(*values)
        new = step(*values)
        kept = zip(new, values, strict=False)
        return tuple(torch.where(going.reshape(-1, *[1] * (one.dim() - 1)), one, two) for one, two in kept)

    with interpreter.lower():
        results = higher_order.while_loop(goes_on, body, carried, tuple(value for value, _ in others))
    return _together(interpreter, results)


# --- batches ---------------------------------------------------------------------------------------------


def _vmapped(interpreter: Any, function: Any, dims: tuple[Any, ...]) -> Callable[..., Any]:
    if not any(dim is not None for dim in dims):
        return function
    return torch.vmap(function, in_dims=dims, randomness=interpreter.randomness())


def _apart(interpreter: Any, value: Any) -> tuple[Any, int | None]:
    """A value without its batch, and the dimension that goes over that; None where it is the same for all."""
    if not isinstance(value, torch.Tensor) or functorch.maybe_get_level(value) != interpreter.level():
        return value, None
    return functorch.get_unwrapped(value), functorch.maybe_get_bdim(value)


def _with_batch_at(interpreter: Any, value: Any, place: int) -> tuple[Any, bool]:
    plain, dim = _apart(interpreter, value)
    if dim is None:
        return plain, False
    with interpreter.lower():
        return plain.movedim(dim, place), True


def _batched(interpreter: Any, value: Any) -> Any:
    """A value with a batch in front, also where it is the same for all."""
    plain, dim = _apart(interpreter, value)
    with interpreter.lower():
        if dim is not None:
            return plain.movedim(dim, 0)
        plain = plain if isinstance(plain, torch.Tensor) else torch.tensor(plain)
        return plain.expand(interpreter.batch_size(), *plain.shape).clone()


def _batch_in_front(results: Any) -> Any:
    """Stacked rows of batches as batches of stacked rows, laid out in memory as in eager mode, where the rows are
    stacked behind the batch: what follows may view them or ask for strides."""
    return tree.map_leaves(
        lambda value: value.movedim(1, 0).contiguous() if isinstance(value, torch.Tensor) else value, results
    )


def _together(interpreter: Any, results: Any) -> Any:
    """Results with the batch in front as values of the transform."""
    level = interpreter.level()
    return tree.map_leaves(
        lambda value: functorch._add_batch_dim(value, 0, level) if isinstance(value, torch.Tensor) else value,
        results,
    )


_RULES: dict[Any, Callable[..., Any]] = {
    higher_order.cond: _cond,
    higher_order.map_impl: _map,
    higher_order.scan: _scan,
    higher_order.while_loop: _while_loop,
    higher_order.associative_scan: _associative_scan,
}
