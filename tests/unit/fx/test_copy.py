"""Copies of graphs keep names that FX would change, and share tensors but no node."""

import operator

import torch
from torch import fx

from ctk.compiler.fx.adopt import adopt
from ctk.compiler.fx.copy import copy_graph_module, copy_node, snapshot_graph
from ctk.compiler.fx.same import same_graph, state_of
from ctk.compiler.fx.walk import by_name
from ctk.toolkit.targets.inductor.snapshot import snapshot
from tests.helpers.executions import cond_graph, trace


def named():
    """A graph with the names of builtins, and a name that FX would count on from."""

    def program(x, y):
        return torch.add(torch.mul(x, y), torch.sin(x))

    gm = fx.symbolic_trace(program)
    for old, new in (("x", "input"), ("mul", "sum"), ("sin", "sum_1")):
        by_name(gm)[old].name = new
    gm.recompile()
    return gm


NAMES = ["input", "y", "sum", "sum_1", "add", "output"]


def test_every_copier_keeps_names():
    gm = named()
    copies = [
        copy_graph_module(gm),
        copy_graph_module(gm, lazy=True),
        snapshot_graph(gm)(),
        snapshot(gm),
    ]
    for copied in copies:
        assert [node.name for node in copied.graph.nodes] == NAMES
        assert same_graph(copied, gm)
        x, y = torch.tensor([0.5]), torch.tensor([2.0])
        assert torch.equal(copied(x, y), gm(x, y))


def test_a_snapshot_of_later_is_of_the_graph_as_it_was():
    gm = named()
    build = snapshot_graph(gm)
    mark = state_of(gm)
    by_name(gm)["add"].target = torch.sub
    assert state_of(gm) != mark
    assert state_of(build()) == mark


def test_a_copied_node_has_metadata_of_its_own():
    gm = named()
    by_name(gm)["sum"].meta["note"] = 1
    copied = by_name(copy_graph_module(gm))["sum"]
    copied.meta["note"] = 2
    assert by_name(gm)["sum"].meta["note"] == 1
    graph = fx.Graph()
    new = copy_node(graph, by_name(gm)["input"], lambda node: node)
    assert (new.name, new.graph) == ("input", graph)


def test_adopt_keeps_the_nodes_that_both_have():
    gm = named()
    saved = copy_graph_module(gm)
    live = by_name(gm)
    live["sum"].meta["note"] = "kept"
    live["sum_1"].meta["val"] = "stale"
    by_name(saved)["sum_1"].meta["val"] = "right"
    live["sum_1"].args = (live["y"],)
    with gm.graph.inserting_before(live["add"]):
        new = gm.graph.call_function(torch.neg, (live["sum"],))
    live["add"].args = (new, live["sum_1"])
    adopt(gm, saved)
    gm.graph.lint()
    assert same_graph(gm, saved)
    assert by_name(gm) == live
    assert live["sum"].meta["note"] == "kept"
    assert live["sum_1"].meta["val"] == "right", "what describes another computation is undone"


def test_adopt_brings_attributes_back_and_renews_on_demand():
    graph = fx.Graph()
    parts = [graph.create_node("get_attr", target) for target in ("weight", "block.bias")]
    graph.output(graph.call_function(torch.add, tuple(parts)))
    gm = fx.GraphModule({"weight": torch.ones(2), "block.bias": torch.zeros(2)}, graph)
    saved = copy_graph_module(gm)
    del gm.weight
    del gm.block
    old = by_name(gm)
    adopt(gm, saved, renew=True)
    assert torch.equal(gm(), torch.ones(2))
    assert gm.weight is saved.weight
    assert not set(by_name(gm).values()) & set(old.values())


def test_a_copied_graph_keeps_names_and_metadata_and_shares_tensors():
    gm = trace(lambda x: torch.relu(x + 1) * 2)
    gm.weight = torch.nn.Parameter(torch.ones(2))
    first = next(node for node in gm.graph.nodes if node.op == "call_function")
    first.name = "sum"  # FX itself would never give this name
    with gm.graph.inserting_before(first):
        weight = gm.graph.get_attr("weight")
    first.args = (first.args[0], weight)
    first.meta["tag"] = 1
    copied = copy_graph_module(gm)
    assert [n.name for n in copied.graph.nodes] == [n.name for n in gm.graph.nodes]
    assert copied.weight is gm.weight
    twin = next(node for node in copied.graph.nodes if node.name == "sum")
    twin.meta["tag"] = 2
    copied.graph.create_node("call_function", operator.add, (1, 1))
    assert first.meta["tag"] == 1
    assert len(copied.graph.nodes) == len(gm.graph.nodes) + 1


def test_a_copied_graph_has_its_own_branches():
    gm, _ = cond_graph()
    copied = copy_graph_module(gm, lazy=True)
    branch, twin = gm.cond_true_0, copied.cond_true_0
    assert twin is not branch
    assert twin.graph is not branch.graph
    assert str(twin.graph) == str(branch.graph)
