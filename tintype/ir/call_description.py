"""What tells two calls apart: a key that is equal for calls that are alike, and code that checks whether one is.

A tensor counts by its class, dtype, device, sizes, strides, gradient flag, whether it is a leaf, the bits that make
it conjugated or negative and what is attached to it (:data:`FACTS`); all tensors of a call by which of them are the
same and which share memory, and where; other values by type and bits (:mod:`tintype.ir.call_values`); the thread by
its modes. Structure is told by ``tree.structure_key`` and ``tree.call_labels``.

Whoever keeps something for calls that are alike asks here: graphs of ``aot``, regions that are recorded once, and the
checks of a program's inputs, which take sizes that vary as expressions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tintype.errors import UnsupportedInputError
from tintype.ir.call_values import PLAIN, TheObject, unlike, value_key
from tintype.ir.writing import Writer
from tintype.symbolic import Expr, Range, Size, python_source
from tintype.symbolic.expression import Symbol

# --- one tensor ------------------------------------------------------------------------------------------

# What tells two tensors apart: by name, the expression that asks a tensor, the one that asks its description without
# data (TensorInfo; None where that does not know), and how two answers are compared.
FACTS: dict[str, tuple[str, str | None, str]] = {
    "kind": ("type({0})", None, "is"),
    "dtype": ("{0}.dtype", "{0}.dtype", "is"),
    "device": ("{0}.device", "{0}.device", "=="),
    "sizes": ("{0}.size()", "{0}.sizes", "=="),
    "strides": ("{0}.stride()", "{0}.strides", "=="),
    "requires_grad": ("{0}.requires_grad", "{0}.requires_grad", "is"),
    "is_leaf": ("{0}.is_leaf", None, "is"),
    "is_conj": ("{0}.is_conj()", "{0}.conjugate", "is"),
    "is_neg": ("{0}.is_neg()", "{0}.negative", "is"),
    "storage_offset": ("{0}.storage_offset()", "{0}.offset", "=="),
    "attached": ("{attached_key}({0})", None, "=="),
}
# all but the offset, which next to nobody can tell: see offsets_of
ALL_FACTS = tuple(name for name in FACTS if name != "storage_offset")


def attached_to(leaf: Any) -> dict[str, Any]:
    """What somebody attached to a tensor as attributes."""
    if type(leaf) in (torch.Tensor, torch.nn.Parameter):
        return leaf.__dict__
    own = getattr(type(leaf), "names_of_fakes", None)
    return {} if own is None else {name: value for name, value in vars(leaf).items() if name not in own}


def attached_key(tensor: torch.Tensor) -> tuple[Any, ...] | None:
    """What is attached to a tensor: plain values by their bits, others as the objects that they are."""
    attached = attached_to(tensor)
    if not attached:
        return None
    return tuple(
        (name, value_key(value) if type(value) in PLAIN else TheObject(value)) for name, value in attached.items()
    )


@functools.cache
def fact_reader(*names: str, of_info: bool = False) -> Callable[[Any], tuple[Any, ...]]:
    """A function that asks a tensor, or its description without data, for some of the :data:`FACTS`.

    >>> fact_reader("dtype", "sizes", "requires_grad")(torch.ones(2, 3))
    (torch.float32, torch.Size([2, 3]), False)
    """
    asked = [FACTS[name][1 if of_info else 0] for name in names]
    if None in asked:
        raise ValueError(f"a description without data does not know {names[asked.index(None)]}")
    writer = Writer()
    answers = [_asked(writer, str(question), "_tensor") for question in asked]
    writer.line(f"return ({', '.join(answers)},)")
    return writer.build("_facts", "(_tensor)")


def _asked(writer: Writer, question: str, name: str) -> str:
    """A question of :data:`FACTS` about the tensor in a variable."""
    return question.format(name, attached_key=writer.bind(attached_key))


_all_facts = fact_reader(*ALL_FACTS)


def tensor_key(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Everything that tells a tensor from others of another kind."""
    key = _all_facts(tensor)
    if key[0] is not torch.Tensor and any(not isinstance(size, int) for size in tensor.size()):
        raise UnsupportedInputError(
            f"a {key[0].__name__} with symbolic sizes can't be given to a compiled function",
            remedy="pass tensors of fixed sizes, or export the function with dynamic_shapes",
        )
    return key


