"""Compiled functions behave as the functions themselves: mutation, aliasing, gradients, modes, errors."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch

import tintype
from tests.aot.comparison import check
from tintype.errors import CaptureError, InvalidRequestError, MutationError, UnsupportedInputError


def plain(count: int = 2, *, grad: bool = True, leaf: bool = True) -> Callable[[], Any]:
    """Arguments: ``count`` matrices, which require gradients, as leaves or as results."""

    def make() -> Any:
        leaves = [torch.randn(3, 4, requires_grad=grad) for _ in range(count)]
        return (leaves if leaf else [x * 1 for x in leaves]), (leaves if grad else ())

    return make


def same_twice() -> Any:
    leaf = torch.randn(3, 4, requires_grad=True)
    x = leaf * 2
    return (x, x), (leaf,)


def apart_in_one() -> Any:
    leaf = torch.randn(6, 4, requires_grad=True)
    base = leaf * 2
    return (base[:3], base[3:]), (leaf,)


def views_of_one() -> Any:
    leaf = torch.randn(6, 4, requires_grad=True)
    base = leaf * 2
    return (base[:3], base[2:5]), (leaf,)


def base_and_view() -> Any:
    leaf = torch.randn(3, 4, requires_grad=True)
    base = leaf * 2
    return (base, base.view(-1)[:4]), (leaf,)


def views_without_gradient() -> Any:
    memory = torch.randn(24)
    return (memory[:12].view(3, 4), memory[6:18].view(4, 3)), ()


def written(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    x[0].add_(y.view(-1)[:4])
    return x * y.view(-1)[0]


def written_view(x: torch.Tensor, y: torch.Tensor) -> Any:
    v = x[1:]
    v[:, 0] = y[0, 0]
    return v, x.view(-1), v.t()


def returns_inputs(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x, x * y, y, x, y.t(), x.view_as(x), y.detach()


def aliases_of_intermediates(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x * y
    return z.view(-1), z[0], z.t(), z


def one_view_of_an_intermediate(x: torch.Tensor, y: torch.Tensor) -> Any:
    return (x * y).t()


def intermediate_written_through_views(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x * y
    z[0].mul_(3)
    a, b = z[:1], z.narrow(0, 1, 2)
    b.add_(1)
    return a.sin(), b, z.view(4, 3)


def no_history(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x * y
    with torch.no_grad():
        v = z.view(-1)
        w = x + 1
    return z, v, w, z.detach(), z.argmax(), None, 3, "text"


def nested(x: torch.Tensor, y: torch.Tensor) -> Any:
    return {"a": [x + y, (x * y,)], "b": None}


def same_output_twice(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x * y
    return z, z, [z]


def fresh_constant(x: torch.Tensor, y: torch.Tensor) -> Any:
    return torch.tensor([1.0, 2.0]), torch.zeros(2), x * y


def unused(x: torch.Tensor, y: torch.Tensor) -> Any:
    return x.sin()


def random(x: torch.Tensor, y: torch.Tensor) -> Any:
    return torch.nn.functional.dropout(x * y, 0.5), torch.rand(2), torch.nn.functional.dropout(x.t(), 0.5)


def history_dropped(x: torch.Tensor, y: torch.Tensor) -> Any:
    y.detach_()
    return x * y


def several_kinds(x: torch.Tensor, y: torch.Tensor) -> Any:
    return (x > 0), (x * y).to(torch.float64), torch.complex(x, y), x.long()


def unbound(x: torch.Tensor, y: torch.Tensor) -> Any:
    return (x * y).unbind(0)


def expanded(x: torch.Tensor, y: torch.Tensor) -> Any:
    return (x * y)[0].expand(5, 4), y[0].expand(2, 4)


def written_with_gradient(x: torch.Tensor, y: torch.Tensor) -> Any:
    x.copy_(y.sin())
    return x * 2


def written_without_gradient(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = y.sin()
    with torch.no_grad():
        x.add_(1)
    return z * x.detach(), x + 1


def saved_then_written(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = y.sin()
    x.add_(z)
    return x.exp()


def geometry_changed(x: torch.Tensor, y: torch.Tensor) -> Any:
    x.t_()
    y.unsqueeze_(0)
    return x * 2


def geometry_and_data_changed(x: torch.Tensor, y: torch.Tensor) -> Any:
    x.t_()
    x.mul_(2)
    return x + y.t(), x[0]


def grad_mode_changed(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x * y
    torch.set_grad_enabled(False)
    return z.clone(), z


PROGRAMS = [
    returns_inputs, aliases_of_intermediates, one_view_of_an_intermediate, intermediate_written_through_views,
    no_history,
    nested, same_output_twice, fresh_constant, unused, random, history_dropped,
    several_kinds, unbound, expanded, grad_mode_changed,
]  # fmt: skip
MUTATING = [written, written_view, written_with_gradient, written_without_gradient, saved_then_written]
PARTITIONERS = [{}, {"partitioner": "min_cut"}, {"partitioner": "min_cut", "memory_budget": 0.0}]


@pytest.mark.parametrize("options", PARTITIONERS, ids=["default", "min cut", "nothing saved"])
@pytest.mark.parametrize("leaf", [True, False], ids=["leaves", "results"])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_outputs_and_gradients(function: Callable[..., Any], leaf: bool, options: dict[str, Any]) -> None:
    check(function, plain(leaf=leaf), **options)


@pytest.mark.parametrize("function", PROGRAMS + MUTATING, ids=lambda f: f.__name__)
def test_without_gradients(function: Callable[..., Any]) -> None:
    check(function, plain(grad=False))


@pytest.mark.parametrize("options", PARTITIONERS, ids=["default", "min cut", "nothing saved"])
@pytest.mark.parametrize("function", MUTATING, ids=lambda f: f.__name__)
def test_written_inputs(function: Callable[..., Any], options: dict[str, Any]) -> None:
    check(function, plain(leaf=False), **options)


@pytest.mark.parametrize("function", [geometry_changed, geometry_and_data_changed], ids=lambda f: f.__name__)
def test_inputs_that_get_another_geometry(function: Callable[..., Any]) -> None:
    check(function, plain(grad=False))


def test_inputs_with_gradients_that_get_another_geometry() -> None:
    check(geometry_changed, plain(leaf=False))
    with pytest.raises(MutationError, match="another geometry and another value"):
        check(geometry_and_data_changed, plain(leaf=False))


@pytest.mark.parametrize("arguments", [same_twice, base_and_view, views_of_one, apart_in_one, views_without_gradient])
@pytest.mark.parametrize("options", PARTITIONERS, ids=["default", "min cut", "nothing saved"])
def test_arguments_that_share_memory(arguments: Callable[[], Any], options: dict[str, Any]) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = y * 2
        x.mul_(3)
        return y.sin(), z, x.view(-1)[:2], y, x

    check(function, arguments, **options)
    check(lambda x, y: (x.sum() * y, x[0], y, y.view(-1), x.sin(), y.t()), arguments, **options)


def test_one_compiled_function_for_several_kinds_of_arguments() -> None:
    compiled = tintype.aot.function(lambda x, y: x.add_(y).sum() * 2)
    from tests.aot.comparison import compare

    for arguments in (plain(leaf=False), same_twice, plain(grad=False), plain(leaf=False)):
        compare(lambda x, y: x.add_(y).sum() * 2, compiled, arguments)


def test_arguments_that_share_memory_without_a_common_history() -> None:
    def make() -> tuple[torch.Tensor, torch.Tensor]:
        memory = torch.arange(12.0)
        return memory.view(3, 4).detach(), memory.detach()[4:8]

    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = y * 2
        x.mul_(3)
        return z, y + 0, x[1]

    (x, y), (a, b) = make(), make()
    torch.testing.assert_close(tintype.aot.function(function)(x, y), function(a, b))
    torch.testing.assert_close((x, y), (a, b))
    assert x._version > 0 and y._version > 0


def test_a_write_to_a_leaf_is_refused_as_in_eager_mode() -> None:
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(
        RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"
    ):
        tintype.aot.function(lambda x: x.mul_(2))(x)
    with pytest.raises(RuntimeError, match="is being used in an in-place operation"):
        tintype.aot.function(lambda x: x.set_(torch.ones(2)))(x)


def test_a_leaf_may_be_written_to_without_gradients() -> None:
    def function(x: torch.Tensor) -> Any:
        with torch.no_grad():
            x.mul_(2)
        return x * x

    def arguments() -> Any:
        leaf = torch.randn(3, requires_grad=True)
        return (leaf,), (leaf,)

    check(function, arguments)


def test_what_autograd_saved_and_somebody_wrote_to_is_noticed() -> None:
    compiled = tintype.aot.function(lambda x: x.exp())
    x = torch.ones(2, requires_grad=True)
    y = compiled(x)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("given", [True, False])
def test_double_backward_is_refused(given: bool) -> None:
    compiled = tintype.aot.function(lambda x: x.sin().exp())
    x = torch.tensor(1.0, requires_grad=True)
    gradient = torch.tensor(1.0, requires_grad=True) if given else None
    (first,) = torch.autograd.grad(compiled(x), x, create_graph=True, grad_outputs=gradient)
    torch.testing.assert_close(first, x.cos() * x.sin().exp())
    message = "torch.compile with aot_autograd does not currently support double backward"
    with pytest.raises(CaptureError, match=message) as caught:
        torch.autograd.grad(first, x)
    assert "create_graph=True" in str(caught.value)


def test_double_backward_inside_of_the_function_works() -> None:
    def function(x: torch.Tensor) -> Any:
        y = x.sin().exp()
        (first,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
        return first, second

    def arguments() -> Any:
        leaf = torch.randn(3, requires_grad=True)
        return (leaf,), (leaf,)

    check(function, arguments)


def test_parameters_that_the_function_finds_elsewhere_get_gradients() -> None:
    model = torch.nn.Linear(4, 2)
    step = tintype.aot.function(lambda x: model(x).square().sum())
    x = torch.randn(3, 4)
    step(x).backward()
    found = [p.grad for p in model.parameters()]
    expected = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    torch.testing.assert_close(found, list(expected))


def test_gradients_come_in_any_layout() -> None:
    compiled = tintype.aot.function(lambda x: (x * 2).view(12).sin())
    x = torch.randn(3, 4, requires_grad=True)
    compiled(x).view(3, 4).t().sum().backward()
    torch.testing.assert_close(x.grad, (x * 2).cos().detach() * 2)


def test_autocast_is_part_of_the_graphs() -> None:
    compiled = tintype.aot.function(lambda x, y: (x @ y).sum())
    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(4, 3, requires_grad=True)
    assert compiled(x, y).dtype is torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        result, expected = compiled(x, y), (x @ y).sum()
    assert result.dtype is expected.dtype
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(torch.autograd.grad(result, x), torch.autograd.grad(expected, x))


def test_compilers_get_graphs_and_example_inputs() -> None:
    seen: list[tuple[str, list[Any], list[str]]] = []

    def compiler(name: str) -> Any:
        def compile_graph(graph_module: Any, examples: list[Any]) -> Any:
            targets = [str(node.target) for node in graph_module.graph.nodes if node.op == "call_function"]
            seen.append((name, [tuple(example.shape) for example in examples], targets))
            return graph_module

        return compile_graph

    compiled = tintype.aot.function(lambda x: x.sin(), fw_compiler=compiler("fw"), bw_compiler=compiler("bw"))
    x = torch.ones(3, requires_grad=True)
    compiled(x)
    compiled(x)
    assert seen == [
        ("fw", [(3,)], ["aten.sin.default"]),
        ("bw", [(3,), (3,)], ["aten.cos.default", "aten.mul.Tensor"]),
    ]
    with torch.no_grad():
        compiled(x)
    assert seen[2:] == [("fw", [(3,)], ["aten.sin.default"])]


def test_constants_are_part_of_what_is_compiled() -> None:
    compiled = tintype.aot.function(lambda x, n, flag=False: x * n + flag)
    assert compiled(torch.ones(1), 2).item() == 2
    assert compiled(torch.ones(1), 3).item() == 3
    assert compiled(torch.ones(1), 3, flag=True).item() == 4


def test_bad_requests_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="'default', 'min_cut' or a function"):
        tintype.aot.function(lambda x: x, partitioner="best")
    with pytest.raises(InvalidRequestError, match="memory_budget belongs to"):
        tintype.aot.function(lambda x: x, memory_budget=0.5)
    with pytest.raises(InvalidRequestError, match="a share from 0 to 1"):
        tintype.aot.function(lambda x: x * x, partitioner="min_cut", memory_budget=2)(
            torch.ones(1, requires_grad=True)
        )
    with pytest.raises(InvalidRequestError, match=r"expected a torch\.nn\.Module"):
        tintype.aot.module(lambda x: x)  # type: ignore[arg-type]


class Subclass(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError("operators of this tensor mean something else")


def test_tensor_subclasses_are_refused() -> None:
    given = torch.ones(2).as_subclass(Subclass)
    with pytest.raises(UnsupportedInputError, match="Subclass can't be captured"):
        tintype.aot.function(lambda x: x)(given)


def test_memory_shared_behind_autograds_back_is_refused_where_it_matters() -> None:
    memory = torch.ones(4)
    x, y = memory.detach().requires_grad_(), memory.detach().requires_grad_()
    compiled = tintype.aot.function(lambda x, y: x.mul_(2) * y)
    with pytest.raises(MutationError, match="share memory without being views of each other"):
        compiled(Alias.apply(x), Alias.apply(y))


class Alias(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.detach()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def test_the_data_pointer_of_a_fake_is_refused() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * x.data_ptr()

    with pytest.raises(CaptureError, match="Cannot access data pointer"):
        tintype.aot.function(function)(torch.ones(2))

    class Pointer(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            gradient.data_ptr()
            return gradient

    with pytest.raises(RuntimeError, match="Cannot access data pointer"):
        tintype.aot.function(Pointer.apply)(torch.ones(2, requires_grad=True))


def test_writes_to_expanded_memory() -> None:
    def function(x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        y = x.expand(3, *x.shape)
        y[1, 1].mul_(5)
        return y * z

    def arguments() -> Any:
        z = torch.arange(6.0, requires_grad=True)
        return (torch.arange(6.0), z), (z,)

    check(function, arguments)


def test_what_no_gradient_came_back_for_has_none() -> None:
    compiled = tintype.aot.function(lambda x, y: (x.sin(), y.cos()))
    x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    first, second = compiled(x, y)
    first.sum().backward(retain_graph=True)
    assert x.grad is not None and y.grad is None
    second.sum().backward()
    assert y.grad is not None


def views_made_without_gradients(x: torch.Tensor, y: torch.Tensor) -> Any:
    with torch.no_grad():
        v, w = x.view(-1), (y * 2).view(-1)
    return v, v.view(4, 3), v.sin(), w, w.t()


def detached_then_written(x: torch.Tensor, y: torch.Tensor) -> Any:
    v = x.detach()
    v.add_(y)
    z = x * 2
    w = z.detach()
    w[0].mul_(y[0])
    return v, v[0], z, w, w[0], w.t()


def test_a_detached_view_that_is_written_to_has_a_history_of_its_own() -> None:
    check(detached_then_written, plain(leaf=False))


def only_a_written_view(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = (x * y).view(-1)
    z.mul_(2)
    return z


def test_a_view_that_was_written_to_is_the_only_output() -> None:
    check(only_a_written_view, plain())
    check(only_a_written_view, plain(grad=False))


def test_results_lie_in_memory_as_in_eager_mode() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = x * y
        z.t().masked_fill_(z.t() > 1, 0.25)
        return z.sin(), z

    check(function, plain())


def test_what_gradients_end_at_may_have_no_backward() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = x.sin()
        with torch.no_grad():
            x.mul_(2)
            v = z.view(-1)
        return x.sin(), v

    check(function, plain())


def test_gradients_end_at_views_that_were_made_without() -> None:
    check(views_made_without_gradients, plain())
    check(lambda x, y: (*views_made_without_gradients(x, y), x * y), plain())


def test_what_eager_mode_refuses_in_backward_only_is_refused_there() -> None:
    def saved_and_written(x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        z = y * 1
        y.add_(1)
        return y + z

    def freed(x: torch.Tensor) -> torch.Tensor:
        (first,) = torch.autograd.grad(x.sin().exp().sum(), x, create_graph=True)
        torch.autograd.grad(first.sum(), x)
        return first

    for function, message in ((saved_and_written, "modified by an inplace operation"), (freed, "a second time")):
        x = torch.ones(2, requires_grad=True)
        result = tintype.aot.function(function)(x)
        torch.testing.assert_close(result, function(x))
        with pytest.raises(RuntimeError, match=message):
            result.sum().backward()


def test_a_model_that_the_function_finds_elsewhere_keeps_its_statistics() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    reference = copy.deepcopy(model)
    step = tintype.aot.function(lambda x: model(x).square().sum())
    for _ in range(2):
        x = torch.randn(5, 4)
        step(x).backward()
        reference(x).square().sum().backward()
    torch.testing.assert_close(model.state_dict(), reference.state_dict())
    torch.testing.assert_close([p.grad for p in model.parameters()], [p.grad for p in reference.parameters()])


def test_the_value_of_a_tensor_found_elsewhere_is_not_taken_for_constant() -> None:
    scale = torch.tensor(2.0)
    compiled = tintype.aot.function(lambda x: x * scale)
    assert compiled(torch.ones(1)).item() == 2
    scale.fill_(3)
    assert compiled(torch.ones(1)).item() == 3


def test_arguments_are_not_kept_alive() -> None:
    def uses(tensor: torch.Tensor) -> int:
        return torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)

    model = torch.nn.Linear(4, 4)
    compiled = tintype.aot.function(lambda x: model(x).sin())
    x = torch.randn(3, 4)
    before, weight = uses(x), uses(model.weight)
    compiled(x).sum().backward()
    gc.collect()
    assert uses(x) == before
    assert uses(model.weight) == weight


def test_numbers_that_depend_on_data_are_no_outputs() -> None:
    with pytest.raises(CaptureError, match="returns a number that depends on data"):
        tintype.aot.function(lambda x: x.sum().item())(torch.ones(2))
    with pytest.raises(CaptureError, match="returns a object"):
        tintype.aot.function(lambda x: object())(torch.ones(2))


def test_a_write_to_no_element() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        y[3:].add_(1)
        return x * y, y[0]

    check(function, plain(leaf=False))
    check(function, plain(grad=False))


def test_views_of_memory_that_got_its_history_later() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = torch.zeros_like(x)
        v = z.view(-1)
        z.add_(x * y)
        return z, v

    check(function, plain())


def test_a_gradient_is_missing_for_a_result_whose_size_data_decide() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x[x > 0] * 2, x * 3

    compiled = tintype.aot.function(function)
    for chosen in (0, 1):
        found = []
        for run in (function, compiled):
            x = torch.arange(-2.0, 4.0, requires_grad=True)
            run(x)[chosen].sum().backward()
            found.append(x.grad)
        torch.testing.assert_close(found[1], found[0])


def test_a_complex_gradient_of_a_real_number_is_refused_when_it_is_asked_for() -> None:
    """Autograd has none for ``where`` of both kinds; its result is one all the same."""

    def choose(x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return torch.where(x > 0, x, z)

    x, z = torch.randn(3, requires_grad=True), torch.randn(3, dtype=torch.complex64)
    result = tintype.aot.function(choose)(x, z)
    assert torch.equal(result, choose(x, z))
    with pytest.raises(RuntimeError, match="isFloatingType"):
        result.abs().sum().backward()
    with pytest.raises(tintype.TintypeError, match="a joint graph needs it"):
        tintype.export_joint(lambda x, z: choose(x, z).abs().sum(), (x, z))


def test_what_data_decide_is_checked_before_there_are_gradients() -> None:
    def positive(x: torch.Tensor) -> torch.Tensor:
        found = x[x > 0]
        torch._check(found.shape[0] >= 2)
        return found * 2

    compiled = tintype.aot.function(positive)
    assert compiled(torch.ones(3, requires_grad=True)).tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(tintype.RuntimeAssertionError, match=">= 2"):
        compiled(torch.tensor([1.0, -1.0, -1.0], requires_grad=True))
