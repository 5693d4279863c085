"""tintype's objects under the names that the conformance suite uses.

The suite's tests are of mid-2024: old names and private switches are bridged here, the library has none.
"""

from __future__ import annotations

import copy
import inspect
import io
from typing import Any

import torch

import tintype
from tests.decomposition_tables import composites_only
from tintype import errors
from tintype.compiler.api import compile as tintype_compile
from tintype.compiler.api import reset
from tintype.compiler.backends import backend_of
from tintype.export.checks import InputChecks
from tintype.ir import signature
from tintype.ir.operators import declaration_of
from tintype.ir.passes import GraphPass
from tintype.ops.flex_attention import flex_attention
from tintype.ops.flex_attention_backward import flex_attention_backward
from tintype.ops.strict_mode import mark_strict
from tintype.transforms.lift_constants import lift_constants
from tintype.tree import register_dataclass


def export(mod: Any, args: Any, kwargs: Any = None, *, strict: bool = True, **options: Any) -> Any:
    """The suite's default was strict, and so it is here."""
    if getattr(mod, "is_captured_program", False):
        mod = _unchecked_where_sizes_vary(mod)
    return tintype.export(mod, args, kwargs, strict=strict, control_flow="refuse", **options)


class FlatModule(torch.nn.Module):
    """A captured program as the old strict capture's first step gave it: one graph, whose state has flat names."""

    def __init__(self, program: Any) -> None:
        super().__init__()
        self._program = [program]  # not as a submodule, whose state has names of its own
        for name, parameter in program.named_parameters():
            self.register_parameter(name.replace(".", "_"), parameter)
        for name, buffer in program.named_buffers():
            self.register_buffer(name.replace(".", "_"), buffer)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._program[0](*args, **kwargs)


def export_to_torch_ir(mod: Any, args: Any, kwargs: Any = None) -> FlatModule:
    """The graph before ATen; ours has operators of ATen, and composite ones whole."""
    return FlatModule(export_for_training(mod, args, kwargs).module())


class _OldChecks(InputChecks):
    """The checks of a program that is captured again: of old they passed over sizes that vary, so that a program
    which was exported for one size could be exported for all."""

    def check(self, leaves: Any, state_of: Any) -> None:
        sizes = [size for leaf in leaves if isinstance(leaf, torch.Tensor) for size in leaf.shape]
        if not any(isinstance(size, torch.SymInt) for size in sizes):
            super().check(leaves, state_of)


def _unchecked_where_sizes_vary(mod: Any) -> Any:
    mod = copy.copy(mod)
    known = mod._checks
    mod._checks = _OldChecks(known.expectations, known.in_spec, [*known.ordered, *known.observations], known.memory)
    return mod


def export_with_switches(mod: Any, args: Any, kwargs: Any = None, dynamic_shapes: Any = None, **options: Any) -> Any:
    """The private entry point. A pre-dispatch export was functional and had regions in other modes wrapped, both at
    once; tintype wraps them in the training stage alone, so a program that has some comes from there."""
    pre_dispatch = options.get("pre_dispatch", False)
    options = export_options(options)
    if pre_dispatch:
        program = export_for_training(mod, args, kwargs, dynamic_shapes, **options)
        declarations = map(declaration_of, program.graph.nodes)
        if any(declaration is not None and declaration.setting is not None for declaration in declarations):
            return program
    return export(mod, args, kwargs, dynamic_shapes=dynamic_shapes, **options)


def export_for_training(
    mod: Any, args: Any, kwargs: Any = None, dynamic_shapes: Any = None, *, strict: bool = True, **options: Any
) -> Any:
    return tintype.export_for_training(
        mod, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict, control_flow="refuse", **options
    )


def capture_pre_autograd_graph(mod: Any, args: Any, kwargs: Any = None, dynamic_shapes: Any = None) -> Any:
    return export_for_training(mod, args, kwargs, dynamic_shapes).module()


def register_dataclass_as_pytree_node(cls: type, **options: Any) -> None:
    register_dataclass(cls, **options)


def is_param(program: Any, node: Any) -> bool:
    return node.name in program.graph_signature.inputs_to_parameters


def get_param(program: Any, node: Any) -> Any:
    name = program.graph_signature.inputs_to_parameters.get(node.name)
    return None if name is None else program.state_dict[name]


def is_buffer(program: Any, node: Any) -> bool:
    return node.name in program.graph_signature.inputs_to_buffers


def get_buffer(program: Any, node: Any) -> Any:
    name = program.graph_signature.inputs_to_buffers.get(node.name)
    return None if name is None else dict(program.named_buffers())[name]


def _run_decompositions(self: Any, decomp_table: Any = None, _preserve_ops: Any = (), **options: Any) -> Any:
    if decomp_table is not None:  # in 2024 composite operators were decomposed whatever the table
        decomp_table = {**composites_only(), **decomp_table}
    return _library_run_decompositions(self, decomp_table, preserve=_preserve_ops, **options)


