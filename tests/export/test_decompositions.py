"""run_decompositions: to core ATen, with tables of the user's, keeping metadata and strides."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import tintype
from tests.export.modes import assert_same, capture, compare, copied, targets
from tintype import Stage
from tintype.errors import DataDependentError, InvalidRequestError

aten = torch.ops.aten


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.feed = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 8))

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(value)
        value = value + self.attention(hidden, hidden, hidden, need_weights=False)[0]
        return value + self.feed(value)


def x(*sizes: int) -> torch.Tensor:
    return torch.randn(*(sizes or (2, 3, 8)))


def is_core(target: Any) -> bool:
    return torch.Tag.core in target.tags


def operators(program: tintype.ExportedProgram) -> set[Any]:
    return {n.target for n in program.graph.nodes if isinstance(n.target, torch._ops.OpOverload)}


# --- the default ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
def test_default_is_core_aten(training: bool) -> None:
    program = tintype.export(Block().train(training), (x(),)).run_decompositions()
    program.validate()
    assert program.stage is Stage.CORE
    names = targets(program)
    for gone in ("aten.linear.default", "aten.layer_norm.default", "aten.dropout.default", "aten.matmul.default"):
        assert gone not in names
    others = {str(op) for op in operators(program) if not is_core(op)}
    assert others <= {"aten.detach.default"}


def test_the_program_itself_stays_as_it_is() -> None:
    program = tintype.export(Block(), (x(),))
    before, signature = program.code, program.graph_signature
    decomposed = program.run_decompositions()
    assert decomposed is not program
    assert program.code == before
    assert program.graph_signature is signature
    assert program.stage is Stage.FUNCTIONAL
    assert decomposed.state_dict["norm.weight"] is program.state_dict["norm.weight"]


def test_values_and_gradients(mode: str) -> None:
    program = capture(mode, Block().eval(), (x(),))
    decomposed = program.run_decompositions()
    decomposed.validate()
    value = x()
    assert_same(decomposed.module()(value), program.module()(value))


def test_decomposing_twice() -> None:
    once = tintype.export(Block(), (x(),)).run_decompositions()
    twice = once.run_decompositions()
    twice.validate()
    assert targets(twice) == targets(once)
    assert twice.same_structure(once)


def test_training_stage() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(64, 2)
    )
    value = x(2, 3, 6, 6)
    training = tintype.export_for_training(model, (value,))
    decomposed = training.run_decompositions()
    decomposed.validate()
    assert training.stage is Stage.TRAINING
    assert "aten.relu_.default" in targets(training)
    assert "aten.relu_.default" not in targets(decomposed)
    assert set(decomposed.graph_signature.buffers_to_mutate.values()) == {
        "1.running_mean", "1.running_var", "1.num_batches_tracked",
    }  # fmt: skip
    direct = tintype.export(model, (value,)).run_decompositions()
    assert targets(direct) == targets(decomposed)
    assert_same(decomposed.module()(value), direct.module()(value))


def test_decomposed_programs_can_be_retraced() -> None:
    value = x()
    decomposed = tintype.export(Block().eval(), (value,)).run_decompositions()
    again = tintype.export(decomposed.module(), (value,))
    again.validate()
    # modules take inputs of any layout, so that a view of what the example's layout decides is a reshape in them
    assert targets(again.run_decompositions()) == targets(decomposed)
    assert_same(again.module()(value), decomposed.module()(value))


# --- metadata --------------------------------------------------------------------------------------------------


def test_stack_traces_and_module_stacks_are_kept() -> None:
    program = tintype.export(Block(), (x(),))
    decomposed = program.run_decompositions()
    for node in decomposed.graph.nodes:
        if node.op == "call_function":
            assert "test_decompositions.py" in node.meta["stack_trace"], node
            assert node.meta["nn_module_stack"], node
    linear = [n for n in decomposed.graph.nodes if n.target is aten.addmm.default]
    paths = [list(n.meta["nn_module_stack"].values())[-1][0] for n in linear]
    assert "feed.0" in paths
    assert "feed.3" in paths


def test_values_of_nodes_are_those_of_the_run() -> None:
    """What a node says of its value is what it computes: size, dtype and strides."""
    value = x()
    decomposed = tintype.export(Block().eval(), (value,)).run_decompositions()
    interpreter = Checking(decomposed.graph_module)
    interpreter.run(*[decomposed.state_dict[n] for n in decomposed.graph_signature.parameters], *(
        decomposed.constants[n] for n in decomposed.graph_signature.lifted_tensor_constants
    ), value)  # fmt: skip


class Checking(torch.fx.Interpreter):
    def run_node(self, node: torch.fx.Node) -> Any:
        result = super().run_node(node)
        said = node.meta.get("val")
        if isinstance(result, torch.Tensor) and isinstance(said, torch.Tensor):
            assert said.shape == result.shape, node
            assert said.dtype is result.dtype, node
            assert said.stride() == result.stride(), f"{node}: {said.stride()}, not {result.stride()}"
        return result


# --- tables ------------------------------------------------------------------------------------------------------


def test_an_empty_table_leaves_composite_operators_whole() -> None:
    """A table is all that is decomposed, as in torch; what may be a view or a write is decomposed nevertheless."""
    program = tintype.export(Block().eval(), (x(),))
    same = program.run_decompositions({})
    same.validate()
    assert same.stage is Stage.FUNCTIONAL
    names = set(targets(same))
    assert {"aten.linear.default", "aten.layer_norm.default", "aten.scaled_dot_product_attention.default"} <= names
    assert not {"aten.dropout.default", "aten.reshape.default"} & names
    value = x()
    assert_same(same.module()(value), program.module()(value))


class Small(nn.Module):
    """One operator of each kind that tables treat in their own way."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return nn.functional.softplus(self.norm(self.linear(value)))


