"""``program.transform`` and ``program.rewrite``: another program by an edit of the graph.

The edited graph is captured again, from the program's own example and with its own promises about sizes: so every new
node gets its value from the rules of its operator, what an edit needs of sizes is held against what was promised, the
nodes that stay keep their origins, and the result is verified like any export.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch.fx import Node

from tintype import tree
from tintype.errors import InvalidRequestError
from tintype.export.checks import Expectation, InputChecks
from tintype.export.dimensions import Dim, DimHint
from tintype.export.module import ProgramModule
from tintype.export.own_attributes import submodule_at
from tintype.export.patterns import Match, Pattern, matches
from tintype.export.program import ExportedProgram
from tintype.export.shape_spec import bound_arguments
from tintype.export.spec_matching import is_number, spec_like
from tintype.export.stage import Stage
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import eliminate_dead_code, meta_of, placeholders
from tintype.ir.node_info import module_names
from tintype.ir.node_sources import note_sources
from tintype.ir.signature import InputKind
from tintype.symbolic import Expr
from tintype.symbolic.bridge import from_torch
from tintype.symbolic.expression import Symbol
from tintype.trace.argument_names import signature_of


def _check_request(program: ExportedProgram, edit: Any, has_inputs: bool, dynamic_shapes: Any) -> None:
    if not callable(edit):
        raise InvalidRequestError(
            f"transform takes a function that edits a program's module, but got {type(edit).__name__}",
            remedy="def edit(module): ..., then program.transform(edit)",
        )
    if dynamic_shapes is not None and not has_inputs:
        raise InvalidRequestError("dynamic_shapes belong to other inputs", remedy="give args, too")
    if program.example_inputs is None and not has_inputs:
        raise InvalidRequestError(
            "the program has no example inputs, from which the values of an edited graph could be inferred",
            remedy="give some: program.transform(edit, args=(x,))",
        )
    if program.stage is Stage.CORE:
        raise InvalidRequestError(
            "a program of the core stage can't be transformed: what is captured again is a functional program",
            remedy="transform the program before run_decompositions()",
        )


def transform_program(
    program: ExportedProgram,
    edit: Callable[[ProgramModule], Any],
    pass_name: str = "transform",
    *,
    args: tuple[Any, ...] | None = None,
    kwargs: dict[str, Any] | None = None,
    dynamic_shapes: Any = None,
    any_dtype: bool = False,
) -> ExportedProgram:
    """See :meth:`tintype.ExportedProgram.transform`. With ``any_dtype``, the inputs may have other dtypes, too."""
    from tintype.export.exporting import capture_program

    has_inputs = args is not None or kwargs is not None
    _check_request(program, edit, has_inputs, dynamic_shapes)
    module = program.module()
    before = _used_state(module)
    result = edit(module)
    edited = module if result is None else result
    if not isinstance(edited, ProgramModule):
        raise InvalidRequestError(
            f"a transformation edits the module that it is given, but this one returned {type(result).__name__}",
            remedy="end the function without a return statement",
        )
    _drop_unused(edited, before)
    edited.graph.lint()
    edited.recompile()
    if has_inputs:
        args, kwargs, shapes = args or (), kwargs or {}, dynamic_shapes
        edited._checks = _checks_without_sizes(program, any_dtype=any_dtype)
    else:
        assert program.example_inputs is not None
        args, kwargs = program.example_inputs
        shapes = _promises(program, edited, args, kwargs)
    made = capture_program(edited, args, kwargs, shapes, program.stage, complex_as_assertions=True)
    note_sources(program.graph, made.graph, pass_name)
    return made


def _used_state(module: ProgramModule) -> set[str]:
    return {str(node.target) for node in module.graph.find_nodes(op="get_attr") if node.users}


def _drop_unused(module: ProgramModule, before: set[str]) -> None:
    """Remove what nobody would miss after an edit, and the weights that only that used."""
    eliminate_dead_code(module.graph)
    for name in before - _used_state(module):
        path, _, attribute = name.rpartition(".")
        owner = submodule_at(module, path)
        if attribute in owner._parameters or attribute in owner._buffers:
            delattr(owner, attribute)


class _OfAnySize(Expectation):
    """An input that may have other sizes than the program was exported for."""

    __slots__ = ("any_dtype",)
    any_dtype: bool

    def check(self, given: Any, symbols: dict[Symbol, int]) -> None:
        """Raise unless it is a tensor of the right dtype, or the right value."""
        if isinstance(given, torch.Tensor) and self.dtype is not None:
            if self.any_dtype:
                self.dtype = given.dtype
            self.sizes = tuple(given.shape)
            self.ranges = (None,) * len(self.sizes)
        super().check(given, symbols)


def _checks_without_sizes(program: ExportedProgram, *, any_dtype: bool) -> InputChecks:
    checks = program.input_checks()
    expectations = [_OfAnySize(known.path, known.value, known.sizes, known.ranges) for known in checks.expectations]
    for expectation in expectations:
        expectation.any_dtype = any_dtype
    spec = program.call_spec
    names = program.argument_names
    return InputChecks(expectations, spec.in_spec, program.observations, None, names, spec.positional)


Where = str | Callable[[Node], bool] | None


def rewrite_program(program: ExportedProgram, pattern: Any, replacement: Any, where: Where) -> ExportedProgram:
    """See :meth:`tintype.ExportedProgram.rewrite`."""
    if not callable(replacement):
        raise InvalidRequestError(
            f"a replacement is an operator or a function of tensors, but got {type(replacement).__name__}"
        )
    if program.stage is Stage.TRAINING:
        raise InvalidRequestError(
            "a program of the training stage can't be rewritten by patterns: its operators may write to what others "
            "read",
            remedy="rewrite what tintype.export returns, or edit the graph with transform()",
        )

    def edit(module: ProgramModule) -> None:
        looked_for = Pattern(pattern)
        parts = [part for part in module.modules() if isinstance(part, torch.fx.GraphModule)]  # branches, too
        found = [(part, matches(list(part.graph.nodes), looked_for, _chooser(where))) for part in parts]
        if not any(places for _, places in found):
            raise InvalidRequestError(
                "the pattern occurs nowhere in the program"
                + ("" if where is None else " where it may be replaced")
                + f"; it ends with {looked_for}",
                remedy="print(program) shows its operators: those of a pattern are called with the same arguments",
            )
        for part, places in found:
            for match in places:
                _put_in_place(part.graph, match, replacement)
            if places and part is not module:
                part.recompile()

    return transform_program(program, edit, "rewrite")


def _chooser(where: Where) -> Callable[[Node], bool]:
    if where is None:
        return lambda node: True
    if callable(where):
        return where
    return lambda node: any(fnmatchcase(name, where) for name in module_names(meta_of(node)))


def _put_in_place(graph: torch.fx.Graph, match: Match, replacement: Any) -> None:
    """Let a function be called where a pattern occurs. What it calls is recorded when the graph is captured again."""
    last = match.nodes[0]
    _check_parameters(replacement, match)
    with graph.inserting_before(last):
        new = graph.call_function(_checked(replacement, last), match.args, match.kwargs)
    new.meta = meta_of(last).copy()
    last.replace_all_uses_with(new)
    for node in match.nodes:  # what others use as well stays
        if not node.users:
            graph.erase_node(node)


def _check_parameters(replacement: Any, match: Match) -> None:
    """Raise if a replacement does not take what the pattern stands for."""
    function = replacement.forward if isinstance(replacement, torch.nn.Module) else replacement
    try:
        signature = signature_of(function)
    except (TypeError, ValueError):  # operators and builtins have none
        return
    try:
        signature.bind(*match.args, **match.kwargs)
    except TypeError as error:
        values = ", ".join([*map(str, match.args), *(f"{name}={value}" for name, value in match.kwargs.items())])
        raise InvalidRequestError(
            f"the replacement takes {signature}, but is called with what the pattern is given, ({values}): {error}",
            remedy="give it the parameters of the pattern; those of a pattern that is an operator are the operator's",
        ) from error


def _checked(replacement: Any, replaced: Node) -> Any:
    """A replacement that must give a tensor where there was one."""
    if isinstance(replacement, torch._ops.OpOverload) or not isinstance(replaced.meta.get("val"), torch.Tensor):
        return replacement

    def call(*args: Any, **kwargs: Any) -> Any:
        result = replacement(*args, **kwargs)
        if not isinstance(result, torch.Tensor):
            raise InvalidRequestError(
                f"the replacement returned a {type(result).__name__}, where {replaced.target} gives a tensor",
                remedy="return the tensor that takes its place",
            )
        return result

    return call


def _promises(program: ExportedProgram, module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
    """The ``dynamic_shapes`` that the program was exported with."""
    if not program.dynamic_sizes:
        return None
    dimensions = {size.expression: size.dimension for size in program.dynamic_sizes}
    nodes = zip(placeholders(program.graph), program.graph_signature.input_specs, strict=True)
    values = iter([node.meta["val"] for node, spec in nodes if spec.kind is InputKind.USER_INPUT])

    def entries(leaf: Any) -> Any:
        value = next(values)
        if type(value) is FakeTensor:
            return tuple(_entry(size, dimensions) for size in value.info.sizes)
        number = from_torch(value) if isinstance(value, (torch.SymInt, torch.SymFloat)) else value
        return _entry(number, dimensions) if is_number(leaf) else None

    shaped_args, shaped_kwargs = spec_like((args, kwargs), entries)
    return bound_arguments(module, shaped_args, shaped_kwargs)


def _entry(size: Any, dimensions: dict[Expr, Dim | DimHint]) -> Any:
    return dimensions.get(size, Dim.AUTO) if isinstance(size, Expr) else None


# --- other devices and dtypes --------------------------------------------------------------------------------


def moved_program(
    program: ExportedProgram, device: torch.device | None, dtype: torch.dtype | None
) -> ExportedProgram:
    """See :meth:`tintype.ExportedProgram.to`."""
    if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        raise InvalidRequestError(
            f"a program is converted to a floating point dtype, but got {dtype}", remedy="torch.float16, for example"
        )
    if device is not None:
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            raise InvalidRequestError(
                f"there is no device {device} here: {str(error).partition(chr(10))[0]}",
                remedy="move the program where there is one: a file loads on any machine",
            ) from error
    if program.example_inputs is None:
        raise InvalidRequestError(
            "the program has no example inputs, from which the values of its graph could be inferred",
            remedy="convert it before it is saved without them",
        )

    def converted(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.detach().to(device=device, dtype=dtype if leaf.is_floating_point() else None)

    def on_device(value: Any) -> Any:
        return device if isinstance(value, torch.device) else value

    def edit(module: ProgramModule) -> None:
        module.to(device=device, dtype=dtype)
        if device is not None:
            for node in module.graph.nodes:
                node.args = torch.fx.node.map_aggregate(node.args, on_device)
                node.kwargs = torch.fx.node.map_aggregate(node.kwargs, on_device)

    args, kwargs = tree.map_leaves(converted, program.example_inputs)
    shapes = _promises(program, program.module(), args, kwargs)
    return transform_program(program, edit, "to", args=args, kwargs=kwargs, dynamic_shapes=shapes, any_dtype=True)


__all__ = ["moved_program", "rewrite_program", "transform_program"]
