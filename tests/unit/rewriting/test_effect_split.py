"""The effect of a whole pass as changes: numbered, refused one by one, names kept."""

import operator

import pytest
import torch
from torch import fx

from ctk import compile_fx
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.fx.same import same_graph
from ctk.compiler.fx.walk import by_name, children
from ctk.compiler.rewriting.effect_split import apply_changes, split_effect
from ctk.toolkit.compile_log.recorder import Recorder, Veto


def program(x):
    total = torch.mul(x, 3.0)
    return torch.sub(torch.sin(total), torch.add(total, x))


def named_program():
    """The program with names that FX would not give: those of builtins."""
    gm = fx.symbolic_trace(program)
    for old, new in (("x", "input"), ("mul", "sum"), ("sin", "max")):
        by_name(gm)[old].name = new
    return gm


def double(gm):
    """Two rewrites: the product by 3 becomes one by 6, the sum a product."""
    for node in list(gm.graph.nodes):
        if node.target in (torch.mul, torch.add):
            args = (node.args[0], 6.0) if node.target is torch.mul else node.args
            with gm.graph.inserting_before(node):
                new = gm.graph.call_function(operator.mul, args)
            node.replace_all_uses_with(new)
            gm.graph.erase_node(node)


@pytest.mark.parametrize("vetoed", [1, 2])
def test_a_veto_of_a_users_pass_keeps_the_names_of_all_other_nodes(vetoed):
    recorder = Recorder(Veto(rewrites=frozenset({vetoed})))
    x = torch.tensor([0.5])
    compiled = compile_fx(named_program(), [x], {"custom_passes": {"pre_grad": [double]}}, recorder)
    total = x * (3 if vetoed == 1 else 6)
    expected = torch.sin(total) - (total * x if vetoed == 1 else total + x)
    result = compiled(x)
    torch.testing.assert_close(result[0] if isinstance(result, tuple) else result, expected)
    (record,) = [p for p in recorder.log.passes() if p.id.name == "double"]
    assert [r.vetoed for r in record.rewrites] == [vetoed == 1, vetoed == 2]
    kept = {"input", "max", "sub", "output"} | ({"sum"} if vetoed == 1 else {"add"})
    assert kept < set(by_name(record.after))
    assert len(by_name(record.after)) == len(kept) + 1


def branches():
    """A graph that reads one sub-graph under two names, and another one under a third."""

    class Root(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = self.again = fx.symbolic_trace(lambda x: torch.relu(x))
            self.other = fx.symbolic_trace(lambda x: torch.sin(x))

    graph = fx.Graph()
    x = graph.placeholder("x")
    calls = [graph.call_module(name, (x,)) for name in ("first", "again", "other")]
    graph.output(tuple(calls))
    return fx.GraphModule(Root(), graph)


def cosines(gm):
    for module in {id(m): m for m in gm.modules() if isinstance(m, fx.GraphModule)}.values():
        for node in module.graph.nodes:
            if node.target in (torch.relu, torch.sin):
                node.target = torch.cos
        module.recompile()


def test_a_change_of_a_shared_subgraph_is_one_change_and_is_refused_everywhere():
    before, after = branches(), branches()
    cosines(after)
    changes = split_effect(before, after)
    assert [(change.path, change.nodes) for change in changes] == [
        ("first", ("relu",)),
        ("other", ("sin",)),
    ]
    mixed = apply_changes(before, after, changes[1:], changes)
    x = torch.tensor([-0.5])
    assert [value.item() for value in mixed(x)] == [0, 0, torch.cos(x).item()]
    assert children(mixed)["first"] is children(mixed)["again"]


def test_a_new_order_of_the_same_nodes_is_a_change_of_the_graph_as_a_whole():
    before = fx.symbolic_trace(lambda x: (torch.sin(x), torch.cos(x)))
    after = copy_graph_module(before)
    by_name(after)["cos"].append(by_name(after)["sin"])
    (change,) = split_effect(before, after)
    assert (change.rule, change.nodes) == ("new order", ())
    assert same_graph(apply_changes(before, after, [], [change]), before)
    assert same_graph(apply_changes(before, after, [change], [change]), after)


def test_a_subgraph_that_went_with_its_call_comes_back_with_it():
    before, after = branches(), branches()
    call = by_name(after)["other"]
    call.replace_all_uses_with(by_name(after)["first"])
    after.graph.erase_node(call)
    after.delete_all_unused_submodules()
    (change,) = split_effect(before, after)
    mixed = apply_changes(before, after, [], [change])
    assert same_graph(mixed, before)
