"""The dashboard of whole models: ctk, Inductor and eager on each, one process for each row.

A row is a model in inference or training (a training step is forward, a mean of squares, and the
gradients of all parameters), in one dtype, on one device. It has the median times of calls that
take turns, first calls with cold caches, the memory that a call needs at its peak, the error of the
results relative to float64 (to eager for a quantized model), and the number of reasons of graph
breaks. Rows are appended to a file as they are made. A run goes on where an earlier one ended, and
measures rows that failed again; `--table` prints the file, and draws the speeds beside it as SVG.

    python -m benchmarks.models [--device cpu|cuda] [--dtype float32,bfloat16] [--only BERT,...]
        [--mode inference,training] [--jobs 1] [--out FILE.jsonl] [--table] [--profile]

`--jobs` measures several rows at once, each on processors of its own; on a GPU, timed calls of one
row wait for those of another, while other rows compile.

`--profile` runs one process for each row too, and prints the operators of torch that each of the
three calls, with their times, and the rest: kernels and the host. On CUDA it adds the sums of
kernels, of all and of Triton's, and the largest ones of ctk.
"""

import argparse
import copy
import ctypes
import itertools
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.chunked_cross_entropy import peak, reset_peak
from benchmarks.kernels import begin, chosen, compared
from benchmarks.model_zoo import MODELS
from ctk.compiler.torch_compat.dynamo.dynamo_api import graph_breaks
from ctk.compiler.torch_compat.inductor import inductor_lowering as lowering

WAYS = ("eager", "inductor", "ctk")
MODES = ("inference", "training")
DTYPES = ("float32", "bfloat16", "float16")
Row = Mapping[str, Any]
Step = Callable[..., Any]


