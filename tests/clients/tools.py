"""The tools: each makes of a program of torch.export a function that runs it, or counts what it has done to it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

import torch

Run = Callable[[torch.Tensor], torch.Tensor]


def aot_inductor(program: torch.export.ExportedProgram) -> Run:
    path = os.path.join(tempfile.mkdtemp(), "model.pt2")
    with torch.no_grad():
        # with buffers that are written to in place, torch's C++ for loops does not compile
        package = torch._inductor.aoti_compile_and_package(
            program, package_path=path, inductor_configs={"inplace_buffers": False}
        )
    return torch._inductor.aoti_load_package(package)


def openvino(program: torch.export.ExportedProgram) -> Run:
    import openvino

    # in full precision, since results are compared
    model = openvino.compile_model(openvino.convert_model(program), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda x: torch.from_numpy(model([x.numpy()])[0])


def executorch(program: torch.export.ExportedProgram) -> Run:
    return _executorch(program, [])


def xnnpack(program: torch.export.ExportedProgram) -> Run:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    return _executorch(program, [XnnpackPartitioner()])


def _executorch(program: torch.export.ExportedProgram, partitioners: list[Any]) -> Run:
    from executorch.exir import to_edge_transform_and_lower
    from executorch.runtime import Runtime

    buffer = to_edge_transform_and_lower(program, partitioner=partitioners).to_executorch().buffer
    loaded = Runtime.get().load_program(buffer)
    method = loaded.load_method("forward")

    def run(x: torch.Tensor) -> torch.Tensor:
        assert loaded is not None  # the method needs the program to be there
        return method.execute([x.contiguous()])[0].clone()

    return run


def onnx(program: torch.export.ExportedProgram) -> Run:
    import onnxruntime

    exported: Any = torch.onnx.export(program, (), dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(exported.model_proto.SerializeToString())
    (given,) = session.get_inputs()
    return lambda x: torch.from_numpy(session.run(None, {given.name: x.numpy()})[0])


RUNNING: dict[str, Callable[[torch.export.ExportedProgram], Run]] = {
    "AOTInductor": aot_inductor,
    "OpenVINO": openvino,
    "ExecuTorch": executorch,
    "XNNPACK": xnnpack,
    "ONNX": onnx,
}


def _quantized(module: torch.fx.GraphModule, quantizer: Any, example: torch.Tensor) -> tuple[int, torch.Tensor]:
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    prepared = prepare_pt2e(module, quantizer)
    prepared(example)
    converted = convert_pt2e(prepared)
    count = sum("quantize_per" in str(node.target) for node in converted.graph.nodes)
    return count, converted(example)


def quantized_for_xnnpack(module: torch.fx.GraphModule, example: torch.Tensor) -> tuple[int, torch.Tensor]:
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

    return _quantized(module, XNNPACKQuantizer().set_global(get_symmetric_quantization_config()), example)


def quantized_for_x86(module: torch.fx.GraphModule, example: torch.Tensor) -> tuple[int, torch.Tensor]:
    from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
        X86InductorQuantizer,
        get_default_x86_inductor_quantization_config,
    )

    quantizer = X86InductorQuantizer().set_global(get_default_x86_inductor_quantization_config())
    return _quantized(module, quantizer, example)


def switched_to_training(module: torch.fx.GraphModule, example: torch.Tensor) -> tuple[int, torch.Tensor]:
    """How many dropouts drop something once the program is switched to training, and what it then gives."""
    from torchao.quantization.pt2e import move_exported_model_to_train

    switched = move_exported_model_to_train(module)
    dropping = [node for node in switched.graph.nodes if "dropout" in str(node.target) and node.args[2]]
    torch.manual_seed(0)
    return len(dropping), switched(example)


COUNTING: dict[str, Callable[[torch.fx.GraphModule, torch.Tensor], tuple[int, torch.Tensor]]] = {
    "pt2e for XNNPACK": quantized_for_xnnpack,
    "pt2e for x86": quantized_for_x86,
    "to training": switched_to_training,
}
