"""The graphs of a module, dotted targets, the leaves of an output, the order of nodes."""

import graphlib

import pytest
import torch
from torch import fx, nn

from ctk.compiler.fx.walk import (
    attributes,
    children,
    distinct_graphs,
    fetch,
    flat,
    graphs_by_path,
    input_names,
    output_leaves,
    topological,
)


def leaf(function):
    return fx.symbolic_trace(lambda x: function(x))


def calling(**modules):
    """A graph that calls each of its modules, and a child `unused` that it does not call."""
    root = nn.Module()
    for name, module in {**modules, "unused": leaf(torch.neg)}.items():
        root.add_module(name, module)
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(tuple(graph.call_module(name, (x,)) for name in modules))
    gm = fx.GraphModule(root, graph)
    gm.add_module("unused", leaf(torch.neg))
    return gm


def test_the_graphs_of_a_module_are_those_that_nodes_refer_to():
    inner = calling(deep=leaf(torch.sin))
    gm = calling(second=leaf(torch.cos), first=inner)
    assert list(graphs_by_path(gm)) == ["", "second", "first", "first.deep"]
    assert [list(children(g)) for g in distinct_graphs(gm)] == [
        [],
        [],
        ["deep"],
        ["second", "first"],
    ]


def test_a_shared_graph_has_two_paths_and_is_one_graph():
    shared = leaf(torch.sin)
    gm = calling(a=shared, b=shared)
    assert list(graphs_by_path(gm)) == ["", "a", "b"]
    assert distinct_graphs(gm) == [shared, gm]


def test_a_swap_takes_the_place_of_a_graph():
    old, new = leaf(torch.sin), leaf(torch.cos)
    assert children(calling(a=old), {old: new}) == {"a": new}


def test_dotted_targets():
    gm = fx.GraphModule(nn.Module(), fx.Graph())
    gm.block = nn.Linear(2, 2, bias=False)
    assert fetch(gm, "block.weight") is gm.block.weight
    with pytest.raises(AttributeError):
        fetch(gm, "block.scale")


def test_an_attribute_that_a_pass_took_away_reads_as_none():
    gm = calling(a=leaf(torch.sin))
    del gm.a
    assert attributes(gm) == {"a": None}
    assert children(gm) == {}


def test_inputs_and_output_leaves():
    gm = fx.symbolic_trace(lambda x, y: {"a": (x, [y, 3])})
    assert input_names(gm) == ["x", "y"]
    assert [getattr(item, "name", item) for item in output_leaves(gm)] == ["x", "y", 3]
    assert flat(((1, [2]), {"k": 3}, 4)) == [1, 2, 3, 4]


def test_topological_moves_only_what_reads_something_later():
    reads = {"b": ["a"], "a": [], "c": ["b", "elsewhere"], "d": []}
    assert topological(["b", "a", "c", "d"], reads.__getitem__) == ["a", "b", "c", "d"]
    assert topological(["d", "a", "b", "c"], reads.__getitem__) == ["d", "a", "b", "c"]


def test_topological_refuses_a_cycle():
    reads = {"a": ["b"], "b": ["a"]}
    with pytest.raises(graphlib.CycleError):
        topological(["a", "b"], reads.__getitem__)
