"""What an operator is: one record for each, worked out from its schema and from what schemas leave out.

Whoever wants to know whether an operator writes, draws, asserts, returns a view or has a functional form asks here;
operators that take functions are declared in :mod:`tintype.ir.operators`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch._library.simple_registry import singleton as _registrations

aten = torch.ops.aten


def overloads_of(*packets: Any) -> frozenset[Any]:
    """All overloads of operators."""
    return frozenset(getattr(packet, name) for packet in packets for name in packet.overloads())


# --- what schemas leave out -------------------------------------------------------------------------------------

# Promises about numbers: learned by the capture that wrote them, checked by every graph.
PROMISES = frozenset(
    {aten._assert_scalar.default, aten.sym_constrain_range.default, aten.sym_constrain_range_for_size.default}
)

_ASSERTIONS = PROMISES | overloads_of(
    aten._assert_async,
    aten._assert_tensor_metadata,
    aten._functional_assert_async,
    aten._functional_assert_scalar,
    aten._functional_sym_constrain_range,
    aten._functional_sym_constrain_range_for_size,
)

# Operators that write to arguments without saying so, where the argument that is named last is true.
_STATISTICS = ("running_mean", "running_var")
_HIDDEN_WRITES = {
    "aten::batch_norm": (_STATISTICS, "training"),
    "aten::native_batch_norm": (_STATISTICS, "training"),
    "aten::instance_norm": (_STATISTICS, "use_input_stats"),
    "aten::_batch_norm_impl_index": (_STATISTICS, "training"),
    "aten::cudnn_batch_norm": (_STATISTICS, "training"),
    "aten::miopen_batch_norm": (_STATISTICS, "training"),
}

# Operators that are called to look whether data are as they should be: matrices that can be factorized, classes that
# exist. They raise what eager mode raises also where nobody uses their results. Others that refuse some data (an
# index out of range) are not run if nobody needs their results.
_CHECKING = overloads_of(
    aten.linalg_cholesky,
    aten.linalg_cholesky_ex,
    aten.cholesky,
    aten.linalg_inv,
    aten.linalg_inv_ex,
    aten.inverse,
    aten.linalg_solve,
    aten.linalg_solve_ex,
    aten.linalg_lu_factor,
    aten.linalg_ldl_factor,
    aten.linalg_eigh,
    aten.linalg_svd,
    aten.one_hot,
    aten.bincount,
    aten.binary_cross_entropy,
)

# A view, or a copy where the layout of the argument allows no view.
RESHAPES = frozenset({aten.reshape.default, aten.flatten.using_ints})

# The argument itself, or a copy where it is not as it shall be.
ITSELF_OR_A_COPY = frozenset({aten.contiguous.default, aten.to.dtype})

# A view or a copy, as the layout of an input says: core ATen has either, but no operator that is both. They stay
# where a caller can tell which it was.
VIEWS_OR_COPIES = RESHAPES | ITSELF_OR_A_COPY | {aten.ravel.default}

# In eager mode they return their argument where there is nothing to drop.
DROPOUTS = (
    aten.dropout.default,
    aten.feature_dropout.default,
    aten.alpha_dropout.default,
    aten.feature_alpha_dropout.default,
)

# Recurrent layers would become one copy of their body per time step if they were decomposed: they stay operators.
KEPT_WHOLE = overloads_of(aten.lstm, aten.gru, aten.rnn_tanh, aten.rnn_relu, aten._pad_packed_sequence)

# Namespaces whose operators are known to compute results and nothing else, but for those that say so. What an
# operator of anybody else does when it runs (count, log, talk to other processes) can't be seen from outside.
_COMPUTING = frozenset(
    {"aten", "prims", "quantized", "quantized_decomposed", "mkldnn", "mkl", "onednn", "torchvision", "torchaudio"}
)

# Where the functional operator has another name than the rule "drop the underscore" gives.
_FUNCTIONAL_NAMES = {
    "bernoulli_.float": "bernoulli.p",
    "bernoulli_.Tensor": "bernoulli.Tensor",
    "normal_.default": "normal_functional.default",
}


# --- the record -------------------------------------------------------------------------------------------------


class OperatorFacts:
    """What is known of an operator before it is called.

    >>> import torch
    >>> aten = torch.ops.aten
    >>> facts_of(aten.add_.Tensor).writes, facts_of(aten.add_.Tensor).functional
    ((0,), <OpOverload(op='aten.add', overload='Tensor')>)
    >>> [facts_of(operator).has_effect for operator in (aten.rand.default, aten.relu.default)]
    [True, False]
    """

    def __init__(self, operator: torch._ops.OpOverload) -> None:
        schema = operator._schema
        self._operator = operator
        self.name: str = operator.overloadpacket.__name__
        # positions (or names, for keyword-only arguments) of the arguments that are written to
        self.writes: tuple[int | str, ...] = tuple(
            argument.name if argument.kwarg_only else position
            for position, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        )
        self.aliases = any(result.alias_info is not None for result in schema.returns)
        self.in_place = self.writes == (0,) and len(schema.returns) == 1
        # called for its effect alone, which its kernel must not have while a program is captured
        self.returns_nothing = not schema.returns
        self.composite = is_composite(operator)
        # positions of arguments that are written to unsaid, and of the one that says whether they are in this call
        self.hidden_writes: tuple[int, ...] = ()
        self._writes_if = 0
        if schema.name in _HIDDEN_WRITES:
            written, condition = _HIDDEN_WRITES[schema.name]
            names = [argument.name for argument in schema.arguments]
            self.hidden_writes = tuple(map(names.index, written))
            self._writes_if = names.index(condition)

    @property
    def may_write(self) -> bool:
        """Whether some call of the operator writes to an argument."""
        return bool(self.writes or self.hidden_writes)

    def hidden_writes_of(self, args: Sequence[Any]) -> Iterable[Any]:
        """The arguments that a call with these arguments writes to without saying so in its schema."""
        if self.hidden_writes and args[self._writes_if]:
            return [args[position] for position in self.hidden_writes if args[position] is not None]
        return ()

    @cached_property
    def may_stay_composite(self) -> bool:
        """Whether it is composite and known to return new tensors and to write to nothing, whatever its arguments
        are: a functional program can have it whole."""
        return (
            self.composite
            and not self.aliases
            and not self.may_write
            and not self.returns_nothing
            and torch.Tag.maybe_aliasing_or_mutating not in self._operator.tags
        )

    @cached_property
    def draws(self) -> bool:
        """Whether it draws random numbers."""
        return torch.Tag.nondeterministic_seeded in self._operator.tags

    @cached_property
    def returns_list(self) -> bool:
        """Whether its only result is a list."""
        returns = self._operator._schema.returns
        return len(returns) == 1 and isinstance(returns[0].type, torch.ListType)

    @cached_property
    def pointwise(self) -> bool:
        """Whether each element of its result is computed of those at the same place."""
        return torch.Tag.pointwise in self._operator.tags

    @cached_property
    def has_effect(self) -> bool:
        """Whether it does something besides computing results and writing to the arguments that it says."""
        return (
            self.returns_nothing
            or self._operator in _ASSERTIONS
            or bool(self.hidden_writes)
            or self.draws
            or not self.only_computes
            or self.declares_effect
        )

    @property
    def only_computes(self) -> bool:
        """Whether it is known to compute its results from its arguments, unless it says otherwise."""
        return self._operator.namespace in _COMPUTING

    @property
    def declares_effect(self) -> bool:
        """Whether its author registered that it has an effect."""
        return _registrations.find(self._operator._schema.name).effect.effect is not None

    @cached_property
    def checks_data(self) -> bool:
        """Whether it is there to refuse some data, besides what it computes."""
        return self._operator in _CHECKING

    @cached_property
    def starts_anew(self) -> bool:
        """Whether it only looks at the size and kind of its arguments: ``zeros_like``, ``new_ones``, ..."""
        return self.name.startswith("new_") or self.name.endswith("_like")

    @cached_property
    def functional(self) -> torch._ops.OpOverload | None:
        """The operator that computes what an in-place or ``out=`` operator writes, or None."""
        return _functional_form(self._operator)


_FACTS: dict[int, OperatorFacts] = {}  # to hash an operator is a call of a Python function


def facts_of(operator: torch._ops.OpOverload) -> OperatorFacts:
    """What is known of an operator."""
    facts = _FACTS.get(id(operator))
    if facts is None:
        facts = _FACTS[id(operator)] = OperatorFacts(operator)  # which keeps the operator, and so its id
    return facts


def facts_if_operator(target: Any) -> OperatorFacts | None:
    """What is known of what a node calls, if that is an operator of torch's dispatcher."""
    return facts_of(target) if isinstance(target, torch._ops.OpOverload) else None


