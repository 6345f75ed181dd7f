"""Does watching cost anything when nobody watches? Compile time with and without the toolkit.

Pairs of processes, in turn: one can import the toolkit (installed, no observer, no variables), one
cannot (an import hook hides it). Each compiles a 4-layer encoder several times, training and
inference, and prints the median. The ratio of the medians is taken pair by pair. A third kind of
process compiles under a Recorder, for information.

    python benchmarks/compile_overhead.py [--pairs 5] [--repeats 3]
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time

KINDS = ("without toolkit", "with toolkit", "observed")


class Hidden:
    """An import hook that hides the toolkit, as if it were not installed."""

    def find_spec(self, name, path=None, target=None):
        if name == "ctk.toolkit" or name.startswith("ctk.toolkit."):
            raise ModuleNotFoundError(f"No module named {name!r} (hidden)")


def compile_seconds(kind: str, repeats: int) -> list[float]:
    """Return the seconds of each compile of one process; the first, a warm-up, is left out."""
    if kind == "without toolkit":
        sys.meta_path.insert(0, Hidden())
    import torch
    from torch import nn

    from ctk import compile_fx

    torch.set_num_threads(1)
    observer = None
    if kind != "without toolkit":
        from ctk.toolkit.compile_log.recorder import Recorder

        observer = Recorder if kind == "observed" else None
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    x = torch.randn(4, 16, 64)

    def backend(gm, example_inputs):
        return compile_fx(gm, example_inputs, None, observer() if observer else None)

    def backend_by_name(gm, example_inputs):
        from ctk.compiler.backend import ctk

        return ctk(gm, example_inputs)

    chosen = backend if observer else backend_by_name
    seconds = []
    for _ in range(repeats + 1):
        torch.compiler.reset()
        started = time.perf_counter()
        torch.compile(model, backend=chosen)(x).sum().backward()
        seconds.append(time.perf_counter() - started)
    return seconds[1:]


def measure(kind: str, repeats: int) -> float:
    """Return the median of a process of one kind."""
    command = [sys.executable, __file__, "--child", kind, "--repeats", str(repeats)]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CTK_")}
    environment["CTK_CACHE"] = "0"
    output = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return statistics.median(json.loads(output.stdout.splitlines()[-1]))


def main() -> None:
    """Measure the pairs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child", choices=KINDS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(compile_seconds(options.child, options.repeats)))
        return
    medians: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(options.pairs):
        for kind in KINDS:
            medians[kind].append(measure(kind, options.repeats))
    import torch

    print(f"torch {torch.__version__}, {platform.machine()}, {os.cpu_count()} cores, 1 thread")
    print(f"{options.pairs} pairs of processes, {options.repeats} compiles each; medians")
    for kind in KINDS:
        print(f"  {kind:<16} {statistics.median(medians[kind]):.3f} s")
    for kind in KINDS[1:]:
        ratios = [a / b for a, b in zip(medians[kind], medians[KINDS[0]], strict=True)]
        low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
        print(f"  {kind} / {KINDS[0]}: {middle:.3f} (min {low:.3f}, max {high:.3f})")


if __name__ == "__main__":
    main()
