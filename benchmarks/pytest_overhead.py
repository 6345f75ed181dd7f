"""The cost of the pytest plugin: off, on, and per test that compiles.

Pairs of runs of pytest, in turn, and the median of the differences, pair by pair:

1. Collection of 300 tests without torch: without the plugin (`-p no:ctk`) and with it, off.
2. Run of these tests: with the plugin off, and with `--ctk=check`: no test compiles.
3. Run of tests that compile (aot_eager, one graph and call each): off, and with `--ctk=check`.

    python -m benchmarks.pytest_overhead [--pairs 7]
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

LIGHT = "import pytest\n@pytest.mark.parametrize('n', range(300))\ndef test_it(n): assert n >= 0\n"

COMPILING = """
import pytest, torch

@pytest.fixture(scope="module", autouse=True)
def _warm():
    torch.compile(lambda x: x.cos(), backend="aot_eager")(torch.ones(3, requires_grad=True))

@pytest.mark.parametrize("n", range(20))
def test_it(n):
    torch.compiler.reset()
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    torch.compile(net, backend="aot_eager")(torch.randn(n + 2, 8)).sum().backward()
"""


def run(folder: Path, file: str, *options: str) -> float:
    """Run pytest on a file of a folder; return its seconds."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file, *options]
    begin = time.perf_counter()
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)
    return time.perf_counter() - begin


def compare(name: str, tests: int, pairs: int, first: Callable[[], float], second) -> str:
    """Return the line of a comparison: medians, and the median difference for each test."""
    first(), second()
    times = [(first(), second()) for _ in range(pairs)]
    before, after = (statistics.median(side) for side in zip(*times, strict=True))
    differences = [late - early for early, late in times]
    median = statistics.median(differences)
    spread = f"{min(differences) * 1e3:+.0f} to {max(differences) * 1e3:+.0f} ms"
    each = f", {median / tests * 1e3:.1f} ms for each test" if tests else ""
    return f"{name:<34}{before:>8.2f} s {after:>8.2f} s   {median * 1e3:+.0f} ms ({spread}){each}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=7)
    pairs = parser.parse_args().pairs
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_light.py").write_text(LIGHT)
        (folder / "test_compiling.py").write_text(COMPILING)

        def light(*options: str) -> Callable[[], float]:
            return lambda: run(folder, "test_light.py", *options)

        def compiling(*options: str) -> Callable[[], float]:
            return lambda: run(folder, "test_compiling.py", *options)

        print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {pairs} pairs")
        collect = "--collect-only"
        rows = [
            (
                "collect 300 tests: no plugin, off",
                0,
                light(collect, "-p", "no:ctk"),
                light(collect),
            ),
            ("300 tests without torch: off, check", 300, light(), light("--ctk=check")),
            ("20 tests that compile: off, check", 20, compiling(), compiling("--ctk=check")),
        ]
        for title, tests, first, second in rows:
            print(compare(title, tests, pairs, first, second), flush=True)


if __name__ == "__main__":
    main()
