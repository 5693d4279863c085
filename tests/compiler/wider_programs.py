"""Random programs for ``tintype.compile`` of what users write: see :mod:`tests.compiler.wider_changes`.

python -m tests.compiler.wider_programs --count 500 [--seed 0] [--backend eager] [--beside] [--only SEED]

Each program is called six times, and between calls its surroundings change. Everything that can be seen is held
against eager mode: results, which of them share memory with what, gradients, all objects of the program's module,
what is printed, logged and warned of, modes, and the random numbers that come after. With ``--beside`` another thread
calls and captures compiled functions meanwhile.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import enum
import functools
import io
import itertools
import logging
import random
import re
import sys
import threading
import types
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

import tintype
from tests.compiler.wider_changes import BETWEEN, FAMILIES, RUN_EAGERLY, USED_BY
from tests.compiler.wider_head import HEAD

CALLS = 6
_PLAIN = (int, float, complex, bool, str, bytes, type(None), range, slice, torch.dtype, torch.device, enum.Enum)
# of the wrapping line, indented; and what makes the new name where the block is not run
BLOCKS = [
    "if {x}.sum() > 0:",
    "if G > 2:",
    "if flag:",
    "for _ in range({k}):",
    "with torch.no_grad():",
    "with rate_of({k}):",
    "for {y} in ({x}, {y}):",
    "if {x}.shape[0] > 2:",
    "with torch.set_grad_enabled(flag):",
]


class Writer:
    """Writes one program: a function, and what happens between its calls."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.tensors = ["a", "b"]
        self.lines: list[str] = []

    def statement(self, depth: int = 1) -> None:
        choose = self.choose
        name = f"t{len(self.lines)}"
        names = {"x": choose.choice(self.tensors), "y": choose.choice(self.tensors), "k": choose.randint(1, 4)}
        line = choose.choice(choose.choice(FAMILIES))
        while choose.random() < 0.9 and any(word in line for word in RUN_EAGERLY):
            line = choose.choice(choose.choice(FAMILIES))
        text = line.format(t=name, **names)
        if choose.random() < 0.2:
            block = choose.choice(BLOCKS).format(**names)
            text = f"{name} = {names['x']}\n{block}\n" + "\n".join("    " + line for line in text.split("\n"))
        elif choose.random() < 0.1:
            text = f"{name} = {names['x']}\ntry:\n" + "\n".join("    " + line for line in text.split("\n"))
            text += "\nexcept Exception as error:\n    LOG.append(type(error).__name__)"
        self.lines += ["    " * depth + line for line in text.split("\n")]
        self.tensors.append(name)

    def write(self) -> str:
        self.lines.append("def program(a, b, n, flag=True, *rest, **named):")
        self.lines.append("    global G, FLAG, TABLE, V, NAMES")
        for _ in range(self.choose.randint(2, 8)):
            self.statement()
        one, other = self.tensors[-1], self.choose.choice(self.tensors)
        results = [f"{one}", f"({one}, [{other}])", f"{{'x': {one}, 'y': {other}, 'a': a}}", f"Pair({one}, {other})"]
        results += [f"Point({one}, G)", f"({one}, n, flag)", f"[{one}, {other}.detach(), {one}.shape]"]
        self.lines.append("    return " + self.choose.choice(results))
        return "\n".join(self.lines) + "\n"

    def between(self) -> list[list[str]]:
        """What happens before each call: mostly to what the program uses."""
        used = set(re.findall(r"[A-Za-z_]+", " ".join(self.lines)))
        used |= {"Config", "Small"} & used or ({"Config", "Small"} if "CONF" in used else set())
        used |= {name for user, names in USED_BY.items() if user in used for name in names}
        near = [change for change in BETWEEN if used & set(re.findall(r"[A-Za-z_]+", change)[:2])] or BETWEEN
        counts = [self.choose.choice([0, 1, 1, 2]) for _ in range(CALLS)]
        return [
            [self.choose.choice(near if self.choose.random() < 0.8 else BETWEEN) for _ in range(count)]
            for count in counts
        ]


HELPERS = """
import tintype
@tintype.compile
def compiled_helper(x, k):
    return x.cos() * k if k > 1 else x + G

@tintype.compile.disable
def disabled_helper(x, k):
    return x * k + G
"""


_HEAD = compile(HEAD + HELPERS, "<head>", "exec", dont_inherit=True)


def module_of(source: str) -> types.ModuleType:
    module = sys.modules["a_program"] = types.ModuleType("a_program")  # dataclasses look for it there
    for code in (_HEAD, compile(source, "<a program>", "exec", dont_inherit=True)):
        exec(code, module.__dict__)
    return module