_library_run_decompositions = tintype.ExportedProgram.run_decompositions
tintype.ExportedProgram.run_decompositions = _run_decompositions  # type: ignore[method-assign]


class ShapeEnvironmentStandIn:
    """A real FakeTensorMode wants torch's own shape environment."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        return ShapeEnv(*args, **kwargs)


def export_options(options: dict[str, Any]) -> dict[str, Any]:
    """The private switches of the old entry points, under the names of today."""
    options.pop("pre_dispatch", None)
    deferred = options.pop("_allow_complex_guards_as_runtime_asserts", False)
    deferred = options.pop("_disable_forced_specializations", False) or deferred
    return {**options, "prefer_deferred_runtime_asserts_over_guards": deferred}


def make_fx(function: Any, **options: Any) -> Any:
    """A traced function; tintype traces by exporting."""
    return lambda *args: tintype.export(function, args, control_flow="refuse").module()


# what a user does whose programs take block masks
tintype.register_block_mask()


def dynamo_export(mod: Any) -> Any:
    """A model as a graph module, with guards that nobody looks at."""
    return lambda *args, **kwargs: (tintype.export(mod, args, kwargs, control_flow="refuse").module(), None)


def create_functional_call(mod: Any, state_spec: Any, state_count: int) -> Any:
    """A graph module as a function of its state and its arguments."""

    def call(*flat: Any) -> Any:
        state = torch.utils._pytree.tree_unflatten(flat[:state_count], state_spec)
        with torch.nn.utils.stateless._reparametrize_module(mod, state):
            return mod(*flat[state_count:])

    return call


def aot_export_function(function: Any, args: Any, *, no_tangents: bool, **options: Any) -> Any:
    """The joint graph of a function whose first result is a loss, first of several things that are not asked for."""
    assert no_tangents
    return (tintype.export_joint(function, tuple(args)).graph_module,)


def aot_module_simplified(mod: Any, args: Any, fw_compiler: Any, bw_compiler: Any = None, **options: Any) -> Any:
    return tintype.aot.module_for(mod, args, fw_compiler, bw_compiler=bw_compiler)


def setup_stacktrace_preservation_hooks(roots: Any) -> None:
    """Nothing to set up: the nodes of a joint graph find the forward step they belong to by its number."""


def lift_constants_pass(graph_module: Any, signature: Any, constant_attributes: Any) -> dict[str, Any]:
    context = next(node.meta["val"].context for node in graph_module.graph.nodes if "val" in node.meta)
    return lift_constants(graph_module, signature, context)


def serialize(program: Any) -> bytes:
    """Files hold custom objects only if somebody says how; the suite's class keeps a list of integers."""
    tintype.register_object(
        "__torch__.torch.classes._TorchScriptTesting._PickleTester",
        name="conformance.PickleTester",
        save=lambda value: bytes(value.__getstate__()[0]),
        load=lambda content: torch.classes._TorchScriptTesting._PickleTester(list(content)),
    )
    file = io.BytesIO()
    tintype.save(program, file)
    return file.getvalue()


def deserialize(content: bytes) -> Any:
    return tintype.load(io.BytesIO(content))


class OldOnnxProgram:
    """An ONNX program as it was then: results as a flat list, without those that are None."""

    def __init__(self, program: Any) -> None:
        self.program = program

    def __call__(self, *args: Any, **kwargs: Any) -> list[Any]:
        return self.adapt_torch_outputs_to_onnx(self.program(*args, **kwargs))

    def adapt_torch_outputs_to_onnx(self, outputs: Any) -> list[Any]:
        return [leaf for leaf in torch.utils._pytree.tree_leaves(outputs) if leaf is not None]

    def save(self, path: Any) -> None:
        self.program.save(path)


def dynamo_onnx_export(model: Any, *args: Any, **kwargs: Any) -> Any:
    return OldOnnxProgram(tintype.onnx.export(model, args, kwargs))


def convert_torchscript(scripted: Any, args: Any, kwargs: Any = None) -> Any:
    """A traced module as a module; ``torch.jit.trace`` takes a single argument as it is."""
    return tintype.interop.from_torchscript(scripted, args if isinstance(args, tuple) else (args,), kwargs).module()


def optimize(backend: Any, guard_fail_fn: Any = None, **options: Any) -> Any:
    """The old spelling of compile; tells of guards that failed in the words of then."""

    def apply(function: Any) -> Any:
        compiled = compile(function, backend=backend)
        if guard_fail_fn is not None:
            names = list(inspect.signature(getattr(function, "forward", function)).parameters)
            engine = compiled._tintype_engine if isinstance(function, torch.nn.Module) else compiled.engine
            engine.options.listeners.append(lambda guards: guard_fail_fn([_words_of_guard(guards[0], names)]))
        return compiled

    return apply


