"""Calls of packages from C beside calls from Python, for the five families of models.

Microseconds of a steady call on one thread: of `ctk_run`, of a loaded package in Python, and the
quotient. `fresh` is how long a C process takes to load a package and give its first result, in
milliseconds: for most of it the system loads torch's library.

    python -m benchmarks.c_calls [--calls N] [--rounds N]
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
import time
from pathlib import Path

import torch

from ctk.compiler.packages.package import Package, load
from ctk.compiler.packages.write import aot_compile
from tests.helpers.c_program import call, compile_program
from tests.helpers.model_families import FAMILIES, dynamic_shapes


def main() -> None:
    """Print one line for each family."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'':12}{'C us':>8}{'Python us':>11}{'Python / C':>12}{'fresh ms':>10}")
    with tempfile.TemporaryDirectory() as folder:
        program = compile_program(Path(folder), "-O2")
        for name, (model, make, _) in FAMILIES.items():
            path = Path(folder, f"{name}.ctk")
            inputs = make(5)
            aot_compile(model().eval(), inputs, dynamic_shapes=dynamic_shapes(name), path=path)
            package, rows = load(path), list[tuple[float, float, float]]()
            for _ in range(args.rounds):  # in turns
                in_c = _seconds_in_c(program, path, inputs, args.calls)
                in_python = _seconds_in_python(package, inputs, args.calls)
                started = time.perf_counter()
                call(program, path, inputs)
                rows.append((in_c, in_python, time.perf_counter() - started))
            in_c, in_python, fresh = map(statistics.median, zip(*rows, strict=True))
            shown = f"{in_c * 1e6:8.1f}{in_python * 1e6:11.1f}{in_python / in_c:12.2f}"
            print(f"{name:12}{shown}{fresh * 1e3:10.0f}")


def _seconds_in_c(program: Path, path: Path, inputs: tuple[torch.Tensor, ...], calls: int) -> float:
    told = call(program, path, inputs, calls=calls).stderr
    (found,) = re.findall(r"seconds (\S+)", told)
    return float(found)


def _seconds_in_python(package: Package, inputs: tuple[torch.Tensor, ...], calls: int) -> float:
    for _ in range(calls // 2):
        package(*inputs)
    started = time.perf_counter()
    for _ in range(calls // 2):
        package(*inputs)
    return (time.perf_counter() - started) / (calls // 2)


if __name__ == "__main__":
    main()
