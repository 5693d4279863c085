"""What is saved comes back: programs, state and what it shares, numbers, structure, origins."""

from __future__ import annotations

import collections
import copy
import io
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import safetensors
import torch
from torch import nn

import tintype
from tests.export.modes import assert_same
from tests.serde.programs import (
    Everything,
    archive_of,
    entries_of,
    everything,
    example_of_everything,
    loaded,
    round_trip,
    saved_bytes,
    small,
    with_subgraph,
)
from tintype.errors import InvalidRequestError, UnsavableError


def as_text(program: tintype.ExportedProgram) -> str:
    return f"{program}\n{program.contract()}\n{program.range_constraints}"


def test_everything_comes_back() -> None:
    program = everything()
    again = round_trip(program)
    assert as_text(again) == as_text(program)
    assert again.same_structure(program)
    assert again.stage is program.stage
    assert again.call_spec == program.call_spec
    assert again.graph_signature == program.graph_signature
    assert again.module_call_graph == program.module_call_graph
    assert list(again.state_dict) == list(program.state_dict)
    assert list(again.constants) == list(program.constants)
    assert_same(again.state_dict, program.state_dict)
    assert_same(again.constants, program.constants)
    assert_same(again.example_inputs, program.example_inputs)


@pytest.mark.parametrize("rows", [3, 2, 17])
def test_a_loaded_program_computes_what_eager_mode_does(rows: int) -> None:
    module = round_trip(everything()).module()
    torch.manual_seed(0)
    eager = Everything()
    for _ in range(2):  # the second time with buffers that the first one wrote
        args, kwargs = example_of_everything(rows)
        assert_same(module(*args, **kwargs), eager(*args, **kwargs))
    assert_same(dict(module.named_buffers())["calls"], eager.calls)


def test_inputs_outside_of_the_contract_are_refused_after_loading() -> None:
    args, kwargs = example_of_everything(65)
    with pytest.raises(tintype.TintypeError, match="to be <= 64, but got 65"):
        round_trip(everything()).module()(*args, **kwargs)


def test_the_same_program_gives_the_same_bytes() -> None:
    program = everything()
    content = saved_bytes(program)
    assert saved_bytes(program) == content
    assert saved_bytes(everything()) == content
    assert saved_bytes(loaded(content)) == content
    assert saved_bytes(copy.deepcopy(program)) == content


def test_a_path_is_taken_as_text_and_as_path(tmp_path: Path) -> None:
    program = small()
    tintype.save(program, str(tmp_path / "a.tt"))
    tintype.save(program, tmp_path / "b.tt")
    assert (tmp_path / "a.tt").read_bytes() == (tmp_path / "b.tt").read_bytes() == saved_bytes(program)
    for mmap in (True, False):
        assert_same(tintype.load(tmp_path / "a.tt", mmap=mmap).state_dict, program.state_dict)
    with open(tmp_path / "c.tt", "wb") as file:
        tintype.save(program, file)
    with open(tmp_path / "c.tt", "rb") as file:
        assert_same(tintype.load(file).state_dict, program.state_dict)


def test_a_file_object_that_can_not_seek() -> None:
    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.content = b""

        def writable(self) -> bool:
            return True

        def write(self, piece: Any) -> int:
            self.content += bytes(piece)
            return len(piece)

    pipe = Pipe()
    program = small()
    tintype.save(program, pipe)  # type: ignore[arg-type]
    assert pipe.content == saved_bytes(program)


def test_extra_files() -> None:
    content = saved_bytes(small(), extra_files={"labels.txt": "cat\ndog", "raw": b"\xff\x00", "../odd": "x"})
    everything_in_it: dict[str, Any] = {}
    loaded(content, extra_files=everything_in_it)
    assert everything_in_it == {"labels.txt": "cat\ndog", "raw": b"\xff\x00", "../odd": "x"}
    one = {"labels.txt": ""}
    loaded(content, extra_files=one)
    assert one == {"labels.txt": "cat\ndog"}
    with pytest.raises(InvalidRequestError, match=r"no extra file 'nothing'; it has 'labels.txt', 'raw'"):
        loaded(content, extra_files={"nothing": ""})


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 2000, "\ud800", 3])
def test_names_that_extra_files_can_not_have(name: Any) -> None:
    with pytest.raises(UnsavableError, match="extra"):
        saved_bytes(small(), extra_files={name: "text"})


