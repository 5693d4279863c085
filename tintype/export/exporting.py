"""``export`` and ``export_for_training``: from a model to a program."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import Graph
from torch.nn.modules.module import _has_any_global_hook

from tintype import ops as _ops  # noqa: F401  (operators register their rules)
from tintype import tree
from tintype.errors import ConstraintViolationError, InvalidRequestError, TintypeError
from tintype.export.advice import warn_of_refused_sizes, warn_of_training_mode
from tintype.export.asserted import asserted_guards
from tintype.export.call_spec import CallSpec, ModuleCallEntry
from tintype.export.constraints import DynamicSize, check_constraints
from tintype.export.example_call import ExampleCall
from tintype.export.given import container_observations, positional_keywords_of
from tintype.export.input_sizes import InputSizes
from tintype.export.kept_tensors import settle_kept_tensors
from tintype.export.key_order import order_observations
from tintype.export.lazy_modules import initialized_copy
from tintype.export.learned import assertion_text
from tintype.export.lost_state import tell_of_lost_state
from tintype.export.lost_state import warn as warn_of_lost_state
from tintype.export.module_calls import root_signature, take_signatures, with_signatures
from tintype.export.program import ExportedProgram
from tintype.export.refused_sizes import refuses_what_is_left_out
from tintype.export.shape_spec import AdditionalInputs, leaf_entries, with_fixes
from tintype.export.stage import Stage
from tintype.export.strict_report import lost_state, report_of
from tintype.export.surroundings_that_matter import observations_that_matter
from tintype.export.wrong_requests import is_program_of_torch, not_a_model, wrong_args, wrong_arguments, wrong_kwargs
from tintype.fake.info import Storage
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import graph_module, output_node, placeholders
from tintype.ir.observations import Observation
from tintype.ir.process_switches import collector_paused
from tintype.ir.signature import ExportGraphSignature, InputKind, OutputSpec
from tintype.symbolic import Expr
from tintype.symbolic.environment import Environment
from tintype.trace.argument_names import is_captured_program, positional_keywords
from tintype.trace.capture import Capture
from tintype.trace.capture_failures import wants_plain_numbers
from tintype.trace.captured_graph import CapturedGraph
from tintype.trace.conversions import settle_conversions
from tintype.trace.example_answers import Decision
from tintype.trace.gradients import ComputesGradients
from tintype.trace.state import ScriptInsideError, UninitializedStateError
from tintype.trace.subclasses import ReturnsSubclass
from tintype.trace.users_code import calls_users_code
from tintype.trace.wrapped_parts import given_parts, refuse_other_parts
from tintype.transforms import rewrites as _rewrites  # noqa: F401
from tintype.transforms.assertions import AssertionWriter
from tintype.transforms.functionalize import functionalize
from tintype.transforms.joint_layouts import settle_transformed
from tintype.transforms.loop_copies import refuse_hidden_writes
from tintype.transforms.regions import wrap_regions
from tintype.tree.subclasses import with_parts, with_tensors


def export(
    mod: torch.nn.Module | Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    control_flow: str = "auto",
    prefer_deferred_runtime_asserts_over_guards: bool = False,
    preserve_module_call_signature: Sequence[str] = (),
    forgets_assignments: bool = False,
) -> ExportedProgram:
    """Capture a model as a functional program: no mutation, composite operators whole.

    ``mod`` is called once, with fakes in place of ``args`` and ``kwargs``; nothing is computed and the model
    is left as it was. A method of a model and a plain function are taken too.

    ``dynamic_shapes`` says which sizes of the inputs may vary: by argument, then by dimension, as a
    :class:`~tintype.Dim`; an integer or a float that varies has such an entry itself; ``"auto"`` is the most
    general program that the model allows. With
    ``prefer_deferred_runtime_asserts_over_guards`` conditions on sizes that are too complex to be written as
    relations are checked when the program runs instead of being refused. ``preserve_module_call_signature`` names
    submodules that are called in :func:`~tintype.unflatten` as the model calls them. With ``strict`` the model's code
    is interpreted (:mod:`tintype.interpret`) instead of being run; the program is the same. Tensors that the model
    puts into attributes that are no buffers are refused where its later calls would find them; with
    ``forgets_assignments`` every call of the program is like the model's first one.

    >>> import torch, tintype
    >>> batch = tintype.Dim("batch")
    >>> ep = tintype.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),), dynamic_shapes={"input": {0: batch}})
    >>> [str(node.target) for node in ep.graph.nodes if node.op == "call_function"]
    ['aten.linear.default']
    >>> ep.module()(torch.ones(7, 3)).shape
    torch.Size([7, 2])
    """
    with collector_paused():
        program = capture_program(
            mod,
            args,
            kwargs,
            dynamic_shapes,
            Stage.FUNCTIONAL,
            complex_as_assertions=prefer_deferred_runtime_asserts_over_guards,
            preserved=preserve_module_call_signature,
            strict=strict,
            forgets_assignments=forgets_assignments,
            control_flow=control_flow,
        )
        warn_of_training_mode(mod, program.graph_module)
        if not prefer_deferred_runtime_asserts_over_guards:
            warn_of_refused_sizes(program)
    return program


def export_for_training(
    mod: torch.nn.Module | Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    control_flow: str = "auto",
    prefer_deferred_runtime_asserts_over_guards: bool = False,
    preserve_module_call_signature: Sequence[str] = (),
    forgets_assignments: bool = False,
) -> ExportedProgram:
    """Capture a model as it is before autograd: composite operators whole, mutation kept.

    Takes what :func:`export` takes.

    >>> import torch, tintype
    >>> ep = tintype.export_for_training(torch.nn.ReLU(inplace=True), (torch.ones(2),))
    >>> [str(node.target) for node in ep.graph.nodes if node.op == "call_function"]
    ['aten.relu_.default']
    """
    return capture_program(
        mod,
        args,
        kwargs,
        dynamic_shapes,
        Stage.TRAINING,
        complex_as_assertions=prefer_deferred_runtime_asserts_over_guards,
        preserved=preserve_module_call_signature,
        strict=strict,
        forgets_assignments=forgets_assignments,
        control_flow=control_flow,
    )


def capture_program(mod: Any, *args: Any, **options: Any) -> ExportedProgram:
    """The program of a model; modules of TorchScript in it are read as such."""
    with collector_paused():
        try:
            return _captured_program(mod, *args, **options)
        except TypeError as error:
            refused = (
                None if isinstance(error, TintypeError) else wrong_arguments(as_module(mod), args[0], args[1] or {})
            )
            if refused is None:
                raise
            raise refused from error
        except ScriptInsideError:
            from tintype.interop.torchscript.inside import scripts_as_modules

            with scripts_as_modules(as_module(mod)):
                return _captured_program(mod, *args, **options)
        except UninitializedStateError:
            initialized = initialized_copy(as_module(mod), tuple(args[0]), dict(args[1] or {}))
            return capture_program(initialized, *args, **options)
        except ReturnsSubclass:
            return _captured_program(TakenApart(as_module(mod)), *args, **options)
        except ComputesGradients:
            if args[-1] is not Stage.FUNCTIONAL or "capture_class" in options:
                raise
            from tintype.export.own_gradients import GradientsInside, without_gradients

            return _captured_program(mod, *args, **options, capture_class=GradientsInside, tidy=without_gradients)


def _captured_program(
    mod: Any,
    args: Any,
    kwargs: Any,
    dynamic_shapes: Any,
    stage: Stage,
    *,
    complex_as_assertions: bool = False,
    capture_class: Callable[..., Capture] = Capture,
    preserved: Sequence[str] = (),
    strict: bool = False,
    forgets_assignments: bool = False,
    control_flow: str = "auto",
    tidy: Callable[[Graph], None] | None = None,
    decisions: list[Decision] | None = None,
) -> ExportedProgram:
    """The program of a model: recorded, functional and then tidied up or for training with its regions wrapped; then
    the sizes that it needs are held against those that were promised."""
    _check_request(args, kwargs, control_flow, strict)
    args, kwargs = tuple(args), dict(kwargs or {})  # plain ones: a named tuple is a tuple too
    module, args, kwargs = taken_apart(as_module(mod), args, kwargs)
    dynamic_shapes = _own_shapes(dynamic_shapes, module, args, kwargs)
    entries = leaf_entries(module, args, kwargs, dynamic_shapes)
    call = ExampleCall(
        module,
        args,
        kwargs,
        entries,
        capture_class=capture_class,
        preserved=preserved,
        strict=strict,
        control_flow=control_flow,
        is_for_training=stage is Stage.TRAINING,
        decisions=decisions,
    )
    demands = Demands(stage, tidy, complex_as_assertions, forgets_assignments)
    captured, inputs = _recorded_somehow(call, demands)
    program = _program_from(captured, stage, call, inputs.dynamic)
    program.verify_stage()
    if captured.findings is not None:
        program.report = report_of(captured.findings)
        program.report.warn()
    if isinstance(dynamic_shapes, AdditionalInputs):
        dynamic_shapes.verify(program)
    return program


class Demands(NamedTuple):
    """What was asked for besides the call."""

    stage: Stage
    tidy: Callable[[Graph], None] | None
    complex_as_assertions: bool
    forgets_assignments: bool


def _recorded(
    call: ExampleCall, capture: Callable[[], tuple[CapturedGraph, InputSizes]], demands: Demands
) -> tuple[CapturedGraph, InputSizes]:
    """A capture that is of its stage, keeps what was promised of sizes, and asserts what only a run can tell."""
    captured, inputs = capture()
    found = captured.findings
    tell = warn_of_lost_state if found is None else lambda text: found.insert(0, lost_state(text))
    if captured.kept:
        settle_kept_tensors(captured, call.capture_twice, forgets=demands.forgets_assignments, tell=tell)
    else:
        tell_of_lost_state(call.module, captured, lambda: call.capture()[0], tell)
    captured.observations = observations_that_matter(call.module, captured, call.capture_pretending)
    captured.observations += order_observations(call.module, call.args, call.kwargs, captured, call.capture_reordered)
    captured.observations += container_observations(call.module, captured)
    _settle(captured, demands.stage, demands.tidy)
    _keep_promises(call, captured, inputs, demands.complex_as_assertions)
    _write_assertions(captured, inputs)
    return captured, inputs


def _recorded_somehow(call: ExampleCall, demands: Demands) -> tuple[CapturedGraph, InputSizes]:
    """The same, with loops if need be; what only sizes that vary lead to is told so."""
    try:
        return _recorded(call, call.capture, demands)
    except ConstraintViolationError as error:
        return _recorded_with_loops(call, demands, error)
    except Exception as error:
        if call.fails_by_sizes(error):
            raise wants_plain_numbers(error) from error
        raise


def _recorded_with_loops(
    call: ExampleCall, demands: Demands, error: ConstraintViolationError
) -> tuple[CapturedGraph, InputSizes]:
    """The same with loops over sizes recorded, where a loop may be what fixed a size; else the error."""
    refused = call.refused_loop
    if call.may_record_loops:
        try:
            return _recorded(call, call.capture_loops, demands)
        except ConstraintViolationError:
            raise error from None
        except TintypeError as reason:
            refused = reason
    if refused is not None:
        error.add_note(f"A loop over it could not be recorded: {refused}")
    raise error


def _own_shapes(dynamic_shapes: Any, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What was said of sizes, in our words where it was said in torch's."""
    if dynamic_shapes is None or not _is_torchs(dynamic_shapes):
        return dynamic_shapes
    from tintype.interop.their_dims import own_shapes

    return own_shapes(dynamic_shapes, module, args, kwargs)


