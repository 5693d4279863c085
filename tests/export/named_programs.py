"""Models whose names are chosen to be in each other's way, and every way there is to run them."""

from __future__ import annotations

import copy
import dataclasses
import keyword
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

import tintype
from tintype.errors import InvalidRequestError, UnsavableError

# for arguments of functions
IDENTIFIERS = (
    "x", "x_shape", "x_1", "torch", "aten", "operator", "math", "inf", "nan", "device", "self", "input", "len",
    "type", "args", "kwargs", "_args", "_kwargs", "args_0", "_run", "run", "recorder", "_recorder", "_nothing",
    "_self", "v_x", "_k0", "_f0", "_s_s0", "s0", "_shape1", "add", "add_1", "mul", "clone", "sub", "getitem",
    "copy_", "forward", "graph", "code", "float", "slice", "NoneType", "pytree", "fx_pytree", "tintype",
    "_operator_getitem", "größe", "层", "b_x", "p_x", "c_x", "tangents_1", "output", "root", "a_b", "a", "b",
    "_", "__", "__class__", "flat_args", "true_graph_0",
)  # fmt: skip

# for what a module holds
STATE_NAMES = (
    *IDENTIFIERS, "_entry", "_text", "_checks", "_constants", "_in_spec", "_out_spec", "argument_names",
    "_graph", "_code", "meta", "class", "a-b", "a b", "0", "def", "lifted_tensor_0", "decomposed_tensor_0",
    "submod_0", "submod_1", "_tree_root", "_root_name", "interpret", "recompile", "_state", "train_", "weight",
    "module_0", "None", "a'b", "_parameters_", "is_captured_program", "_owns_parameters", "validate_inputs",
    "_guards_fn", "result_0", "new_value_0",
)  # fmt: skip

# for keywords and keys of dictionaries
KEYS = (*STATE_NAMES, "lambda", "", "a.b", "1", "\n", 'a"b', "for")


@dataclasses.dataclass
class Plan:
    """What a model holds and does, by name."""

    arguments: Sequence[str] = ("x",)
    keywords: Sequence[str] = ()
    keys: Sequence[str] = ()
    parameters: Sequence[str] = ()
    buffers: Sequence[str] = ()
    volatile: Sequence[str] = ()
    constants: Sequence[str] = ()
    submodules: Sequence[str] = ()
    results: Sequence[str] = ("y",)
    child: str = ""
    written_inputs: bool = False
    varying: bool = False
    branch: bool = False


class Layer(torch.nn.Module):
    """A submodule with a parameter and a buffer that it writes to, called like things outside."""

    def __init__(self, names: Sequence[str], scale: float) -> None:
        super().__init__()
        for name in names[:1]:
            give(self, "parameter", name, torch.nn.Parameter(torch.full((3,), scale)))
        for name in names[1:2]:
            give(self, "buffer", name, torch.zeros(3))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        for parameter in self._parameters.values():
            value = value * parameter
        for buffer in self._buffers.values():
            buffer.add_(0.5)
            value = value + buffer
        return value


def give(module: torch.nn.Module, kind: str, name: str, value: Any) -> None:
    """Give a module state or a submodule, if torch allows the name."""
    if hasattr(module, name):
        return
    try:
        if kind == "parameter":
            module.register_parameter(name, value)
        elif kind == "module":
            module.add_module(name, value)
        elif kind == "constant":
            setattr(module, name, value)
        else:
            module.register_buffer(name, value, persistent=kind == "buffer")
    except KeyError:
        return


class Model(torch.nn.Module):
    """Adds everything up that it is given and holds; writes to all of its buffers."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.__dict__["plan of the model"] = plan
        for number, name in enumerate(plan.parameters):
            give(self, "parameter", name, torch.nn.Parameter(torch.full((3,), 1.0 + number)))
        for number, name in enumerate(plan.buffers):
            give(self, "buffer", name, torch.full((3,), 10.0 + number))
        for number, name in enumerate(plan.volatile):
            give(self, "volatile", name, torch.full((3,), 20.0 + number))
        for number, name in enumerate(plan.submodules):
            give(self, "module", name, Layer((plan.child, *plan.buffers, *plan.arguments)[:2], 1.5 + number))
        for number, name in enumerate(plan.constants):
            give(self, "constant", name, torch.full((3,), 0.25 + number))
        self.__dict__["constants of the model"] = [
            value for value in vars(self).values() if isinstance(value, torch.Tensor)
        ]

    def compute(self, inputs: Sequence[torch.Tensor]) -> Any:
        plan: Plan = self.__dict__["plan of the model"]
        total = torch.zeros(3)
        for number, value in enumerate(inputs):
            total = total + value.sum(0) * (number + 1) + value.shape[0]
        for number, parameter in enumerate(self._parameters.values()):
            total = total + parameter * (number + 2)
        for number, buffer in enumerate(self._buffers.values()):
            buffer.mul_(2).add_(number)
            total = total + buffer
        for constant in self.__dict__["constants of the model"]:
            total = total * constant
        for child in self._modules.values():
            total = total + child(total)
        if plan.branch:
            total = tintype.cond(total.sum() > 0, lambda v: v.sin(), lambda v: v.cos() + 1, (total,))
        if plan.written_inputs:
            for number, value in enumerate(inputs):
                value.add_(number + 1)
        return {name: total + number for number, name in enumerate(plan.results)}


def model_of(plan: Plan) -> torch.nn.Module:
    """A model whose forward has the arguments of a plan."""
    header = ", ".join(["module_itself", *plan.arguments, "container_of_values=None", "**the_keywords"])
    values = "".join(f"{name}, " for name in plan.arguments)
    source = f"def forward({header}):\n    inputs = [{values}*(container_of_values or {{}}).values(), "
    source += "*the_keywords.values()]\n    return module_itself.compute(inputs)\n"
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    return type("Named", (Model,), {"forward": namespace["forward"]})(plan)


def inputs_of(plan: Plan, rows: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments for a model, the same for equal numbers of rows."""
    generator = torch.Generator().manual_seed(rows)
    args: list[Any] = [torch.randn(rows, 3, generator=generator) for _ in plan.arguments]
    if plan.keys:
        args.append({key: torch.randn(rows, 3, generator=generator) for key in plan.keys})
    return tuple(args), {name: torch.randn(rows, 3, generator=generator) for name in plan.keywords}


