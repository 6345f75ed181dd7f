"""What freezing makes constant, how it notices changes of the originals, how it drops them."""

import copy
import logging

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from ctk.compiler import pipeline
from ctk.compiler.backend import ctk
from ctk.compiler.errors import DiscardedParameterError
from ctk.compiler.freezing.call import fw_compiler_freezing
from ctk.compiler.freezing.freeze import freeze
from ctk.compiler.fx.walk import input_names
from ctk.compiler.torch_compat.aot import aot_dispatch as aot
from ctk.toolkit.compile_log.recorder import Recorder

X = torch.randn(3, 4)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)).eval()


def compiled(model, **options):
    torch._dynamo.reset()
    return torch.compile(model, backend=ctk, options={"freezing": True, **options})


def frozen_graph(model, *inputs):
    """Return what `freeze` makes of the ATen graph of a module, and what it says remains."""
    torch._dynamo.reset()
    found = []

    def backend(gm, example_inputs):
        def inference(graph, _):
            found.extend(freeze(gm, graph, example_inputs, transform=lambda graph, inputs: None))
            return graph

        return aot.trace(
            gm,
            example_inputs,
            forward=None,
            backward=None,
            inference=inference,
            partition=None,
            decompositions={},
        )

    with torch.no_grad(), pytest.raises(TypeError):  # it does not take all inputs any more
        torch.compile(model, backend=backend)(*inputs)
    return found


def test_freeze_says_which_inputs_remain():
    graph, preserved = frozen_graph(network(), X)
    assert len(preserved) == len(input_names(graph)) == 1
    assert len([n for n in graph.graph.nodes if n.op == "get_attr"]) == 8


def test_what_is_written_to_or_returned_stays_an_input():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.shown = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))
            self.register_buffer("count", torch.zeros(4))

        def forward(self, x):
            self.count.add_(1)
            return x * self.weight + self.count + self.shown, self.shown.view(2, 2)

    model, other = Counter(), Counter()
    _, preserved = frozen_graph(copy.deepcopy(model), X)
    assert len(preserved) == 3
    call = compiled(model, freezing_discard=True)
    with torch.no_grad():
        for _ in range(2):
            for mine, its in zip(call(X), other(X), strict=True):
                torch.testing.assert_close(mine, its)
    assert torch.equal(model.count, other.count)
    assert model.shown.sum() == 4
    with pytest.raises(DiscardedParameterError, match="weight"):
        model.weight.sum()


def test_fw_compiler_freezing_feeds_only_what_remains():
    model, given = network(), []

    def inner(graph, inputs):
        given.append(len(inputs))
        return lambda args: graph(*args)

    def backend(gm, example_inputs):
        def inference(graph, inputs):
            return fw_compiler_freezing(
                graph, inputs, captured=gm, example_inputs=example_inputs, inner_compile=inner
            )

        return aot.trace(
            gm,
            example_inputs,
            forward=None,
            backward=None,
            inference=inference,
            partition=None,
            decompositions={},
        )

    torch._dynamo.reset()
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend=backend)(X), model(X))
    assert given == [1]


def test_modules_of_one_class_have_constants_of_their_own():
    def program(model, x):
        return model(x)

    one, two = network(), nn.Sequential(*map(copy.deepcopy, network()))
    with torch.no_grad():
        two[0].weight.mul_(3)
        call = compiled(program)
        for model in (one, two, one):
            torch.testing.assert_close(call(model, X), model(X))
        one[0].weight = nn.Parameter(torch.ones(4, 4))
        torch.testing.assert_close(call(one, X), one(X))


def test_a_later_change_is_noticed(caplog):
    model = network()
    call = compiled(model)
    with torch.no_grad():
        call(X)
        for tensor in (model[1].running_mean, model[3].weight):
            tensor.add_(0.5)
            with caplog.at_level(logging.WARNING, logger="ctk.pipeline"):
                torch.testing.assert_close(call(X), model(X))
    told = [r.getMessage() for r in caplog.records]
    assert len(told) == 2 and "1.running_mean changed after freezing" in told[0]
    assert "and 1 more" in told[1]


def test_tied_parameters_and_training():
    model = network()
    model[3].weight = nn.Parameter(torch.randn(4, 4))
    model[3].bias, model[0].weight = model[0].bias, model[3].weight
    other = copy.deepcopy(model)
    call = compiled(model)
    with torch.no_grad():
        torch.testing.assert_close(call(X), other(X))
    for each in (call, other):
        each(X).sum().backward()
    torch.testing.assert_close(model[0].weight.grad, other[0].weight.grad)


TOUCHES = {
    "add": lambda p: p + 1,
    "linear": lambda p: nn.functional.linear(X, p),
    "data": lambda p: p.data,
    "deepcopy": lambda p: copy.deepcopy(p),
    "detach": lambda p: p.detach(),
    "numpy": lambda p: p.numpy(),
    "copy_": lambda p: p.copy_(torch.ones(4, 4)),
    "__deepcopy__": lambda p: p.__deepcopy__({}),
}


