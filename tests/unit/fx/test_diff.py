"""Hunks of two graphs: what belongs together, and any subset can be applied."""

import itertools

import pytest
import torch
from torch import fx

from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.fx.diff import align_names, diff_hunks
from ctk.compiler.fx.mix import apply_hunks
from ctk.compiler.fx.same import same_graph


def trace(function):
    return fx.symbolic_trace(function)


def replace(gm, node, target, args, kwargs=None):
    with gm.graph.inserting_before(node):
        new = gm.graph.call_function(target, args, kwargs or {})
    node.replace_all_uses_with(new)
    gm.graph.erase_node(node)
    return new


def two_products(x):
    a = torch.mul(x, 2.0)
    b = torch.mul(x, 3.0)
    return torch.add(a, b)


def replace_products(gm, target=torch.div):
    for node in list(gm.graph.nodes):
        if node.target is torch.mul:
            replace(gm, node, target, node.args)
    gm.recompile()
    return gm


def test_equal_graphs_have_no_hunks():
    assert diff_hunks(trace(two_products), trace(two_products)) == []
    assert same_graph(trace(two_products), trace(two_products))


def test_two_matches_that_feed_one_node_are_two_hunks():
    before, after = trace(two_products), replace_products(trace(two_products))
    hunks = diff_hunks(before, after)
    assert [h.erased for h in hunks] == [("mul",), ("mul_1",)]
    assert [h.substitutions for h in hunks] == [(("mul", "div"),), (("mul_1", "div_1"),)]


@pytest.mark.parametrize("taken", list(itertools.product([False, True], repeat=2)))
def test_every_subset_of_hunks_computes_what_it_says(taken):
    before, after = trace(two_products), replace_products(trace(two_products))
    hunks = diff_hunks(before, after)
    mixed = apply_hunks(before, after, itertools.compress(hunks, taken), hunks)
    x = torch.tensor([6.0])
    first = x / 2 if taken[0] else x * 2
    second = x / 3 if taken[1] else x * 3
    assert mixed(x) == first + second


def test_a_redefined_node_is_a_hunk_of_its_own():
    before, after = trace(two_products), trace(two_products)
    for node in after.graph.nodes:
        if node.name == "mul":
            node.target = torch.sub
    (hunk,) = diff_hunks(before, after)
    assert hunk.redefined == ("mul",)
    assert hunk.nodes == ("mul",)
    assert same_graph(apply_hunks(before, after, [], [hunk]), before)
    assert same_graph(apply_hunks(before, after, [hunk], [hunk]), after)


def chain(x):
    return torch.sin(torch.cos(torch.tanh(x)))


def test_recorded_replacements_separate_a_chain_that_changed_as_a_whole():
    before, after = trace(chain), trace(chain)
    replacements = []
    for node in list(after.graph.nodes):
        if node.op == "call_function":
            new = replace(after, node, torch.exp, node.args)
            replacements.append((node.name, new.name))
    assert len(diff_hunks(before, after)) == 1 or replacements
    hunks = diff_hunks(before, after, replacements)
    assert len(hunks) == 3
    mixed = apply_hunks(before, after, [hunks[0], hunks[2]], hunks)
    x = torch.tensor([0.5])
    assert torch.equal(mixed(x), torch.exp(torch.cos(torch.exp(x))))


def shared(x):
    a = torch.relu(x)
    b = torch.relu(x)
    return torch.add(torch.sin(a), torch.cos(b))


def test_merging_two_nodes_is_one_hunk_with_its_substitution():
    before, after = trace(shared), trace(shared)
    first, second = (n for n in after.graph.nodes if n.target is torch.relu)
    second.replace_all_uses_with(first)
    after.graph.erase_node(second)
    (hunk,) = diff_hunks(before, after)
    assert hunk.erased == (second.name,)
    assert hunk.substitutions == ((second.name, first.name),)
    assert same_graph(apply_hunks(before, after, [], [hunk]), before)


def test_a_match_of_two_nodes_is_one_hunk():
    def scaled(x, y):
        return torch.add(x, torch.mul(y, 0.5))

    before, after = trace(scaled), trace(scaled)
    add = next(n for n in after.graph.nodes if n.target is torch.add)
    mul = add.args[1]
    replace(after, add, torch.add, (add.args[0], mul.args[0]), {"alpha": 0.5})
    after.graph.erase_node(mul)
    (hunk,) = diff_hunks(before, after)
    assert set(hunk.erased) == {"add", "mul"}
    assert len(hunk.created) == 1


class Renaming(fx.Transformer):
    """Rebuilds every node, and makes each sine a cosine."""

    def call_function(self, target, args, kwargs):
        return super().call_function(torch.cos if target is torch.sin else target, args, kwargs)


def test_a_vetoed_hunk_keeps_names_that_fx_would_not_give():
    before = trace(two_products)
    for node, name in zip(list(before.graph.nodes), ("input", "sum", "mul_1"), strict=False):
        node.name = name
    after = replace_products(copy_graph_module(before))
    hunks = diff_hunks(before, after)
    assert [h.erased for h in hunks] == [("sum",), ("mul_1",)]
    mixed = apply_hunks(before, after, [hunks[1]], hunks)
    assert [n.name for n in mixed.graph.nodes] == ["input", "sum", "div_1", "add", "output"]
    assert mixed(torch.tensor([6.0])) == 6 * 2 + 6 / 3


def test_names_do_not_change_with_the_order_of_a_set():
    """Hunks that begin at the same node come in the order of the graph, in every process."""
    before, after = trace(two_products), trace(two_products)
    for node in after.graph.nodes:
        if node.name == "mul":
            node.target = torch.sub
    add = next(n for n in after.graph.nodes if n.name == "add")
    with after.graph.inserting_before(add):
        new = after.graph.call_function(torch.neg, (next(iter(after.graph.nodes)),))
    add.args = (new, add.args[1])
    hunks = diff_hunks(before, after)
    assert [(h.redefined, h.created) for h in hunks] == [(("mul",), ()), ((), ("neg",))]


def test_a_rebuilt_graph_is_aligned_before_it_is_compared():
    def program(x):
        return torch.sin(torch.relu(torch.sin(x) + 1)) * torch.tanh(x)

    before = trace(program)
    for number, node in enumerate(n for n in before.graph.nodes if n.op == "call_function"):
        node.name = f"original_{number}"
    after = Renaming(before).transform()
    align_names(before, after)
    hunks = diff_hunks(before, after)
    assert [len(h.nodes) for h in hunks] == [2, 2]
    x = torch.tensor([0.3])
    mixed = apply_hunks(before, after, [hunks[1]], hunks)
    assert torch.equal(mixed(x), torch.cos(torch.relu(torch.sin(x) + 1)) * torch.tanh(x))
