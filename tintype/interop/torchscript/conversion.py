"""``from_torchscript``: a scripted or traced module as a program."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from tintype.errors import InvalidRequestError, StateChangedError, raise_all
from tintype.export import ExportedProgram, export
from tintype.interop.torchscript import containers as _containers  # noqa: F401  (they fill the table of statements)
from tintype.interop.torchscript import kept
from tintype.interop.torchscript import numbers as _numbers  # noqa: F401
from tintype.interop.torchscript import objects as _objects  # noqa: F401
from tintype.interop.torchscript import tensors as _tensors  # noqa: F401
from tintype.interop.torchscript.control_flow import ScriptRaisedError
from tintype.interop.torchscript.interpreter import Interpreter
from tintype.interop.torchscript.memory import refuse_written
from tintype.interop.torchscript.mirror import Mirror, is_kept_number, keep_number
from tintype.interop.torchscript.operators import UnsupportedStatementError
from tintype.interop.torchscript.reachable import reachable, unsupported
from tintype.interop.torchscript.reading import Procedure
from tintype.interop.torchscript.values import argument, result
from tintype.ir.process_switches import collector_paused

_REQUIRED = inspect.Parameter.empty


def from_torchscript(
    scripted: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:
    """A program that does what a scripted or traced module, function or method does.

    ``scripted`` is what ``torch.jit.script``, ``torch.jit.trace``, ``torch.jit.load`` or ``torch.jit.freeze`` return,
    or a method of it (``scripted.encode``). :func:`tintype.export` takes the same and calls this.

    Sizes that tracing made constants stay constants: a traced module is right at the sizes it was traced for, and a
    program made from it takes the sizes that ``dynamic_shapes`` says only where its graph still asks for them.

    >>> import torch, tintype
    >>> @torch.jit.script
    ... def total(x):
    ...     rows = []
    ...     for i in range(x.size(0)):
    ...         rows.append(x[i] * i)
    ...     return torch.stack(rows).sum(0)
    >>> shapes = {"x": {0: tintype.Dim("rows", min=1)}}
    >>> program = tintype.interop.from_torchscript(total, (torch.ones(3, 2),), dynamic_shapes=shapes)
    >>> program.module()(torch.ones(5, 2))
    tensor([10., 10.])
    """
    if not is_script(scripted):
        raise InvalidRequestError(
            f"from_torchscript takes a scripted or traced module, function or method, but got {scripted!r}",
            remedy="export Python modules and functions with tintype.export",
        )
    program: ExportedProgram = export(
        scripted,
        args,
        kwargs,
        dynamic_shapes=dynamic_shapes,
        prefer_deferred_runtime_asserts_over_guards=prefer_deferred_runtime_asserts_over_guards,
    )
    return program


def is_script(value: Any) -> bool:
    """Whether something is TorchScript."""
    return isinstance(value, (torch.jit.ScriptModule, torch.jit.ScriptFunction, torch._C.ScriptMethod))


def as_captured(scripted: Any) -> torch.nn.Module:
    """A module of Python that runs a script, for a capture."""
    with collector_paused():
        return _as_captured(scripted)


def _as_captured(scripted: Any) -> torch.nn.Module:
    interpreter = Interpreter()
    if isinstance(scripted, torch.jit.ScriptFunction):
        root: torch.nn.Module = _FunctionRoot()
        function: Any = scripted
        entry = Entry(interpreter, [(Procedure(function.graph, function.name), function.schema.arguments)], None)
    else:
        is_method = isinstance(scripted, torch._C.ScriptMethod)
        interpreter.root = root = mirror = interpreter.mirroring.of(scripted.owner if is_method else scripted._c)
        entry = Entry.of_method(interpreter, mirror, scripted.name if is_method else "forward", is_call=not is_method)
        entry.keep_written()
    root.__dict__["forward"] = entry.function()
    return root


def _forward_methods(mirror: Mirror) -> list[str]:
    """``forward``, or its overloads: recurrent layers have one for packed sequences."""
    if mirror.script._has_method("forward"):
        return ["forward"]
    names = sorted(name for name in mirror.script._method_names() if name.startswith("forward__"))
    if not names:
        raise InvalidRequestError(
            "the script has no method forward",
            remedy="export one of its methods: tintype.export(scripted.method, args)",
        )
    return names


class _FunctionRoot(torch.nn.Module):
    """A scripted function, which has no state."""


class Entry:
    """A call of a script from outside: arguments come in, state is written back, results go out."""

    def __init__(
        self, interpreter: Interpreter, overloads: list[tuple[Procedure, list[Any]]], mirror: Mirror | None
    ) -> None:
        self.interpreter = interpreter
        # what may be called, each with its arguments: the first that takes what it is given
        self.overloads = overloads
        self.mirror = mirror
        self.procedure, self.arguments = overloads[0]
        # what was scripted with a module as its hooks; those of modules inside are calls in the graph
        self.before: list[Procedure] = []
        self.after: list[Procedure] = []

    @classmethod
    def of_method(cls, interpreter: Interpreter, mirror: Mirror, name: str, *, is_call: bool) -> Entry:
        """A method of a module; with ``is_call`` what calling the module runs."""
        names = _forward_methods(mirror) if is_call else [name]
        script = mirror.script
        overloads = [(mirror.method(each), script._get_method(each).schema.arguments[1:]) for each in names]
        entry = cls(interpreter, overloads, mirror)
        if is_call:
            entry.take_hooks()
        return entry

    def signature(self) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature(
            [
                inspect.Parameter(
                    given.name, kind, default=given.default_value if given.has_default_value() else _REQUIRED
                )
                for given in self.arguments
            ]
        )

    def function(self) -> Callable[..., Any]:
        """What is captured."""

        def forward(*args: Any, **kwargs: Any) -> Any:
            return self.interpreter.run(lambda: self._call(args, kwargs))

        forward.__signature__ = self.signature()  # type: ignore[attr-defined]
        return forward

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        interpreter = self.interpreter
        values = self._values(args, kwargs)
        interpreter.given = values
        for mirror in interpreter.mirroring.mirrors.values():
            for name in (*mirror.numbers, *mirror.kept):  # here, where it can be used in every branch
                interpreter.attributes_of(mirror).get(name)
        try:
            given = self._run(values)
        except ScriptRaisedError as error:
            raise torch.jit.Error(error.message) from None  # what the script itself raises
        except UnsupportedStatementError:
            raise_all(unsupported(interpreter, self.procedure, self.mirror))
            raise
        self._write_state()
        refuse_written(interpreter)
        return result(given)

    def _run(self, values: list[Any]) -> Any:
        run = self.interpreter.run_procedure
        if self.mirror is None:
            return run(self.procedure, values)
        if not self.before and not self.after:
            return run(self.procedure, [self.mirror, *values])
        self.interpreter.depth += 1  # none of these is the last to look at a list or an object
        for hook in self.before:
            replaced = run(hook, [self.mirror, tuple(values)])
            if replaced is not None:
                values = list(replaced) if isinstance(replaced, tuple) else [replaced]
        given = run(self.procedure, [self.mirror, *values])
        for hook in self.after:
            replaced = run(hook, [self.mirror, tuple(values), given])
            given = given if replaced is None else replaced
        return given

    def take_hooks(self) -> None:
        """Hooks run when a module is called, and not when its method ``forward`` is."""
        assert self.mirror is not None
        script = self.mirror.script
        self.before = [Procedure(hook.graph, hook.name) for hook in script._get_forward_pre_hooks()]
        self.after = [Procedure(hook.graph, hook.name) for hook in script._get_forward_hooks()]

    def _values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The arguments as values of the script, for the first overload that takes them."""
        for overload in self.overloads:
            self.procedure, self.arguments = overload
            is_last = overload is self.overloads[-1]
            try:
                bound = self.signature().bind(*args, **kwargs)
                bound.apply_defaults()
                heap = self.interpreter.heap
                return [argument(bound.arguments[a.name], a.type, heap, a.name) for a in self.arguments]
            except TypeError as error:
                if is_last:
                    raise InvalidRequestError(f"the script can't be called with these arguments: {error}") from None
            except InvalidRequestError:
                if is_last:
                    raise
        raise AssertionError("a script without a method")

    # --- state -----------------------------------------------------------------------------------------------

    def keep_written(self) -> None:
        """Let numbers be buffers that the script writes to, and the items of lists and dictionaries."""
        procedures = [*(procedure for procedure, _ in self.overloads), *self.before, *self.after]
        statements = [
            found
            for procedure in procedures
            for found in reachable(self.interpreter, procedure, self.mirror, functions=False)
        ]
        mirrors = self.interpreter.mirroring.mirrors.values()
        registered = {id(t) for m in mirrors for table in (m._parameters, m._buffers) for t in table.values()}
        for subject, name in kept.changed_containers(statements):
            if name in subject.numbers or name in subject._buffers or name in subject._parameters:
                continue
            if name in subject._modules or not subject.script.hasattr(name):
                continue
            value = subject.script.getattr(name)
            if is_kept_number(value):
                keep_number(subject, name, value)
            else:
                kept.keep_container(subject, name, registered)

    def _write_state(self) -> None:
        """What the script has assigned to attributes of modules, which lasts to its next call."""
        interpreter = self.interpreter
        for mirror, instance in interpreter.attributes.values():
            for name in mirror.kept:
                kept.write(mirror, name, interpreter.kept_items[id(mirror), name], instance.get(name))
        lost: list[Any] = []
        for mirror, instance in interpreter.attributes.values():
            for name, value in instance.content.items():
                before = interpreter.loaded.get((id(mirror), name))
                if value is before or name in mirror.kept:
                    continue
                if name in mirror.numbers:
                    buffer = mirror.numbers[name]
                    buffer.copy_(torch.scalar_tensor(value, dtype=buffer.dtype, device=buffer.device))
                elif name in mirror._buffers and isinstance(value, torch.Tensor):
                    mirror._buffers[name] = value
                elif name in mirror._parameters:
                    mirror._parameters[name] = value
                elif (id(mirror), name) not in interpreter.set_anew:
                    lost.append(_lost_state(interpreter, mirror, name))
        raise_all(lost)


def _lost_state(interpreter: Interpreter, mirror: Mirror, name: str) -> StateChangedError:
    return StateChangedError(
        f"the script assigns to the attribute {name!r} of {type(mirror).__name__}, which is neither a tensor nor a "
        "number when it begins, and its next call would find that there",
        remedy="keep tensors and numbers in attributes; pass what changes as an argument and return it",
    )
