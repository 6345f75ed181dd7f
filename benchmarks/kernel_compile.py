"""How the time to compile kernels grows with the graph: seconds per 1,000 nodes, by phase.

The program is a block of a transformer without views of heads (two norms, products, softmax with
mask, GELU, residuals, a reduction), repeated. Growth is the exponent between two sizes: 1.0 is
linear, n log n is 1.1 to 1.2. The C compiler runs on all processors. No two blocks have an equal
kernel: of those one alone would be compiled.

    python -m benchmarks.kernel_compile [--sizes 100,1000,10000] [--no-compiler]
"""

import argparse
import math
import platform
import time
from itertools import pairwise
from unittest.mock import patch

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.nn import functional as F

from ctk.compiler.codegen.c import c_codegen as c
from ctk.compiler.codegen.c import libraries
from ctk.compiler.codegen.c.c_codegen import GENERATOR
from ctk.compiler.codegen.c.toolchain import compile_files
from ctk.compiler.codegen.schedule.generator import KernelSetting
from ctk.compiler.lowering.fuse import FusionOptions, fuse
from ctk.compiler.lowering.ir import Kernel
from ctk.compiler.lowering.lower import LoweringOptions, lower
from ctk.compiler.lowering.memory import plan_memory
from ctk.compiler.torch_compat.fx.graphs import trace_calls

PHASES = ("lowering", "fusion", "planning", "printing", "compiler")


def main() -> None:
    """Compile graphs of several sizes, and print tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", default="100,1000,10000")
    parser.add_argument("--no-compiler", action="store_true", help="print the C, and stop there")
    args = parser.parse_args()
    print(f"torch {torch.__version__}, {platform.machine()}; seconds per 1,000 nodes")
    print(f"{'nodes':>8}{'kernels':>9}" + "".join(f"{name:>10}" for name in (*PHASES, "all")))
    before: tuple[int, list[float]] | None = None
    for size in map(int, args.sizes.split(",")):
        graph = repeated(size)
        count = len(graph.graph.nodes)
        kernels, seconds = compiled(graph, run_compiler=not args.no_compiler)
        seconds.append(sum(seconds))
        per = "".join(f"{each * 1000 / count:10.3f}" for each in seconds)
        print(f"{count:8}{kernels:9}{per}", flush=True)
        if before is not None:
            print(f"{'growth':>17}" + _growth(before, (count, seconds)), flush=True)
        before = count, seconds


def block(x: Tensor, weight: Tensor, mask: Tensor, number: int) -> Tensor:
    """One block: 128 rows of 64."""
    own = 1 + number / 8192
    normal = F.layer_norm(x, (64,), weight[0], weight[1], eps=own * 1e-5)
    scores = (normal @ normal.t() * (own * 0.125)).masked_fill(mask, float("-inf"))
    x = x + torch.softmax(scores, -1) @ normal
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + own * 1e-6)
    hidden = F.gelu((x * scale) @ weight * own)
    return x + hidden @ weight.t() - hidden.amax(-1, keepdim=True)


def repeated(nodes: int) -> GraphModule:
    """Return the graph of as many blocks as have about so many nodes."""
    x, weight = torch.randn(128, 64), torch.randn(64, 64)
    mask = torch.ones(128, 128, dtype=torch.bool).triu(1)

    def graph_of(count: int) -> GraphModule:
        def run(x: Tensor, weight: Tensor, mask: Tensor) -> Tensor:
            for number in range(count):
                x = block(x, weight, mask, number)
            return x

        return trace_calls(run, (x, weight, mask), fake=True)

    one, two = (len(graph_of(count).graph.nodes) for count in (1, 2))
    return graph_of(max(1, round(nodes / (two - one))))


def compiled(graph: GraphModule, *, run_compiler: bool) -> tuple[int, list[float]]:
    """Return how many kernels a graph became, and the seconds of each phase."""
    times = [time.perf_counter()]

    def note() -> None:
        times.append(time.perf_counter())

    limits = FusionOptions(min_outer=GENERATOR.min_outer, small=GENERATOR.small)
    program = lower(graph, LoweringOptions())
    note()
    program = fuse(program, lambda *_: True, limits)
    note()
    program = plan_memory(program, lambda *_: True)
    note()
    kernels = [step for step in program.steps if isinstance(step, Kernel)]
    compiler = 0.0

    def timed(*args: object) -> object:
        nonlocal compiler
        started = time.perf_counter()
        found = compile_files(*args)  # type: ignore[arg-type]  # the arguments of its own call
        compiler = time.perf_counter() - started
        return found

    if run_compiler:
        with patch.object(libraries, "compile_files", timed):
            libraries.forget()
            c.compile_kernels(kernels, program.buffers, c.COptions(), KernelSetting())
    else:
        for number, kernel in enumerate(kernels):
            c.kernel_code(kernel, program.buffers, name=f"kernel_{number}")
    note()
    spent = [after - before for before, after in pairwise(times)]
    return len(kernels), [*spent[:3], spent[3] - compiler, compiler]


def _growth(before: tuple[int, list[float]], now: tuple[int, list[float]]) -> str:
    """Return the exponent of each phase, and of all."""
    (small, first), (large, second) = before, now
    step = math.log(large / small)
    pairs = zip(first, second, strict=True)
    return "".join(f"{math.log(b / a) / step if a and b else 0.0:10.2f}" for a, b in pairs)


if __name__ == "__main__":
    main()