def starts_anew(target: Any) -> bool:
    """Whether what a node calls only looks at the size and kind of its arguments."""
    facts = facts_if_operator(target)
    return facts is not None and facts.starts_anew


def has_effect(target: Any) -> bool:
    """Whether what a node calls is an operator that does more than computing results and writing to arguments."""
    facts = facts_if_operator(target)
    return facts is not None and facts.has_effect


def checks_data(target: Any) -> bool:
    """Whether what a node calls is an operator that is there to refuse some data."""
    facts = facts_if_operator(target)
    return facts is not None and facts.checks_data


def may_write(target: Any) -> bool:
    """Whether what a node calls is an operator that writes to arguments."""
    facts = facts_if_operator(target)
    return facts is not None and facts.may_write


def is_composite(operator: torch._ops.OpOverload) -> bool:
    """Whether an operator is defined by a kernel that calls other operators, gradients included."""
    name = operator.name()
    # some operators exist for TorchScript only; the dispatcher does not know them
    return torch._C._dispatch_has_kernel(name) and torch._C._dispatch_has_kernel_for_dispatch_key(
        name, "CompositeImplicitAutograd"
    )


def _functional_form(operator: Any) -> Any | None:
    namespace, name = operator._schema.name.split("::")
    packets = getattr(torch.ops, namespace)
    renamed = _FUNCTIONAL_NAMES.get(f"{name}.{operator._overloadname}")
    if renamed is not None:
        packet_name, _, variant = renamed.partition(".")
        return getattr(getattr(packets, packet_name), variant)
    wanted = [
        (argument.name, str(argument.type))
        for argument in operator._schema.arguments
        if not (argument.kwarg_only and argument.alias_info is not None and argument.alias_info.is_write)
    ]
    if name.startswith("__i") and name.endswith("__"):  # x &= y
        name = f"__{name.removeprefix('__i')}"
    packet = getattr(packets, name[:-1] if name.endswith("_") and not name.endswith("__") else name, None)
    for variant in packet.overloads() if packet is not None else ():
        found = getattr(packet, variant)
        if found._schema.is_mutable or found is operator:
            continue
        if [(a.name, str(a.type)) for a in found._schema.arguments] == wanted:
            return found
    return None
