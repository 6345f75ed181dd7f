"""Copies: a graph keeps names and metadata, clones keep strides, identity and shared storage."""

import operator

import pytest
import torch

from ctk.compiler.fx.copy import copy_graph_module
from ctk.toolkit.run.clone import clone_inputs
from tests.helpers.executions import cond_graph, trace


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


def test_clones_keep_strides_leaves_parameters_and_identity():
    expanded = torch.arange(3.0).expand(4, 3)
    overlapping = torch.arange(12.0).as_strided((4, 4), (2, 1), 1)
    parameter = torch.nn.Parameter(torch.randn(2, 3).t())
    inputs = (expanded, overlapping, parameter, parameter, 7, None)
    clones = clone_inputs(inputs)
    for old, new in zip(inputs[:4], clones[:4], strict=True):
        assert new.data_ptr() != old.data_ptr()
        assert new.stride() == old.stride()
        assert new.storage_offset() == old.storage_offset()
        assert torch.equal(new, old)
    assert isinstance(clones[2], torch.nn.Parameter)
    assert clones[2].requires_grad and clones[2].is_leaf
    assert clones[3] is clones[2]
    assert clones[4:] == (7, None)


@pytest.mark.parametrize("dtype", [None, torch.float64])
def test_clones_that_shared_storage_share_it_again(dtype):
    base = torch.arange(12.0)
    first, rest, other = clone_inputs((base[:8], base[4:], torch.zeros(2)), dtype=dtype)
    first[4] = 100.0
    assert rest[0] == 100.0
    assert base[4] == 4.0
    assert other.untyped_storage().data_ptr() != first.untyped_storage().data_ptr()


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.eye(3).to_sparse(),
        torch.empty(0, 3),
        torch.tensor(1.5),
        torch.tensor([1, 2], dtype=torch.int8),
    ],
    ids=["conj", "sparse", "empty", "0-d", "int8"],
)
def test_unusual_tensors_are_cloned(tensor):
    (clone,) = clone_inputs((tensor,))
    assert clone is not tensor
    assert clone.dtype == tensor.dtype and clone.shape == tensor.shape
    torch.testing.assert_close(clone, tensor)
