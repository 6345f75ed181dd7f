"""How the time of a first call grows with the graph: CPU seconds per 1,000 nodes, by phase.

Each row is one program of one size, compiled by ctk in a process of its own with empty caches. A
program repeats a block, and no two blocks have an equal kernel: of those one alone would be
compiled. `capture` is Dynamo's, `trace` AOTAutograd's, both torch's own; then the passes of the
graph, the phases of a lowering, and the rest of the first call (loading, the schedule, the cache).
The C compiler's seconds are those of its processes. In training the loss is a mean of squares.

Growth is the exponent between two sizes: 1.0 is linear, n log n is 1.1 to 1.2.

    python -m benchmarks.kernel_compile [--sizes 100,1000,10000] [--programs chain,cats]
        [--mode inference,training] [--inductor 1000]

`--inductor` adds the CPU seconds of Inductor's first call, with its compiler's, up to a size.
"""

import argparse
import json
import math
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.kernels import chosen

Program = Callable[..., Any]

LEAST = 60
"""Nodes with which each program has three of its blocks or more."""

PHASES: Sequence[str] = (
    "capture", "trace", "passes", "lower", "fuse", "plan_memory", "print kernels", "C compiler",
    "rest",
)  # fmt: skip
_OWN_ROW = ("lower", "fuse", "plan_memory", "print kernels")


