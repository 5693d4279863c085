"""The module that a program becomes: it holds the state, checks inputs, runs the graph, writes mutations back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo

from tintype import tree
from tintype.errors import InputMismatchError, InvalidRequestError, TintypeError
from tintype.export.assembled_results import assembled
from tintype.export.checks import InputChecks, flatten_call
from tintype.export.entry import callers_containers, compile_entry
from tintype.export.own_attributes import (
    Own,
    OwnAttributes,
    UnlessModels,
    add_constant,
    attribute_of,
    submodule_at,
    table_of_constant,
)
from tintype.export.owned_state import InitialValue, replace_state, write_untracked
from tintype.ir.graph import attached, copy_graph
from tintype.ir.names import names_in_code
from tintype.ir.node_info import NodeMeta
from tintype.ir.running import call_node
from tintype.symbolic.location import replaying
from tintype.trace.recorder import Recorder
from tintype.trace.replaying import replay_graph
from tintype.tree.subclasses import has_parts

_eval_frame = torch._C._dynamo.eval_frame
_NOT_COMPILED = _eval_frame._FrameExecStrategy(_eval_frame._FrameAction.SKIP, _eval_frame._FrameAction.SKIP)


class FixedModeError(InvalidRequestError, NotImplementedError):
    """A program can't be switched between training and evaluation.

    >>> import torch, tintype
    >>> try:
    ...     tintype.export(torch.nn.ReLU(), (torch.ones(2),)).module().eval()
    ... except tintype.TintypeError as error:
    ...     print(error.id)
    fixed-mode
    """

    id = "fixed-mode"

    def __init__(self, method: str) -> None:
        super().__init__(
            f"Calling {method}() is not supported yet. A program does what its model did in the mode that it was "
            "exported in",
            remedy="call model.eval() or model.train() and export again, once for each mode that is needed; leave "
            "the call out where the model was in that mode",
        )


class ProgramModule(OwnAttributes, GraphModule):
    """A program as an ``nn.Module``.

    Its graph can be read and edited like that of any graph module (call ``recompile()`` after an edit). It is
    itself exportable, and what is exported from it keeps the names and origins of the original program.
    """

    # who captures such a module again takes its arguments' names from it
    is_captured_program = True
    _in_spec = Own()
    _out_spec = Own()
    argument_names = Own()
    _checks = Own()
    _returned = Own()
    _owns_parameters = Own()
    _constants = Own()
    _initial = Own()
    _entry = Own()
    _is_traced = Own()
    _text = Own()
    # what torch.compile asks graph modules for, to find the lines of their own code; ours say theirs
    _lineno_map: None = None
    _prologue_start: None = None

    def __init__(
        self,
        graph: Graph,
        state: dict[str, tuple[Any, str]],
        in_spec: tree.TreeSpec,
        out_spec: tree.TreeSpec,
        argument_names: Sequence[str],
        checks: InputChecks,
        returned: Sequence[tuple[tree.Path, tree.Path]] = (),
        changing: Sequence[str] = (),
    ) -> None:
        # arguments can be called anything; what fx writes into its code must be names that hide nothing
        spelled = names_in_code(argument_names)
        graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(spelled, in_spec, out_spec)))
        self._is_traced = False  # whether torch.compile has asked for code that it can follow
        # fx would make buffers of all tensors that a graph uses: state is attached before the graph is
        super().__init__({}, Graph(), "ProgramModule")
        self._in_spec = in_spec
        self._out_spec = out_spec
        self.argument_names = list(argument_names)
        self._checks = checks
        self._returned = tuple(returned)
        self._owns_parameters = False
        self._constants = [name for name, (_, kind) in state.items() if kind == "constant"]
        self._initial = {name: InitialValue(state[name][0]) for name in changing}
        attach_state(self, state)
        self._modules.update(attached(graph))
        self.graph = graph

    @property
    def graph(self) -> Graph:
        """The graph that the module runs."""
        graph: Graph = self.__dict__["_graph"]
        return graph

    @graph.setter
    def graph(self, graph: Graph) -> None:
        self.__dict__["_graph"] = graph  # where fx's own methods look, whatever state is called so
        graph.owning_module = self
        self.recompile()

    def __str__(self) -> str:
        taken = ", ".join(self.argument_names) or "no arguments"
        return f"{self!r}\n\n# takes {taken}; module.code is all of it as Python code"

    def recompile(self) -> Any:
        """Take an edit of the graph into account, when the module is next called or its code asked for."""
        self._entry = None
        self._text = None
        if self._is_traced:
            self._write_entry()
        return None

    @property
    def code(self) -> str:
        """The program as Python code."""
        text: str | None = self._text
        if text is None:
            text = self._text = self.graph.python_code(root_module="self").src
        return text

    @property
    def _code(self) -> str:
        return self.code  # fx's own methods look here

    def forward(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the program."""
        entry = self.__dict__["tintype._entry"]
        if entry is None:
            entry = self._compiled_entry
        return entry(*args, **kwargs)

    def _explain(self, error: Exception, args: Any, kwargs: Any) -> None:
        """Raise an error that says more than one of torch's that a call failed with, where there is more to say."""
        self._explain_missing_weights(error)
        self._explain_devices(error, args, kwargs)

    def _compiled_entry(self, /, *args: Any, **kwargs: Any) -> Any:
        """Compile the entry and call it."""
        self._write_entry()
        return self._entry(*args, **kwargs)

    def _write_entry(self) -> None:
        entry: Any = compile_entry(self)
        if self._is_traced:
            entry._torchdynamo_inline = compile_entry(self, is_traced=True)  # which dynamo looks at in its place
        self._entry = entry

    # a function that torch.compile compiles calls it as it is, and has the entry the next time
    _eval_frame.set_code_exec_strategy(_compiled_entry.__code__, _NOT_COMPILED)

    @property
    def _initialize_hook(self) -> None:
        """What torch.compile asks a module for before it looks at its code: so the entry is there by then, with one
        that it can follow. Only lazy modules have such a hook."""
        if self._entry is None or not self._is_traced:
            self._is_traced = True
            self._write_entry()
        raise AttributeError("_initialize_hook")

    def _explain_missing_weights(self, error: Exception) -> None:
        """Say so where a call failed for want of data: a model on the meta device has none."""
        if isinstance(error, TintypeError) or "meta" not in str(error):
            return
        without = [
            name for name, (value, _) in self._state().items() if isinstance(value, torch.Tensor) and value.is_meta
        ]
        if without:
            few = ", ".join(without[:3]) + (", ..." if len(without) > 3 else "")
            raise InvalidRequestError(
                f"{len(without)} parameters and buffers of the program have no data ({few}): they are on the meta "
                "device",
                remedy="tintype.attach_weights(program, weights) gives it some",
            ) from error

    def _explain_devices(self, error: Exception, args: Any, kwargs: Any) -> None:
        """Say so where a call failed because an input is not where the weights are."""
        if isinstance(error, TintypeError) or "device" not in str(error):
            return
        homes = {value.device for value, _ in self._state().values() if isinstance(value, torch.Tensor)}
        given = [(f"*args[{position}]", value) for position, value in enumerate(args)]
        for where, value in [*given, *((f"**kwargs[{name!r}]", value) for name, value in kwargs.items())]:
            if isinstance(value, torch.Tensor) and len(homes) == 1 and value.device not in homes:
                (home,) = homes
                raise InputMismatchError(
                    f"Expected input at {where}.device to be {home}, where the program's weights are, but got "
                    f"{value.device}",
                    remedy=f"move the input, .to({str(home)!r}), or the program: program.to({str(value.device)!r})",
                ) from error

    def _run_again(self, args: Any, kwargs: Any) -> Any:
        """Run the program with code that knows where state is now."""
        self._write_entry()
        return self._entry(*args, **kwargs)

    @UnlessModels
    def state(self) -> dict[str, torch.Tensor]:
        """The buffers, parameters and constants that calls change, by name, as they are now.

        A model may have something called ``state`` or ``reset``, which is then what ``module.state`` is;
        ``type(module).state(module)`` is always this.

        >>> import torch, tintype
        >>> class Counter(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.register_buffer("count", torch.zeros(()))
        ...
        ...     def forward(self, x):
        ...         self.count.add_(1)
        ...         return x + self.count
        >>> module = tintype.export(Counter(), (torch.zeros(1),)).module()
        >>> module(torch.zeros(1)), module(torch.zeros(1))
        (tensor([1.]), tensor([2.]))
        >>> module.state()
        {'count': tensor(2.)}
        >>> module.reset()
        >>> module(torch.zeros(1))
        tensor([1.])
        """
        return {name: attribute_of(self, name) for name in self._initial}

    @UnlessModels
    def reset(self) -> None:
        """Put everything that calls change back to what it was when the module was made."""
        put_back(self, self._initial, {node.args[0] for node in self.graph.nodes if node.target is replace_state})

    def train(self, mode: bool = True) -> Any:
        """Not supported: a program does what it did when it was exported."""
        raise FixedModeError("train")

    def eval(self) -> Any:
        """Not supported: a program does what it did when it was exported."""
        raise FixedModeError("eval")

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        self._own_parameters()
        # constants move with the module, though they are not part of its state
        for name in self._constants:
            owner, _, attribute = name.rpartition(".")
            attributes = table_of_constant(submodule_at(self, owner), attribute)
            if isinstance(attributes[attribute], torch.Tensor):
                attributes[attribute] = fn(attributes[attribute])
        self._entry = None  # it may know where state lies in memory
        super()._apply(fn, recurse)
        if self._is_traced:
            self._write_entry()
        return self

    def _own_parameters(self) -> None:
        """Conversions (``to``, ``double``, ...) change parameters where they are: from the first one on, the module
        has parameters of its own, so that the program and the user's model stay as they were."""
        if self._owns_parameters:
            return
        self._owns_parameters = True
        own: dict[torch.nn.Parameter, torch.nn.Parameter] = {}
        for module in self.modules():
            for name, parameter in module._parameters.items():
                if type(parameter) is not torch.nn.Parameter:
                    continue
                if parameter not in own:
                    own[parameter] = torch.nn.Parameter(parameter.detach(), parameter.requires_grad)
                    # another tensor, of the same memory: conversions change gradients where they are, too
                    own[parameter].grad = None if parameter.grad is None else parameter.grad.detach()
                module._parameters[name] = own[parameter]

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        refuse_pickle(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> ProgramModule:
        graph = copy_graph(self.graph)
        state = {name: (copy.deepcopy(value, memo), kind) for name, (value, kind) in self._state().items()}
        copied = ProgramModule(
            graph, state, self._in_spec, self._out_spec, self.argument_names, self._checks, self._returned
        )
        copied._initial = self._initial
        return copied

    def __copy__(self) -> ProgramModule:
        copied = ProgramModule(
            copy_graph(self.graph), self._state(), self._in_spec, self._out_spec, self.argument_names,
            self._checks, self._returned,
        )  # fmt: skip
        copied._initial = self._initial
        return copied

    def _state(self) -> dict[str, tuple[Any, str]]:
        state: dict[str, tuple[Any, str]] = {}
        for name, parameter in self.named_parameters(remove_duplicate=False):
            state[name] = (parameter, "parameter")
        persistent = set(self.state_dict())
        for name, buffer in self.named_buffers(remove_duplicate=False):
            state[name] = (buffer, "buffer" if name in persistent else "volatile")
        for name in self._constants:
            owner, _, attribute = name.rpartition(".")
            state[name] = (table_of_constant(submodule_at(self, owner), attribute)[attribute], "constant")
        return state

    def interpret(self, recorder: Recorder, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run node by node while a capture records: what is recorded keeps the nodes' origins."""
        given = leaves_of_call(self, args, kwargs)
        previous = recorder.replayed

        def line() -> tuple[str, int, str] | None:
            running = recorder.replayed
            if running is None or running is previous or running.origin is None:
                return None
            return running.origin.user_line()

        with replaying(line):
            self._checks.check(given, self._state_of)
            callers = callers_containers(self)
            containers = callers.of_call(args, kwargs) if callers.is_needed else []
            results = self._interpret(recorder, given)
            results = callers.put_into(containers, results)
            return assembled(results) if has_parts(self._out_spec) else results

    def _state_of(self, name: str) -> torch.Tensor:
        return attribute_of(self, name)

    def _interpret(self, recorder: Recorder, given: Sequence[Any]) -> Any:
        values: dict[Node, Any] = {}
        # A program for training writes to state as autograd sees it: what is read of the old value is a copy there.
        # Written to behind autograd's back is what is read by operators that save it, such as running statistics.
        copied: set[Any] = set()
        if recorder.is_for_training:
            copied = {node.args[0] for node in self.graph.nodes if node.target is write_untracked}

        def fetch(node: Node) -> Any:
            value = attribute_of(self, str(node.target))
            if node not in copied or not isinstance(value, torch.Tensor):
                return value
            recorder.replayed = node.meta if isinstance(node.meta, NodeMeta) else None
            return value.clone()

        def call(node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if node.target is write_untracked and node.args[0] in copied:
                state: Any = node.args[0]
                values[state] = attribute_of(self, str(state.target))
                args = (values[state], *args[1:])
            return run_node(self, node, args, kwargs)

        results = replay_graph(recorder, self.graph, given, call, fetch, values)
        return tree.unflatten(list(results), self._out_spec)


def leaves_of_call(module: ProgramModule, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The leaves of a call's arguments, in the order of the inputs of a program's graph."""
    checks = module._checks
    return flatten_call(args, kwargs, module._in_spec, module.argument_names, checks.ordered, calling=checks.calling)


def run_node(module: ProgramModule, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The value of one node of a program's graph."""
    if node.target is replace_state:
        owner, _, name = args[0].rpartition(".")
        submodule_at(module, owner)._buffers[name] = args[1]
        return None
    if node.op == "call_module":
        return module.get_submodule(str(node.target))(*args, **kwargs)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    return call_node(node, args, kwargs)


def put_back(module: torch.nn.Module, initial: Mapping[str, InitialValue], replaced: Collection[Any]) -> None:
    """Give state the values that it had, by name; calls write to it, or put new tensors in its place."""
    for name, value in initial.items():
        held = attribute_of(module, name)
        if name in replaced:  # what calls have put there may be somebody else's by now
            owner, _, attribute = name.rpartition(".")
            submodule_at(module, owner)._buffers[attribute] = value.like(held)
        else:
            value.write_to(held)


def refuse_pickle(value: Any) -> NoReturn:
    """A program is made of code and references to operators, which pickle would store in part."""
    raise InvalidRequestError(
        f"this {type(value).__name__} can't be pickled (torch.save, multiprocessing, ...)",
        remedy="store the program in a file, tintype.save(program, path), and load that where it is needed",
    )


def attach_state(module: torch.nn.Module, state: dict[str, tuple[Any, str]]) -> None:
    """Give a module tensors under dotted names; modules on the way are made."""
    for path, (value, kind) in state.items():
        owner_path, _, name = path.rpartition(".")
        owner = module
        for part in owner_path.split(".") if owner_path else ():
            child = owner._modules.get(part)
            if child is None:
                child = torch.nn.Module()
                owner._modules[part] = child
            owner = child
        if kind == "parameter":
            owner._parameters[name] = value
        elif kind == "constant":
            add_constant(owner, name, value)
        else:
            owner._buffers[name] = value
            if kind == "volatile":
                owner._non_persistent_buffers_set.add(name)