def shapes_of(plan: Plan) -> Any:
    """Sizes that vary: the number of rows, one for all inputs."""
    if not plan.varying:
        return None
    rows = {0: tintype.Dim("rows")}
    shapes: dict[str, Any] = dict.fromkeys(plan.arguments, rows)
    if plan.keys:
        shapes["container_of_values"] = dict.fromkeys(plan.keys, rows)
    if plan.keywords:
        shapes["the_keywords"] = dict.fromkeys(plan.keywords, rows)
    return shapes


def ways(plan: Plan, folder: Path) -> dict[str, Callable[[], Any]]:
    """How to get something that runs as the model does."""
    args, kwargs = inputs_of(plan, 2)
    shapes = shapes_of(plan)

    def program() -> tintype.ExportedProgram:
        found = tintype.export(model_of(plan), args, kwargs, dynamic_shapes=shapes)
        found.validate()
        compile(found.code, "printed", "exec")
        compile(found.graph_module.code, "code", "exec")
        # what fx writes for reading: self.class, and keys as they are
        parts = [part for name in (*found.state_dict, *found.constants) for part in name.split(".")]
        if not any(keyword.iskeyword(part) for part in parts) and all(name.isidentifier() for name in plan.keywords):
            compile(found.module().code, "code", "exec")
        return found

    def saved(found: tintype.ExportedProgram) -> tintype.ExportedProgram:
        tintype.save(found, folder / "named.tt")
        return tintype.load(folder / "named.tt")

    def preserved() -> Any:
        model = model_of(plan)
        names = [name for name in model._modules if "." not in name and "@" not in name]
        found = tintype.export(model, args, kwargs, preserve_module_call_signature=names)
        return tintype.unflatten(found)

    def retraced() -> Any:
        return tintype.export(program().module(), args, kwargs, dynamic_shapes=shapes_again(plan, shapes)).module()

    def training() -> tintype.ExportedProgram:
        return tintype.export_for_training(model_of(plan), args, kwargs, dynamic_shapes=shapes)

    interop = tintype.interop
    return {
        "module": lambda: program().module(),
        "copied": lambda: copy.deepcopy(program().module()),
        "decomposed": lambda: program().run_decompositions().module(),
        "saved": lambda: saved(program()).module(),
        "saved decomposed": lambda: saved(program().run_decompositions()).module(),
        "unflattened": lambda: tintype.unflatten(program()),
        "unflattened, signatures preserved": preserved,
        "retraced": retraced,
        "training": lambda: training().module(),
        "training, decomposed": lambda: training().run_decompositions().module(),
        "to torch": lambda: interop.to_torch(program()).module(),
        "to torch and back": lambda: interop.from_torch(interop.to_torch(program())).module(),
        "aot": lambda: tintype.aot.module(model_of(plan)),
    }


def shapes_again(plan: Plan, shapes: Any) -> Any:
    """The sizes of an exported module, whose keywords have names of their own."""
    if shapes is None:
        return None
    rest = {name: value for name, value in shapes.items() if name != "the_keywords"}
    return {**rest, **shapes.get("the_keywords", {})}


def check_all_ways(plan: Plan, folder: Path) -> dict[str, str]:
    """Run a model in all ways and compare with eager mode; returns what torch's programs can't be called, by way."""
    refused: dict[str, str] = {}
    for way, make in ways(plan, folder).items():
        try:
            made = make()
        except (InvalidRequestError, UnsavableError) as error:
            assert ("torch" in way and isinstance(error, InvalidRequestError)) or "saved" in way, (way, plan)
            refused[way] = error.fact
            continue
        rows = [2, 2, 4] if plan.varying and "preserved" not in way else [2, 2]
        _compare(plan, made, rows, way)
    return refused


def _compare(plan: Plan, made: Any, rows: Sequence[int], way: str) -> None:
    eager = model_of(plan)
    for count in rows:
        args, kwargs = inputs_of(plan, count)
        expected = eager(*args, **kwargs)
        given_args, given_kwargs = inputs_of(plan, count)
        found = made(*given_args, **given_kwargs)
        assert list(found) == list(expected), (way, plan)
        assert_equal(found, expected, f"{way}: {plan}")
        assert_equal((given_args, given_kwargs), (args, kwargs), f"the inputs of {way}: {plan}")
    state = made.state_dict()
    for name, value in eager.state_dict().items():
        assert_equal(state[name], value, f"{name} of {way}: {plan}")


def assert_equal(found: Any, expected: Any, where: str) -> None:
    """The same values, or an error that says where they are not."""
    torch.testing.assert_close(found, expected, msg=lambda text: f"{text}\n{where}")
