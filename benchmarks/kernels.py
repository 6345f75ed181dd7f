"""Fused programs: our kernels, Inductor's and eager, paired in one process.

Prints for each program the median time of eager, the speed of Inductor and of ours relative to
eager and to each other, and seconds of the first call with cold caches. On CUDA, each one's share
of the copy rate measured in the same run. Calls take turns in blocks, and medians are compared.

    python -m benchmarks.kernels [--device cpu|cuda] [--dtype float32] [--only WORD,...]
"""

import argparse
import fcntl
import gc
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.programs import Program, kernels
from ctk.compiler.codegen.c.libraries import forget


@dataclass(frozen=True)
class Timing:
    """What one way of running a program took, in seconds."""

    first: float
    call: float


def main() -> None:
    """Time the programs, and print tables."""
    args, options = begin(__doc__ or "", blocks=15)
    torch.set_grad_enabled(False)
    is_cuda = args.device == "cuda"
    rate = copy_rate(args.device) if is_cuda else 0.0
    if is_cuda:
        print(f"copy rate {rate / 1e9:.0f} GB/s")
    for name in args.dtype.split(","):
        programs = kernels(args.device, getattr(torch, name), 128 if is_cuda else 1)
        names = chosen(args.only, [program.name for program in programs])
        wanted = [program for program in programs if program.name in names]
        print_table(name, wanted, args.blocks, options, rate)


def begin(about: str, *, blocks: int) -> tuple[argparse.Namespace, dict[str, object]]:
    """Read the command line, set the threads, and print the machine.

    Returns:
        The arguments, and the options of ctk among them.
    """
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32,bfloat16")
    parser.add_argument("--only", default="")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--blocks", type=int, default=blocks)
    parser.add_argument("--config", default="", help="options of ctk: NAME=VALUE,...")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(_machine(args.device, args.threads))
    given = (each.split("=") for each in args.config.split(",") if each)
    return args, {name: _value(text) for name, text in given}


def chosen(words: str, known: Iterable[str]) -> list[str]:
    """Return the names that a list with commas chooses; all names for an empty list.

    A word chooses the name that it equals, or else the names that contain it.

    Raises:
        SystemExit: A word chooses none.
    """
    names, found = list(known), list[str]()
    for word in filter(None, words.split(",")):
        some = [word] if word in names else [name for name in names if word in name]
        if not some:
            raise SystemExit(f"unknown: {word}; known: {', '.join(names)}")
        found += some
    return found or names


