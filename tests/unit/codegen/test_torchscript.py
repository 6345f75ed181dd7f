"""TorchScript code generation against eager: values, strides, inputs and random state."""

import operator
import warnings

import pytest
import torch
from torch import nn
from torch.fx import Graph, GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from ctk.compiler.codegen.eager_nodes import eager_compile
from ctk.compiler.codegen.torchscript.torchscript_codegen import are_real, ts_compile
from ctk.compiler.fx.clone import clone_values
from tests.helpers.codegen_graphs import (
    assert_like_eager,
    assert_same,
    functional,
    module_graph,
    training_graph,
)

aten = torch.ops.aten


class Recurrent(nn.Module):
    """An LSTM cell unrolled over time."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(3, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden, cell = x.new_zeros(x.shape[1], 5), x.new_zeros(x.shape[1], 5)
        for step in x.unbind(0):
            hidden, cell = self.cell(step, (hidden, cell))
        return torch.stack([hidden, cell])


class Text(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8, padding_idx=0)
        self.norm = nn.LayerNorm(8)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.norm(self.embedding(tokens))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 3), nn.Softmax(-1))


def conv() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)


MODULES = {
    "mlp": (mlp, lambda: torch.randn(4, 6)),
    "conv": (conv, lambda: torch.randn(2, 3, 5, 5)),
    "encoder": (encoder, lambda: torch.randn(2, 5, 8)),
    "recurrent": (Recurrent, lambda: torch.randn(4, 2, 3)),
    "text": (Text, lambda: torch.randint(0, 11, (3, 4))),
}


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_modules(name: str, training: bool) -> None:
    build, example = MODULES[name]
    gm, inputs = module_graph(build().train(training), example())
    assert_like_eager(gm, inputs)


@pytest.mark.parametrize("name", ["mlp", "encoder", "recurrent", "text"])
def test_forward_and_backward(name: str) -> None:
    build, example = MODULES[name]
    gm, inputs = training_graph(build(), example())
    assert_like_eager(gm, inputs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_modules_in_other_precisions_are_exact(dtype: torch.dtype) -> None:
    gm, inputs = module_graph(mlp().to(dtype), torch.randn(4, 6, dtype=dtype))
    compiled = ts_compile(gm, inputs)
    for _ in range(3):
        for got, wanted in zip([compiled(list(inputs))], [gm(*inputs)], strict=True):
            torch.testing.assert_close(got, wanted, rtol=0, atol=0)


def test_channels_last_keeps_strides() -> None:
    x = torch.randn(2, 3, 5, 5).to(memory_format=torch.channels_last)
    gm, inputs = module_graph(conv().eval().to(memory_format=torch.channels_last), x)
    assert_like_eager(gm, inputs)


def test_frozen_weights() -> None:
    """Parameters as constants: freezing folds what it can, the layout of results stays."""
    module = conv().eval().to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 5, 5).to(memory_format=torch.channels_last)
    with torch.no_grad():
        gm = make_fx(module)(x)
    compiled = ts_compile(gm, [x])
    assert_same(compiled([x]), gm(x))


def random_ops(x):
    return (
        torch.rand(3),
        torch.rand(3),
        torch.randn_like(x),
        torch.randint(0, 9, (4,)),
        torch.randperm(5),
        nn.functional.dropout(x, 0.5),
        torch.bernoulli(x, 0.3),
        torch.empty_like(x).uniform_(-1, 1),
        torch.empty_like(x).exponential_(),
        x.softmax(-1).multinomial(2),
    )


def test_random_ops_draw_as_in_eager() -> None:
    x = torch.rand(4, 4)
    compiled = assert_like_eager(functional(random_ops, x), [x])
    first, second, *_ = compiled([x])
    assert not torch.equal(first, second), "two draws were merged into one"


def test_warm_up_leaves_random_state_and_inputs_alone() -> None:
    x = torch.rand(3)
    gm = functional(lambda x: x.add_(torch.rand(3)), x)
    before, state = x.clone(), torch.get_rng_state()
    ts_compile(gm, [x])
    assert torch.equal(x, before)
    assert torch.equal(state, torch.get_rng_state())


def mutating(x, y):
    old = x * 2
    x.mul_(3)
    y[0] = x[1]
    return old, x + y


def test_input_mutation_reaches_the_input() -> None:
    inputs = [torch.randn(3, 3), torch.randn(3, 3)]
    gm = functional(mutating, *inputs)
    assert "copy_" in gm.code
    compiled = assert_like_eager(gm, inputs)
    x, y = clone_values(inputs)
    compiled([x, y])
    torch.testing.assert_close(x, inputs[0] * 3)


def test_writes_to_computed_values_keep_dtype_and_strides() -> None:
    """Graphs that are not functional: TorchScript's own removal of mutation would promote types."""

    def fn(x):
        half = x.half().clone()
        half.add_(x)
        turned = torch.empty(4, 4).t()
        turned.copy_(x)
        return half, turned, torch.empty(4, 4).t().bernoulli_(0.5)

    x = torch.randn(4, 4)
    assert_like_eager(make_fx(fn)(x), [x])


