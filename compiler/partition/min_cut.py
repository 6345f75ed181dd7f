"""The minimum cut of a network, on scipy: the cheapest edges that separate source and sink.

Of all minimum cuts it is the one nearest to the sink, which recomputes least. scipy's flows are
32-bit, so capacities beyond 2**30 in sum are rounded up to multiples of a unit: the cut is then
minimal up to one unit per edge, about a billionth of the sum.

Source: scipy.sparse.csgraph.maximum_flow, Dinic's algorithm.
"""

from collections.abc import Mapping
from typing import Any

LARGEST = 2**30
INFINITE = 2**31 - 1
Edge = tuple[int, int]


class Unbounded(Exception):
    """Every cut has an infinite edge; `path` has the vertices of such edges from source to sink."""

    def __init__(self, path: list[int]) -> None:
        super().__init__(f"a path of uncuttable edges: {path}")
        self.path = path


def minimum_cut(
    edges: Mapping[Edge, int | None], *, size: int, source: int, sink: int
) -> list[Edge]:
    """Return the edges of the minimum cut nearest to the sink.

    Args:
        edges: Capacity by (tail, head); None for infinite. The reverse of an edge is not allowed.

    Raises:
        Unbounded: Every cut has infinite capacity.
    """
    import numpy as np
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    _require_bounded(edges, size, source, sink)
    unit = -(-sum(capacity or 0 for capacity in edges.values()) // LARGEST) or 1
    pairs = np.array(list(edges), dtype=np.int32).reshape(-1, 2)
    scaled = [INFINITE if c is None else -(-c // unit) for c in edges.values()]
    ends = (pairs[:, 0], pairs[:, 1])
    graph: Any = csr_array((np.array(scaled, dtype=np.int32), ends), shape=(size, size))
    left = graph - maximum_flow(graph, source, sink).flow
    left.data[left.data < 0] = 0
    left.eliminate_zeros()
    below = set(breadth_first_order(left.T.tocsr(), sink, return_predecessors=False).tolist())
    return [(tail, head) for tail, head in edges if head in below and tail not in below]


def _require_bounded(edges: Mapping[Edge, int | None], size: int, source: int, sink: int) -> None:
    heads: list[list[int]] = [[] for _ in range(size)]
    for (tail, head), capacity in edges.items():
        if capacity is None:
            heads[tail].append(head)
    came: dict[int, int] = {source: source}
    waiting = [source]
    while waiting and sink not in came:
        tail = waiting.pop()
        fresh = [head for head in heads[tail] if head not in came]
        came.update(dict.fromkeys(fresh, tail))
        waiting.extend(fresh)
    if sink in came:
        path = [sink]
        while path[-1] != source:
            path.append(came[path[-1]])
        raise Unbounded(path[::-1])
