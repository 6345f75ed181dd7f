"""How a question of the reducer grows with the graph: time and memory at several sizes.

A generated graph (a chain with a skip connection at every tenth node, `relu` in the middle) is
minimized against a predicate that costs nothing, so that what is measured is the reducer:
proposing, rebuilding, sizing, fingerprints. One process per size; times are of the CPU.

    python benchmarks/reduce_scaling.py [SIZE ...]
"""

import json
import platform
import resource
import subprocess
import sys
import time

import torch
from torch.fx import Graph, GraphModule

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.reduce.driver import minimize
from ctk.toolkit.reduce.problem import Problem

SIZES = (1_250, 5_000, 20_000)


def generated(size: int) -> Case:
    """Return a case of `size` call nodes; `relu` is the one in the middle."""
    graph = Graph()
    x = last = skip = graph.placeholder("x")
    for number in range(size):
        op = torch.relu if number == size // 2 else (torch.sin, torch.cos, torch.tanh)[number % 3]
        if number % 10 == 9:
            last = skip = graph.call_function(torch.add, (last, skip))
        else:
            last = graph.call_function(op, (last,))
    graph.output((last, x))
    return Case(GraphModule({}, graph), (torch.linspace(-1, 1, 4),), target="fake")


def judge(case: Case) -> Judgement:
    """Say that a case fails if it calls `relu`."""
    fails = any(node.target is torch.relu for node in case.graph.graph.nodes)
    return Judgement(Verdict.REPRODUCES if fails else Verdict.PASSES)


def megabytes() -> float:
    """Return the most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(size: int) -> dict[str, float]:
    """Minimize one generated case and return what that took."""
    case = generated(size)
    case.graph(*case.inputs)
    before, started = megabytes(), time.process_time()
    result = minimize(Problem(case, judge))
    seconds = time.process_time() - started
    assert result.nodes_after == 1, result
    return {
        "size": size,
        "questions": result.questions,
        "seconds": seconds,
        "ms": 1000 * seconds / result.questions,
        "mb": megabytes() - before,
    }


def main() -> None:
    """Print one line per size."""
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(int(sys.argv[2]))))
        return
    sizes = [int(argument) for argument in sys.argv[1:]] or SIZES
    print(f"torch {torch.__version__}, {platform.machine()}, python {platform.python_version()}")
    print("   nodes  questions   seconds  ms a question  us a node  MB on top")
    for size in sizes:
        command = [sys.executable, __file__, "--one", str(size)]
        row = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        print(
            f"{size:8,} {row['questions']:10} {row['seconds']:9.2f} {row['ms']:14.1f} "
            f"{1000 * row['ms'] / size:10.2f} {row['mb']:10.0f}"
        )


if __name__ == "__main__":
    main()