def _value(text: str) -> object:
    """Return an option: a number or a bool if it is spelt like one."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def print_table(
    title: str, programs: Sequence[Program], blocks: int, options: dict[str, object], rate: float
) -> None:
    """Time some programs, print a row for each, and the geometric mean and the worst."""
    print(f"\n{title}: speed relative to eager; first call in s")
    wide = max(22, *(len(program.name) + 2 for program in programs))
    share = "  share of copy: eager inductor ctk" if rate else ""
    print(f"{'':{wide}}{'eager us':>10}{'inductor':>10}{'ctk':>8}{'ctk/ind.':>10}"
          f"{'first ind.':>12}{'first ctk':>11}{share}")  # fmt: skip
    ratios: list[float] = []
    firsts: list[float] = []
    for program in programs:
        timed = compared(program.run, program.inputs, blocks, options)
        eager, inductor, ours = (timed[key] for key in ("eager", "inductor", "ctk"))
        ratios.append(inductor.call / ours.call)
        firsts.append(ours.first / inductor.first)
        line = (f"{program.name:{wide}}{eager.call * 1e6:10.1f}{eager.call / inductor.call:10.2f}"
                f"{eager.call / ours.call:8.2f}{ratios[-1]:10.2f}"
                f"{inductor.first:12.2f}{ours.first:11.2f}")  # fmt: skip
        if rate:
            shares = (program.nbytes / each.call / rate for each in (eager, inductor, ours))
            line += "   " + " ".join(f"{share:8.2f}" for share in shares)
        print(line, flush=True)
    print(f"geometric mean ctk/inductor {statistics.geometric_mean(ratios):.3f}, "
          f"worst {min(ratios):.2f}; "
          f"first call {statistics.geometric_mean(firsts):.3f} of Inductor's")  # fmt: skip


def compared(
    run: Callable[..., Any],
    inputs: Sequence[Any],
    blocks: int,
    options: dict[str, object],
    step: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda compiled: compiled,
    theirs: dict[str, object] | None = None,
    typical: Callable[[Sequence[float]], float] = statistics.median,
) -> dict[str, Timing]:
    """Return the timings of eager, Inductor and ctk on one program, their calls taking turns.

    Args:
        run: What is compiled.
        inputs: Its arguments.
        blocks: How many blocks of calls.
        options: Of ctk.
        step: Makes what is called of what was compiled.
        theirs: Options of Inductor.
        typical: Of the seconds of the blocks.
    """
    ways: dict[str, Callable[..., Any]] = {"eager": step(run)}
    _seconds(ways["eager"], inputs, 1)  # loads libraries, which is no compiler's time
    firsts = {"eager": 0.0}
    for name in ("inductor", "ctk"):
        torch.compiler.reset()
        gc.collect()
        with tempfile.TemporaryDirectory() as folder, _cold_caches(folder):
            given = dict(options) if name == "ctk" else theirs
            ways[name] = step(torch.compile(fresh(run), backend=name, options=given))
            firsts[name] = _seconds(ways[name], inputs, 1)
    with _turn(inputs):
        took = calls(ways, inputs, blocks)
    return {name: Timing(firsts[name], typical(each)) for name, each in took.items()}


def calls(
    ways: Mapping[str, Callable[..., Any]], inputs: Sequence[Any], blocks: int
) -> dict[str, list[float]]:
    """Return the seconds of a call in each block of each way, `eager` among them, in turns."""
    for way in ways.values():
        _seconds(way, inputs, 3)
    once = max(_seconds(ways["eager"], inputs, 3), 1e-7)
    count = max(1, min(2000, int(0.02 / once)))
    took: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(blocks):
        for name, way in ways.items():
            took[name].append(_seconds(way, inputs, count))
    return took


def fresh(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of its own code object, so that Dynamo does not share caches."""
    if isinstance(run, torch.nn.Module):
        return run
    code, closure = run.__code__.replace(), run.__closure__
    return FunctionType(code, run.__globals__, run.__name__, run.__defaults__, closure)


def _cold_caches(folder: str) -> Any:
    forget()
    names = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CTK_CACHE_DIR")
    return patch.dict("os.environ", dict.fromkeys(names, folder))


@contextmanager
def _turn(inputs: Sequence[Any]) -> Iterator[None]:
    """Wait until no other process of this machine times calls on its GPUs."""
    if not _is_cuda(inputs):
        yield
        return
    with (Path(tempfile.gettempdir()) / "ctk_benchmark.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_cuda(inputs: Sequence[Any]) -> bool:
    return any(isinstance(each, torch.Tensor) and each.is_cuda for each in inputs)


def _seconds(run: Callable[..., Any], inputs: Sequence[Any], count: int) -> float:
    is_cuda = _is_cuda(inputs)
    if is_cuda:
        torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(count):
        run(*inputs)
    if is_cuda:
        torch.cuda.synchronize()
    return (time.perf_counter() - started) / count


def copy_rate(device: str) -> float:
    """Return bytes per second read and written by a copy: of 1 GB, or of 4 MB on a CPU."""
    count = 1 << (28 if device == "cuda" else 20)
    source = torch.ones(count, dtype=torch.float32, device=device)
    target = torch.zeros_like(source)
    took = min(_seconds(target.copy_, (source,), 5) for _ in range(5))
    return 2 * source.numel() * 4 / took


def _machine(device: str, threads: int) -> str:
    name = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or "CPU"
    return f"torch {torch.__version__}, {name}, {threads} threads"


if __name__ == "__main__":
    main()