def _settle(captured: CapturedGraph, stage: Stage, tidy: Callable[[Graph], None] | None) -> None:
    """Let a recorded graph be one of its stage. Before promises are checked: what functionalization decides about
    sizes is part of what the program needs."""
    functional = stage is Stage.FUNCTIONAL
    settle_transformed(captured.graph)
    if settle_conversions(captured.conversions, _given_memory(captured), functional=functional):
        captured.output_specs = _renamed_outputs(captured)
    if functional:
        mutations = functionalize(captured.graph, captured.context, captured.input_specs, captured.state_writes)
        if tidy is not None:
            tidy(captured.graph)
        captured.output_specs = [*mutations, *captured.output_specs]
        captured.output_specs = _renamed_outputs(captured)  # tidying may have put other nodes in their place
    else:
        refuse_hidden_writes(captured.graph)


def _keep_promises(
    call: ExampleCall, captured: CapturedGraph, inputs: InputSizes, complex_as_assertions: bool
) -> None:
    """Hold the sizes that a program needs against those that were promised."""
    if not inputs.dynamic:
        return
    # what a program that was captured before asserts, it goes on to assert
    complex_as_assertions |= is_captured_program(call.module)
    try:
        check_constraints(captured.context.environment, inputs.dynamic, complex_as_assertions=complex_as_assertions)
    except ConstraintViolationError as error:
        if not refuses_what_is_left_out(call.entries, error.suggested_fixes, call.capture_with):
            error.suggested = with_fixes(call.module, call.args, call.kwargs, call.entries, error.suggested_fixes)
            raise


