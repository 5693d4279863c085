"""The exported program: a graph, what its inputs and outputs stand for, and the state it needs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.fx import Graph, GraphModule, Node

from tintype import tree
from tintype.errors import InvalidRequestError
from tintype.export.call_spec import CallSpec, ModuleCallEntry
from tintype.export.checks import InputChecks, flatten_call
from tintype.export.constraints import DynamicSize
from tintype.export.contract import Contract, contract_lines, control_flow_lines, left_out_lines
from tintype.export.module import ProgramModule, refuse_pickle
from tintype.export.observed import observed_lines
from tintype.export.owned_state import OwnedState
from tintype.export.stage import Stage
from tintype.export.unlifting import unlift
from tintype.fake.context import FakeContext
from tintype.fake.tensor import FakeTensor
from tintype.ir.graph import copy_graph, graph_module, placeholders
from tintype.ir.observations import Observation
from tintype.ir.printing import describe_value
from tintype.ir.signature import (
    ExportGraphSignature,
    InputKind,
)
from tintype.symbolic import Expr, Range
from tintype.symbolic.bridge import from_torch
from tintype.trace.shared_memory import storages_of
from tintype.transforms.memory import written_storages
from tintype.tree.subclasses import with_parts, with_tensors

aten = torch.ops.aten

if TYPE_CHECKING:
    import os

    from tintype.export.draft import DraftReport
    from tintype.export.strict_report import StrictReport
    from tintype.view.pages import Page


class ExportedProgram:
    """A captured program.

    >>> import torch, tintype
    >>> ep = tintype.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
    >>> ep.graph_signature.parameters
    ('weight', 'bias')
    >>> ep.module()(torch.ones(4, 3)).shape
    torch.Size([4, 2])
    """

    def __init__(
        self,
        graph_module: GraphModule,
        signature: ExportGraphSignature,
        state_dict: dict[str, torch.Tensor],
        constants: dict[str, Any],
        call_spec: CallSpec,
        argument_names: Sequence[str],
        example_inputs: tuple[tuple[Any, ...], dict[str, Any]] | None,
        stage: Stage,
        context: FakeContext,
        module_call_graph: list[ModuleCallEntry],
        dynamic_sizes: Sequence[DynamicSize] = (),
        observations: Sequence[Observation] = (),
    ) -> None:
        self._graph_module = graph_module
        self._graph_signature = signature
        self._state_dict = state_dict
        self._constants = constants
        self._call_spec = call_spec
        self._argument_names = list(argument_names)
        self._example_inputs = example_inputs
        self._stage = stage
        self._context = context
        context.environment.finish()
        self._module_call_graph = module_call_graph
        self._dynamic_sizes = list(dynamic_sizes)
        self._observations = list(observations)
        # what the example decided, where this is a draft: see tintype.draft_export; or what strict=True found
        self.report: DraftReport | StrictReport | None = None

    # --- what it is made of ----------------------------------------------------------------------------------

    @property
    def graph_module(self) -> GraphModule:
        """The graph as a module; its inputs include the state."""
        return self._graph_module

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self._graph_module.graph

    @property
    def graph_signature(self) -> ExportGraphSignature:
        """What the graph's inputs and outputs stand for."""
        return self._graph_signature

    @property
    def state_dict(self) -> dict[str, torch.Tensor]:
        """Parameters and persistent buffers by name, tied ones under each of their names."""
        return self._state_dict

    @property
    def constants(self) -> dict[str, Any]:
        """Tensor constants, buffers that are not persistent, and custom objects, by name."""
        return self._constants

    @property
    def tensor_constants(self) -> dict[str, Any]:
        """The same as :attr:`constants`."""
        return self._constants

    @property
    def call_spec(self) -> CallSpec:
        """The structure of arguments and results."""
        return self._call_spec

    @property
    def example_inputs(self) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The arguments the program was exported with."""
        return None if self._example_inputs is None else with_tensors(self._example_inputs)

    @example_inputs.setter
    def example_inputs(self, example: tuple[tuple[Any, ...], dict[str, Any]] | None) -> None:
        """Other inputs: a tuple of positional ones and a dictionary of keyword ones, as the program takes them."""
        if example is not None:
            is_call = isinstance(example, tuple) and len(example) == 2
            if not is_call or not isinstance(example[0], tuple) or not isinstance(example[1], dict):
                raise InvalidRequestError(
                    "example_inputs are a tuple of positional arguments and a dictionary of keyword arguments",
                    remedy="write program.example_inputs = (args, {}), with args a tuple",
                )
            args, kwargs = example = with_parts(example)
            checks = self.input_checks()
            leaves = flatten_call(args, kwargs, checks.in_spec, checks.names, checks.ordered)
            checks.check(leaves, lambda name: {**self.state_dict, **self.constants}[name])
        self._example_inputs = example

    @property
    def module_call_graph(self) -> list[ModuleCallEntry]:
        """The modules of the original model, the root first."""
        return self._module_call_graph

    @property
    def range_constraints(self) -> dict[Expr, Range]:
        """The ranges of symbolic sizes: those of inputs that may vary, and those that only the data decide."""
        environment = self._context.environment
        constraints: dict[Expr, Range] = {}
        for size in self._dynamic_sizes:
            expression = environment.simplify(size.expression)
            if isinstance(expression, Expr) and expression.kind == "int":
                constraints[expression] = environment.range(expression)
        for symbol in environment.symbols.values():
            if symbol.hint is None and symbol.kind == "int" and symbol in self._used_symbols():
                constraints[symbol] = environment.range(symbol)
        return constraints

    def _used_symbols(self) -> set[Any]:
        """The symbols that some value of the graph has."""
        used: set[Any] = set()
        for node in self.graph.nodes:
            value = node.meta.get("val")
            if type(value) is FakeTensor:
                for size in value.info.sizes:
                    if isinstance(size, Expr):
                        used |= size.symbols
            elif isinstance(value, torch.SymInt):
                number = from_torch(value)
                if isinstance(number, Expr):
                    used |= number.symbols
        return used

    @property
    def context(self) -> FakeContext:
        """Where the values of the graph live: its environment has the facts about sizes."""
        return self._context

    @property
    def dynamic_sizes(self) -> list[DynamicSize]:
        """The sizes of the inputs that vary, with what was promised of each."""
        return self._dynamic_sizes

    @property
    def observations(self) -> list[Observation]:
        """What the program asked about its inputs and its surroundings besides sizes and dtypes."""
        return self._observations

    @property
    def argument_names(self) -> list[str]:
        """The names of the arguments, those given by position first."""
        return self._argument_names

    @property
    def example_leaves(self) -> list[Any] | None:
        """The example's values in the order of the program's inputs."""
        return None if self._example_inputs is None else tree.flatten(self._example_inputs)[0]

    @property
    def stage(self) -> Stage:
        """How far the program has come."""
        return self._stage

    @property
    def dialect(self) -> str:
        """The stage by name."""
        return self._stage.value

    def parameters(self) -> Iterator[torch.Tensor]:
        """The program's parameters."""
        for _, parameter in self.named_parameters():
            yield parameter

    def named_parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The program's parameters with their names."""
        for name in self.graph_signature.parameters:
            yield name, self.state_dict[name]

    def buffers(self) -> Iterator[torch.Tensor]:
        """The program's buffers."""
        for _, buffer in self.named_buffers():
            yield buffer

    def named_buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The program's buffers with their names, those that are not persistent included."""
        volatile = set(self.graph_signature.non_persistent_buffers)
        for name in self.graph_signature.buffers:
            yield name, (self.constants if name in volatile else self.state_dict)[name]

    # --- what can be done with it ----------------------------------------------------------------------------

    def module(self) -> ProgramModule:
        """A module that runs the program. It owns the buffers that it writes to and shares everything else.

        A tensor that takes a buffer's place and is returned (``self.b = self.b + x; return self.b``) is returned as a
        copy: what a caller writes to the result does not reach the buffer.

        ``module.state()`` has what calls change, and ``module.reset()`` puts it back. :func:`tintype.modules` makes
        modules of several programs that share what they write to.

        >>> import torch, tintype
        >>> ep = tintype.export(torch.nn.ReLU(), (torch.ones(2),))
        >>> ep.module()(torch.tensor([-1.0, 1.0]))
        tensor([0., 1.])
        """
        return self._module(OwnedState(self.written_tensors()))

    def _module(self, owned: OwnedState) -> ProgramModule:
        state = self._module_state(owned)
        held = {**self.state_dict, **self.constants}
        changing = [name for name in state if owned.changes(held[name])]
        graph = unlift(self)
        checks = self.input_checks()
        call_spec = self.call_spec
        return ProgramModule(
            graph, state, call_spec.in_spec, call_spec.out_spec, self._argument_names, checks, call_spec.returned,
            changing,
        )  # fmt: skip

    def input_checks(self) -> InputChecks:
        """What is checked of the arguments of a call."""
        from tintype.export.program_checks import input_checks_of

        return input_checks_of(self)

    def _module_state(self, owned: OwnedState) -> dict[str, tuple[Any, str]]:
        signature = self.graph_signature
        state: dict[str, tuple[Any, str]] = {}
        buffers = set(signature.buffers)
        for name, value in self.state_dict.items():
            is_parameter = isinstance(value, torch.nn.Parameter) and name not in buffers
            state[name] = (owned.own(value), "parameter" if is_parameter else "buffer")
        volatile = set(signature.non_persistent_buffers)
        for name, value in self.constants.items():
            state[name] = (owned.own(value), "volatile" if name in volatile else "constant")
        return state

    def written_tensors(self) -> list[torch.Tensor]:
        """The state that a module of this program writes to."""
        specs = self.graph_signature.input_specs
        if self._stage is Stage.TRAINING:
            written = written_storages(self.graph)
            nodes = zip(placeholders(self.graph), specs, strict=True)
            targets = {
                spec.target
                for node, spec in nodes
                if spec.kind is not InputKind.USER_INPUT and not written.keys().isdisjoint(storages_of(node))
            }
        else:
            targets = set(self.graph_signature.written_state)
        values = {**self.state_dict, **self.constants}
        return [value for name, value in values.items() if name in targets and isinstance(value, torch.Tensor)]

    def run_decompositions(
        self,
        decomp_table: dict[Any, Callable[..., Any]] | None = None,
        *,
        preserve: Sequence[Any] = (),
    ) -> ExportedProgram:
        """The program in terms of simpler operators: core ATen, or what a table of decompositions leaves.

        A table says all that is decomposed: with ``{}`` the composite operators stay, as far as they are known to
        return new tensors. :func:`tintype.default_decompositions` gives the table that leads to core ATen, to be
        edited. Operators in ``preserve`` stay as they are.

        >>> import torch, tintype
        >>> ep = tintype.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),)).run_decompositions()
        >>> [node.name for node in ep.graph.nodes if node.op == "call_function"]
        ['permute', 'addmm']
        """
        from tintype.export.decompose import decompose_program

        return decompose_program(self, decomp_table, preserve)

    def with_state(self, state: Any, *, strict: bool = True) -> ExportedProgram:
        """The same program with other parameters and buffers; names, shapes and dtypes are checked.

        ``state`` is a dictionary of tensors, such as a ``state_dict``; :func:`tintype.attach_weights` takes files.
        With ``strict`` it must have all parameters and persistent buffers and nothing else; otherwise those that it
        has are replaced. This program stays as it is.

        >>> import torch, tintype
        >>> model = torch.nn.Linear(3, 2)
        >>> ep = tintype.export(model, (torch.ones(4, 3),))
        >>> trained = ep.with_state({"weight": torch.ones(2, 3), "bias": torch.zeros(2)})
        >>> trained.module()(torch.ones(4, 3))[0].tolist()
        [3.0, 3.0]
        """
        from tintype.export.other_state import program_with_state

        return program_with_state(self, state, strict)

    def to(self, *args: Any, **kwargs: Any) -> ExportedProgram:
        """The same program on another device, or for another floating point dtype: ``to("cuda")``,
        ``to(torch.bfloat16)``, ``to("cuda", torch.bfloat16)``.

        Weights and the example are converted, tensors that the program makes are made on the device, and all values
        are inferred anew. Dtypes that the model names itself stay as they are. This program stays as it is.

        >>> import torch, tintype
        >>> ep = tintype.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),)).to(torch.bfloat16)
        >>> ep.module()(torch.ones(4, 3, dtype=torch.bfloat16)).dtype
        torch.bfloat16
        """
        from tintype.export.rewriting import moved_program

        try:
            device, dtype, _, _ = torch._C._nn._parse_to(*args, **kwargs)
        except (TypeError, RuntimeError) as error:
            raise InvalidRequestError(
                f"to() takes a device and a dtype: {str(error).partition(chr(10))[0]}",
                remedy='program.to("cuda", torch.bfloat16)',
            ) from error
        return moved_program(self, device, dtype)

    def transform(
        self,
        edit: Callable[[ProgramModule], Any],
        *,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        dynamic_shapes: Any = None,
    ) -> ExportedProgram:
        """Another program, by an edit of the graph; this one stays as it is.

        ``edit`` is given a module of the program, whose ``graph`` it changes (parameters are its attributes, calls
        are of operators). Values of new nodes are inferred, sizes that the edit needs are held against those that
        were promised, nodes that stay keep where they came from, and the result is verified. Weights that only what
        was removed used are not part of it. With ``args`` or
        ``kwargs``, the edited graph becomes a program for these inputs and ``dynamic_shapes``, which may have other
        sizes; whatever the model decided by its sizes stays decided. docs/rewriting.md has five real edits.

        >>> import torch, tintype
        >>> ep = tintype.export(torch.nn.ReLU(), (torch.ones(2),))
        >>> def to_gelu(module):
        ...     for node in module.graph.nodes:
        ...         if node.target is torch.ops.aten.relu.default:
        ...             node.target = torch.ops.aten.gelu.default
        >>> gelu = ep.transform(to_gelu)
        >>> [str(node.target) for node in gelu.graph.nodes if node.op == "call_function"]
        ['aten.gelu.default']
        """
        from tintype.export.rewriting import transform_program

        return transform_program(self, edit, args=args, kwargs=kwargs, dynamic_shapes=dynamic_shapes)

    def rewrite(
        self, pattern: Any, replacement: Callable[..., Any], *, where: str | Callable[[Node], bool] | None = None
    ) -> ExportedProgram:
        """Another program, in which ``replacement`` stands wherever ``pattern`` was.

        Both are operators, or functions of tensors: what the pattern's function is given stands for anything, and the
        replacement is called with that. ``where`` chooses among the places: the path of a module (``"encoder.*"``,
        modules inside of it included), or a function of the last node of a place. What is new is captured like a
        model, so that its values are inferred, and keeps the origin of what it replaces.

        >>> import torch, tintype
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        >>> ep = tintype.export(model, (torch.ones(1, 3),))
        >>> made = ep.rewrite(torch.ops.aten.relu.default, torch.nn.functional.gelu)
        >>> [node.name for node in made.graph.nodes if node.op == "call_function"]
        ['linear', 'gelu', 'linear_1']
        >>> linear = torch.nn.functional.linear
        >>> made = ep.rewrite(lambda x, w, b: linear(x, w, b), lambda x, w, b: x @ w.mT + b, where="2")
        >>> [node.name for node in made.graph.nodes if node.op == "call_function"]
        ['linear', 'relu', 'transpose', 'matmul', 'add']
        """
        from tintype.export.rewriting import rewrite_program

        return rewrite_program(self, pattern, replacement, where)

    def output_paths(self) -> list[str]:
        """Where each of the program's outputs stands in the result.

        >>> import torch, tintype
        >>> ep = tintype.export(lambda x: {"logits": x + 1, "hidden": [x, x * 2]}, (torch.ones(2),))
        >>> ep.output_paths()
        ['logits', 'hidden[0]', 'hidden[1]']
        """
        spec = self.call_spec.out_spec
        return [tree.place_name("".join(tree.child_names(spec, path))) for path in tree.leaf_paths(spec)]

    def contract(self) -> Contract:
        """What inputs the program accepts, with the lines of the user's program that decided it."""
        lines = contract_lines(self._context.environment, self._dynamic_sizes)
        names = [spec.arg.name for spec in self.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
        decided = control_flow_lines(self.graph_module)
        return Contract([*lines, *observed_lines(self._observations, names), *decided, *left_out_lines(self.report)])

    def validate(self) -> None:
        """Check a program, after an edit by hand above all: raises a VerificationError that shows what is wrong.

        The program must keep the rules of its stage, every value must be what its operator gives (shape and dtype),
        and the weights must be those that the graph takes.

        >>> import torch, tintype
        >>> ep = tintype.export(lambda x: (x + 1).sum(0), (torch.ones(2, 3),))
        >>> ep.validate()
        >>> node = next(node for node in ep.graph.nodes if node.name == "sum_1")
        >>> node.args = (node.args[0], [1])
        >>> try:
        ...     ep.validate()
        ... except tintype.TintypeError as error:
        ...     print(error.fact.splitlines()[0])
        'sum_1' says that it is f32[3], but aten.sum.dim_IntList gives f32[2]
        """
        from tintype.export.value_checks import check_values

        self.verify_stage()
        check_values(self)

    def verify_stage(self) -> None:
        """Check the rules of the stage alone, as for a program whose values were inferred."""
        from tintype.ir.verifier import verify

        verify(self.graph_module, self.graph_signature, self._stage.value, {*self._state_dict, *self._constants})

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        refuse_pickle(self)

    def __copy__(self) -> ExportedProgram:
        new = object.__new__(type(self))
        vars(new).update(vars(self))
        return new

    def __deepcopy__(self, memo: dict[int, Any]) -> ExportedProgram:
        return copy_program(
            self,
            graph_module(copy_graph(self.graph), "Program"),
            graph_signature=copy.deepcopy(self._graph_signature, memo),
            state_dict=copy.deepcopy(self._state_dict, memo),
            constants=copy.deepcopy(self._constants, memo),
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: a program is not a module."""
        from tintype.export.wrong_requests import NotCalledError

        raise NotCalledError(
            "Unable to call ExportedProgram directly. You should use `exported_program.module()` instead.",
            remedy="program.module()(...): a module has its own state, so keep it for further calls",
        )

    def __getattr__(self, name: str) -> Any:
        """Only looked for where there is no such attribute: what modules have is found in a program's module."""
        if name.startswith("__") or not (name == "save" or hasattr(torch.nn.Module, name)):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        from tintype.export.wrong_requests import module_of_a_program

        raise module_of_a_program(self, name)

    @property
    def code(self) -> str:
        """The program as Python that runs: a class whose ``forward`` takes state and inputs, with sizes as
        annotations and the lines that operators come from as comments; then the signature, as comments.

        >>> import torch, tintype
        >>> print(tintype.export(torch.nn.ReLU(), (torch.ones(2),)).code.splitlines()[3])
        class Program(torch.nn.Module):  # functional stage
        """
        from tintype.ir.printing import print_program

        paths = () if self.call_spec.out_spec.is_leaf() else self.output_paths()
        return print_program(self.graph_module, self.graph_signature, self._stage.value, paths)

    def __str__(self) -> str:
        from tintype.view.text import program_text

        return program_text(self)

    def __repr__(self) -> str:
        calls = sum(node.op == "call_function" for node in self.graph.nodes)
        inputs = len(self.graph_signature.user_inputs)
        return f"<ExportedProgram: {self._stage.value} stage, {inputs} inputs, {calls} operator calls>"

    def _repr_html_(self) -> str:
        from tintype.view.notebook import program_html

        return program_html(self)

    def view(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        against: ExportedProgram | None = None,
        stages: bool = False,
        source: bool = False,
        statistics: bool = False,
        title: str | None = None,
    ) -> Page:
        """A page that shows this program, which a browser opens without a network: what it takes (sizes can be typed
        in), modules with what they cost as formulas in the sizes, the graph with a search (docs/looking.md).

        The page is written to ``path``; without, it is returned, shown by notebooks, and ``.open()`` shows it in the
        browser. ``against`` is a program to compare with; ``stages`` adds what later stages make of it, linked by
        origin. Neither weights nor lines of the user's program are in it, unless ``source`` or ``statistics``
        (ranges and histograms of weights) ask for them.

        >>> import torch, tintype
        >>> ep = tintype.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
        >>> ep.view(stages=True)
        <Page: functional: 5 nodes, core: 6 nodes>
        """
        from tintype.view.pages import view_program

        return view_program(self, path, against, stages=stages, source=source, statistics=statistics, title=title)

    def _input_descriptions(self) -> list[str]:
        return [describe_value(node.meta.get("val"), str) for node in placeholders(self.graph)]

    def same_structure(self, other: ExportedProgram) -> bool:
        """Whether two programs are the same but for the values of their state and where they came from.

        >>> import torch, tintype
        >>> first = tintype.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
        >>> second = tintype.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
        >>> first.same_structure(second)
        True
        """
        return (
            self._graph_signature == other._graph_signature
            and self._call_spec == other._call_spec
            and str(self.graph_module.code) == str(other.graph_module.code)
            and self._input_descriptions() == other._input_descriptions()
            and {k: (v.shape, v.dtype) for k, v in self._state_dict.items()}
            == {k: (v.shape, v.dtype) for k, v in other._state_dict.items()}
        )


def verified_copy(program: ExportedProgram, graph_module: GraphModule, **changes: Any) -> ExportedProgram:
    """What a pass makes of a program: like it, with some parts replaced, and checked."""
    new = copy_program(program, graph_module, **changes)
    new.verify_stage()
    return new


def copy_program(program: ExportedProgram, graph_module: GraphModule, **changes: Any) -> ExportedProgram:
    """A program like another one with some parts replaced."""
    new = copy.copy(program)
    new._graph_module = graph_module
    for name, value in changes.items():
        setattr(new, f"_{name}", value)
    new._context.environment.finish()
    return new
