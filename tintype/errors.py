"""Every error a user of tintype can see.

An error states a fact, the line of the user's program it comes from, and what to do about it. Each class
has a stable ``id`` that documentation and tests refer to; messages may get better, ids stay. Every id has a page in
``error_pages/``, which ``tintype explain ID`` shows.

Two families are kept apart: :class:`CaptureError` says that tintype could not capture a program, while
an exception that the user's own program raises passes through unchanged.
"""

from __future__ import annotations

import linecache
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Location:
    """A line of the user's program.

    >>> print(Location("model.py", 12, "forward"))
    model.py:12 in forward
    """

    filename: str
    line: int
    function: str

    # the text of the line where it came from a file with a program; None: it is in the source file
    code: str | None = None

    def __str__(self) -> str:
        return f"{self.filename}:{self.line} in {self.function}"

    def source_line(self) -> str:
        """The text of the line; empty where the file can't be read.

        A program that was loaded from a file brings the text along: its file names are those of another machine,
        and what it names here is none of its business.
        """
        if self.code is not None:
            return self.code
        return linecache.getline(self.filename, self.line).strip()


_noted = threading.local()


def noting(errors: list[BaseException] | None) -> list[BaseException] | None:
    """Where this thread is to note exceptions of tintype's own when they are made; gives where it did until now."""
    before: list[BaseException] | None = getattr(_noted, "errors", None)
    _noted.errors = errors
    return before


def note(error: BaseException) -> None:
    """Note an exception, if this thread does so."""
    if (errors := getattr(_noted, "errors", None)) is not None:
        errors.append(error)


class TintypeError(Exception):
    """Base of all errors of tintype: a fact, where it arose, and a remedy.

    >>> error = TintypeError("x is too big", remedy="make x smaller")
    >>> print(error)
    x is too big
      What to do: make x smaller
    """

    id = "error"

    def __init__(self, fact: str, *, location: Location | None = None, remedy: str | None = None) -> None:
        self.fact = fact
        self.location = location
        self.remedy = remedy
        super().__init__(fact)
        self.add_note(f"  More: tintype explain {self.id}")  # a traceback ends with it
        note(self)

    def __str__(self) -> str:
        lines = [self.fact]
        if self.location is not None:
            text = self.location.source_line()
            lines.append(f"  At: {self.location}{f': {text}' if text else ''}")
        if self.remedy is not None:
            lines.append(f"  What to do: {self.remedy}")
        return "\n".join(lines)


class InvalidRequestError(TintypeError, ValueError):
    """A call of tintype's own API that can't be carried out: wrong options or wrong types.

    >>> import torch, tintype
    >>> try:
    ...     tintype.export(torch.nn.ReLU(), torch.ones(2))
    ... except tintype.InvalidRequestError as error:
    ...     print(error.id)
    invalid-request
    """

    id = "invalid-request"


class CaptureError(TintypeError, RuntimeError):
    """The program uses something that can't be captured.

    >>> import torch, tintype
    >>> try:
    ...     tintype.export(lambda x: x * x.numpy().sum(), (torch.ones(2),))
    ... except CaptureError as error:
    ...     print(error.id)
    data-dependent
    """

    id = "capture"


class BackendError(TintypeError, RuntimeError):
    """A backend could not compile a graph of a compiled function.

    >>> import tintype
    >>> tintype.BackendError.id
    'backend'
    """

    id = "backend"


class RecompileError(TintypeError, RuntimeError):
    """A compiled function would be captured in the stance "fail_on_recompile".

    >>> import torch, tintype
    >>> with tintype.set_stance("fail_on_recompile"):
    ...     tintype.compile(torch.sin)(torch.ones(2))
    Traceback (most recent call last):
    tintype.errors.RecompileError: 'sin' would be captured now
    ...
    """

    id = "recompile"


class RecompileWarning(UserWarning):
    """A compiled function needs a capture so often that captures would take a large share of its time, so calls that
    no capture fits run eagerly. The warning names what was different, and what helps.

    >>> import warnings, torch, tintype
    >>> scaled = tintype.compile(lambda x, name: x * len(name))
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     for name in "abcdefghijkl":
    ...         y = scaled(torch.ones(2), name)
    >>> [warning.category.id for warning in caught]
    ['recompile-budget']
    """

    id = "recompile-budget"


