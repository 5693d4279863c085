"""Operators under ``torch.ops.higher_order`` that a program can't call, each with what it is and what to do instead.

Most of them are made by torch's own compilers for their own use. The few that users call are named with what does the
same in a program.
"""

from __future__ import annotations

from tintype.trace.plan import REFUSALS

_COMPILER = "it is made by torch's compiler, for its own use"
_EXPORTER = "it is made by torch.export, for its own use"
_RANDOM = "it saves and restores the state of random number generators, for graphs that torch's compiler splits"
_ORIGINAL = "capture the model itself, not what a compiler made of it"
_CALL_IT = "call the function itself"
_CUSTOM = "wrap the kernel into a custom operator: torch.library.custom_op"

REFUSALS.update(
    {
        "_export_tracepoint": (_EXPORTER, _ORIGINAL),
        "aoti_call_delegate": ("it calls a library that was compiled for one machine", _ORIGINAL),
        "auto_functionalized_v2": (_COMPILER, "call the operator that it wraps"),
        "autograd_function_apply": (_COMPILER, "call apply() of the torch.autograd.Function"),
        "control_deps": (_COMPILER, "call the operator that it wraps"),
        "custom_function_call": (
            "it is a torch.autograd.Function inside of a transform of torch.func",
            "call the torch.autograd.Function outside of vmap, grad and their kin",
        ),
        "dynamo_bypassing_wrapper": (_COMPILER, _CALL_IT),
        "executorch_call_delegate": ("it calls a program that was lowered for one device", _ORIGINAL),
        "flat_apply": (_COMPILER, _CALL_IT),
        "foreach_map": ("it is a hint to torch's compiler", "call the function for one tensor after the other"),
        "graphsafe_run_with_rng_state": (_RANDOM, _ORIGINAL),
        "hints_wrapper": ("it is a hint to torch's compiler", _CALL_IT),
        "inductor_compiled_code": ("it calls what torch's compiler made", _ORIGINAL),
        "inline_asm_elementwise": ("it is written for one kind of GPU", _CUSTOM),
        "invoke_leaf_function": (_COMPILER, "make the function a custom operator: torch.library.custom_op"),
        "invoke_quant": ("it is a hint to torch's compiler", _CALL_IT),
        "invoke_quant_packed": ("it is a hint to torch's compiler", _CALL_IT),
        "local_map_hop": ("it belongs to distributed tensors", "capture the program of a single device"),
        "print": ("printing is no part of a program", "return the tensor, and print it outside"),
        "register_hook": (_COMPILER, "call register_hook() of the tensor; a joint graph has what hooks do"),
        "run_and_save_rng_state": (_RANDOM, _ORIGINAL),
        "run_const_graph": (_EXPORTER, _ORIGINAL),
        "run_dtensor_rng_op": ("it belongs to distributed tensors", "capture the program of a single device"),
        "run_with_rng_state": (_RANDOM, _ORIGINAL),
        "tag_activation_checkpoint": (_COMPILER, "call torch.utils.checkpoint.checkpoint"),
        "trace_wrapped": (_COMPILER, _CALL_IT),
        "triton_kernel_wrapper_functional": (_COMPILER, _CUSTOM),
        "triton_kernel_wrapper_mutation": ("it is a Triton kernel, which a program can't hold", _CUSTOM),
        "while_loop_stack_output": (_COMPILER, "call while_loop, or scan where all steps are wanted"),
        "with_effects": (_EXPORTER, "call the operator that it wraps"),
        "wrap": (_COMPILER, _CALL_IT),
        "wrap_activation_checkpoint": (_COMPILER, "call torch.utils.checkpoint.checkpoint"),
    }
)
