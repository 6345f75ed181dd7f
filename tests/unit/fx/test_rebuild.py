"""Changed copies of graphs: names stay, what only fed a changed node goes, effects stay."""

import torch
from torch import fx

from ctk.compiler.fx.effects import mutated_arguments
from ctk.compiler.fx.properties import mutated_bases
from ctk.compiler.fx.rebuild import Change, Inline, SameAs, rebuild
from ctk.compiler.fx.walk import by_name

aten = torch.ops.aten


def names(gm):
    return [node.name for node in gm.graph.nodes]


def test_a_chain_of_substitutes_is_followed_however_long_it_is():
    graph = fx.Graph()
    node = graph.placeholder("x")
    for _ in range(5000):
        node = graph.call_function(torch.cos, (node,))
    graph.output(node)
    calls = [node for node in graph.nodes if node.op == "call_function"]
    change = Change(substitutes={node.name: SameAs(node.args[0].name) for node in calls[1:]})
    built = rebuild(fx.GraphModule({}, graph), change)
    assert built is not None
    assert names(built.graph) == ["x", "cos", "output"]


def test_what_only_fed_a_changed_node_goes_and_names_stay():
    def program(x, y):
        return torch.sin(torch.relu(torch.mul(x, 2.0))) + torch.neg(y)

    gm = fx.symbolic_trace(program)
    by_name(gm)["mul"].name = "sum"
    by_name(gm)["x"].name = "input"
    built = rebuild(gm, Change(substitutes={"relu": SameAs("sum"), "neg": 3.0}))
    assert built is not None
    assert names(built.graph) == ["input", "sum", "sin", "add", "output"]
    assert built.inputs == ("input",)
    x = torch.tensor([0.5])
    assert torch.equal(built.graph(x), torch.sin(x * 2) + 3)


def test_inlined_nodes_get_names_that_no_outer_node_has():
    """The inner `add` comes before the outer one, which keeps its name."""
    inner = fx.symbolic_trace(lambda x: torch.add(torch.neg(x), 1))
    graph = fx.Graph()
    x = graph.placeholder("x")
    call = graph.call_module("inner", (x,))
    graph.output(graph.call_function(torch.add, (call, 2)))
    gm = fx.GraphModule({"inner": inner}, graph)
    built = rebuild(gm, Change(inlines={"inner": Inline(inner, (SameAs("x"),))}))
    assert built is not None
    assert names(built.graph) == ["x", "neg", "inner_add", "add", "output"]
    assert built.graph(torch.tensor(1.0)) == 2


def test_every_written_operand_is_known():
    graph = fx.Graph()
    a, b = graph.placeholder("a"), graph.placeholder("b")
    node = graph.call_function(aten._foreach_add_.Scalar, ([a, b], 1.0))
    graph.output(())
    assert mutated_arguments(node) == (a, b)
    assert mutated_bases(graph) == {a, b}