def _write_assertions(captured: CapturedGraph, inputs: InputSizes) -> None:
    """Assert what only a run can tell."""
    environment = captured.context.environment
    if not environment.symbols:
        return
    conditions = [(assertion.condition, assertion.message) for assertion in environment.assertions]
    if inputs.dynamic:
        conditions += [
            (guard.condition, assertion_text(guard)) for guard in asserted_guards(environment, inputs.dynamic)
        ]
    if conditions or environment.has_unbacked:
        AssertionWriter(captured.graph, environment).write(conditions)


def _is_torchs(dynamic_shapes: Any) -> bool:
    """Whether sizes are given as torch.export takes them."""
    leaves = (dynamic_shapes, *tree.leaves(dynamic_shapes))
    return any(type(leaf).__module__ == "torch.export.dynamic_shapes" for leaf in leaves)


def _check_request(args: Any, kwargs: Any, control_flow: Any, strict: Any) -> None:
    if not isinstance(strict, bool):
        raise InvalidRequestError(
            f"strict is True or False, but got {strict!r:.80}",
            remedy="strict=True interprets every line of the model's code, False runs it",
        )
    if control_flow not in ("auto", "refuse"):
        raise InvalidRequestError(
            f"control_flow is 'auto' or 'refuse', but got {control_flow!r}",
            remedy="'auto' makes control flow of branches on data, 'refuse' an error",
        )
    if not isinstance(args, tuple):
        raise wrong_args(args)
    if kwargs is not None and not isinstance(kwargs, Mapping):
        raise wrong_kwargs(kwargs)
    if kwargs and not all(isinstance(name, str) for name in kwargs):
        raise InvalidRequestError(f"kwargs must have names as its keys, but got {list(kwargs)}")
    if kwargs and "self" in kwargs:
        raise InvalidRequestError(
            "a module takes no keyword argument called 'self'", remedy="pass the argument by position"
        )


