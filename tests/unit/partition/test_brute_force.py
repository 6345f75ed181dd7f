"""The cut against brute force: of all sets of values that may be saved, none has fewer bytes."""

import itertools
import random
from collections.abc import Iterable

import pytest
import torch
from torch.fx import Graph, GraphModule, Node

from ctk.compiler.partition.bans import hard_bans, soft_bans
from ctk.compiler.partition.classify import NodeInfo, classify_nodes
from ctk.compiler.partition.costs import total_nbytes
from ctk.compiler.partition.extract import find_backward_nodes
from ctk.compiler.partition.network import cut
from ctk.compiler.partition.options import PartitionOptions

aten = torch.ops.aten
OPERATORS = (aten.sin.default, aten.mm.default, aten.mul.Tensor, aten.sum.dim_IntList)


def drawn(seed: int) -> NodeInfo:
    """Return a joint graph of eight random nodes forward, of other sizes each, and gradients."""
    rng = random.Random(seed)
    graph = Graph()

    def sized(node: Node) -> Node:
        node.meta["val"] = torch.empty(rng.randint(1, 20), device="meta")
        return node

    forward = [sized(graph.placeholder(f"primals_{i}")) for i in (1, 2)]
    tangent = sized(graph.placeholder("tangents_1"))
    for _ in range(8):
        operator, count = rng.choice(OPERATORS), rng.randint(1, 2)
        forward.append(sized(graph.call_function(operator, tuple(rng.choices(forward, k=count)))))
    gradient = tangent
    for node in rng.sample(forward, k=3):
        gradient = sized(graph.call_function(aten.mul.Tensor, (gradient, node)))
    graph.output((forward[-1], gradient))
    return classify_nodes(GraphModule({}, graph), 1)


def is_enough(info: NodeInfo, saved: Iterable[Node], banned: frozenset[Node]) -> bool:
    """Return whether backward needs nothing that is banned, besides what is saved."""
    return banned.isdisjoint(find_backward_nodes(info, saved))


@pytest.mark.parametrize("seed", range(25))
def test_no_set_of_values_has_fewer_bytes(seed):
    info = drawn(seed)
    for banned in (hard_bans(info), hard_bans(info) | soft_bans(info, PartitionOptions())):
        found = cut(info, banned)
        assert is_enough(info, found.values, banned)
        assert found.nbytes == total_nbytes(found.values)
        values = [node for node in info.nodes if node not in info.backward]
        sets = (
            saved
            for count in range(len(values) + 1)
            for saved in itertools.combinations(values, count)
        )
        assert found.nbytes == min(
            total_nbytes(saved) for saved in sets if is_enough(info, saved, banned)
        )