def test_discarded_parameters_say_so():
    model, other = network(), network()
    weight, kept = model[0].weight, [model[0].weight]
    call = compiled(model, freezing_discard=True)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(call(X), other(X))
    assert kept[0] is weight is model[0].weight
    assert repr(weight) == "<discarded parameter 0.weight: float32[4, 4]>"
    assert (weight.dtype, weight.requires_grad) == (torch.float32, True)
    assert isinstance(weight, nn.Parameter) and weight in set(model.parameters())
    assert "Linear(in_features=4, out_features=4, bias=True)" in repr(model)
    for name, touch in TOUCHES.items():
        with pytest.raises(DiscardedParameterError, match=r"0\.weight.*freezing_discard") as error:
            touch(weight)
        assert name.strip("_") in str(error.value)
    for touch in (model.state_dict, lambda: model(X), lambda: copy.deepcopy(model)):
        with pytest.raises(DiscardedParameterError, match=r"0\.weight"):
            touch()


def test_a_discarded_parameter_is_loaded_again():
    model = nn.Sequential(nn.Linear(4, 4)).eval()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        expected = model(X)
        compiled(model, freezing_discard=True)(X)
        model.load_state_dict(state, assign=True)
        assert torch.equal(model(X), expected)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_steps_of_fused_optimizers_are_noticed(kind, caplog):
    model = nn.Linear(4, 4).eval()
    call = compiled(model)
    with torch.no_grad():
        call(X)
    model(X).sum().backward()
    kind(model.parameters(), lr=1.0, fused=True).step()
    with torch.no_grad():
        assert torch.equal(call(X), model(X))
    assert "weight and 1 more changed after freezing" in caplog.text


def test_other_memory_behind_a_parameter_is_noticed(caplog):
    model = nn.Linear(4, 4).eval()
    call = compiled(model)
    with torch.no_grad():
        call(X)
        model.weight.data = torch.ones(4, 4)
        assert torch.equal(call(X), model(X))
    assert "weight changed after freezing" in caplog.text


def test_a_second_compile_of_a_discarded_module_says_so():
    model = network()
    with torch.no_grad():
        compiled(model, freezing_discard=True)(X)
        with pytest.raises(Exception, match=r"0\.weight.*was discarded"):
            compiled(model)(X)
        model[0].weight = nn.Parameter(torch.ones(4, 4))


def test_a_discarded_parameter_that_another_graph_needs():
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, 4))

        def forward(self, x):
            y = x @ self.weight
            torch._dynamo.graph_break()
            return y @ self.weight.t()

    with torch.no_grad():
        torch.testing.assert_close(compiled(Broken())(X), Broken()(X))
        with pytest.raises(Exception, match=r"weight.*was discarded.*freezing_discard=False"):
            compiled(Broken(), freezing_discard=True)(X)


def test_a_failed_compile_discards_nothing(monkeypatch):
    def broken(*_):
        raise ValueError("broken")

    monkeypatch.setattr(pipeline, "generate", broken)
    model = network()
    call = compiled(model, freezing_discard=True, on_failure="fallback")
    with torch.no_grad():
        torch.testing.assert_close(call(X), network()(X))
        torch.testing.assert_close(model(X), network()(X))


def test_a_watched_compile_discards_nothing():
    model = network()

    def backend(gm, example_inputs):
        options = {"freezing": True, "freezing_discard": True}
        return pipeline.compile_fx(gm, example_inputs, options, Recorder())

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend=backend)(X)
        torch.testing.assert_close(model(X), network()(X))


def test_gradients_need_the_parameters():
    model = network()
    call = compiled(model, freezing_discard=True)
    call(X).sum().backward()
    assert model[0].weight.grad is not None
    assert type(model[0].weight) is nn.Parameter


def test_the_plain_tensors_of_a_wrapper_subclass_are_frozen(caplog):
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(TwoTensor(torch.randn(4, 4), torch.randn(4, 4)))
            self.bias = nn.Parameter(torch.randn(4))

        def forward(self, x):
            return (nn.functional.linear(x, self.weight) + self.bias).sum()

    model = Pair().requires_grad_(False)
    graph, preserved = frozen_graph(model, X)
    assert len(preserved) == 1
    assert len([n for n in graph.graph.nodes if n.op == "get_attr"]) == 3
    fast = compiled(model)
    for part in ("a", "b"):
        result, expected = fast(X), model(X)
        assert torch.allclose(result.a, expected.a)
        assert torch.allclose(result.b, expected.b)
        with caplog.at_level(logging.WARNING, "ctk.pipeline"):
            getattr(model.weight, part).add_(1)
            assert torch.allclose(getattr(fast(X), part), getattr(model(X), part))
    assert "changed after freezing" in caplog.text