def suggest_dynamic_shapes(error: ConstraintViolationError) -> Any:
    """A ``dynamic_shapes`` that the program keeps, from the error that another one led to.

    >>> import torch, tintype
    >>> x, y = torch.ones(4), torch.ones(5)
    >>> first, second = tintype.dims("first", "second")
    >>> function = lambda x, y: x + y[1:]
    >>> try:
    ...     tintype.export(function, (x, y), dynamic_shapes={"x": {0: first}, "y": {0: second}})
    ... except tintype.ConstraintViolationError as violation:
    ...     shapes = suggest_dynamic_shapes(violation)
    >>> shapes
    {'x': (Dim('first'),), 'y': (first + 1,)}
    >>> tintype.export(function, (x, y), dynamic_shapes=shapes).module()(torch.ones(7), torch.ones(8)).shape
    torch.Size([7])
    """
    if not isinstance(error, ConstraintViolationError):
        raise InvalidRequestError(
            f"suggest_dynamic_shapes takes a ConstraintViolationError, but got {type(error).__name__}",
            remedy="other errors suggest no sizes: their text says what to do",
        )
    return error.suggested


class EntryPoint(torch.nn.Module):
    """A method of a model, or a function, as a module that can be captured."""

    only_calls_forward = True

    def __init__(self, function: Callable[..., Any], owner: torch.nn.Module | None) -> None:
        super().__init__()
        self.__dict__["forward"] = function
        if owner is not None:
            self.__dict__[".owner"] = owner  # who puts a program's assignments back finds the model here
            # the state keeps the names it has in the model
            for name in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
                self.__dict__[name] = owner.__dict__[name]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Hooks on all modules are for the user's, not for this one."""
        return self.forward(*args, **kwargs) if _has_any_global_hook() else super().__call__(*args, **kwargs)


class TakenApart(EntryPoint):
    """A model whose arguments or results have tensors in them that consist of others, in terms of their parts."""

    def __init__(self, model: torch.nn.Module) -> None:
        if not isinstance(model, TakenApart):
            super().__init__(_by_parts(model), model)