def test_text_that_is_no_unicode() -> None:
    program = small()
    program.graph_signature.input_specs[0].target = program.argument_names[0] = "\ud800"
    with pytest.raises(UnsavableError, match="no Unicode"):
        saved_bytes(program)


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="must be an ExportedProgram, but got Linear"):
        tintype.save(nn.Linear(2, 2), io.BytesIO())  # type: ignore[arg-type]


# --- state --------------------------------------------------------------------------------------------------------


def test_tied_weights_are_one_tensor_stored_once() -> None:
    program = everything()
    assert program.state_dict["first.weight"] is program.state_dict["second.weight"]
    again = round_trip(program)
    assert again.state_dict["first.weight"] is again.state_dict["second.weight"]
    assert isinstance(again.state_dict["first.weight"], nn.Parameter)
    header = safetensors.deserialize(entries_of(saved_bytes(program))["weights.safetensors"])
    assert "second.weight" not in dict(header)


def test_views_of_one_memory_share_it_after_loading() -> None:
    state = round_trip(everything()).state_dict
    state["part"][2] = 100.0
    assert state["other_part"][0] == 100.0


def test_only_what_is_used_of_a_memory_is_written() -> None:
    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("part", torch.zeros(1_000_000)[500:510])

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return value + self.part

    assert len(saved_bytes(tintype.export(Part(), (torch.ones(10),)))) < 10_000


LAYOUTS = {
    "transposed": torch.arange(12.0).reshape(3, 4).t(),
    "expanded": torch.arange(3.0).expand(4, 3),
    "strided": torch.arange(24.0)[::2].reshape(4, 3),
    "scalar": torch.tensor(3.0),
    "empty": torch.ones(0, 3),
    "channels last": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "conjugated": torch.randn(3, dtype=torch.complex64).conj(),
    "negated": torch.randn(3, dtype=torch.complex64).conj().imag,
}