def inputs(seed: int, call: int) -> tuple[Any, ...]:
    """The tensors of one call: sizes, layouts and dtypes that change."""
    choose = random.Random(seed * 31 + call)
    generator = torch.Generator().manual_seed(seed * 10 + call)
    rows = random.Random(seed).choice([1, 2, 3]) if choose.random() < 0.6 else choose.choice([1, 2, 3, 5])
    dtype = torch.float32 if choose.random() < 0.85 else torch.float64
    kind = choose.choice(["rows", "rows", "row", "turned", "strided", "expanded"])
    a = torch.randn(rows, 4, generator=generator, dtype=dtype)
    if kind == "row":
        a = a[0].clone()
    elif kind == "turned":
        a = torch.randn(4, rows, generator=generator, dtype=dtype).t()
    elif kind == "strided":
        a = torch.randn(rows, 8, generator=generator, dtype=dtype)[:, ::2]
    elif kind == "expanded":
        a = torch.randn(4, generator=generator, dtype=dtype).expand(rows, 4)
    b = torch.randn(4, generator=generator)
    n = torch.zeros(3)
    if choose.random() < 0.15:
        b = a
    elif choose.random() < 0.15:
        b = a[0] if a.dim() == 2 else a[:4]
    a = a.requires_grad_() if choose.random() < 0.4 else a
    if choose.random() < 0.3 and b.is_leaf:
        b.requires_grad_()
    if choose.random() < 0.1 and not b.requires_grad:
        n = b[:3]
    return a, b, n


class Shown:
    """What can be seen of values: plain data in which one object is a number the second time."""

    def __init__(self, is_exact: bool) -> None:
        self.seen: dict[int, int] = {}
        self.memory: dict[int, int] = {}
        self.kept: list[Any] = []
        self.is_exact = is_exact

    def of(self, value: Any) -> Any:
        kind = type(value)
        if kind in (int, bool, str, types.NoneType):
            return value if kind is not int else (kind, value)
        if isinstance(value, (*_PLAIN, types.ModuleType, types.BuiltinFunctionType, torch.Size)):
            return (kind.__name__, str(value))
        if id(value) in self.seen:
            return f"object {self.seen[id(value)]}"
        self.seen[id(value)] = len(self.seen)
        self.kept.append(value)
        return self._of_new(value, kind)

    def _of_new(self, value: Any, kind: type) -> Any:
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, np.ndarray):
            return ("array", str(value.dtype), value.tolist())
        if isinstance(value, np.random.Generator):
            return str(value.bit_generator.state)
        if isinstance(value, torch.Generator):
            return value.get_state().tolist()[:40]
        if isinstance(value, dict):
            names = enumerate(value) if kind is collections.OrderedDict else ((key, key) for key in value)  # of hooks
            items = [(self.of(name), self.of(value[key])) for name, key in names]
            own = self.of(vars(value)) if hasattr(value, "__dict__") else None
            return (kind.__name__, items, own)
        if isinstance(value, (set, frozenset)):
            return (kind.__name__, sorted(repr(item) for item in value))
        if isinstance(value, (list, tuple, collections.deque)):
            return (kind.__name__, [self.of(item) for item in value])
        if isinstance(value, functools.partial):
            return ("partial", self.of(value.func), self.of(value.args), self.of(value.keywords))
        if isinstance(value, functools._lru_cache_wrapper):
            return value.cache_info().currsize
        if isinstance(value, types.FunctionType):
            return self.function(value)
        if isinstance(value, (itertools.count, np.generic, contextlib.ExitStack)):
            return repr(value)
        if isinstance(value, types.MethodType):
            return ("method", value.__func__.__qualname__, self.of(value.__self__))
        if isinstance(value, type):
            return ("class", value.__name__, self.own(value) if value.__module__ == "a_program" else None)
        if isinstance(value, BaseException):
            return ("error", kind.__name__, [self.of(item) for item in value.args])
        return (kind.__name__.removeprefix("Compiled"), self.state(value))

    def state(self, value: Any) -> Any:
        slots = [name for base in type(value).__mro__ for name in getattr(base, "__slots__", ()) if name[:2] != "__"]
        found = {name: getattr(value, name) for name in slots if isinstance(slots, list) and hasattr(value, name)}
        return self.of({**getattr(value, "__dict__", {}), **found})

    def own(self, kind: type) -> Any:
        return [
            (name, self.of(value))
            for name, value in vars(kind).items()
            if name[:2] != "__" and name[:5] != "_abc_"
            if not isinstance(value, (staticmethod, classmethod, property))
        ]

    def function(self, function: Any) -> Any:
        cells = [cell.cell_contents if _is_full(cell) else "empty" for cell in function.__closure__ or ()]
        if function.__module__ != "a_program" or hasattr(function, "engine"):
            return ("function", function.__qualname__)
        parts = (function.__defaults__, function.__kwdefaults__, cells, vars(function))
        return ("function", function.__qualname__, [self.of(part) for part in parts])

    def tensor(self, value: torch.Tensor) -> Any:
        kind, plain = type(value), value.detach().as_subclass(torch.Tensor)
        if value.is_meta:
            return (kind.__name__, "meta", value.dtype, list(value.shape))
        memory = self.memory.setdefault(plain.untyped_storage()._cdata, len(self.memory))
        self.kept.append(plain.untyped_storage())
        strides = [step for size, step in zip(value.shape, value.stride()) if size > 1] if value.numel() else None
        grad = value.grad if value.is_leaf or value.retains_grad else None
        history = (value.requires_grad, value.is_leaf, value.is_inference(), value.grad_fn is None)
        values = Values(plain.clone(), self.is_exact)
        return (kind.__name__, memory, strides, value.storage_offset(), history, values, self.of(grad))


