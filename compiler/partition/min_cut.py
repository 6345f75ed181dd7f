"""The minimum cut of a network: the cheapest edges that separate source and sink.

Of all minimum cuts it is the one nearest to the sink, which recomputes least.

Source: Dinic, Algorithm for solution of a problem of maximum flow in networks (1970): all paths of
the shortest length are filled, then the next length. Levels count from the sink, so that the last
search finds the cut.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

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
    _require_bounded(edges, size, source, sink)
    infinite = 1 + sum(capacity or 0 for capacity in edges.values())
    flow = _Flow([[] for _ in range(size)])
    for (tail, head), capacity in edges.items():
        flow.add(tail, head, infinite if capacity is None else capacity)
    while (levels := flow.levels(sink))[source] >= 0:
        flow.fill(levels, source, sink)
    return [(tail, head) for tail, head in edges if levels[head] >= 0 > levels[tail]]


@dataclass(frozen=True, slots=True)
class _Flow:
    """A residual network: arc `2 * n` is an edge, arc `2 * n + 1` its reverse.

    Attributes:
        arcs: The arcs that leave each vertex.
        heads: The vertex at the end of each arc.
        room: The capacity that is left of each arc.
    """

    arcs: list[list[int]]
    heads: list[int] = field(default_factory=list[int])
    room: list[int] = field(default_factory=list[int])

    def add(self, tail: int, head: int, capacity: int) -> None:
        """Add an edge and its reverse, which is full."""
        self.arcs[tail].append(len(self.heads))
        self.arcs[head].append(len(self.heads) + 1)
        self.heads.extend((head, tail))
        self.room.extend((capacity, 0))

    def levels(self, sink: int) -> list[int]:
        """Return the distance of each vertex to the sink; -1 where no path has room."""
        levels = [-1] * len(self.arcs)
        levels[sink] = 0
        waiting = deque([sink])
        while waiting:
            head = waiting.popleft()
            for arc in self.arcs[head]:
                tail = self.heads[arc]
                if levels[tail] < 0 and self.room[arc ^ 1]:
                    levels[tail] = levels[head] + 1
                    waiting.append(tail)
        return levels

    def fill(self, levels: list[int], source: int, sink: int) -> None:
        """Fill every path on which the level falls by one with each arc."""
        heads, room = self.heads, self.room
        left = [iter(arcs) for arcs in self.arcs]
        path: list[int] = []
        vertex = source
        while True:
            if vertex == sink:
                vertex = self._push(path)
            for arc in left[vertex]:
                if room[arc] and levels[heads[arc]] == levels[vertex] - 1:
                    path.append(arc)
                    vertex = heads[arc]
                    break
            else:
                if not path:
                    return
                vertex = heads[path.pop() ^ 1]

    def _push(self, path: list[int]) -> int:
        """Fill a path, cut it before its first full arc, and return the vertex there."""
        amount = min(self.room[arc] for arc in path)
        for arc in path:
            self.room[arc] -= amount
            self.room[arc ^ 1] += amount
        first = next(n for n, arc in enumerate(path) if not self.room[arc])
        vertex = self.heads[path[first] ^ 1]
        del path[first:]
        return vertex


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