def chain(x: Tensor, count: int) -> Tensor:
    """Pointwise operators, one after the other."""
    for number in range(count // 3):
        x = torch.tanh(x * (1 + number / 8192)) + 0.5
    return x


def wide_sum(x: Tensor, count: int) -> Tensor:
    """A sum of many independent values."""
    return sum((torch.sin(x * (1 + n / 8192)) for n in range(count // 3)), x)


def layers(x: Tensor, count: int) -> Tensor:
    """Blocks of a transformer without views of heads: norms, products, a softmax, residuals."""
    for number in range(count // 20):
        own = 1 + number / 8192
        normal = F.layer_norm(x, x.shape[-1:], eps=own * 1e-5)
        scores = normal @ normal.t() * (own * 0.125)
        x = x + torch.softmax(scores, -1) @ normal
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + own * 1e-6)
        x = x + F.gelu((x * scale) @ x.t() * own) @ x - x.amax(-1, keepdim=True)
    return x


def cats(x: Tensor, count: int) -> Tensor:
    """Results that are joined and taken apart again."""
    for number in range(count // 8):
        left, right = x.chunk(2, -1)
        own = 1 + number / 8192
        x = torch.cat((left * own - right, right * own + left), -1) * 0.5
    return x


def reductions(x: Tensor, count: int) -> Tensor:
    """Many small reductions of one input, of both kinds of rows."""
    found = [(x * (1 + n / 8192)).sum(n % 2) for n in range(count // 4)]
    return torch.stack([each.mean() for each in found])


def scatters(x: Tensor, count: int) -> Tensor:
    """Writes to slices of a tensor that is read in between."""
    for number in range(count // 5):
        row = number % (x.shape[0] - 1)
        x = x.slice_scatter(x[row : row + 1] * (1 + number / 8192), 0, row + 1, row + 2) + 1
    return x


def inputs_and_outputs(x: Tensor, count: int, *others: Tensor) -> tuple[Tensor, ...]:
    """As many inputs as outputs, two operators each."""
    return tuple(x + torch.sigmoid(other * (1 + n / 8192)) for n, other in enumerate(others))


PROGRAMS: Mapping[str, Program] = {
    "chain": chain, "wide sum": wide_sum, "layers": layers, "cats": cats,
    "reductions": reductions, "scatters": scatters, "inputs and outputs": inputs_and_outputs,
}  # fmt: skip


def _sizes(text: str) -> list[int]:
    sizes = [int(each) for each in text.split(",") if each.isdecimal()]
    if len(sizes) != text.count(",") + 1 or min(sizes) < LEAST:
        raise argparse.ArgumentTypeError(f"{text}: give numbers of nodes from {LEAST}: 100,1000")
    return sizes


def main() -> None:
    """Measure and print one table of each program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=_sizes, default="100,1000,10000")
    parser.add_argument("--programs", default="")
    parser.add_argument("--mode", default="inference")
    parser.add_argument("--inductor", type=int, default=0, help="up to this size")
    parser.add_argument("--child", nargs=4, help="compiler, program, mode, size")
    args = parser.parse_args()
    if args.child:
        compiler, program, mode, size = args.child
        print(json.dumps(child(compiler, program, mode, int(size))))
        return
    print(f"torch {torch.__version__}, {platform.machine()}; CPU seconds per 1,000 nodes")
    for mode in chosen(args.mode, ("inference", "training")):
        for program in chosen(args.programs, PROGRAMS):
            _print_table(program, mode, args.sizes, args.inductor)


def child(compiler: str, program: str, mode: str, size: int) -> dict[str, float]:
    """Return the nodes and the CPU seconds of one first call in this process, by phase."""
    from ctk.compiler import phases

    sys.setrecursionlimit(200_000)
    torch.set_num_threads(1)
    is_training = mode == "training"
    torch.compile(torch.nn.Linear(2, 2), backend="eager")(torch.randn(2, 2))  # loads Dynamo
    backend, nodes, spans = _backend(compiler), [0], [0.0]

    def counted(gm: torch.fx.GraphModule, inputs: Sequence[object]) -> Callable[..., object]:
        nodes[0] += len(gm.graph.nodes)
        started = time.process_time()
        found = backend(gm, inputs)
        spans[0] += time.process_time() - started
        return found

    many = size // 3 if program == "inputs and outputs" else 0
    given = [torch.randn(64, 64, requires_grad=is_training) for _ in range(1 + many)]
    x, *others = given
    started = time.process_time()
    with torch.set_grad_enabled(is_training), phases.measured(time.process_time) as found:
        run = torch.compile(PROGRAMS[program], backend=counted, fullgraph=True)
        results = run(x, size, *others)
        results = results if isinstance(results, tuple) else (results,)
        if is_training:
            loss = torch.stack([each.square().mean() for each in results]).sum()
            torch.autograd.grad(loss, given)
    whole = time.process_time() - started
    compilers = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = dict.fromkeys(PHASES, 0.0)
    for (stage, name), spent in found.items():
        seconds[_row(stage, name)] += spent
    seconds["capture"] = whole - max(spans[0], sum(found.values()))
    seconds["rest"] += max(0.0, spans[0] - sum(found.values()))
    seconds["C compiler"] += compilers.ru_utime + compilers.ru_stime
    return {"nodes": nodes[0], **seconds}


def _backend(compiler: str) -> Callable[..., Callable[..., object]]:
    if compiler == "inductor":
        from ctk.compiler.torch_compat.inductor import inductor_api as inductor

        return inductor.cached_backend()
    from ctk.compiler.backend import ctk

    import_module("ctk.compiler.pipeline")  # before, as Inductor's
    return ctk


def _row(stage: str, name: str) -> str:
    """Return the row of a phase."""
    if stage == "lowered":
        return name if name in _OWN_ROW else "rest"
    if (stage, name) == ("dispatch", "trace"):
        return "trace"
    return "rest" if stage == "cache" else "passes"


def _measured(compiler: str, program: str, mode: str, size: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        names = ("CTK_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
        environment = {**os.environ, **dict.fromkeys(names, folder)}
        environment["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
        command = [sys.executable, "-m", "benchmarks.kernel_compile", "--child"]
        command += [compiler, program, mode, str(size)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def _print_table(program: str, mode: str, sizes: Sequence[int], inductor: int) -> None:
    titles = "".join(f"{name:>14}" for name in (*PHASES, "all", "Inductor"))
    print(f"{program}, {mode}\n{'nodes':>8}{titles}")
    before: tuple[float, list[float]] | None = None
    for size in sizes:
        found = _measured("ctk", program, mode, size)
        nodes = found.pop("nodes")
        seconds = [*found.values(), sum(found.values())]
        if size <= inductor:
            theirs = _measured("inductor", program, mode, size)
            seconds.append(sum(theirs.values()) - theirs["nodes"])
        per = "".join(f"{each * 1000 / nodes:14.3f}" for each in seconds)
        print(f"{nodes:8.0f}{per}", flush=True)
        if before is not None:
            print(f"{'growth':>8}" + _growth(before, (nodes, seconds)), flush=True)
        before = nodes, seconds


def _growth(before: tuple[float, list[float]], now: tuple[float, list[float]]) -> str:
    """Return the exponent of each phase, and of all; none for a phase below 10 milliseconds."""
    (small, first), (large, second) = before, now
    step = math.log(large / small)
    pairs = zip(first, second, strict=False)
    return "".join(
        f"{math.log(b / a) / step:14.2f}" if min(a, b) > 0.01 else f"{'':>14}" for a, b in pairs
    )


if __name__ == "__main__":
    main()