class StaleRunsWarning(UserWarning):
    """Runs of a compiled function that were loaded from a file rest on code or versions that have changed, and are
    left out: such calls are captured again. The warning says what has changed.

    >>> import tintype
    >>> tintype.StaleRunsWarning.id
    'stale-runs'
    """

    id = "stale-runs"


class UnsupportedOperatorError(CaptureError):
    """An operator whose result can't be known without running it.

    >>> import torch, tintype
    >>> @torch.library.custom_op("tintype_examples::unknown", mutates_args=())
    ... def unknown(x: torch.Tensor) -> torch.Tensor:
    ...     return x[x > 0].clone()
    >>> try:
    ...     tintype.export(lambda x: unknown(x), (torch.ones(2),))
    ... except tintype.UnsupportedOperatorError as error:
    ...     print(error.id)
    unsupported-operator
    """

    id = "unsupported-operator"


class UnsupportedInputError(CaptureError):
    """An input, parameter or constant of a kind that can't be captured (quantized tensors, unknown objects).

    >>> import torch, tintype
    >>> try:
    ...     tintype.export(torch.nn.ReLU(), (object(),))
    ... except tintype.UnsupportedInputError as error:
    ...     print(error.id)
    unsupported-input
    """

    id = "unsupported-input"


class TensorWithoutDataError(CaptureError):
    """Something was computed with a tensor of a capture outside of it.

    >>> import torch, tintype
    >>> program = tintype.export(torch.nn.ReLU(), (torch.ones(2),))
    >>> value = next(iter(program.graph.nodes)).meta["val"]
    >>> try:
    ...     value + 1
    ... except tintype.TensorWithoutDataError as error:
    ...     print(error.id)
    tensor-without-data
    """

    id = "tensor-without-data"


class DataDependentError(CaptureError):
    """The program's own control flow depends on a value that is only known when the program runs.

    >>> import torch, tintype
    >>> try:
    ...     tintype.export(lambda x: x * x.numpy().sum(), (torch.ones(2),))
    ... except tintype.DataDependentError as error:
    ...     print(error.id)
    data-dependent

    ``condition`` is what it asked, where that is an expression.
    """

    id = "data-dependent"

    def __init__(self, fact: str, *, condition: Any = None, **options: Any) -> None:
        super().__init__(fact, **options)
        self.condition = condition


class MutationError(CaptureError):
    """A mutation that has no functional form.

    >>> import torch, tintype
    >>> try:
    ...     tintype.export(lambda x, y: x.set_(y), (torch.ones(2), torch.ones(2)))
    ... except tintype.MutationError as error:
    ...     print(error.id)
    mutation
    """

    id = "mutation"


class BranchMismatchError(CaptureError):
    """The functions that a control-flow operator takes don't return what they have to.

    >>> import torch, tintype
    >>> try:
    ...     tintype.export(lambda x: tintype.cond(x.sum() > 0, lambda: x, lambda: x.int()), (torch.ones(2),))
    ... except BranchMismatchError as error:
    ...     print(error.fact)
    the branches of cond return different values:
      true_fn:  f32[2] on cpu
      false_fn: i32[2] on cpu
    """

    id = "branch-mismatch"


class BackwardRefusedError(CaptureError):
    """Autograd can't compute the gradients of a function; eager mode may get by without those that fail.

    >>> import torch, tintype
    >>> x = torch.ones(2, requires_grad=True)
    >>> result = tintype.aot.function(lambda x: x.exp().mul_(2))(x)
    >>> try:
    ...     result.sum().backward()
    ... except tintype.TintypeError as error:
    ...     print(error.id)
    backward-refused
    """

    id = "backward-refused"


class LostStateWarning(UserWarning):
    """The model keeps something in plain attributes that makes its second call differ from the first one. A captured
    program only has buffers, and does what the first call did. The warning names each attribute with its line.

    >>> import warnings, torch, tintype
    >>> class Counting(torch.nn.Module):
    ...     calls = 0
    ...
    ...     def forward(self, x):
    ...         self.calls += 1
    ...         return x * self.calls
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     program = tintype.export(Counting(), (torch.ones(2),))
    >>> [warning.category.id for warning in caught]
    ['lost-state']
    """

    id = "lost-state"


class LostEffectWarning(LostStateWarning):
    """Under ``strict=True``: the model does something in a call besides computing, and its program does not do it: it
    writes to a global, prints, reads a clock. The warning names everything that was seen, with its line.

    >>> import warnings, torch, tintype
    >>> seen = []
    >>> def noting(x):
    ...     seen.append("called")
    ...     return x + 1
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     program = tintype.export(noting, (torch.ones(2),), strict=True)
    >>> [warning.category.id for warning in caught]
    ['lost-effect']
    """

    id = "lost-effect"


