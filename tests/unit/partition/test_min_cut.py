"""The minimum cut, against networkx and by hand; unbounded networks name the path."""

import random

import networkx
import pytest

from ctk.compiler.partition.min_cut import Unbounded, minimum_cut


def network(seed: int, size: int, largest: int) -> dict[tuple[int, int], int | None]:
    """Return a random network without circles; its source is 0, its sink the last vertex."""
    rng = random.Random(seed)
    edges: dict[tuple[int, int], int | None] = {}
    for tail in range(size - 1):
        for head in rng.sample(range(tail + 1, size), k=min(3, size - 1 - tail)):
            edges[tail, head] = None if rng.random() < 0.2 else rng.randint(0, largest)
    return edges


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize(("size", "largest"), [(12, 8), (12, 2**40), (60, 50)])
def test_as_networkx(seed, size, largest):
    edges = network(seed, size, largest)
    graph = networkx.DiGraph()
    for (tail, head), capacity in edges.items():
        graph.add_edge(tail, head, **({} if capacity is None else {"capacity": capacity}))
    try:
        value = networkx.minimum_cut_value(graph, 0, size - 1)
    except networkx.NetworkXUnbounded:
        with pytest.raises(Unbounded) as caught:
            minimum_cut(edges, size=size, source=0, sink=size - 1)
        steps = list(zip(caught.value.path, caught.value.path[1:], strict=False))
        assert steps[0][0] == 0 and steps[-1][1] == size - 1
        assert all(edges[step] is None for step in steps)
        return
    cut = minimum_cut(edges, size=size, source=0, sink=size - 1)
    assert sum(edges[edge] for edge in cut) == value
    graph.remove_edges_from(cut)
    assert not networkx.has_path(graph, 0, size - 1)


def test_the_cut_nearest_to_the_sink():
    edges = {(0, 1): 5, (1, 2): 5, (2, 3): 5}
    assert minimum_cut(edges, size=4, source=0, sink=3) == [(2, 3)]


def test_capacities_beyond_32_bits():
    edges = {(0, 1): 40 * 2**30, (0, 2): 10, (1, 3): 39 * 2**30, (2, 3): 2**33}
    assert minimum_cut(edges, size=4, source=0, sink=3) == [(0, 2), (1, 3)]


def test_nothing_to_cut():
    assert minimum_cut({(0, 1): 3}, size=4, source=0, sink=3) == []