def taken_apart(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any]]:
    """A call in which tensors that consist of others are taken apart, and the model that takes it so."""
    given = (args, kwargs)
    apart = with_parts(given)
    return (model, args, kwargs) if apart is given else (TakenApart(model), *apart)


def _by_parts(model: torch.nn.Module) -> Callable[..., Any]:
    @functools.wraps(model.forward)
    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = given = with_tensors((args, kwargs))
        before = given_parts(given)
        results = model(*args, **kwargs)
        refuse_other_parts(before)
        return with_parts(results)

    calls_users_code(call)
    return call


def as_module(mod: Any) -> torch.nn.Module:
    """What to capture as a module."""
    if isinstance(mod, ExportedProgram):
        raise InvalidRequestError(
            "this is a program already", remedy="export its module, program.module(), for other arguments or sizes"
        )
    if isinstance(mod, (torch.jit.ScriptModule, torch.jit.ScriptFunction, torch._C.ScriptMethod)):
        from tintype.interop.torchscript.conversion import as_captured

        return as_captured(mod)
    if isinstance(mod, torch.nn.Module):
        from tintype.interop.compiled_by_torch import original_of

        return original_of(mod)
    if isinstance(mod, type) or not callable(mod) or is_program_of_torch(mod):
        raise not_a_model(mod)
    owner = getattr(mod, "__self__", None)
    return EntryPoint(mod, owner if isinstance(owner, torch.nn.Module) else None)


def _renamed_outputs(captured: CapturedGraph) -> list[OutputSpec]:
    """The specs of the outputs, those of new values first, under the names their nodes have now."""
    if not captured.output_specs:
        return []
    results: Any = output_node(captured.graph).args[0]
    own = results[-len(captured.output_specs) :]
    return [spec.named_after(node) for node, spec in zip(own, captured.output_specs, strict=True)]


def _given_memory(captured: CapturedGraph) -> set[Storage]:
    """The memory of the caller's tensors."""
    if not captured.conversions:
        return set()
    names = {spec.arg.name for spec in captured.input_specs if spec.kind is InputKind.USER_INPUT}
    values = [node.meta.get("val") for node in placeholders(captured.graph) if node.name in names]
    return {value.info.storage for value in values if type(value) is FakeTensor}


def _program_from(
    captured: CapturedGraph,
    stage: Stage,
    call: ExampleCall,
    sizes: Sequence[DynamicSize],
) -> ExportedProgram:
    if stage is Stage.TRAINING:
        paths = (*captured.state_dict, *captured.constants)
        wrap_regions(captured.graph, {*(path.partition(".")[0] for path in paths), *captured.children})
    signatures = take_signatures(captured.graph)
    signature = ExportGraphSignature(captured.input_specs, captured.output_specs)
    program_module = graph_module(captured.graph, "Program")
    if is_captured_program(call.module):
        positional = positional_keywords_of(call.module, call.kwargs)
    else:
        positional = positional_keywords(call.module, call.args, call.kwargs)
    call_spec = CallSpec(captured.in_spec, captured.out_spec, tuple(captured.returned), positional)
    signatures[""] = root_signature(call_spec, signature)
    return ExportedProgram(
        program_module,
        signature,
        captured.state_dict,
        captured.constants,
        call_spec,
        captured.argument_names,
        (call.args, call.kwargs),
        stage,
        captured.context,
        with_signatures(_modules(captured), signatures),
        sizes,
        [_settled(seen, captured.context.environment) for seen in captured.observations],
    )


def _settled(observation: Observation, environment: Environment) -> Observation:
    """An answer in terms of the sizes that the program takes: some may have been fixed after the question."""
    answer = observation.answer
    if isinstance(answer, tuple):
        answer = tuple(environment.simplify(number) if isinstance(number, Expr) else number for number in answer)
    elif isinstance(answer, Expr):
        answer = environment.simplify(answer)
    return dataclasses.replace(observation, answer=answer)


def _modules(captured: CapturedGraph) -> list[ModuleCallEntry]:
    return [
        ModuleCallEntry(path, same_as=same_as if same_as != path else None)
        for path, same_as in captured.module_paths.items()
    ]


__all__ = ["export", "export_for_training"]