@pytest.mark.parametrize("kept", [["linear"], ["linear", "layer_norm"], ["softplus"]])
def test_the_default_table_can_be_edited(kept: list[str]) -> None:
    value = x()
    program = tintype.export(Small(), (value,))
    table = tintype.default_decompositions()
    theirs = torch.export.default_decompositions()
    for name in kept:
        del table[getattr(aten, name).default]
        del theirs[getattr(aten, name).default]
    decomposed = program.run_decompositions(table)
    decomposed.validate()
    left = {name for name in ("linear", "layer_norm", "softplus") if f"aten.{name}.default" in targets(decomposed)}
    assert left == set(kept)
    assert_same(decomposed.module()(value), program.module()(value))
    by_torchs = program.run_decompositions(theirs)
    assert targets(by_torchs) == targets(decomposed)


def test_the_default_table_is_what_no_table_means() -> None:
    value = x()
    program = tintype.export(Block().eval(), (value,))
    for table in (tintype.default_decompositions(), {**tintype.default_decompositions()}):
        decomposed = program.run_decompositions(table)
        assert decomposed.stage is Stage.CORE
        assert targets(decomposed) == targets(program.run_decompositions())


def test_an_entry_of_the_users_in_the_default_table() -> None:
    def linear(value: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.einsum("...i,oi->...o", value, weight) + bias

    value = x()
    program = tintype.export(Small(), (value,))
    table = {**tintype.default_decompositions(), aten.linear.default: linear}
    decomposed = program.run_decompositions(table)
    assert "aten.addmm.default" not in targets(decomposed)
    assert "aten.native_layer_norm.default" in targets(decomposed)
    assert_same(decomposed.module()(value), program.module()(value))


def test_composite_operators_of_the_users_stay() -> None:
    with torch.library._scoped_library("tintype_tables", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
        twice = torch.ops.tintype_tables.twice.default
        program = tintype.export(lambda value: twice(value).relu(), (x(),))
        table = tintype.default_decompositions()
        assert twice in table
        del table[twice]
        for kept in (program.run_decompositions({}), program.run_decompositions(table)):
            assert targets(kept)[0] == "tintype_tables.twice.default"
            value = x()
            assert_same(kept.module()(value), (value * 2).relu())
        assert targets(program.run_decompositions())[0] == "aten.mul.Tensor"


def test_table_with_one_entry() -> None:
    def softplus(value: torch.Tensor, beta: float = 1, threshold: float = 20) -> torch.Tensor:
        return torch.log1p(torch.exp(value * beta)) / beta

    value = x()
    program = tintype.export(nn.Sequential(nn.Linear(8, 8), nn.Softplus()), (value,))
    decomposed = program.run_decompositions({aten.softplus.default: softplus})
    decomposed.validate()
    assert "aten.softplus.default" not in targets(decomposed)
    assert "aten.log1p.default" in targets(decomposed)
    assert_same(decomposed.module()(value), program.module()(value))


def test_decomposition_that_branches_with_torchs_cond() -> None:
    """Which asks torch's compiler outside of captures."""

    def relu(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    program = tintype.export(lambda x: x.relu() + 1, (torch.ones(3),))
    decomposed = program.run_decompositions({torch.ops.aten.relu.default: relu}).module()
    for x in (torch.ones(3), -torch.ones(3)):
        torch.testing.assert_close(decomposed(x), (x.sin() if x.sum() > 0 else x.cos()) + 1)


def test_decomposition_that_makes_constants() -> None:
    def relu(value: torch.Tensor) -> torch.Tensor:
        return torch.maximum(value, torch.tensor(0.0))

    value = x()
    decomposed = tintype.export(nn.ReLU(), (value,)).run_decompositions({aten.relu.default: relu})
    decomposed.validate()
    assert_same(decomposed.module()(value), value.relu())


def test_decomposition_that_writes_in_place() -> None:
    def relu(value: torch.Tensor) -> torch.Tensor:
        result = value.clone()
        result[value < 0] = 0
        return result.mul_(1)

    value = x()
    decomposed = tintype.export(nn.ReLU(), (value,)).run_decompositions({aten.relu.default: relu})
    decomposed.validate()
    assert_same(decomposed.module()(value), value.relu())


def test_decomposition_into_other_entries_of_the_table() -> None:
    table = {
        aten.silu.default: lambda value: value * torch.ops.aten.sigmoid.default(value),
        aten.sigmoid.default: lambda value: 1 / (1 + torch.exp(-value)),
    }
    value = x()
    decomposed = tintype.export(nn.SiLU(), (value,)).run_decompositions(table)
    assert not {"aten.silu.default", "aten.sigmoid.default"} & set(targets(decomposed))
    assert_same(decomposed.module()(value), nn.functional.silu(value))


def test_decomposition_that_raises() -> None:
    def bad(value: torch.Tensor) -> torch.Tensor:
        raise KeyError("mine")

    program = tintype.export(nn.ReLU(), (x(),))
    with pytest.raises(KeyError, match="mine"):
        program.run_decompositions({aten.relu.default: bad})
    assert torch._C._len_torch_dispatch_stack() == 0
    assert program.run_decompositions().module()(x()) is not None


def test_decomposition_with_a_wrong_result() -> None:
    """A decomposition whose result has another size or dtype than the operator is refused, not believed."""
    program = tintype.export(lambda v: v.relu().view(-1), (x(),))
    for wrong in (lambda v: v.sum(), lambda v: v.double()):
        with pytest.raises((tintype.TintypeError, RuntimeError)):
            program.run_decompositions({aten.relu.default: wrong})


def test_decomposition_that_branches_on_data() -> None:
    """What only the data can tell is not guessed for a table of the user's either."""
    program = tintype.export(nn.ReLU(), (x(),))
    for branching in (
        lambda v: v * 10 if v.sum() > 0 else v * 20,
        lambda v: v * 10 if bool((v > 0).all()) else v * 20,
        lambda v: v.missing if torch.equal(v, v * 2) else v,
    ):
        with pytest.raises(DataDependentError) as caught:
            program.run_decompositions({aten.relu.default: branching})
        assert caught.value.location is not None and caught.value.location.filename == __file__


@pytest.mark.parametrize("wrong", [lambda v: (v, v), lambda v: [v], lambda v: None, lambda v: 3.0])
def test_decomposition_with_a_result_of_another_structure(wrong: Any) -> None:
    program = tintype.export(nn.ReLU(), (x(),))
    with pytest.raises(InvalidRequestError, match=r"aten.relu.default returns .*, but the operator Tensor"):
        program.run_decompositions({aten.relu.default: wrong})


def test_decomposition_with_too_few_results() -> None:
    program = tintype.export(lambda v: v.max(0), (x(),))
    with pytest.raises(InvalidRequestError, match=r"but the operator Tensor, Tensor"):
        program.run_decompositions({aten.max.dim: lambda v, dim, keepdim=False: (v.sum(dim),)})


def test_decomposition_into_itself() -> None:
    program = tintype.export(nn.ReLU(), (x(),))
    with pytest.raises(InvalidRequestError, match="never ends"):
        program.run_decompositions({aten.relu.default: torch.relu})
    assert torch._C._len_torch_dispatch_stack() == 0


@pytest.mark.parametrize(
    "table",
    [
        {aten.sin.default: lambda v: v.sin_()},
        {aten.sin.default: lambda v: v.view(-1).sin_().view(v.shape)},
        {aten.add.Tensor: lambda v, other: v.add_(other).clone()},
    ],
)
@pytest.mark.parametrize("training", [False, True])
def test_decomposition_that_writes_to_an_argument(table: Any, training: bool) -> None:
    """Who else reads the argument, the caller among them, would find it changed."""
    export = tintype.export_for_training if training else tintype.export
    program = export(lambda v: (v + 1) * (v + 1).sin() + v, (x(),))
    with pytest.raises(InvalidRequestError, match="writes to an argument of it"):
        program.run_decompositions(table)


def test_decomposition_of_torchs_that_calls_an_operator_which_writes() -> None:
    program = tintype.export(nn.BatchNorm1d(3).eval(), (x(),))
    table = torch._decomp.get_decompositions([aten._native_batch_norm_legit_no_training])
    with pytest.raises(InvalidRequestError, match=r"no_training.default writes to an argument"):
        program.run_decompositions(table)


def test_decomposition_that_writes_to_its_own() -> None:
    program = tintype.export(lambda v: v.sin() + v, (x(),))
    made = program.run_decompositions({aten.sin.default: lambda v: v.clone().sin_()})
    given = x()
    torch.testing.assert_close(made.module()(given), given.sin() + given)


def test_table_with_what_is_no_operator() -> None:
    program = tintype.export(nn.ReLU(), (x(),))
    with pytest.raises(InvalidRequestError, match="operator"):
        program.run_decompositions({"relu": lambda v: v})
    with pytest.raises(InvalidRequestError, match="operator"):
        program.run_decompositions({torch.relu: lambda v: v})


def test_torchs_own_table() -> None:
    from torch._decomp import core_aten_decompositions

    value = x()
    program = tintype.export(Block().eval(), (value,))
    decomposed = program.run_decompositions(dict(core_aten_decompositions()))
    decomposed.validate()
    assert_same(decomposed.module()(value), program.module()(value))


# --- preserve ------------------------------------------------------------------------------------------------------


def test_preserved_operators_stay() -> None:
    value = x()
    program = tintype.export(Block().eval(), (value,))
    kept = program.run_decompositions(preserve=(aten.linear.default, aten.layer_norm.default))
    kept.validate()
    assert "aten.linear.default" in targets(kept)
    assert "aten.layer_norm.default" in targets(kept)
    assert "aten.scaled_dot_product_attention.default" not in targets(kept)
    assert_same(kept.module()(value), program.module()(value))


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        (aten.relu_.default, "mutating/aliasing op"),
        (aten.view.default, "mutating/aliasing op"),
        (aten.add.Tensor, "not CompositeImplicitAutograd op"),
        (aten.sym_size.int, "metadata query function"),
        (aten.batch_norm.default, "functional op statically"),
        ("linear", "is not an operator overload"),
        (aten.linear, "is not an operator overload"),
    ],
    ids=["in-place", "view", "not-composite", "query", "hidden-write", "text", "packet"],
)
def test_what_can_not_be_preserved(operator: Any, message: str) -> None:
    program = tintype.export(nn.Linear(8, 8), (x(),))
    with pytest.raises(RuntimeError, match=message) as caught:
        program.run_decompositions(preserve=(operator,))
    assert isinstance(caught.value, InvalidRequestError)
    assert caught.value.id == "invalid-preservation"


# --- strides -------------------------------------------------------------------------------------------------------


def attention_then_view(value: torch.Tensor) -> torch.Tensor:
    """As in gpt2 at batch 2: the result of attention is transposed and viewed."""
    batch, length, width = value.shape
    heads = value.view(batch, length, 2, width // 2).transpose(1, 2)
    result = nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
    return result.transpose(1, 2).reshape(batch, length, width)


def attention_then_strict_view(value: torch.Tensor) -> torch.Tensor:
    heads = value.view(2, 3, 2, 4).transpose(1, 2)
    result = nn.functional.scaled_dot_product_attention(heads, heads, heads)
    return result.transpose(1, 2).contiguous().view(2, 3, 8)


def norm_of_transposed(value: torch.Tensor) -> torch.Tensor:
    result = nn.functional.layer_norm(value.transpose(1, 2), (3,))
    return result.transpose(1, 2).reshape(-1)


def batch_norm_of_channels_last(value: torch.Tensor) -> torch.Tensor:
    image = value.view(2, 3, 2, 4).to(memory_format=torch.channels_last)
    result = nn.functional.group_norm(image, 3)
    return result.permute(0, 2, 3, 1).reshape(2, -1)


def linear_of_transposed(value: torch.Tensor) -> torch.Tensor:
    result = nn.functional.linear(value.transpose(0, 1), torch.ones(4, 8))
    return result.transpose(0, 1).reshape(2, 12)


def dropout_then_view(value: torch.Tensor) -> torch.Tensor:
    return nn.functional.dropout(value.transpose(1, 2), 0.5, training=False).transpose(1, 2).view(-1)


def roll_then_view(value: torch.Tensor) -> torch.Tensor:
    """As in swin: shifted windows."""
    shifted = torch.roll(value.view(2, 3, 2, 4), shifts=(-1, -1), dims=(1, 2))
    return shifted.permute(0, 2, 1, 3).contiguous().view(-1, 12)


def upsample_then_view(value: torch.Tensor) -> torch.Tensor:
    image = value.view(2, 3, 2, 4).to(memory_format=torch.channels_last)
    larger = nn.functional.interpolate(image, scale_factor=2, mode="bilinear")
    return larger.permute(0, 2, 3, 1).reshape(2, -1)


@pytest.mark.parametrize(
    "function",
    [
        attention_then_view, attention_then_strict_view, norm_of_transposed, batch_norm_of_channels_last,
        linear_of_transposed, dropout_then_view, roll_then_view, upsample_then_view,
    ],
)  # fmt: skip
def test_strides_are_part_of_the_meaning(mode: str, function: Any) -> None:
    program = compare(mode, function, (x(),))
    value = x()
    assert program.module()(value).stride() == function(value).stride()


def test_decomposition_with_other_strides_before_a_view() -> None:
    """The table's entry returns a transposed result; the view that follows must still be right."""

    def relu(value: torch.Tensor) -> torch.Tensor:
        return value.transpose(-1, -2).clamp(min=0).contiguous().transpose(-1, -2)

    value = x()
    program = tintype.export(lambda v: v.relu().view(2, -1).t(), (value,))
    decomposed = program.run_decompositions({aten.relu.default: relu})
    decomposed.validate()
    result = decomposed.module()(value)
    assert_same(result, value.relu().view(2, -1).t())


def test_result_with_other_strides_is_as_eagers() -> None:
    def relu(value: torch.Tensor) -> torch.Tensor:
        return value.transpose(-1, -2).clamp(min=0).contiguous().transpose(-1, -2)

    value = x()
    decomposed = tintype.export(nn.ReLU(), (value,)).run_decompositions({aten.relu.default: relu})
    assert decomposed.module()(value).stride() == value.relu().stride()


# --- mutation and constants -----------------------------------------------------------------------------------------


class Mutating(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("history", torch.zeros(2, 3, 8))
        self.layer = nn.Linear(8, 8)

    def forward(self, value: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.history[:, 0] += value[:, 0]
        state.copy_(self.layer(value))
        return nn.functional.silu(value + self.history), state


def test_mutations_are_kept(mode: str) -> None:
    program = compare(mode, Mutating().requires_grad_(False), (x(), x()))
    decomposed = program.run_decompositions()
    decomposed.validate()
    assert set(decomposed.graph_signature.buffers_to_mutate.values()) == {"history"}
    assert set(decomposed.graph_signature.user_inputs_to_mutate.values()) == {"state"}
    first, second = (x(), x()), None
    second = copied(first)
    assert_same(decomposed.module()(*first), program.module()(*second))
    assert_same(first, second)


def test_tables_and_preservation_for_programs_of_every_kind(mode: str) -> None:
    program = capture(mode, Block().eval(), (x(),))
    for options in ({}, {"decomp_table": {}}, {"preserve": (aten.linear.default,)}):
        decomposed = program.run_decompositions(**options)
        decomposed.validate()
        value = x()
        assert_same(decomposed.module()(value), program.module()(value))


def test_numbers_and_constants_in_outputs() -> None:
    program = tintype.export(lambda v: {"n": 3, "v": v.softmax(-1), "none": None}, (x(),))
    decomposed = program.run_decompositions()
    value = x()
    assert_same(decomposed.module()(value), {"n": 3, "v": value.softmax(-1), "none": None})


def test_a_size_of_a_tensor_whose_decomposition_lies_otherwise_in_memory() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        x.unbind(-1)[0].mul_(3)
        return x.sum() * x.numel()

    shapes = ({0: tintype.Dim.AUTO, 1: tintype.Dim.AUTO},)
    core = tintype.export(f, (x(3, 4),), dynamic_shapes=shapes).run_decompositions()
    value = x(5, 4)
    torch.testing.assert_close(core.module()(value.clone()), f(value))


def test_many_layers_take_linear_time() -> None:
    """Not a benchmark: only that nothing grows with the square of the size."""
    import time

    def seconds(depth: int) -> float:
        model = nn.Sequential(*[layer for _ in range(depth) for layer in (nn.Linear(4, 4), nn.ReLU())])
        begin = time.perf_counter()
        tintype.export(model, (torch.ones(2, 4),)).run_decompositions()
        return time.perf_counter() - begin

    seconds(10)
    small, large = min(seconds(50) for _ in range(3)), min(seconds(400) for _ in range(2))
    assert large < small * 8 * 4


def test_complex_number_filled_into_a_real_tensor() -> None:
    x, mask = torch.randn(3), torch.tensor([True, False, True])
    core = tintype.export(lambda x, mask: x.masked_fill(mask, 1 + 0j), (x, mask)).run_decompositions()
    assert torch.equal(core.module()(x, mask), x.masked_fill(mask, 1 + 0j))


def test_one_tensor_given_twice_and_two_tensors() -> None:
    """What is kept of a decomposition for repeated layers must not take two tensors for one."""

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.stack([x, x]) * torch.stack([x, y]) + torch.stack([y, y])

    x, y = torch.randn(3), torch.randn(3)
    torch.testing.assert_close(tintype.export(f, (x, y)).run_decompositions().module()(x, y), f(x, y))


def test_no_mode_stays_on_after_a_decomposition_that_meets_numbers_from_data() -> None:
    def f(
        x: torch.Tensor, targets: torch.Tensor, lengths: torch.Tensor, target_lengths: torch.Tensor
    ) -> torch.Tensor:
        return torch.nn.functional.ctc_loss(x.log_softmax(-1), targets, lengths, target_lengths)

    args = (torch.randn(9, 2, 5), torch.tensor([[1, 2], [3, 4]]), torch.tensor([9, 9]), torch.tensor([2, 2]))
    program = tintype.export(f, args, dynamic_shapes=({0: tintype.Dim("frames")}, None, None, None))
    torch.testing.assert_close(program.run_decompositions().module()(*args), f(*args))
    assert torch._C._len_torch_function_stack() == 0


@pytest.mark.parametrize("rows", [3, 1])
def test_attention_with_a_mask_of_flags_at_varying_lengths(rows: int) -> None:
    def attention(query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(query, key, key, attn_mask=mask)

    def inputs(batch: int, length: int, count: int) -> tuple[torch.Tensor, ...]:
        mask = torch.rand(batch, 1, length, count) > 0.5
        return torch.randn(batch, 4, length, 8), torch.randn(batch, 4, count, 8), mask

    batch, length, count = tintype.dims("batch", "length", "count")
    shapes = ({0: batch, 2: length}, {0: batch, 2: count}, {0: batch, 2: length, 3: count})
    program = tintype.export(attention, inputs(2, rows, 7), dynamic_shapes=shapes).run_decompositions()
    assert not any("scaled_dot_product" in str(node.target) for node in program.graph.nodes)
    for sizes in ((2, rows, 7), (1, 5, 9), (3, 1, 1)):
        arguments = inputs(*sizes)
        torch.testing.assert_close(program.module()(*arguments), attention(*arguments))


@pytest.mark.parametrize("table", [None, {}], ids=["core", "empty table"])
def test_cosine_similarity_with_what_has_no_dimensions(table: Any) -> None:
    """It is broadcast before dtypes are."""

    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cosine_similarity(y, x, dim=1)

    x, y = torch.randn(3, 4), torch.ones((), dtype=torch.float64)
    program = tintype.export(f, (x, y), dynamic_shapes=({1: tintype.Dim("n")}, None))
    decomposed = program.run_decompositions(*(() if table is None else (table,)))
    assert decomposed.graph_module.graph.output_node().args[0][0].meta["val"].dtype is torch.float64
    for size in (0, 1, 5):
        torch.testing.assert_close(decomposed.module()(torch.ones(3, size), y), f(torch.ones(3, size), y))


@pytest.mark.parametrize("table", [None, {}], ids=["core", "empty table"])
def test_dtypes_that_torchs_decomposition_promotes_otherwise(table: Any) -> None:
    x, y = torch.randn(3), torch.ones((), dtype=torch.float64)
    program = tintype.export(lambda x, y: torch.block_diag(y, x), (x, y))
    decomposed = program.run_decompositions(*(() if table is None else (table,))).module()
    assert torch.equal(decomposed(x, y), torch.block_diag(y, x)) and decomposed(x, y).dtype is torch.float32
