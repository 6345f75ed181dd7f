"""Our partitioner and torch's on the same joint graphs: saved bytes per budget, and time.

Saved bytes leave out what is static (parameters), which both count as free. Behind them: the
estimated time of what backward computes again, ours by torch's. A star marks bytes that torch
reaches in a way that changes the program: it draws random numbers anew in backward, or reads there
what forward has overwritten. Times are medians of CPU seconds of one process, ours and torch's in
turn, on a chain of operators like that of a network (a product, three pointwise, a residual),
forward and backward, with a budget of 1.

    python benchmarks/partition_vs_torch.py [NODES ...]
"""

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch.fx import Graph, GraphModule

from ctk.compiler.fx.properties import is_random
from ctk.compiler.fx.walk import by_name, input_names
from ctk.compiler.partition import split
from ctk.compiler.partition.classify import classify_nodes
from ctk.compiler.partition.costs import nbytes, run_time
from ctk.compiler.partition.options import PartitionOptions
from ctk.compiler.partition.overwritten import overwritten_inputs
from ctk.compiler.torch_compat.aot import aot_dispatch as aot
from ctk.compiler.torch_compat.aot.partition import nodes_saved_by, torch_budget
from tests.helpers.joint_graphs import Joint, joint_of_sample

aten = torch.ops.aten
NAMES = (
    *("mlp", "batch_norm", "convolutions", "encoder", "attention", "causal", "dynamic", "tied"),
    *("lstm", "embedding", "dropout", "mixture"),
)
BUDGETS = (0.0, 0.25, 0.5, 0.75, 1.0)
SIZES = (100, 300, 1_000, 3_000, 10_000)


def ours(joint: Joint, budget: float) -> tuple[GraphModule, GraphModule]:
    """Split a joint graph with our partitioner, which does not change it."""
    options = PartitionOptions(memory_budget=budget)
    return split.partition(joint.graph, (), options, joint.given)


def torchs(joint: Joint, budget: float) -> tuple[GraphModule, GraphModule]:
    """Split a joint graph with torch's partitioner, which changes it."""
    with torch_budget(budget):
        return aot.min_cut_partition(joint.graph, (), joint.given)


def saved_nbytes(joint: Joint, forward: GraphModule) -> int:
    """Return the bytes that a forward graph saves, without what is static."""
    static = [input_names(joint.graph)[i] for i in joint.given["static_lifetime_input_indices"]]
    saved = nodes_saved_by(forward, joint.given["num_fwd_outputs"])
    return sum(nbytes(node) for node in saved if node.name not in static)


def again(joint: Joint, halves: tuple[GraphModule, GraphModule]) -> float:
    """Return the estimated time of what of forward backward computes once more."""
    nodes = by_name(joint.graph)
    forward, backward = (
        {node.name for node in half.graph.nodes if node.op == "call_function"} for half in halves
    )
    return sum(run_time(nodes[name]) for name in forward & backward & nodes.keys())


def changes_the_program(joint: Joint, backward: GraphModule) -> bool:
    """Return whether backward draws numbers that forward drew, or reads what it has overwritten."""
    nodes = by_name(joint.graph)
    info = classify_nodes(joint.graph, joint.given["num_fwd_outputs"])
    written = {node.name for node in overwritten_inputs(info)}
    again = (node for node in backward.graph.nodes if node.name in nodes)
    return any(is_random(node) for node in again) or not written.isdisjoint(input_names(backward))


def generated(count: int) -> Joint:
    """Return a joint graph of about `count` nodes: layers forward, then their gradients."""
    graph = Graph()
    value = torch.empty(64, 64, device="meta")

    def call(target: object, *args: object) -> object:
        node = graph.call_function(target, args)
        node.meta = {"val": value, "tensor_meta": None}
        return node

    x, weight = graph.placeholder("primals_1"), graph.placeholder("primals_2")
    tangent = graph.placeholder("tangents_1")
    for node in (x, weight, tangent):
        node.meta = {"val": value, "tensor_meta": None}
    layers = []
    for _ in range(count // 9):
        product = call(aten.mm.default, x, weight)
        sine = call(aten.sin.default, product)
        scaled = call(aten.mul.Tensor, sine, sine)
        x = call(aten.add.Tensor, scaled, x)
        layers.append((product, sine))
    gradient = tangent
    for product, sine in reversed(layers):
        doubled = call(aten.mul.Tensor, gradient, sine)
        cosine = call(aten.cos.default, product)
        inner = call(aten.mul.Tensor, doubled, cosine)
        outer = call(aten.mm.default, inner, weight)
        gradient = call(aten.add.Tensor, gradient, outer)
    output = graph.output((x, gradient, None))
    output.meta["desc"] = [None] * 3
    given = {"num_fwd_outputs": 1, "static_lifetime_input_indices": [1]}
    return Joint(GraphModule({}, graph), given)


def copied(joint: Joint) -> Joint:
    """Return a joint graph that may be changed."""
    return Joint(joint.copy(), joint.given)


def seconds(split_one: Callable[[Joint, float], object], joint: Joint) -> float:
    """Return the CPU time of one split."""
    joint = copied(joint)
    started = time.process_time()
    split_one(joint, 1.0)
    return time.process_time() - started


def print_bytes() -> None:
    """Print the saved bytes of each joint graph, ours / torch's."""
    print("saved bytes, ours / torch's, and time of recomputation by torch's, by budget")
    print("graph".ljust(14) + "nodes".rjust(6) + "".join(f"{b:>23}" for b in BUDGETS))
    for name in NAMES:
        joint = joint_of_sample(name)
        cells: list[str] = []
        for budget in BUDGETS:
            halves, theirs = ours(joint, budget), torchs(copied(joint), budget)
            star = "*" if changes_the_program(joint, theirs[1]) else ""
            mine, other = saved_nbytes(joint, halves[0]), saved_nbytes(joint, theirs[0])
            times, others = again(joint, halves), again(joint, theirs)
            ratio = f"{times / others:.1f}" if others else "-" if times else "1.0"
            cells.append(f"{mine} / {other}{star} {ratio:>4}".rjust(23))
        print(name.ljust(14) + f"{len(joint.graph.graph.nodes):>6}" + "".join(cells), flush=True)


def print_times(sizes: Sequence[int]) -> None:
    """Print the medians of both partitioners by size."""
    print("\n   nodes   ours, s  torch, s  times faster")
    for size in sizes:
        joint = generated(size)
        pairs = [(seconds(ours, joint), seconds(torchs, joint)) for _ in range(3)]
        mine, other = (statistics.median(each) for each in zip(*pairs, strict=True))
        nodes = len(joint.graph.graph.nodes)
        print(f"{nodes:>8,}{mine:>10.3f}{other:>10.3f}{other / mine:>14.1f}", flush=True)


if __name__ == "__main__":
    print(f"torch {torch.__version__}, {platform.machine()}, {os.cpu_count()} shared CPU cores")
    print_bytes()
    print_times([int(size) for size in sys.argv[1:]] or SIZES)