# --- all of a call ---------------------------------------------------------------------------------------


def key_of(leaves: Sequence[Any]) -> tuple[Any, ...]:
    """A value that is equal for two lists of flat arguments if nobody can tell them apart but by numbers in tensors.

    >>> x, y = torch.ones(2), torch.ones(2)
    >>> key_of([x, y, 1]) == key_of([y, x, 1]), key_of([x, y]) == key_of([x, x]), key_of([x, 1]) == key_of([x, True])
    (True, False, False)
    """
    seen: dict[int, int] = {}
    memories: dict[int, list[int]] = {}
    found: list[Any] = []
    for position, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor):
            found.append(value_key(leaf))
            continue
        first = seen.setdefault(id(leaf), position)
        if first != position:
            found.append(first)
        elif leaf.layout is not torch.strided:
            found.append(leaf.layout)
        else:
            found.append(tensor_key(leaf))
            memories.setdefault(leaf.untyped_storage()._cdata, []).append(position)
    if len(memories) != len(seen):
        found += [_sharing(leaves, positions) for positions in memories.values()]
    return tuple(found)


def _sharing(leaves: Sequence[Any], positions: Sequence[int]) -> tuple[Any, ...]:
    """Which tensors have one memory, how they lie in it, and what they are views of."""
    if len(positions) == 1:
        return ()
    tensors = [leaves[position] for position in positions]
    bases = [tensor if tensor._base is None else tensor._base for tensor in tensors]
    numbers: dict[int, int] = {}
    places = [
        (position, numbers.setdefault(id(base), len(numbers)), tensor.storage_offset())
        for position, tensor, base in zip(positions, tensors, bases, strict=True)
    ]
    described = [
        (base.dtype, base.size(), base.stride(), base.storage_offset(), base.requires_grad, base.is_leaf)
        for base in bases
    ]
    return (*places, *described, tensors[0].untyped_storage().nbytes())


def sharing_key(*tensors: torch.Tensor) -> tuple[Any, ...]:
    """Which tensors are one or share memory, and how; empty where none do, which is quick to see.

    >>> x = torch.ones(4)
    >>> sharing_key(x, torch.ones(4)), sharing_key(x[:2], x[2:]) == sharing_key(x[2:], x[:2])
    ((), False)
    """
    memories: dict[int, list[int]] = {}
    for position, tensor in enumerate(tensors):
        memories.setdefault(tensor.untyped_storage()._cdata, []).append(position)
    if len(memories) == len(tensors):
        return ()
    objects = [id(tensor) for tensor in tensors]
    return (
        tuple(map(objects.index, objects)),
        *[_sharing(tensors, positions) for positions in memories.values()],
    )


class Offsets(tuple[int, ...]):
    """Where in their memory the tensors among the arguments begin."""


def offsets_of(leaves: Sequence[Any]) -> Offsets:
    """Where in their memory the tensors among the arguments begin; only as_strided and who asks can tell."""
    return Offsets(
        int(leaf.storage_offset())
        for leaf in leaves
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided
    )


_state_facts = fact_reader("dtype", "sizes", "strides", "requires_grad", "is_leaf", "device")


def state_key(state: Sequence[Any]) -> list[Any]:
    """What graphs depend on of the tensors and TorchBind objects that a function finds in a module or elsewhere."""
    try:
        return [None if tensor is None else _state_facts(tensor) for tensor in state]
    except AttributeError:
        return [_state_facts(value) if isinstance(value, torch.Tensor) else id(value) for value in state]


# --- the thread ------------------------------------------------------------------------------------------


def modes() -> tuple[Any, ...]:
    """The modes of the thread that a function's operators depend on."""
    functions = torch._C._len_torch_function_stack()
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        _default_device() if functions else None,
        autocast_key(),
        _level_of_transforms(),
    )


def _default_device() -> torch.device:
    with torch._C.DisableTorchFunction():  # what the user's modes hear is what the program does
        return torch.get_default_device()


# vmap, grad and the like, whose tensors say nothing of what they hold; None where there are none
_level_of_transforms = torch._C._functorch.maybe_current_level
_autocast_on_cpu = functools.partial(torch.is_autocast_enabled, "cpu")
_autocast_on_cuda = functools.partial(torch.is_autocast_enabled, "cuda")


