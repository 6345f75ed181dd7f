"""Properties of a node, and the facts of operators behind them."""

import operator

import pytest
import torch

from ctk.compiler.fx.properties import is_pure, is_random, is_view
from ctk.compiler.partition.bans import hard_bans, soft_bans
from ctk.compiler.partition.classify import classify_nodes
from ctk.compiler.partition.options import PartitionOptions

aten = torch.ops.aten
ATTENTION = aten._scaled_dot_product_flash_attention_for_cpu.default


@pytest.mark.parametrize(
    ("target", "arguments", "kwargs", "random"),
    [
        (ATTENTION, (), {}, False),
        (ATTENTION, (0.0,), {"scale": 0.5}, False),
        (ATTENTION, (0.5,), {}, True),
        (ATTENTION, (), {"dropout_p": 0.5}, True),
        (aten.rand_like.default, (), {}, True),
        (aten.sin.default, (), {}, False),
        (aten.native_dropout.default, (0.5, True), {}, True),
        (aten.native_dropout.default, (0.0, True), {}, True),
        (aten.native_dropout.default, (0.5, None), {}, True),
        (aten.native_dropout.default, (0.5, False), {}, False),
        (aten.native_dropout.default, (0.5,), {"train": False}, False),
    ],
)
def test_attention_is_random_where_it_drops(target, arguments, kwargs, random):
    graph = torch.fx.Graph()
    tensors = [graph.placeholder(name) for name in "qkv"]
    count = 3 if target is ATTENTION else 1
    node = graph.call_function(target, (*tensors[:count], *arguments), kwargs)
    assert is_random(node) is random
    assert is_pure(node) is not random


@pytest.mark.parametrize(("train", "drawn"), [(True, True), (False, False)])
def test_partitioner_and_passes_agree_on_dropout(train, drawn):
    """Dropout without training draws nothing: it may be merged, and computed again."""
    graph = torch.fx.Graph()
    primal, tangent = graph.placeholder("primals_1"), graph.placeholder("tangents_1")
    dropout = graph.call_function(aten.native_dropout.default, (primal, 0.5, train))
    item = graph.call_function(operator.getitem, (dropout, 0))
    cos = graph.call_function(aten.cos.default, (item,))
    graph.output((item, graph.call_function(aten.mul.Tensor, (tangent, cos))))
    for node in graph.nodes:
        value = torch.empty(4, device="meta")
        node.meta["val"] = (value, value.bool()) if node is dropout else value
    info = classify_nodes(torch.fx.GraphModule({}, graph), 1)
    assert is_pure(dropout) is not drawn
    assert (dropout in hard_bans(info)) is drawn  # "meta" has no generator state to save
    options = PartitionOptions(ban_not_in_allow_list=False)
    assert (dropout in soft_bans(info, options)) is drawn


@pytest.mark.parametrize(
    ("target", "view"),
    [
        (aten.transpose.int, True),
        (aten.view.default, True),
        (aten._unsafe_view.default, True),
        (operator.getitem, True),
        (aten.clone.default, False),
        (aten.add.Tensor, False),
    ],
)
def test_views_are_found_by_schema(target, view):
    graph = torch.fx.Graph()
    assert is_view(graph.call_function(target, (graph.placeholder("x"), 0))) is view