class LostGradientWarning(UserWarning):
    """A captured program computes gradients by its operators alone: the ``backward`` of a ``torch.autograd.Function``
    and hooks on gradients are not part of it. The warning names each of them with its line.

    >>> import warnings, torch, tintype
    >>> class Reversed(torch.autograd.Function):
    ...     __module__ = "models"
    ...
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x.view_as(x)
    ...     @staticmethod
    ...     def backward(ctx, gradient):
    ...         return -gradient
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     program = tintype.export(lambda x: Reversed.apply(x) * 2, (torch.ones(2),))
    >>> [warning.category.id for warning in caught]
    ['lost-gradient']
    """

    id = "lost-gradient"


class TrainingModeWarning(UserWarning):
    """A program has dropout or batch norm as in training: each of its calls drops other elements, or depends on the
    other examples of its batch and changes statistics. The warning names the modules and lines.

    >>> import warnings, torch, tintype
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     program = tintype.export(torch.nn.Dropout(0.5), (torch.ones(2),))
    >>> [warning.category.id for warning in caught]
    ['training-mode']
    """

    id = "training-mode"


class RefusedSizesWarning(UserWarning):
    """A program refuses sizes that ``dynamic_shapes`` promises, since the model fails for them too. The warning names
    what the program needs of its sizes, with the lines.

    >>> import warnings, torch, tintype
    >>> def model(x):
    ...     return torch.nn.functional.pad(x, (3, 3), mode="reflect")
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     program = tintype.export(model, (torch.ones(1, 5),), dynamic_shapes={"x": {1: tintype.Dim("n")}})
    >>> [warning.category.id for warning in caught]
    ['refused-sizes']
    """

    id = "refused-sizes"


class WrongFakeWarning(UserWarning):
    """The fake kernel of a custom operator says something else of its results than the operator gives. The warning
    names the operator, both, and the line that calls it.

    >>> import warnings, torch, tintype
    >>> @torch.library.custom_op("tintype_examples::halves", mutates_args=())
    ... def halves(x: torch.Tensor) -> torch.Tensor:
    ...     return x[::2].clone()
    >>> _ = halves.register_fake(lambda x: torch.empty_like(x))
    >>> module = tintype.export(lambda x: halves(x), (torch.ones(4),)).module()
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     result = module(torch.ones(4))
    >>> [warning.category.id for warning in caught]
    ['wrong-fake']
    """

    id = "wrong-fake"


class StateChangedError(CaptureError):
    """The program assigned a tensor to an attribute that is not a registered buffer.

    >>> import torch, tintype
    >>> class Caching(torch.nn.Module):
    ...     last = torch.zeros(2)
    ...
    ...     def forward(self, x):
    ...         result, self.last = x + self.last, x
    ...         return result
    >>> try:
    ...     tintype.export(Caching(), (torch.ones(2),))
    ... except tintype.StateChangedError as error:
    ...     print(error.id)
    state-changed
    """

    id = "state-changed"


class ConstraintViolationError(TintypeError):
    """The program does not work for all sizes that ``dynamic_shapes`` promises.

    ``suggested_fixes`` are the definitions that would make it work, by name; ``suggested`` is a whole
    ``dynamic_shapes`` with the fixes applied.

    >>> import torch, tintype
    >>> dim = tintype.Dim("dim", max=8)
    >>> try:
    ...     tintype.export(lambda x: x.reshape(2, -1), (torch.ones(4),), dynamic_shapes={"x": {0: dim}})
    ... except ConstraintViolationError as error:
    ...     print(error.suggested_fixes["dim"])
    2*_dim
    """

    id = "constraint-violation"

    def __init__(
        self, fact: str, *, suggested_fixes: Mapping[str, Any] | None = None, remedy: str | None = None
    ) -> None:
        super().__init__(fact, remedy=remedy)
        self.suggested_fixes = dict(suggested_fixes or {})
        self.suggested: Any = None


class InputStructureError(TintypeError, ValueError):
    """An exported program was called with inputs of another structure than it was exported with.

    >>> import torch, tintype
    >>> program = tintype.export(lambda x, y: x + y, (torch.ones(2), torch.ones(2)))
    >>> try:
    ...     program.module()(torch.ones(2))
    ... except InputStructureError as error:
    ...     print(error.fact.splitlines()[-1].strip())
    y is missing
    """

    id = "input-structure"