def test_only_mutation_and_no_result() -> None:
    x = torch.randn(3)
    gm = functional(lambda x: x.add_(1) is None or (), x)
    assert_like_eager(gm, [x])


def test_dynamic_batch() -> None:
    def fn(x):
        n, m = x.shape
        flat = (x @ x.t()).view(n * n)
        return flat, n, x.expand(2, n, m).reshape(2 * n, m), torch.zeros(n // 2 + 1), x.sum() / n

    batches = [[torch.randn(size, 3)] for size in (4, 2, 7, 5)]
    gm = functional(fn, *batches[0], symbolic=True)
    assert "sym_size" in gm.code
    assert_like_eager(gm, *batches)


def test_symbolic_integer_inputs() -> None:
    graph = Graph()
    n, x = graph.placeholder("n"), graph.placeholder("x")
    double = graph.call_function(operator.mul, (n, 2))
    largest = graph.call_function(torch.sym_max, (double, 3))
    total = graph.call_function(torch.sym_sum, ([largest, n],))
    size = graph.call_function(operator.floordiv, (total, 2))
    no = graph.call_function(torch.sym_not, (graph.call_function(operator.eq, (n, 2)),))
    made = graph.call_function(aten.new_zeros.default, (x, [size]))
    graph.output((made, double, size, no, n, None, x))
    gm = GraphModule({}, graph)
    x = torch.randn(2)
    assert_like_eager(gm, [2, x], [5, x], [1, x])


def test_number_read_from_a_tensor_gets_its_traced_type() -> None:
    for dtype, kind in ((torch.int64, int), (torch.float64, float), (torch.bool, bool)):
        graph = Graph()
        node = graph.call_function(aten._local_scalar_dense.default, (graph.placeholder("x"),))
        graph.output((node,))
        node.meta["val"] = kind(1)
        assert_like_eager(GraphModule({}, graph), [torch.tensor(3, dtype=dtype)])


def test_results_that_need_no_computing() -> None:
    constant = torch.randn(3)

    def build() -> GraphModule:
        graph = Graph()
        x, unused = graph.placeholder("x"), graph.placeholder("unused")
        held = graph.get_attr("held")
        y = graph.call_function(aten.add.Tensor, (x, held))
        graph.output([y, None, x, y, held, 3, unused])
        return GraphModule({"held": constant}, graph)

    x, unused = torch.randn(3), torch.randn(1)
    compiled = assert_like_eager(build(), [x, unused])
    y, none, same, again, held, three, passed = compiled([x, unused])
    assert (none, three) == (None, 3)
    assert y is again
    assert same is x
    assert held is constant
    assert passed is unused


def test_none_as_an_input() -> None:
    graph = Graph()
    x, missing = graph.placeholder("x"), graph.placeholder("missing")
    norm = graph.call_function(aten.native_layer_norm.default, (x, [4], missing, missing, 1e-5))
    graph.output((graph.call_function(operator.getitem, (norm, 0)), missing))
    assert_like_eager(GraphModule({}, graph), [torch.randn(2, 4), None])


def test_single_result_is_not_put_into_a_tuple() -> None:
    gm = functional(torch.sin, torch.randn(3))
    x = torch.randn(3)
    torch.testing.assert_close(ts_compile(gm, [x])([x]), x.sin())


def test_results_are_fresh_in_every_call() -> None:
    """TorchScript folds these to constants; a caller may write to what it gets."""
    x = torch.randn(3)

    def fn(x):
        return x + 1, torch.zeros(3), torch.ones(1).expand(3), torch.arange(3)

    for graph in (functional(fn, x), functional(lambda x: (torch.zeros(3),), x)):
        compiled = ts_compile(graph, [x])
        wanted = graph(x)
        for _ in range(3):
            results = compiled([x])
            for got, expected in zip(results, wanted, strict=True):
                assert_same(got, expected)
                got[:1].add_(5)


def test_to_copy_always_copies() -> None:
    x = torch.randn(3)
    gm = functional(lambda x: x.to(torch.float64), x)
    compiled = ts_compile(gm, [x.double()])
    for _ in range(3):
        given = x.double()
        assert compiled([given]).data_ptr() != given.data_ptr()


def test_nested_constants_get_flat_names() -> None:
    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Module()
            self.a.b = nn.Parameter(torch.randn(3))
            self.register_buffer("a_b", torch.randn(3))

    graph = Graph()
    added = graph.call_function(aten.add.Tensor, (graph.get_attr("a.b"), graph.get_attr("a_b")))
    graph.output((graph.call_function(aten.mul.Tensor, (graph.placeholder("x"), added)),))
    assert_like_eager(GraphModule(Root(), graph), [torch.randn(3)])


def test_grad_mode_of_the_caller_does_not_matter() -> None:
    x = torch.randn(3, requires_grad=True)
    compiled = ts_compile(functional(torch.sin, x.detach()), [x])
    assert not compiled([x]).requires_grad


def test_fake_inputs_compile_without_a_call() -> None:
    from torch._subclasses import FakeTensorMode

    x = torch.randn(4, 4)
    gm = functional(lambda x: (x @ x).relu() + torch.ones(4), x)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(x)
        compiled = ts_compile(gm, [fake])
    assert not are_real([fake])
    torch.testing.assert_close(compiled([x]), gm(x))


def test_autocast_is_off_while_compiling() -> None:
    x = torch.randn(4, 4)
    gm = functional(lambda x: x @ x, x)
    with torch.autocast("cpu", torch.bfloat16):
        compiled = ts_compile(gm, [x])
    assert compiled([x]).dtype == torch.float32


def test_compiling_shows_no_warning() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        ts_compile(functional(torch.sin, torch.randn(3)), [torch.randn(3)])
    assert [str(each.message) for each in seen] == []


def test_wrong_number_of_inputs() -> None:
    compiled = ts_compile(functional(torch.sin, torch.randn(3)), [torch.randn(3)])
    with pytest.raises(TypeError, match="takes 1 input, got 2"):
        compiled([torch.randn(3), torch.randn(3)])


def test_errors_of_the_program_are_raised() -> None:
    gm = functional(lambda x, i: x[i], torch.randn(3), torch.tensor([0]))
    compiled = ts_compile(gm, [torch.randn(3), torch.tensor([0])])
    with pytest.raises((IndexError, RuntimeError), match="out of"):
        compiled([torch.randn(3), torch.tensor([9])])
    with pytest.raises(IndexError, match="out of"):
        eager_compile(gm)([torch.randn(3), torch.tensor([9])])