def _words_of_guard(guard: Any, names: list[str]) -> str:
    def said(source: Any) -> str:
        return f"L['{names[source.key]}']" if source.kind == "argument" else str(source)

    if guard.kind == "same":
        return f"{said(guard.expected)} is {said(guard.source)}"
    if guard.kind == "tensor":
        return (
            f"tensor '{said(guard.source)}' requires_grad mismatch. expected requires_grad={int(guard.expected[4])}"
        )
    return repr(guard)


def compile(function: Any = None, *, backend: Any = "eager", fullgraph: bool = False, **options: Any) -> Any:
    return tintype_compile(function, backend=backend, fullgraph=fullgraph)


class FakeModeStandIn:
    """The mode of fakes that a backend finds among its example inputs; ours are real tensors, and need none."""

    allow_non_fake_inputs = True

    def __enter__(self) -> FakeModeStandIn:
        return self

    def __exit__(self, *exception: Any) -> None:
        return None


def detect_fake_mode(inputs: Any = None) -> FakeModeStandIn:
    return FakeModeStandIn()


NAMES = {
    "torch.compile": compile,
    "torch._dynamo.utils.detect_fake_mode": detect_fake_mode,
    "torch._dynamo.optimize": optimize,
    "torch._dynamo.reset": reset,
    "torch._dynamo.backends.registry.lookup_backend": backend_of,
    "torch.onnx.dynamo_export": dynamo_onnx_export,
    "torch.export._trace._convert_ts_to_export_experimental": convert_torchscript,
    "torch._dynamo.export": dynamo_export,
    "torch._functorch.aot_autograd._aot_export_function": aot_export_function,
    "torch._functorch.aot_autograd.aot_export_joint_simple": tintype.aot.export_joint_simple,
    "torch._functorch.aot_autograd.aot_export_module": tintype.aot.export_module,
    "torch._functorch.aot_autograd.aot_module_simplified": aot_module_simplified,
    "torch._functorch.aot_autograd.create_functional_call": create_functional_call,
    "torch._functorch.aot_autograd.setup_stacktrace_preservation_hooks": setup_stacktrace_preservation_hooks,
    "torch.export.experimental._export_forward_backward": tintype.export_joint,
    "functorch.compile.nop": lambda graph_module, example_inputs: graph_module,
    "torch._export.passes.lift_constants_pass.lift_constants_pass": lift_constants_pass,
    "torch._export.serde.serialize.serialize": serialize,
    "torch._export.serde.serialize.deserialize": deserialize,
    "torch.nn.attention.flex_attention.flex_attention": flex_attention,
    "torch._higher_order_ops.flex_attention.flex_attention_backward": flex_attention_backward,
    "torch._export.wrappers._mark_strict_experimental": mark_strict,
    "torch._export.pass_base._ExportPassBaseDeprecatedDoNotUse": GraphPass,
    "torch.fx.experimental.proxy_tensor.make_fx": make_fx,
    "torch.cond": tintype.cond,
    "functorch.experimental.control_flow.cond": tintype.cond,
    "functorch.experimental.control_flow.map": tintype.map,
    "torch._higher_order_ops.while_loop": tintype.while_loop,
    "torch.export.Dim": tintype.Dim,
    "torch.export.dims": tintype.dims,
    "torch.export.ShapesCollection": tintype.ShapesCollection,
    "torch.fx.experimental.symbolic_shapes.ConstraintViolationError": errors.ConstraintViolationError,
    "torch.fx.experimental.symbolic_shapes.GuardOnDataDependentSymNode": errors.DataDependentError,
    "torch.export.export": export,
    "torch.export.unflatten": tintype.unflatten,
    "torch.export._trace._export": export_with_switches,
    "torch.export._trace._export_for_training": export_for_training,
    "torch.export._trace._export_to_torch_ir": export_to_torch_ir,
    "torch._export.capture_pre_autograd_graph": capture_pre_autograd_graph,
    "torch.export.ExportedProgram": tintype.ExportedProgram,
    "torch.export.graph_signature.InputKind": signature.InputKind,
    "torch.export.register_dataclass": register_dataclass,
    "torch.export.save": tintype.save,
    "torch.export.load": tintype.load,
    "torch._export.utils.register_dataclass_as_pytree_node": register_dataclass_as_pytree_node,
    "torch._export.utils.is_param": is_param,
    "torch._export.utils.get_param": get_param,
    "torch._export.utils.is_buffer": is_buffer,
    "torch._export.utils.get_buffer": get_buffer,
    "torch._dynamo.exc.UserError": errors.TintypeError,
    "torch._dynamo.exc.Unsupported": errors.CaptureError,
    "torch._dynamo.is_compiling": torch.compiler.is_compiling,
    "torch._utils.is_compiling": torch.compiler.is_compiling,
    "torch.compiler.is_compiling": torch.compiler.is_compiling,
    "torch.fx.experimental.symbolic_shapes.ShapeEnv": ShapeEnvironmentStandIn,
}


def resolve(dotted_name: str) -> Any:
    """The object for a name; KeyError for what is not provided."""
    return NAMES[dotted_name]