def main() -> None:
    """Measure one row, or those that the file lacks; print tables."""
    given, rest = _parser().parse_known_args()
    if given.row:
        os.sched_setaffinity(0, map(int, given.cores.split(",")))
        sys.argv[1:] = [*rest, "--device", given.device]
        args, options = begin(__doc__ or "", blocks=7)
        print(json.dumps(measure(given.row, args, options, given.profile)))
        return
    path = Path(given.out)
    if not given.table:
        asked = ((given.only, MODELS), (given.dtype, DTYPES), (given.mode, MODES))
        done = {row["key"] for row in rows_of(path) if "failed" not in row}
        keys = [
            "/".join((name, mode, dtype, given.device))
            for name, dtype, mode in itertools.product(*(chosen(*each) for each in asked))
        ]
        free = processors(given.jobs)
        with ThreadPoolExecutor(given.jobs) as pool:
            wanted = [key for key in keys if given.profile or key not in done]
            run = partial(_run, rest=rest, path=path, free=free, is_profile=given.profile)
            list(pool.map(run, wanted))
    if not given.profile:
        print_table(rows_of(path), path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--mode", default="inference,training")
    parser.add_argument("--only", default="")
    parser.add_argument("--out", default="benchmarks/results/models.jsonl")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--row", help="NAME/MODE/DTYPE/DEVICE: measure this one in this process")
    parser.add_argument("--cores", help="of this process, with commas")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--profile", action="store_true")
    return parser


def processors(jobs: int) -> "SimpleQueue[str]":
    """Return a queue of processors for each job, with commas; of this process's, as many each."""
    known = sorted(os.sched_getaffinity(0))
    size = len(known) // jobs
    if not size:
        raise SystemExit(f"--jobs: at most {len(known)}, the number of processors")
    free = SimpleQueue[str]()
    for start in range(0, size * jobs, size):
        free.put(",".join(map(str, known[start : start + size])))
    return free


def _run(
    key: str, rest: Sequence[str], path: Path, free: "SimpleQueue[str]", *, is_profile: bool
) -> None:
    """Measure a row in a process of its own, and append it to the file; an error is a row too."""
    device = key.rpartition("/")[2]
    command = [sys.executable, "-m", "benchmarks.models", "--row", key, "--device", device, *rest]
    command += ["--profile"] * is_profile
    cores = free.get()
    command += ["--cores", cores]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    free.put(cores)
    lines = done.stdout.splitlines()
    if is_profile:
        print("\n".join(lines[:-1]) if done.returncode == 0 else done.stderr[-2000:])
        return
    failed = {"key": key, "failed": done.stderr.strip()[-400:]}
    row = json.loads(lines[-1]) if done.returncode == 0 else failed
    with path.open("a") as file:
        file.write(f"\n{json.dumps(row)}")  # on a line of its own, also behind one that was cut off
    print(line_of(row), flush=True)


def rows_of(path: Path) -> list[Row]:
    """Return the rows of a file, the last of each key; a line that was cut off is left out."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [row for row in map(_parsed, lines) if row is not None]
    return list({row["key"]: row for row in rows}.values())


def _parsed(line: str) -> Row | None:
    try:
        return json.loads(line)
    except json.JSONDecodeError:
        return None


def measure(
    key: str, args: argparse.Namespace, options: dict[str, object], is_profile: bool
) -> Row:
    """Return a row."""
    name, mode, dtype, _ = key.split("/")
    make, config = MODELS[name]
    torch.manual_seed(0)
    model, inputs = make(args.device == "cuda")
    is_training = mode == "training"
    if "freezing" not in config:  # an exported graph has no modes
        model = model.train(is_training).requires_grad_(is_training)
    _without_dropout(model)
    kind = getattr(torch, dtype)
    exact = None if "freezing" in config else copy.deepcopy(model).to(args.device).double()
    model = model.to(args.device, kind)
    inputs = [x.to(args.device) for x in inputs]
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    inputs = [x.to(kind) if x.is_floating_point() else x for x in inputs]
    step = training if is_training else _call
    # Dynamo passes parameters as constants by the setting of the process, not by an option.
    freezes = lowering.options_set({"freezing": "freezing" in config})
    with torch.set_grad_enabled(is_training), freezes:
        ways: dict[str, Step] = {}

        def kept(compiled: Step) -> Step:
            ways[WAYS[len(ways)]] = made = step(compiled)
            return made

        timed = compared(
            model, inputs, args.blocks, {**options, **config}, kept, dict(config) or None
        )
        breaks = len(graph_breaks())
        if is_profile:
            print_profile(f"{name} {mode} {dtype}", ways, inputs)
        expected = _results(ways["eager"], inputs) if exact is None else _results(step(exact), wide)
        errors = {way: _error(_results(run, inputs), expected) for way, run in ways.items()}
        memory = {way: _memory(run, inputs, args.device) for way, run in ways.items()}
    return {
        "key": key, "torch": torch.__version__,
        "call": {way: each.call for way, each in timed.items()},
        "first": {way: each.first for way, each in timed.items()},
        "memory": memory, "error": errors, "breaks": breaks,
    }  # fmt: skip


def _call(model: Step) -> Step:
    return model


def training(model: Step) -> Step:
    """Return a training step: loss and gradients of all parameters."""
    parameters = [p for p in model.parameters() if p.requires_grad]  # type: ignore[attr-defined]  # a compiled module

    def step(*inputs: Tensor) -> list[Tensor]:
        loss = model(*inputs).float().square().mean()
        found = torch.autograd.grad(loss, parameters, allow_unused=True)
        return [loss.detach(), *(each for each in found if each is not None)]

    return step


def _without_dropout(model: nn.Module) -> None:
    """Set the probabilities of dropout to 0: each compiler draws other numbers."""
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, float) and ("drop" in name or isinstance(module, nn.Dropout)):
                setattr(module, name, 0.0)


def _results(run: Step, inputs: Sequence[Tensor]) -> list[Tensor]:
    found = run(*inputs)
    return [
        each.detach().double().cpu() for each in (found if isinstance(found, list) else [found])
    ]


def _error(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Return the norm of the difference relative to that of the results, of all together."""
    pairs = list(zip(found, expected, strict=True))
    apart = sum(float((a - b).square().sum()) for a, b in pairs)
    return (apart / sum(float(b.square().sum()) for _, b in pairs)) ** 0.5


def _memory(run: Step, inputs: Sequence[Tensor], device: str) -> int:
    """Return the bytes that a call needs at its peak above those before it."""
    library = ctypes.CDLL(None)
    library.mallopt(-3, 65536)  # M_MMAP_THRESHOLD: freed memory leaves the process at once
    run(*inputs)
    library.malloc_trim(0)  # memory that was freed before the threshold was set, and is free now

    def measured() -> int:
        before = reset_peak(device)
        run(*inputs)
        return peak(device) - before

    return min(measured() for _ in range(3))  # a CPU's holds pages that the process maps at times


def print_profile(title: str, ways: Mapping[str, Step], inputs: Sequence[Tensor]) -> None:
    """Print the operators that each way calls, with milliseconds of a call, and the rest.

    On CUDA kernels follow: the sums of all and of Triton's of each way, and those of ctk.
    """
    tables: dict[str, dict[str, float]] = {}
    kernels: dict[str, dict[str, float]] = {}
    for way, run in ways.items():
        activities = [torch.profiler.ProfilerActivity.CPU]
        if inputs[0].is_cuda:
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        rest = torch.profiler.record_function("the rest")
        with torch.profiler.profile(activities=activities) as seen, rest:
            for _ in range(3):
                run(*inputs)
        on = "self_device_time_total" if inputs[0].is_cuda else "self_cpu_time_total"
        events = seen.key_averages()
        tables[way] = {each.key: getattr(each, on) / 3e3 for each in events if not _is_kernel(each)}
        kernels[way] = {each.key: getattr(each, on) / 3e3 for each in events if _is_kernel(each)}
    print(f"\n{title}: milliseconds of a call\n{'':50}{'eager':>9}{'inductor':>10}{'ctk':>9}")
    names = {name for table in tables.values() for name in table}
    most = sorted(names, key=lambda name: -max(t.get(name, 0.0) for t in tables.values()))
    for name in most[:25]:
        _print_times(name, [tables[way].get(name, 0.0) for way in WAYS])
    if inputs[0].is_cuda:
        ours = {way: _of_triton(kernels[way]) for way in WAYS}
        _print_times("all kernels", [sum(kernels[way].values()) for way in WAYS])
        _print_times("kernels of Triton", [sum(ours[way].values()) for way in WAYS])
        for name, time in sorted(ours["ctk"].items(), key=lambda pair: -pair[1])[:25]:
            _print_times(name, [0.0, 0.0, time])


def _is_kernel(event: Any) -> bool:
    """Return whether a row of a profile is work on the device: no operator, no annotation."""
    is_on_device = event.device_type == torch.autograd.DeviceType.CUDA
    return is_on_device and not event.is_user_annotation


def _of_triton(kernels: Mapping[str, float]) -> dict[str, float]:
    """Return the kernels that Inductor and ctk name: others have C++ names, or are libraries'."""
    return {name: time for name, time in kernels.items() if name.startswith(("triton_", "kernel_"))}


def _print_times(name: str, times: Sequence[float]) -> None:
    eager, inductor, ours = times
    print(f"{name[:48]:50}{eager:9.2f}{inductor:10.2f}{ours:9.2f}")


def line_of(row: Row) -> str:
    """Return a row of the table."""
    if "failed" in row:
        return f"{row['key']:36} failed: {row['failed'].splitlines()[-1] if row['failed'] else ''}"
    call, first, memory, error = (row[name] for name in ("call", "first", "memory", "error"))
    return (
        f"{row['key']:36}{call['eager'] * 1e3:9.2f}{call['eager'] / call['inductor']:10.2f}"
        f"{call['eager'] / call['ctk']:7.2f}{call['inductor'] / call['ctk']:10.2f}"
        f"{first['ctk'] / first['inductor']:11.2f}{memory['inductor'] / 2**20:9.0f}"
        f"{memory['ctk'] / 2**20:7.0f}{error['eager']:10.1e}{error['inductor']:9.1e}"
        f"{error['ctk']:9.1e}{row['breaks']:8d}"
    )


def print_table(rows: Sequence[Row], path: Path) -> None:
    """Print rows and geometric means, and draw the speeds."""
    print(f"\n{'':36}{'eager ms':>9}{'inductor':>10}{'ctk':>7}{'ctk/ind.':>10}{'first/ind.':>11}"
          f"{'MiB ind.':>9}{'ctk':>7}{'err eager':>10}{'inductor':>9}{'ctk':>9}"
          f"{'breaks':>8}")  # fmt: skip
    print("\n".join(map(line_of, rows)))
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if "failed" not in row:
            groups.setdefault(row["key"].partition("/")[2], []).append(row)
    for name, group in groups.items():
        speeds = [row["call"]["inductor"] / row["call"]["ctk"] for row in group]
        firsts = [row["first"]["ctk"] / row["first"]["inductor"] for row in group]
        higher = sum(row["memory"]["ctk"] > 1.02 * row["memory"]["inductor"] for row in group)
        mean, first = map(statistics.geometric_mean, (speeds, firsts))
        print(f"{name}: {len(group)} models, geometric mean ctk/inductor {mean:.3f}, worst "
              f"{min(speeds):.2f}; first call {first:.3f}; higher peak: {higher}")  # fmt: skip
    if groups:
        path.with_suffix(".svg").write_text(drawn(groups) + "\n")


def drawn(groups: Mapping[str, Sequence[Row]]) -> str:
    """Return the speeds relative to Inductor as SVG: a bar for each model, a colour for a mode."""
    import pygal
    from pygal.style import CleanStyle

    names = list(dict.fromkeys(row["key"].split("/")[0] for g in groups.values() for row in g))
    chart = pygal.HorizontalBar(
        style=CleanStyle(), title="Speed of ctk, relative to Inductor", width=1000,
        height=120 + 34 * len(names), legend_at_bottom=True, truncate_label=-1,
        truncate_legend=-1, js=(), disable_xml_declaration=True,
    )  # fmt: skip
    chart.x_labels = names[::-1]
    for name, group in groups.items():
        speeds = {r["key"].split("/")[0]: r["call"]["inductor"] / r["call"]["ctk"] for r in group}
        chart.add(name, [speeds.get(each) for each in names[::-1]])
    return chart.render(is_unicode=True)


if __name__ == "__main__":
    main()