def _is_full(cell: Any) -> bool:
    try:
        cell.cell_contents
    except ValueError:
        return False
    return True


@dataclasses.dataclass
class Values:
    """The data of a tensor."""

    data: torch.Tensor
    is_exact: bool

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Values) or self.data.dtype != other.data.dtype:
            return False
        if self.data.shape != other.data.shape:
            return False
        if self.is_exact or not self.data.is_floating_point():
            return torch.equal(self.data.nan_to_num(7.5), other.data.nan_to_num(7.5))
        return torch.allclose(self.data, other.data, rtol=1e-4, atol=1e-5, equal_nan=True)


class Records(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(0)
        self.found: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append((record.levelname, record.getMessage(), record.lineno, record.funcName))


def outcome(module: Any, function: Any, seed: int, call: int, is_exact: bool) -> dict[str, Any]:
    """Everything that can be seen of a call."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    given = inputs(seed, call)
    printed, records = io.StringIO(), Records()
    module.log.addHandler(records)
    module.log.propagate = False
    with contextlib.redirect_stdout(printed), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = function(*given, call % 2 == 0, **({"more": 1} if call == 3 else {}))
        except Exception as error:
            result = error
    module.log.removeHandler(records)
    modes = (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype())
    modes = (*modes, torch.is_autocast_enabled("cpu"))
    drawn = (float(torch.rand(1)), random.random(), np.random.rand())
    leaves = [leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    loss = [leaf.float().sum() for leaf in leaves if leaf.requires_grad and leaf.dtype.is_floating_point]
    failed = None
    if loss:
        try:
            sum(loss).backward()  # type: ignore[union-attr]
        except RuntimeError as error:
            failed = str(error)[:60]
    shown = Shown(is_exact)
    state = {
        name: value
        for name, value in vars(module).items()
        if name[:2] != "__" and name not in ("log", "program") and name not in _MODULES
    }
    own = "careful", "inner"  # lines of what torch's functions warn of are tintype's
    text = [(str(warning.message), warning.lineno * str(warning.message).startswith(own)) for warning in caught]
    return {
        "result": shown.of(result), "inputs": shown.of(list(given)), "backward": failed,
        "state": shown.of(state) if call in (1, CALLS - 1) else None,
        "printed": printed.getvalue(), "logged": records.found, "warned": text, "modes": modes, "drawn": drawn,
        "local": shown.of(vars(module.LOCAL)), "variable": module.VARIABLE.get(),
    }  # fmt: skip


_MODULES = {name for name, value in vars(module_of("")).items() if isinstance(value, types.ModuleType)}


def difference(expected: Any, found: Any, place: str = "") -> Iterator[str]:
    """Where two outcomes differ."""
    if type(expected) is type(found) and expected == found:
        return
    if isinstance(expected, dict):
        for key in expected:
            yield from difference(expected[key], found.get(key), f"{place}{key}: ")
    elif isinstance(expected, (list, tuple)) and type(expected) is type(found) and len(expected) == len(found):
        for one, other in zip(expected, found):
            name = f"{one[0][1]}: " if isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], tuple) else ""
            yield from difference(one, other, place + name)
    else:
        yield f"  {place}\n    {expected}\n    {found}"


def check(seed: int, backend: Any = "eager") -> tuple[str | None, Any]:
    """None, or what differs; and the compiled function."""
    writer = Writer(seed)
    return check_source(writer.write(), writer.between(), seed, backend)


def check_source(
    source: str, changes: Sequence[Sequence[str]], seed: int, backend: Any = "eager"
) -> tuple[str | None, Any]:
    """The same of one program; the seed decides about its inputs."""
    dynamic = [None, None, None, True, False][seed % 5]
    eager, ours = module_of(source), module_of(source)
    compiled = tintype.compile(ours.program, backend=backend, dynamic=dynamic)
    try:
        for call in range(CALLS):
            for change in changes[call]:
                for module in (eager, ours):
                    with contextlib.suppress(Exception):
                        torch.manual_seed(seed + call)
                        exec(compile(change, "<between>", "exec"), module.__dict__)
            modes = torch.is_grad_enabled(), torch.get_default_dtype()
            expected = outcome(eager, eager.program, seed, call, backend == "eager")
            torch.set_grad_enabled(modes[0])
            torch.set_default_dtype(modes[1])
            found = outcome(ours, compiled, seed, call, backend == "eager")
            wrong = list(difference(expected, found))
            if wrong:
                told = "\n".join(wrong[:6])
                done = "\n".join(f"  before {i}: {changes[i]}" for i in range(call + 1) if changes[i])
                return f"call {call} differs (dynamic={dynamic})\n{told}\n{source}{done}", compiled
    finally:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
    return None, compiled


def shrunk(seed: int, backend: Any) -> str | None:
    """What differs in a program, without the statements and changes that it takes no part of."""
    writer = Writer(seed)
    head, *lines, result = writer.write().rstrip("\n").split("\n")
    changes = writer.between()

    def problem(lines: list[str], changes: list[list[str]], result: str) -> str | None:
        source = "\n".join([head, *lines, result]) + "\n"
        with contextlib.suppress(SyntaxError):
            return check_source(source, changes, seed, backend)[0]
        return None

    found, size = problem(lines, changes, result), len(lines)
    if found is None:
        return None
    while size:
        start = 0
        while start < len(lines):
            fewer = lines[:start] + lines[start + size :]
            told = problem(fewer, changes, result)
            if told is not None and "NameError" not in told and "UnboundLocalError" not in told:
                lines, found = fewer, told
            else:
                start += size
        size //= 2
    for call, position in [(call, position) for call in range(CALLS) for position in range(2)]:
        fewer_changes = [[*each] for each in changes]
        del fewer_changes[call][position : position + 1]
        told = problem(lines, fewer_changes, result)
        if told is not None and fewer_changes != changes:
            changes, found = fewer_changes, told
    return found


def calls_meanwhile(stop: threading.Event, wrong: list[str]) -> None:
    """Compiled functions that another thread captures and calls."""

    def function(x: torch.Tensor, k: int) -> torch.Tensor:
        with torch.no_grad():
            y = x * k if k % 2 else x + k
        return (y.relu() + x).view(-1)

    while not stop.is_set():
        compiled = tintype.compile(function)
        for k in range(6):
            x = torch.linspace(-1, 1, 4 + k % 3).requires_grad_()
            if not torch.equal(compiled(x, k), function(x, k)):
                wrong.append(f"the thread beside differs for {k}")


def checked_beside(seed: int, backend: Any) -> tuple[str | None, Any]:
    """The same in a thread of its own beside another one."""
    stop, wrong, found = threading.Event(), list[str](), list[Any]()
    threads = [
        threading.Thread(target=calls_meanwhile, args=(stop, wrong)),
        threading.Thread(target=lambda: found.append(check(seed, backend))),
    ]
    for thread in threads:
        thread.start()
    threads[1].join()
    stop.set()
    threads[0].join()
    problem, compiled = found[0] if found else ("its thread died", None)
    return problem or (wrong[0] if wrong else None), compiled


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--stop", type=int, default=3)
    parser.add_argument("--beside", action="store_true")
    parser.add_argument("--only", type=int)
    parser.add_argument("--shrink", type=int, help="the program of this seed, without what has no part in its fault")
    options = parser.parse_args()
    logging.getLogger("tintype").setLevel(logging.CRITICAL)
    if options.shrink is not None:
        print(shrunk(options.shrink, options.backend) or "nothing differs")
        return
    seeds = range(options.seed, options.seed + options.count) if options.only is None else [options.only]
    wrong, tried = 0, 0
    reasons: dict[str, list[int]] = {}
    for seed in seeds:
        tried += 1
        problem, compiled = (checked_beside if options.beside else check)(seed, options.backend)
        if problem is not None:
            wrong += 1
            print(f"seed {seed}: {problem}", flush=True)
            if wrong >= options.stop:
                break
        if compiled is not None and (compiled.engine.is_eager or compiled.engine.given_up):
            for reason, _ in compiled.engine.given_up[:1] or [(compiled.engine.why_eager, None)]:
                reasons.setdefault(str(reason), []).append(seed)
        if options.only is not None:
            print(Writer(seed).write(), compiled.explain())
    print(f"{tried} programs, {wrong} wrong, {sum(map(len, reasons.values()))} gave up somewhere")
    for reason, count in sorted(reasons.items(), key=lambda pair: -len(pair[1]))[:40]:
        print(f"  {len(count):4} {reason} (seed {count[0]})")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