def autocast_key() -> Any:
    """What autocast does to operators; None where it is off."""
    if not _autocast_on_cpu() and not _autocast_on_cuda():
        return None
    return tuple((torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in ("cpu", "cuda"))


# what a function may look at (see tintype.ir.observations) that is the same for two calls with the same key
TOLD_BY_KEYS = frozenset(
    {
        "_is_buffer",
        "get_default_dtype",
        "getattr",
        "grad_fn",
        "hasattr",
        "is",
        "is_conj",
        "is_contiguous",
        "is_grad_enabled",
        "is_inference_mode_enabled",
        "is_leaf",
        "is_neg",
        "is_plain",
        "layout",
        "requires_grad",
        "storage_offset",
        "stride",
        "tensor_class",
    }
)


# --- checks ----------------------------------------------------------------------------------------------


def write_call_check(
    writer: Writer,
    variables: Sequence[str],
    leaves: Sequence[Any],
    report: str,
    *,
    sizes: Mapping[int, Sequence[Size]] | None = None,
    ranges: Mapping[int, Sequence[Range | None]] | None = None,
    known: dict[Symbol, str] | None = None,
    facts: Sequence[str] = ALL_FACTS,
    with_sharing: bool = True,
    with_modes: bool = True,
) -> None:
    """Write code that runs ``report`` unless variables hold arguments that are like ``leaves``: the check for which
    :func:`key_of` and :func:`modes` are the key. ``sizes`` has, by position, expressions in place of the sizes of
    tensors, and in place of numbers (one of them); ``known`` gets the names of the variables that hold their symbols.
    Sizes that vary have strides that nobody compares.

    >>> from tintype.ir.writing import Writer
    >>> writer = Writer()
    >>> write_call_check(writer, ["x", "n"], [torch.ones(2, 3), 0.5], "return False")
    >>> writer.line("return True")
    >>> check = writer.build("check", "(x, n)")
    >>> check(torch.zeros(2, 3), 0.5), check(torch.zeros(2, 3).mT, 0.5), check(torch.zeros(2, 3), 1)
    (True, False, False)
    """
    known = {} if known is None else known
    first_of: dict[int, str] = {}
    tensors: list[tuple[str, torch.Tensor]] = []
    for position, (name, leaf) in enumerate(zip(variables, leaves, strict=True)):
        varying = None if sizes is None else sizes.get(position)
        bounds = () if ranges is None else ranges.get(position, ())
        if not isinstance(leaf, torch.Tensor):
            if varying is None:
                writer.line(f"if {unlike(writer, name, leaf)}: {report}")
            else:
                write_number_check(writer, name, varying[0], bounds[0] if bounds else None, known, report)
            continue
        first = first_of.setdefault(id(leaf), name)
        if first != name:
            writer.line(f"if {name} is not {first}: {report}")
            continue
        tensors.append((name, leaf))
        answers: dict[str, Any] = dict(zip(facts, fact_reader(*facts)(leaf), strict=True))
        if varying is not None:
            answers.update(sizes=tuple(varying))
            answers.pop("strides", None)
        write_tensor_check(writer, name, answers, known, report, bounds)
    if with_sharing and len(tensors) > 1:
        shared = sharing_key(*[tensor for _, tensor in tensors])
        given = f"{writer.bind(sharing_key)}({', '.join(name for name, _ in tensors)})"
        writer.line(f"if {given} != {writer.bind(shared)}: {report}" if shared else f"if {given}: {report}")
    if with_modes:
        writer.line(f"if {writer.bind(modes)}() != {writer.bind(modes())}: {report}")


def write_tensor_check(
    writer: Writer,
    name: str,
    answers: Mapping[str, Any],
    known: dict[Symbol, str],
    report: str,
    ranges: Sequence[Range | None] = (),
    is_tensor: str | None = None,
) -> None:
    """Write code that runs ``report`` unless a variable holds a tensor with these answers to :data:`FACTS`.

    ``is_tensor`` is the condition in place of that on the class. Sizes may be expressions, in ``ranges``; a symbol
    that no variable holds yet (``known``) is computed from the size.
    """
    if is_tensor is None:
        kind = answers.get("kind")
        is_tensor = (
            f"type({name}) is {writer.bind(kind)}" if kind else f"isinstance({name}, {writer.bind(torch.Tensor)})"
        )
    others = [
        f"{_asked(writer, question, name)} {compared} {_answer(writer, answers[fact])}"
        for fact, (question, _, compared) in FACTS.items()
        if fact in answers and fact not in ("kind", "sizes")
    ]
    sizes = answers.get("sizes")
    if sizes is None or not any(isinstance(size, Expr) for size in sizes):
        same_sizes = [] if sizes is None else [f"{name}.shape == {writer.bind(torch.Size(sizes))}"]
        writer.line(f"if not ({' and '.join([is_tensor, *same_sizes, *others])}): {report}")
        return
    shape = writer.fresh("shape")
    writer.line(f"if not {is_tensor}: {report}")
    writer.line(f"{shape} = {name}.shape")
    plain = [f"len({shape}) == {len(sizes)}", *others]
    bindings: list[str] = []
    related: list[str] = []  # conditions over symbols, after those have their values
    for dimension, size in enumerate(sizes):
        actual = f"{shape}[{dimension}]"
        if not isinstance(size, Expr):
            plain.append(f"{actual} == {size}")
            continue
        plain += _bounds_conditions(actual, ranges[dimension] if ranges else None)
        _write_size(size, actual, known, bindings, related)
    writer.line(f"if not ({' and '.join(plain)}): {report}")
    for line in bindings:
        writer.line(line)
    if related:
        writer.line(f"if not ({' and '.join(related)}): {report}")


def _answer(writer: Writer, answer: Any) -> str:
    if answer is None or isinstance(answer, (bool, int)):
        return repr(answer)
    return writer.bind(answer)


def write_number_check(
    writer: Writer, name: str, number: Any, bounds: Range | None, known: dict[Symbol, str], report: str
) -> None:
    """Write code that runs ``report`` unless a variable holds a number that varies, in its bounds."""
    if number.kind == "float":
        writer.line(f"if type({name}) is not float: {report}")
        return
    conditions = [f"type({name}) is int", *_bounds_conditions(name, bounds, least=-math.inf)]
    writer.line(f"if not ({' and '.join(conditions)}): {report}")
    bindings: list[str] = []
    related: list[str] = []
    _write_size(number, name, known, bindings, related)
    for line in bindings:
        writer.line(line)
    for condition in related:
        writer.line(f"if not {condition}: {report}")


def _write_size(size: Expr, actual: str, known: dict[Symbol, str], bindings: list[str], related: list[str]) -> None:
    """A line that computes the one symbol that is not known yet, and the condition that a size is what it must be."""
    unknown = [symbol for symbol in size.symbols if symbol not in known]
    # of any other form, such as Max(0, s0 - 1), the size comes from another input and the program asserts it
    is_bound = len(unknown) == 1 and linear_in(size, unknown[0]) is not None
    if is_bound:
        bindings.append(_bind_symbol(unknown[0], size, actual, known))
    if (is_bound or not unknown) and size not in unknown:
        related.append(f"{actual} == {python_source(size, known)}")


def linear_in(size: Expr, symbol: Symbol) -> tuple[int, Size] | None:
    """``size`` as factor * symbol + rest, or None where it is not of that form."""
    factor = size.terms.get(symbol)
    rest = size - factor * symbol if factor else size
    if not factor or (isinstance(rest, Expr) and symbol in rest.symbols):
        return None
    return factor, rest


def _bind_symbol(symbol: Symbol, size: Expr, actual: str, known: dict[Symbol, str]) -> str:
    """The line that computes a symbol from a size."""
    form = linear_in(size, symbol)
    assert form is not None
    factor, rest = form
    known[symbol] = f"_s_{symbol}"
    if factor == 1 and type(rest) is int and rest == 0:
        return f"_s_{symbol} = {actual}"
    return f"_s_{symbol} = ({actual} - ({python_source(rest, known)})) // {factor}"


def _bounds_conditions(actual: str, bounds: Range | None, least: float = 0) -> list[str]:
    conditions = []
    if bounds is not None and bounds.lower > least:
        conditions.append(f"{actual} >= {bounds.lower}")
    if bounds is not None and bounds.upper != math.inf:
        conditions.append(f"{actual} <= {bounds.upper}")
    return conditions
