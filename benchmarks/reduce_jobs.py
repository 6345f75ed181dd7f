"""How much several jobs gain where a question is costly, and that their result is that of one.

    python -m benchmarks.reduce_jobs [--seconds SECONDS] [--jobs 1 2 4]

Planted failures whose predicate takes half a second, reduced with one job and with several, each
question in a fork. One run per line; the machine must have as many idle cores.
"""

import argparse
import functools
import platform
import time

import torch

import ctk
from ctk.compiler.errors import count_of
from tests.helpers.reduce_families import FAMILIES, Planted

PROBLEMS = (
    ("three_scattered", 200),
    ("equal_ops", 60),
    ("feeding_transformer", 200),
    ("convolution_image", 50),
)


def costly(
    planted: Planted, seconds: float, gm: torch.fx.GraphModule, inputs: tuple[object, ...]
) -> bool:
    """Answer after a while."""
    time.sleep(seconds)
    return planted.fails(gm, inputs)


def main() -> None:
    """Print a line per problem and number of jobs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2, 4])
    given = parser.parse_args()
    print(f"Python {platform.python_version()}, torch {torch.__version__}, {given.seconds} s each")
    for name, size in PROBLEMS:
        planted = FAMILIES[name].build(size, 0)
        fails = functools.partial(costly, planted, given.seconds)
        first, codes = 0.0, set[str]()
        for jobs in given.jobs:
            started = time.perf_counter()
            with torch.no_grad():
                found = ctk.minimize(planted.graph, planted.inputs, fails, jobs=jobs)
            seconds = time.perf_counter() - started
            first = first or seconds
            codes.add(found.graph.code)
            print(
                f"{name:20} {size:4} nodes, {count_of(jobs, 'job')}: "
                f"{found.questions:3} questions, {found.nodes_after:2} left, {seconds:5.1f} s, "
                f"{first / seconds:.2f} times faster",
                flush=True,
            )
        print(f"{'':20} the same result: {len(codes) == 1}")


if __name__ == "__main__":
    main()
