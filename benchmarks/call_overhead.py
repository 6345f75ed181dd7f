"""Microseconds of the parts of one call: eager, Inductor and ctk, in turns in one process.

    total      the call, of a training program with its backward
    Dynamo     guards, and the way to the function of the backend
    wrappers   AOTAutograd's and ours: grad mode, autograd, mutation, aliases
    forward    the compiled graph, of training the backward as well
    checks     of ctk's graphs: inputs and results of the library made to fit
    memory     new tensors, and views of others
    library    calls of operators
    kernels    launches with the work of the kernels
    rest       loops, sizes, references
    device     on CUDA, a call of many in a row, with the device waited for at their end

A part of ctk's graphs is timed alone, on the values of a whole call. Programs are small, so that
the work itself costs little; on CUDA the device is not waited for. There each program of fixed
sizes also runs as CUDA graphs: `mode="reduce-overhead"` of Inductor, and ours.

    python -m benchmarks.call_overhead [--device cpu|cuda] [--threads 1] [--only WORD,...]
"""

import argparse
import gc
import operator
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from benchmarks.kernels import chosen
from ctk.compiler import pipeline
from ctk.compiler.runtime.helpers import fitted, required
from ctk.compiler.runtime.python_code import PythonCode
from ctk.compiler.runtime.steps import (
    Allocation,
    Call,
    Launch,
    Ref,
    Size,
    Step,
    names_read,
    symbols_read,
)
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.compiler.torch_compat.process import strided_tensors

Way = Callable[..., Any]
WHOLE = ("total", "function", "device")
BACKENDS = ("inductor", "ctk")
PARTS = ("checks", "memory", "library", "kernels")


@dataclass
class Graphs:
    """The compiled graphs of a program: each with the arguments of its last call."""

    runs: dict[bool, Way] = field(default_factory=dict[bool, Way])
    args: dict[bool, list[Any]] = field(default_factory=dict[bool, "list[Any]"])
    function: Way | None = None
    inputs: tuple[Any, ...] = ()

    def spy(self, compile_inner: Way) -> Way:
        """Return `inner_compile` with its results kept."""

        def compile_(gm: Any, inputs: Any, *, is_backward: bool = False, **options: Any) -> Way:
            run = self.runs[is_backward] = compile_inner(
                gm, inputs, is_backward=is_backward, **options
            )

            def call(args: list[Any]) -> Any:
                self.args[is_backward] = list(args)
                return run(args)

            vars(call).update(_boxed_call=True)
            return call

        return compile_

    def backend(self, compile_fx: Way, compile_inner: Way) -> Way:
        """Return the backend of Dynamo that compiles by `compile_fx`."""

        def backend(gm: Any, inputs: Any) -> Way:
            made = compile_fx(gm, inputs, inner_compile=self.spy(compile_inner))

            def call(*args: Any) -> Any:
                self.inputs = args
                return made(*args)

            self.function = made
            return call

        return backend