@pytest.mark.parametrize("tensor", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_layouts_of_constants(tensor: torch.Tensor) -> None:
    program = tintype.export(lambda value: value * tensor, (torch.ones_like(tensor),))
    (constant,) = round_trip(program).constants.values()
    assert constant.stride() == tensor.stride()
    assert constant.is_conj() == tensor.is_conj()
    assert constant.is_neg() == tensor.is_neg()
    assert_same(constant, tensor)


DTYPES = [value for name, value in vars(torch).items() if isinstance(value, torch.dtype)]
QUANTIZED = [dtype for dtype in DTYPES if str(dtype).startswith(("torch.q", "torch.quint"))]


@pytest.mark.parametrize("dtype", sorted(set(DTYPES) - set(QUANTIZED), key=str), ids=str)
def test_every_dtype_comes_back_bit_by_bit(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    count = 8 * dtype.itemsize
    content = torch.randint(0, 2 if dtype is torch.bool else 256, (count,), dtype=torch.uint8, generator=generator)
    tensor = torch.empty(0, dtype=dtype).set_(content.untyped_storage(), 0, (2, 4), (4, 1))
    program = small()
    program._constants["odd"] = tensor
    again = round_trip(program).constants["odd"]
    assert again.dtype is dtype
    assert again.shape == tensor.shape
    assert bytes(again.untyped_storage()) == bytes(tensor.untyped_storage())


def test_tensors_that_a_file_has_no_place_for() -> None:
    class Odd(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            return super().__torch_function__(function, types, args, kwargs or {})

    quantized = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
    for tensor, what in [
        (torch.ones(2).to_sparse(), "sparse"),
        (quantized, "quantized"),
        (torch.ones(2).as_subclass(Odd), "Odd"),
    ]:
        program = small()
        program._constants["odd"] = tensor
        with pytest.raises(UnsavableError, match=f"odd is a .*{what}"):
            saved_bytes(program)


def test_gradients_are_required_as_before() -> None:
    model = nn.Linear(3, 2)
    model.bias.requires_grad_(False)
    state = round_trip(tintype.export(model, (torch.ones(4, 3),))).state_dict
    assert state["weight"].requires_grad
    assert not state["bias"].requires_grad


def test_a_loaded_program_can_be_trained_and_leaves_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "model.tt"
    tintype.save(small(), path)
    content = path.read_bytes()
    program = tintype.load(path)
    module = program.module()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    module(torch.ones(4, 3)).sum().backward()
    before = module.weight.detach().clone()
    optimizer.step()
    assert not torch.equal(module.weight, before)
    assert path.read_bytes() == content
    assert_same(tintype.load(path).state_dict["weight"].detach(), before)


def test_loading_under_inference_mode_gives_tensors_that_can_be_trained() -> None:
    content = saved_bytes(small())
    with torch.inference_mode():
        program = loaded(content)
    program.module()(torch.ones(4, 3)).sum().backward()
    assert program.state_dict["weight"].grad is not None


def test_meta_tensors_have_no_data() -> None:
    with torch.device("meta"):
        model = nn.Linear(1000, 1000)
    program = tintype.export(model, (torch.ones(2, 1000, device="meta"),))
    content = saved_bytes(program)
    assert len(content) < 10_000
    assert loaded(content).state_dict["weight"].device.type == "meta"


# --- graphs -------------------------------------------------------------------------------------------------------


def test_subgraphs() -> None:
    program = with_subgraph()
    content = saved_bytes(program)
    again = loaded(content)
    assert saved_bytes(again) == content
    names = [node.target for node in again.graph.find_nodes(op="get_attr")]
    assert names == ["true_graph_0", "false_graph_0"]
    assert isinstance(again.graph_module.true_graph_0, torch.fx.GraphModule)
    called = [str(node.target) for node in again.graph_module.false_graph_0.graph.find_nodes(
        op="call_function", target=torch.ops.aten.cos.default)]  # fmt: skip
    assert called == ["aten.cos.default"]


def test_a_subgraph_under_two_names_is_one() -> None:
    program = with_subgraph()
    program.graph_module.false_graph_0 = program.graph_module.true_graph_0
    again = round_trip(program)
    assert again.graph_module.false_graph_0 is again.graph_module.true_graph_0


def test_origins_of_nodes() -> None:
    program = everything()
    again = round_trip(program)
    for old, new in zip(program.graph.nodes, again.graph.nodes, strict=True):
        assert new.name == old.name
        for key in ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn"):
            assert new.meta.get(key) == old.meta.get(key), (old.name, key)


def test_without_metadata_a_file_names_no_source() -> None:
    content = saved_bytes(everything(), metadata=False)
    assert b"programs.py" not in entries_of(content)["program.json"].split(b'"metadata"')[1]
    args, kwargs = example_of_everything()
    assert_same(loaded(content).module()(*args, **kwargs), eager_everything()(*args, **kwargs))


def eager_everything() -> nn.Module:
    torch.manual_seed(0)
    return Everything()


def test_what_users_note_on_nodes_stays() -> None:
    program = small()
    node = next(iter(program.graph.find_nodes(op="call_function", target=torch.ops.aten.linear.default)))
    node.meta["custom"] = {"stage": 3, "names": ["a", "b"]}
    node.meta["stack_trace"] = "somewhere else\n"
    again = next(iter(round_trip(program).graph.find_nodes(op="call_function", target=torch.ops.aten.linear.default)))
    assert again.meta["custom"] == {"stage": 3, "names": ["a", "b"]}
    assert again.meta["stack_trace"] == "somewhere else\n"


def test_custom_operators_by_name() -> None:
    @torch.library.custom_op("tintype_serde::doubled", mutates_args=())
    def doubled(value: torch.Tensor) -> torch.Tensor:
        return value * 2

    doubled.register_fake(lambda value: torch.empty_like(value))
    program = round_trip(tintype.export(lambda value: torch.ops.tintype_serde.doubled(value), (torch.ones(2),)))
    assert_same(program.module()(torch.ones(2)), torch.full((2,), 2.0))


# --- structure ----------------------------------------------------------------------------------------------------

Known = collections.namedtuple("Known", ["a", "b"])
Unregistered = collections.namedtuple("Unregistered", ["a", "b"])
tintype.register_namedtuple(Known, serialized_type_name="tests.serde.Known")

CONTAINERS = {
    "ordered": lambda x: collections.OrderedDict(b=x, a=x + 1),
    "default": lambda x: collections.defaultdict(list, {"a": x}),
    "deque": lambda x: collections.deque([x, x + 1], maxlen=4),
    "named tuple": lambda x: Known(x, x + 1),
    "named tuple that nobody registered": lambda x: Unregistered(x, x + 1),
    "integer keys": lambda x: {1: x, 2: [x, (x,)]},
    "return type": lambda x: torch.max(x, 0),
    "nothing": lambda x: None,
}


@pytest.mark.parametrize("function", CONTAINERS.values(), ids=CONTAINERS.keys())
def test_containers(function: Any) -> None:
    program = round_trip(tintype.export(function, (torch.ones(3, 2),)))
    assert_same(program.module()(torch.ones(3, 2)), function(torch.ones(3, 2)))


def test_a_container_without_a_name_can_not_be_saved() -> None:
    Unknown = collections.namedtuple("Unknown", ["a", "b"])
    program = tintype.export(lambda x: Unknown(x, x), (torch.ones(2),))
    with pytest.raises(UnsavableError, match=r"Unknown is part of .*\n.*tintype\.register_namedtuple"):
        saved_bytes(program)


def test_a_container_that_is_not_registered_where_the_file_is_loaded() -> None:
    entries = entries_of(saved_bytes(everything()))
    entries["program.json"] = entries["program.json"].replace(b"tests.serde.Pair", b"tests.serde.Bear")
    with pytest.raises(tintype.FileFormatError, match=r"'tests\.serde\.Bear', which is not registered here"):
        loaded(archive_of(entries))


def test_a_named_tuple_is_found_in_its_module_if_that_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    file = saved_bytes(tintype.export(lambda pair: Unregistered(pair.b, pair.a), (Unregistered(torch.ones(2), 1),)))
    assert type(loaded(file).module()(Unregistered(torch.ones(2), 1))) is Unregistered
    module = sys.modules[__name__]
    monkeypatch.setattr(module, "Unregistered", collections.namedtuple("Unregistered", ["a", "b", "c"]))
    with pytest.raises(tintype.FileFormatError, match="has other fields here than in the file"):
        loaded(file)
    monkeypatch.delattr(module, "Unregistered")
    with pytest.raises(tintype.FileFormatError, match="import the module that defines it"):
        loaded(file)


# --- custom objects -----------------------------------------------------------------------------------------------


class Vocabulary:
    def __init__(self, words: list[str]) -> None:
        self.words = words


def test_custom_objects_need_a_serializer() -> None:
    program = small()
    program._constants["vocabulary"] = Vocabulary(["a"])
    with pytest.raises(UnsavableError, match=r"vocabulary is an object of Vocabulary.*\n.*tintype\.register_object"):
        saved_bytes(program)
    tintype.register_object(
        Vocabulary,
        name="tests.Vocabulary",
        save=lambda value: "\n".join(value.words).encode(),
        load=lambda content: Vocabulary(content.decode().split("\n")),
    )
    program._constants["vocabulary"] = program._constants["again"] = Vocabulary(["a", "b"])
    constants = round_trip(program).constants
    assert constants["vocabulary"].words == ["a", "b"]
    assert constants["again"] is constants["vocabulary"]


def test_other_tools_can_read_the_weights() -> None:
    program = small()
    content = entries_of(saved_bytes(program))["weights.safetensors"]
    tensors = dict(safetensors.deserialize(content))
    assert set(tensors) == {"weight", "bias"}
    assert tensors["weight"]["dtype"] == "F32"
    assert tensors["weight"]["shape"] == [2, 3]
    assert bytes(tensors["weight"]["data"]) == program.state_dict["weight"].detach().numpy().tobytes()


def test_nothing_in_a_file_is_a_pickle() -> None:
    for name, content in entries_of(saved_bytes(everything())).items():
        assert name.endswith((".json", ".safetensors"))
        with pytest.raises(pickle.UnpicklingError):
            pickle.loads(content)


# --- what other parts of programs bring -----------------------------------------------------------------------------


def test_joint_programs() -> None:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 1)

        def forward(self, value: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            return nn.functional.mse_loss(self.layer(value), target)

    inputs = (torch.ones(4, 3), torch.zeros(4, 1))
    program = tintype.export_joint(Loss(), inputs)
    again = round_trip(program)
    assert_same(again.module()(*inputs), program.module()(*inputs))
    assert again.graph_signature.backward_signature == program.graph_signature.backward_signature
    for key in ("seq_nr", "partitioner_tag"):
        assert [n.meta.get(key) for n in again.graph.nodes] == [n.meta.get(key) for n in program.graph.nodes]


def test_control_flow() -> None:
    def function(value: torch.Tensor, count: torch.Tensor) -> Any:
        chosen = torch.cond(value.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (value,))
        while_loop = torch.ops.higher_order.while_loop
        looped = while_loop(lambda i, x: i > 0, lambda i, x: (i - 1, x * 2), (count, chosen), ())
        return looped[1]

    def eager(value: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        return (value.sin() if value.sum() > 0 else value.cos()) * 2 ** int(count)

    program = round_trip(tintype.export(function, (torch.ones(3), torch.tensor(3))))
    for value, count in [(1.0, 3), (-1.0, 0), (0.5, 5)]:
        inputs = (torch.full((3,), value), torch.tensor(count))
        assert_same(program.module()(*inputs), eager(*inputs))
    decomposed = program.run_decompositions()
    assert_same(round_trip(decomposed).module()(*inputs), eager(*inputs))


def test_numbers_that_vary() -> None:
    def function(value: torch.Tensor, count: int, factor: float) -> torch.Tensor:
        return value.repeat(count) * factor

    shapes = {"value": None, "count": tintype.Dim.DYNAMIC, "factor": tintype.Dim.DYNAMIC}
    program = tintype.export(function, (torch.ones(2), 3, 0.5), dynamic_shapes=shapes)
    again = round_trip(program)
    assert saved_bytes(again) == saved_bytes(program)
    assert_same(again.module()(torch.ones(2), 5, 1.5), function(torch.ones(2), 5, 1.5))


def test_functions_among_the_inputs_are_known_by_name() -> None:
    content = saved_bytes(tintype.export(apply, (torch.ones(2), double)))
    module = loaded(content).module()
    assert_same(module(torch.ones(2), double), torch.full((2,), 2.0))
    with pytest.raises(tintype.TintypeError, match=r"to be equal to <function tests\.serde\.test_round_trip\.double"):
        module(torch.ones(2), apply)
    assert saved_bytes(loaded(content)) == content


def apply(value: torch.Tensor, function: Any) -> torch.Tensor:
    return function(value)


def double(value: torch.Tensor) -> torch.Tensor:
    return value * 2


def test_caches_of_transformers() -> None:
    import transformers

    def function(value: torch.Tensor) -> Any:
        cache = transformers.DynamicCache()
        cache.update(value, value + 1, 0)
        return cache

    program = round_trip(tintype.export(function, (torch.ones(1, 2, 3, 4),)))
    cache = program.module()(torch.ones(1, 2, 3, 4))
    assert isinstance(cache, transformers.DynamicCache)
    assert_same(cache.layers[0].values, torch.full((1, 2, 3, 4), 2.0))


def test_module_calls_that_were_preserved() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)
            self.same = self.inner

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            return self.same(self.inner(value))

    program = tintype.export(Outer(), (torch.ones(2, 3),), preserve_module_call_signature=("inner",))
    again = round_trip(program)
    assert again.module_call_graph == program.module_call_graph
    assert any(entry.signature is not None and entry.fqn for entry in again.module_call_graph)
    assert_same(tintype.unflatten(again)(torch.ones(2, 3)), program.module()(torch.ones(2, 3)))


def test_a_name_that_no_file_can_have_is_told_with_a_remedy(tmp_path: Any) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("it's", torch.ones(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + getattr(self, "it's")

    program = tintype.export(Model(), (torch.ones(1),))
    with pytest.raises(UnsavableError, match=r"no quotes[\s\S]*another name"):
        tintype.save(program, tmp_path / "program.tt")


def test_containers_that_are_not_here_may_be_plain(tmp_path: Path) -> None:
    """In another process, which knows none of the classes."""
    code = """
import collections, dataclasses, torch, tintype

@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    loss: torch.Tensor = None

class Grid:
    def __init__(self, cells, unit):
        self.cells, self.unit = cells, unit

Pair = collections.namedtuple("Pair", ["first", "second"])
tintype.register_dataclass(Output)
tintype.register_container(Grid)

def model(grid):
    return Output(grid.cells * 2), Grid(grid.cells + 1, grid.unit), Pair(grid.cells, {"a": grid.cells})

program = tintype.export(model, (Grid(torch.ones(2), "mm"),))
tintype.save(program, "model.tt")
"""
    (tmp_path / "save.py").write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    subprocess.run([sys.executable, "save.py"], cwd=tmp_path, env=environment, check=True)
    path = tmp_path / "model.tt"
    with pytest.raises(tintype.FileFormatError, match='containers="plain"'):
        tintype.load(path)
    program = tintype.load(path, containers="plain")
    given = SimpleNamespace(cells=torch.ones(2), unit="mm")
    output, grid, pair = program.module()(given)
    assert output.logits.tolist() == [2, 2] and output["loss"] is None
    assert grid.cells.tolist() == [2, 2] and grid.unit == "mm"
    assert type(pair) is tuple and pair[1]["a"].tolist() == [1, 1]
    with pytest.raises(tintype.TintypeError):
        program.module()(SimpleNamespace(cells=torch.ones(2), unit="cm"))
    tintype.save(program, tmp_path / "plain.tt")
    again = tintype.load(tmp_path / "plain.tt")
    assert again.module()(given)[0].logits.tolist() == [2, 2]
    with pytest.raises(tintype.TintypeError, match="'strict' or 'plain'"):
        tintype.load(path, containers="other")
