"""What patterns cost: loading against tracing them, and matching against the size of a graph.

    python benchmarks/patterns.py [--repeats 3]

Loads the written patterns of `fuse_attention` and traces them afresh, in one process; and runs the
rules over graphs of 100 to 20,000 nodes that are all near misses (reshaped products) and one match.
"""

import argparse
import importlib
import json
import statistics
import sys
import time

import torch

from ctk.compiler.passes.joint.fuse_attention import RULES, replacements
from ctk.compiler.patterns.generated import family_of, load
from ctk.compiler.patterns.matcher import refusal, writers_of
from ctk.compiler.patterns.replacement import search_pattern
from ctk.compiler.patterns.solve import matches

SIZES = (100, 1_000, 5_000, 20_000)


def seconds(function, repeats):
    """Return the median processor seconds of a call."""
    times = []
    for _ in range(repeats):
        started = time.process_time()
        function()
        times.append(time.process_time() - started)
    return statistics.median(times)


def load_all(names):
    """Load written patterns as a new process would."""
    for name in names:
        sys.modules.pop(f"ctk.compiler.patterns.serialized.{family_of(name)}", None)
    for name in names:
        assert load(name) is not None


def graph_of(size):
    """Return a graph of about `size` calls: scores and weights without a softmax between."""
    aten, graph = torch.ops.aten, torch.fx.Graph()
    value = graph.placeholder("x")
    for _ in range(size // 4):
        value = graph.call_function(aten.view.default, (value, [6, 4, 4]))
        value = graph.call_function(aten.bmm.default, (value, value))
        value = graph.call_function(aten.view.default, (value, [2, 3, 4, 4]))
        value = graph.call_function(aten.div.Tensor, (value, 2.0))
    graph.output(value)
    return graph


def match_all(graph, table):
    """Look for each rule at each node."""
    writers = writers_of(graph)
    for node in graph.nodes:
        for rule in table.at(node):
            for match in matches(rule.pattern, node):
                refusal(rule, match, writers)


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    all_of_them = replacements()
    names = [each.name for each in all_of_them]
    importlib.import_module("ctk.compiler.patterns.serialized")
    search_pattern(all_of_them[0]), search_pattern(all_of_them[-1])  # warm
    loading = seconds(lambda: load_all(names), repeats)
    tracing = seconds(lambda: [search_pattern(each) for each in all_of_them], 1)
    table = RULES.get()
    matching = {}
    for size in SIZES:
        graph = graph_of(size)
        taken = seconds(lambda graph=graph: match_all(graph, table), repeats)
        matching[size] = {"seconds": round(taken, 4), "us_per_node": round(taken / size * 1e6, 2)}
    result = {
        "patterns": len(names),
        "loading_seconds": round(loading, 4),
        "tracing_seconds": round(tracing, 3),
        "loading_per_tracing": round(loading / tracing, 4),
        "matching": matching,
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
