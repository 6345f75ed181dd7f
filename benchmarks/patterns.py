"""The time to look for attention, against the size of a graph, and to trace one fused call.

    python benchmarks/patterns.py [--repeats 3]

Runs the rules of `fuse_attention` over graphs of 100 to 20,000 nodes that are all near misses
(a softmax of products that no product uses), and fuses one layer of attention for the first time.
"""

import argparse
import json
import statistics
import time

import torch

from ctk.compiler.passes.joint import fuse_attention
from ctk.compiler.patterns.insert import fwd_only
from ctk.compiler.patterns.matcher import refusal, writers_of
from ctk.compiler.patterns.solve import matches
from ctk.compiler.rewriting.numbering import Numbering
from ctk.compiler.rewriting.run_stage import run_stage

SIZES = (100, 1_000, 5_000, 20_000)


def seconds(function, repeats):
    """Return the median processor seconds of a call."""
    times = []
    for _ in range(repeats):
        started = time.process_time()
        function()
        times.append(time.process_time() - started)
    return statistics.median(times)


def graph_of(size):
    """Return a graph of about `size` calls: weights of attention without values."""

    def chain(x):
        for _ in range(size // 5):
            x = (x @ x.mT / 2.0).softmax(-1).relu()
        return x

    return fwd_only(chain, [torch.randn(2, 3, 4, 4)])


def match_all(graph, table):
    """Look for each rule at each node."""
    writers = writers_of(graph)
    for node in graph.nodes:
        for rule in table.at(node):
            for match in matches(rule.pattern, node):
                refusal(rule, match, writers)


def fuse(size):
    """Fuse one layer of attention of a new size."""

    def attend(x):
        return (x @ x.mT / 2.0).softmax(-1) @ x

    gm = fwd_only(attend, [torch.randn(2, 3, size, 8)])
    run_stage(gm, "joint", [fuse_attention.PASS], Numbering())
    assert "_scaled_dot_product" in gm.code


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    fuse(3)  # warm
    sizes = iter(range(4, 4 + repeats))
    fusing = seconds(lambda: fuse(next(sizes)), repeats)
    matching = {}
    for size in SIZES:
        graph = graph_of(size).graph
        taken = seconds(lambda graph=graph: match_all(graph, fuse_attention.RULES), repeats)
        matching[size] = {"seconds": round(taken, 4), "us_per_node": round(taken / size * 1e6, 2)}
    print(json.dumps({"fusing_seconds": round(fusing, 4), "matching": matching}, indent=2))


if __name__ == "__main__":
    main()
