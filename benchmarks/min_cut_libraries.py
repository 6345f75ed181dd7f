"""Libraries for the minimum cut on the same networks: milliseconds of one cut.

The networks are the partitioner's own, of a chain of operators like that of a network (forward and
backward, `partition_vs_torch.generated`). Medians of CPU time of one process; building a library's
form of the network counts. A library that is not installed has no figures.

    python benchmarks/min_cut_libraries.py [NODES ...]
"""

import importlib
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from benchmarks.partition_vs_torch import generated
from ctk.compiler.partition.bans import hard_bans
from ctk.compiler.partition.classify import classify_nodes
from ctk.compiler.partition.min_cut import Edge, minimum_cut
from ctk.compiler.partition.network import network_of

Edges = Mapping[Edge, int | None]


def ctk(edges: Edges, size: int) -> int:
    """Cut as the partitioner does."""
    found = minimum_cut(edges, size=size, source=size - 2, sink=size - 1)
    return sum(edges[edge] or 0 for edge in found)


def scipy(edges: Edges, size: int) -> int:
    """Cut with scipy, whose capacities have 32 bits."""
    import numpy as np

    sparse: Any = importlib.import_module("scipy.sparse")
    library: Any = importlib.import_module("scipy.sparse.csgraph")
    ends = np.array(list(edges), dtype=np.int32)
    room = np.array([2**31 - 1 if c is None else c for c in edges.values()], dtype=np.int32)
    graph = sparse.csr_array((room, (ends[:, 0], ends[:, 1])), shape=(size, size))
    return int(library.maximum_flow(graph, size - 2, size - 1).flow_value)


def networkx(edges: Edges, size: int) -> int:
    """Cut with networkx, as torch's partitioner does."""
    library: Any = importlib.import_module("networkx")
    graph = library.DiGraph()
    for (tail, head), capacity in edges.items():
        graph.add_edge(tail, head, **({} if capacity is None else {"capacity": capacity}))
    return library.minimum_cut(graph, size - 2, size - 1)[0]


def igraph(edges: Edges, size: int) -> int:
    """Cut with igraph."""
    library: Any = importlib.import_module("igraph")
    capacities = [float("inf") if c is None else float(c) for c in edges.values()]
    graph = library.Graph(n=size, edges=list(edges), directed=True)
    return int(graph.mincut(size - 2, size - 1, capacity=capacities).value)


LIBRARIES: tuple[Callable[[Edges, int], int], ...] = (ctk, scipy, networkx, igraph)


def milliseconds(call: Callable[[], int]) -> tuple[float, int]:
    """Return the CPU time of one call, and what it returned."""
    started = time.process_time()
    value = call()
    return 1e3 * (time.process_time() - started), value


def cell(library: Callable[[Edges, int], int], edges: Edges, size: int) -> str:
    """Return the median of three cuts and the bytes that were cut."""
    try:
        importlib.import_module(library.__name__)
    except ImportError:
        return "not installed"
    found = [milliseconds(partial(library, edges, size)) for _ in range(3)]
    return f"{statistics.median(each for each, _ in found):.1f} ({found[0][1]:,} bytes)"


def main(sizes: list[int]) -> None:
    """Print a line per size."""
    print(f"torch {torch.__version__}, {platform.machine()}, {os.cpu_count()} shared CPU cores")
    print("nodes".rjust(8) + "".join(f"{each.__name__ + ', ms':>28}" for each in LIBRARIES))
    for count in sizes:
        joint = generated(count)
        info = classify_nodes(joint.graph, 1, joint.given["static_lifetime_input_indices"])
        edges, size = network_of(info, hard_bans(info))
        cells = [cell(library, edges, size) for library in LIBRARIES]
        print(f"{len(info.nodes):>8,}" + "".join(f"{text:>28}" for text in cells), flush=True)


if __name__ == "__main__":
    main([int(size) for size in sys.argv[1:]] or [100, 1_000, 10_000])