def main() -> None:
    """Print a table for each program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=40)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.compiler.config.force_disable_caches = True
    print(f"torch {torch.__version__}, {args.device}, {args.threads} thread(s); microseconds")
    columns = ("total", "Dynamo", "wrappers", "forward", "backward", *PARTS, "rest", "device")
    print(f"{'':36}" + "".join(f"{each:>10}" for each in columns))
    known = programs(args.device)
    for name in chosen(args.only, known):
        program, inputs, dynamic, is_training = known[name]
        table = measure(program, inputs, dynamic=dynamic, is_training=is_training,
                        rounds=args.rounds)  # fmt: skip
        for way, row in table.items():
            cells = (f"{row[each]:10.1f}" if each in row else f"{'':10}" for each in columns)
            print(f"{name:20}{way:16}" + "".join(cells), flush=True)


def programs(device: str) -> Mapping[str, tuple[Way, tuple[Any, ...], bool, bool]]:
    """Return programs with their inputs, whether sizes vary, and whether they are trained."""

    def made(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=device)

    layers = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.GELU()) for _ in range(20)))
    layers = layers.to(device)
    many = nn.ParameterList([nn.Parameter(made(8)) for _ in range(60)])

    def chain(x: torch.Tensor) -> torch.Tensor:
        return (x * 2 + 1).relu() - 0.5

    def combine(x: torch.Tensor) -> torch.Tensor:
        for each in many:
            x = x * each
        return x

    def in_place(x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        state.mul_(0.9).add_(x)
        return state.view(-1) + 1

    return {
        "chain": (chain, (made(64),), False, False),
        "chain dynamic": (chain, (made(64),), True, False),
        "in place": (in_place, (made(8, 8), made(8, 8)), False, False),
        "20 linear b1": (layers, (made(1, 64),), False, False),
        "20 linear b32": (layers, (made(32, 64),), False, False),
        "20 linear dynamic": (layers, (made(32, 64),), True, False),
        "60 parameters": (combine, (made(8),), False, False),
        "chain training": (chain, (made(64).requires_grad_(),), False, True),
        "20 linear training": (layers, (made(32, 64),), False, True),
        "60 param. training": (combine, (made(8),), False, True),
    }


def measure(
    program: Way, inputs: tuple[Any, ...], *, dynamic: bool, is_training: bool, rounds: int
) -> dict[str, dict[str, float]]:
    """Return the parts of a call by compiler and part, in microseconds."""
    calls: dict[tuple[str, str], Callable[[], object]] = {}
    is_on_cuda = inputs[0].is_cuda
    with torch.set_grad_enabled(is_training):
        calls["eager", "total"] = _step(program, inputs, is_training)
        for way in BACKENDS:
            torch.compiler.reset()
            gc.collect()
            calls |= _calls_of(way, program, inputs, dynamic=dynamic, is_training=is_training)
        if is_on_cuda and not dynamic:
            for way in BACKENDS:
                compiled = torch.compile(program, backend=way, mode="reduce-overhead")
                calls[f"{way} graphs", "total"] = step = _step(compiled, inputs, is_training)
                for _ in range(5):
                    step()
        took = _shortest(calls, rounds, is_on_cuda=is_on_cuda)
        ways = dict.fromkeys(way for way, _ in calls)
        if is_on_cuda:
            took |= {(way, "device"): _with_device(calls[way, "total"]) for way in ways}
    return {way: _row({p: t for (w, p), t in took.items() if w == way}) for way in ways}


def _calls_of(
    way: str, program: Way, inputs: tuple[Any, ...], *, dynamic: bool, is_training: bool
) -> dict[tuple[str, str], Callable[[], object]]:
    """Return the whole call of one compiler, and each part of it."""
    compiler, inner = {
        "inductor": (inductor.pipeline_module().compile_fx, inductor.inner_compile()),
        "ctk": (pipeline.compile_fx, pipeline.compile_fx_inner),
    }[way]
    graphs = Graphs()
    backend = graphs.backend(compiler, inner)
    compiled = torch.compile(program, backend=backend, dynamic=dynamic or None)
    step = _step(compiled, inputs, is_training)
    step()
    step()
    assert graphs.function is not None
    calls = {(way, "total"): step}
    calls[way, "function"] = _step(graphs.function, graphs.inputs, is_training)
    for is_backward, run in graphs.runs.items():
        part = "backward" if is_backward else "forward"
        calls[way, part] = _boxed(run, graphs.args[is_backward])
        code = vars(run)["ctk_code"] if way == "ctk" else None
        if code is not None:
            parts = _parts(code, graphs.args[is_backward])
            calls |= {(way, f"{part} {name}"): timed for name, timed in parts.items()}
    return calls


def _row(took: Mapping[str, float]) -> dict[str, float]:
    """Return the columns of one way."""
    shown = ("total", "forward", "backward", "device")
    row = {name: took[name] for name in shown if name in took}
    if "function" not in took:
        return row
    graphs = took["forward"] + took.get("backward", 0)
    row["Dynamo"] = took["total"] - took["function"]
    row["wrappers"] = took["function"] - graphs
    if "forward checks" in took:
        row |= {each: took[f"forward {each}"] + took.get(f"backward {each}", 0) for each in PARTS}
        row["rest"] = graphs - sum(row[each] for each in PARTS)
    return row


def _step(run: Way, inputs: tuple[Any, ...], is_training: bool) -> Callable[[], object]:
    if not is_training:
        return lambda: run(*inputs)

    def step() -> None:
        result = run(*inputs)
        first = result if isinstance(result, torch.Tensor) else result[0]
        torch.autograd.backward(first, torch.ones_like(first))

    return step


def _boxed(run: Way, args: Sequence[Any]) -> Callable[[], object]:
    def call() -> object:
        with torch.no_grad():
            return run(list(args))

    return call


def _parts(code: PythonCode, args: Sequence[Any]) -> dict[str, Callable[[], object]]:
    """Return for each part a function that does only its steps, on the values of a call."""
    schedule = code.schedule
    sizes = tuple(step for step in schedule.steps if isinstance(step, Size))
    made = [step.name for step in schedule.steps if isinstance(step, (Call, Allocation))]
    names = (*schedule.inputs, *made)
    every = replace(schedule, result=tuple(map(Ref, names)))
    with torch.no_grad():
        values = dict(zip(names, code.with_schedule(every).function(list(args)), strict=True))
    found: dict[str, Callable[[], object]] = {}
    for part in PARTS:
        steps = tuple(step for step in schedule.steps if _part_of(step) == part)
        made_here = {step.name for step in steps if isinstance(step, (Call, Allocation))}
        steps = (*(sizes if any(map(symbols_read, steps)) else ()), *steps)
        read = dict.fromkeys(name for step in steps for name in names_read(step))
        inputs = tuple(name for name in read if name in values and name not in made_here)
        own = code.with_schedule(replace(schedule, inputs=inputs, steps=steps, result=()))
        found[part] = _boxed(own.function, [values[name] for name in inputs])
    return found


def _part_of(step: Step) -> str:
    if isinstance(step, Launch):
        return "kernels"
    if isinstance(step, Allocation):
        return "memory"
    if not isinstance(step, Call):
        return "rest"
    if step.function in (fitted, required):
        return "checks"
    if step.function is strided_tensors.reinterpret():
        return "memory"
    return "rest" if step.function is operator.getitem else "library"


def _shortest(
    calls: Mapping[Any, Callable[[], object]], rounds: int, *, is_on_cuda: bool
) -> dict[Any, float]:
    """Return the shortest time of each call in microseconds, without the loop around it.

    Calls take turns in short blocks: other work of the machine lengthens some of them.
    """
    wait = torch.cuda.synchronize if is_on_cuda else lambda: None
    counts: dict[Any, int] = {}
    for key, call in calls.items():
        call()
        counts[key] = max(3, int(0.002 / _seconds(call, 5)))
    took = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for key, call in calls.items():
            wait()
            took[key] = min(took[key], _seconds(call, counts[key]))
    empty = {True: lambda: None, False: _boxed(lambda _: None, [])}
    loop = {key: min(_seconds(call, 1000) for _ in range(20)) for key, call in empty.items()}
    return {key: max(0, took[key] - loop[key[1] in WHOLE]) * 1e6 for key in calls}


def _with_device(call: Callable[[], object]) -> float:
    """Return the microseconds of a call of many in a row, until the device has ended them."""

    def calls() -> None:
        for _ in range(50):
            call()
        torch.cuda.synchronize()

    return min(_seconds(calls, 1) for _ in range(5)) / 50 * 1e6


def _seconds(call: Callable[[], object], count: int) -> float:
    started = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - started) / count


if __name__ == "__main__":
    main()