class InputMismatchError(TintypeError, RuntimeError):
    """An exported program was called with an input that it was not exported for.

    >>> import torch, tintype
    >>> program = tintype.export(torch.nn.ReLU(), (torch.ones(2),))
    >>> try:
    ...     program.module()(torch.ones(3))
    ... except InputMismatchError as error:
    ...     print(error.fact)
    Expected input at *args[0].shape[0] to be equal to 2, but got 3
    """

    id = "input-mismatch"


class RuntimeAssertionError(TintypeError, RuntimeError):
    """Something that a program rests on does not hold in this call: of its sizes, or of numbers in its data.

    >>> import torch, tintype
    >>> def repeated(x):
    ...     count = int(x.sum())
    ...     torch._check(count < 5)
    ...     return torch.ones(count)
    >>> program = tintype.export(repeated, (torch.ones(2),))
    >>> try:
    ...     program.module()(torch.ones(7))
    ... except tintype.TintypeError as error:
    ...     print(error.id)
    input-mismatch
    >>> try:
    ...     program.module()(torch.tensor([7.0, 0.0]))
    ... except RuntimeAssertionError as error:
    ...     print(error.id)
    runtime-assertion
    """

    id = "runtime-assertion"


class VerificationError(TintypeError):
    """A program breaks the rules of its stage. It was edited into an invalid state, or tintype has a bug.

    >>> import torch, tintype
    >>> program = tintype.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
    >>> del program.state_dict["bias"]
    >>> try:
    ...     program.validate()
    ... except tintype.VerificationError as error:
    ...     print(error.id)
    verification
    """

    id = "verification"


class UnsavableError(TintypeError, ValueError):
    """A program has something in it that its file format has no place for.

    >>> import io, torch, tintype
    >>> ep = tintype.export(torch.nn.ReLU(), (torch.ones(2),))
    >>> ep.constants["thing"] = object()
    >>> try:
    ...     tintype.save(ep, io.BytesIO())
    ... except UnsavableError as error:
    ...     print(error.fact)
    thing is an object of object, which a file can't hold
    """

    id = "unsavable"


class FileFormatError(TintypeError, ValueError):
    """A file that is no program of tintype's, or a damaged one. Nothing of it was taken in.

    >>> import io, tintype
    >>> try:
    ...     tintype.load(io.BytesIO(b"something else"))
    ... except FileFormatError as error:
    ...     print(error.id)
    file-format
    """

    id = "file-format"


class FileVersionError(FileFormatError):
    """A file that a newer tintype wrote and this one can't read.

    >>> import tintype
    >>> issubclass(tintype.FileVersionError, tintype.FileFormatError)
    True
    """

    id = "file-version"


class CaptureReport(CaptureError):
    """Several problems of one program, reported together.

    >>> print(CaptureReport([CaptureError("first"), CaptureError("second")]))
    2 problems stand in the way of capturing this program:
    1. [capture] first
    2. [capture] second
    """

    id = "report"

    def __init__(self, problems: Sequence[TintypeError]) -> None:
        self.problems = tuple(problems)
        super().__init__(f"{len(self.problems)} problems stand in the way of capturing this program")

    def __str__(self) -> str:
        listed = [f"{n}. [{p.id}] {p}" for n, p in enumerate(self.problems, 1)]
        return "\n".join([f"{self.fact}:", *listed])


def raise_all(problems: Sequence[TintypeError]) -> None:
    """Raise what was found: nothing, the one problem as it is, or a report of all of them."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise _report_class(problems)(problems)


def _report_class(problems: Sequence[TintypeError]) -> type[CaptureReport]:
    """The class of a report; where all problems are of one kind, it is of that kind, too, so that who expects that
    error need not know how many there are."""
    common = [cls for cls in type(problems[0]).__mro__ if all(isinstance(problem, cls) for problem in problems)]
    kind = next((cls for cls in common if cls.__module__ == __name__), CaptureError)
    if not issubclass(kind, CaptureError) or issubclass(CaptureReport, kind) or issubclass(kind, CaptureReport):
        return CaptureReport
    return type("CaptureReport", (CaptureReport, kind), {"__doc__": CaptureReport.__doc__, "__module__": __name__})
