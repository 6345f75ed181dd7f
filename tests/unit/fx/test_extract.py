"""Some nodes of a graph as a graph of their own: operands, results, names and constants."""

import torch
from torch.fx import symbolic_trace

from ctk.compiler.fx.extract import extract
from tests.helpers.codegen_graphs import functional

X = torch.linspace(0.1, 2.0, 4)


def test_operands_and_results_are_what_crosses_the_border() -> None:
    gm = functional(lambda x: x.relu().sin() + x, X)
    part = extract(gm, ["sin", "add"])
    assert (part.operands, part.results) == (("x_1", "relu"), ("add",))
    torch.testing.assert_close(part.module(X, X.relu())[0], X.relu().sin() + X)


def test_what_is_used_inside_and_outside_is_a_result() -> None:
    gm = functional(lambda x: (x.sin().cos(), x.sin()), X)
    part = extract(gm, ["sin", "cos", "no such node"])
    assert part.results == ("cos",)
    assert extract(gm, ["sin"]).results == ("sin",)


def test_names_that_fx_would_change_stay() -> None:
    gm = functional(lambda x: x.sum() * 2, X)
    (node,) = (each for each in gm.graph.nodes if each.op == "call_function" and "sum" in each.name)
    node.name = "sum"
    assert extract(gm, ["sum"]).results == ("sum",)
    product = next(each.name for each in gm.graph.nodes if each.name.startswith("mul"))
    part = extract(gm, [product])
    assert part.operands == ("sum",)
    assert part.module(torch.tensor(3.0))[0] == 6


def test_attributes_are_held_by_the_module() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = torch.nn.Module()
            self.block.weight = torch.nn.Parameter(torch.full((4,), 3.0))

        def forward(self, x):
            return x.sin() * self.block.weight

    gm = symbolic_trace(Model())
    part = extract(gm, ["mul"])
    assert part.operands == ("sin",)
    torch.testing.assert_close(part.module(X)[0], X * 3)


def test_a_node_that_nobody_uses_still_runs() -> None:
    def writing(x):
        x.copy_(x + 1)
        return x.shape[0]

    gm = functional(writing, X)
    (name,) = (each.name for each in gm.graph.nodes if "copy_" in each.name)
    part = extract(gm, [name])
    target, source = torch.zeros(4), torch.ones(4)
    values = {name: target if name.startswith("x") else source for name in part.operands}
    part.module(*values.values())
    assert target.tolist() == [1.0] * 4
