"""Eager code generation: the ground truth, boxed, and early about freeing memory."""

import weakref

import pytest
import torch
from torch.fx import Graph, GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from ctk.compiler.codegen.eager_nodes import eager_compile
from ctk.compiler.fx.clone import clone_value, layout
from tests.helpers.codegen_graphs import functional


def test_results_and_convention() -> None:
    x, y = torch.randn(3), torch.randn(3)
    gm = functional(lambda x, y: (x + y, x.shape[0], y), x, y)
    run, code = eager_compile(gm, [x, y]), gm.code
    args = [x, y]
    total, size, same = run(args)
    torch.testing.assert_close(total, x + y, rtol=0, atol=0)
    assert (size, args, run._boxed_call) == (3, [], True)
    assert same is y
    assert "torch.ops.aten.add.Tensor" in run.ctk_source()
    assert gm.code == code


def test_graph_without_inputs() -> None:
    assert eager_compile(functional(lambda: torch.ones(2)))([]).tolist() == [1.0, 1.0]


def test_missing_input_is_an_error() -> None:
    with pytest.raises(TypeError, match="takes 1 input, got 0"):
        eager_compile(functional(torch.sin, torch.ones(3)))([])


def test_inputs_die_after_their_last_use() -> None:
    """The graph asks, between two ops, whether its input still lives."""
    alive: list[bool] = []
    watched: list[weakref.ref] = []

    def look(value: object) -> object:
        alive.append(watched[0]() is not None)
        return value

    graph = Graph()
    x = graph.placeholder("x")
    before = graph.call_function(look, (graph.call_function(torch.sin, (x,)),))
    read = graph.call_function(torch.add, (x, before))
    graph.output((graph.call_function(look, (read,)),))
    args = [torch.randn(3)]
    watched.append(weakref.ref(args[0]))
    eager_compile(GraphModule({}, graph))(args)
    assert alive == [True, False]


def test_higher_order_ops_and_gradients_of_the_caller() -> None:
    def fn(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))

    gm = make_fx(fn, tracing_mode="symbolic")(torch.ones(3))
    for x in (torch.ones(3), -torch.ones(3)):
        torch.testing.assert_close(eager_compile(gm)([x]), fn(x))
    leaf = torch.ones(3, requires_grad=True)
    assert eager_compile(functional(torch.sin, torch.ones(3)))([leaf]).requires_grad


@pytest.mark.parametrize(
    "value",
    [
        torch.randn(4, 6)[1:, ::2],
        torch.randn(3, 4).t(),
        torch.randn(3, 1).expand(3, 5),
        torch.randn(0, 3),
        torch.randn(()),
        torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.eye(3).to_sparse(),
    ],
)
def test_clone_keeps_layout_and_owns_memory(value: torch.Tensor) -> None:
    clone = clone_value(value)
    assert isinstance(clone, torch.Tensor)
    assert layout(clone) == layout(value)
    assert torch.equal(clone.to_dense(), value.to_dense())
    if value.layout == torch.strided and value.numel():
        assert clone.untyped_storage().data_ptr() != value.untyped_storage().data_ptr()


def test_clone_of_a_leaf_requires_no_gradient() -> None:
    assert not clone_value(torch.ones(2, requires_grad=True)).requires_grad
    assert clone_value([torch.ones(1), 3])[1] == 3
