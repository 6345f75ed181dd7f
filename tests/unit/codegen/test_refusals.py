"""What TorchScript code generation refuses, and that it names the node and the reason."""

import operator

import pytest
import torch
from torch import nn
from torch.fx import Graph, GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from ctk.compiler.codegen.torchscript.torchscript_codegen import ts_compile
from ctk.compiler.errors import CodegenUnsupported
from tests.helpers.codegen_graphs import functional

aten = torch.ops.aten
X = torch.ones(3)


def graph_of(build, *, root=None) -> GraphModule:
    graph = Graph()
    graph.output(build(graph, graph.placeholder("x")))
    return GraphModule(root or {}, graph)


def refusal(gm: GraphModule, *inputs: object) -> str:
    with pytest.raises(CodegenUnsupported) as caught:
        ts_compile(gm, list(inputs) or [X])
    return str(caught.value)


def test_higher_order_op() -> None:
    def fn(x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    message = refusal(make_fx(fn, tracing_mode="symbolic")(X))
    assert "node cond (cond): a higher-order operator" in message


def test_custom_operator() -> None:
    @torch.library.custom_op("ctk_codegen_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    gm = graph_of(lambda g, x: (g.call_function(torch.ops.ctk_codegen_test.twice.default, (x,)),))
    assert "node twice_default (ctk_codegen_test::twice.default): not an aten operator" in refusal(
        gm
    )


def test_prims() -> None:
    target = torch.ops.prims.convert_element_type.default
    gm = graph_of(lambda g, x: (g.call_function(target, (x, torch.float16)),))
    assert "prims::convert_element_type" in refusal(gm)


def test_module_call() -> None:
    gm = graph_of(lambda g, x: (g.call_module("inner", (x,)),), root={"inner": nn.ReLU()})
    assert "node inner (inner): a call_module node" in refusal(gm)


def test_method_call() -> None:
    gm = graph_of(lambda g, x: (g.call_method("relu", (x,)),))
    assert "node relu (relu): a call_method node" in refusal(gm)


def test_packet_without_overload() -> None:
    gm = graph_of(lambda g, x: (g.call_function(aten.add, (x, x)),))
    assert "node add (aten::add): an operator without an overload" in refusal(gm)


def test_python_function() -> None:
    gm = graph_of(lambda g, x: (g.call_function(torch.relu, (x,)),))
    assert "node relu (relu): a Python function" in refusal(gm)


def test_assertion_would_be_dropped() -> None:
    def build(g, x):
        g.call_function(aten._assert_async.msg, (x, "must hold"))
        return (x,)

    message = refusal(graph_of(build))
    assert (
        "node _assert_async_msg (aten::_assert_async.msg): an operator that returns nothing"
        in message
    )


def test_dead_random_op_would_be_dropped() -> None:
    def fn(x):
        torch.rand(3)
        return x + torch.rand(3)

    assert "drops or replaces a call of aten::rand" in refusal(functional(fn, X))


def test_other_overload_would_be_taken() -> None:
    """Without tolerances TorchScript cannot tell which of two overloads is meant."""
    gm = graph_of(lambda g, x: (g.call_function(aten.linalg_pinv.atol_rtol_tensor, (x,)),))
    wanted = "TorchScript takes aten::linalg_pinv.atol_rtol_tensor for aten::linalg_pinv."
    assert refusal(gm, torch.eye(3)).startswith(wanted)


def test_bool_as_a_scalar_that_decides_the_dtype() -> None:
    gm = graph_of(lambda g, x: (g.call_function(aten.mul.Tensor, (x, True)),))
    assert "node mul_tensor (aten::mul.Scalar): a bool as Scalar argument 'other'" in refusal(gm)


def test_number_for_a_tensor_without_overload() -> None:
    gm = graph_of(lambda g, x: (g.call_function(aten.maximum.default, (x, 2)),))
    assert "a number as Tensor argument 'other'" in refusal(gm)


def test_integer_power() -> None:
    def build(g, x):
        return (g.call_function(operator.pow, (g.call_function(aten.sym_size.int, (x, 0)), 2)),)

    assert "a power that is not known to be a float" in refusal(graph_of(build))


def test_number_of_unknown_type() -> None:
    gm = graph_of(lambda g, x: (g.call_function(aten._local_scalar_dense.default, (x,)),))
    assert "a number of unknown type" in refusal(gm, torch.tensor(1))


def test_write_to_a_constant() -> None:
    def build(g, x):
        return (g.call_function(aten.copy_.default, (g.get_attr("state"), x)),)

    gm = graph_of(build, root={"state": torch.zeros(3)})
    assert "writes to its constant constant_state" in refusal(gm)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (torch.fx.symbolic_trace(nn.ReLU()), "a nested graph"),
        (torch.Generator(), "a constant of type Generator"),
    ],
)
def test_constants(value: object, reason: str) -> None:
    def build(g, x):
        return (g.call_function(operator.getitem, (g.get_attr("held"), x)),)

    message = refusal(graph_of(build, root={"held": value}))
    assert message.startswith("TorchScript cannot take node held")
    assert reason in message


def test_fake_constant() -> None:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(3)
    gm = graph_of(
        lambda g, x: (g.call_function(aten.add.Tensor, (x, g.get_attr("held"))),),
        root={"held": fake},
    )
    assert "a fake tensor" in refusal(gm)


def test_input_of_another_type() -> None:
    def build(g, x):
        return (g.call_function(aten.rand.generator, ([2],), {"generator": x}),)

    assert "an input of type Generator" in refusal(graph_of(build), torch.Generator())


def test_nested_results() -> None:
    gm = graph_of(lambda g, x: ((x, x), x))
    assert "nested results" in refusal(gm)


def test_script_error_names_the_node() -> None:
    def build(g, x):
        wrong = g.call_function(aten.view.default, (x, ["three"]))
        return (wrong,)

    message = refusal(graph_of(build))
    assert message.startswith("torch.jit.script refuses the graph: ")
    assert message.endswith("(at node view_default)")
    assert "\n" not in message
