"""How well the reducer finds known minima: questions, what is left, time and memory of its own.

    python -m benchmarks.reduce --family NAME --size N --seeds 5

One process per size, so that memory is honest. `tests/helpers/reduce_families` has the problems.
"""

import argparse
import json
import subprocess
import sys

from benchmarks.reduce_measure import Row, measured
from tests.helpers.reduce_families import FAMILIES

HEAD = (
    f"{'family':20} {'nodes':>6} {'seed':>4} {'questions':>9} {'goal':>5} {'left':>5} {'best':>4}"
    f" {'elements':>8} {'best':>5} {'nonzero':>7} {'best':>4} {'ms own':>7} {'MB':>6} {'end':>10}"
)


def line(row: Row) -> str:
    """Return one problem's line of the table."""
    return (
        f"{row.family:20} {row.nodes:6} {row.seed:4} {row.questions:9} {row.goal:5}"
        f" {row.left:5} {row.best_left:4} {row.elements:8} {said(row.best_elements):>5}"
        f" {row.non_zeros:7} {said(row.best_non_zeros):>4} {row.milliseconds:7.1f}"
        f" {row.megabytes:6.0f} {row.reason:>10}" + (f" {row.invalid} invalid" * bool(row.invalid))
    )


def said(number: int | None) -> str:
    """Return a number, or a dash."""
    return "-" if number is None else str(number)


def in_a_process(family: str, size: int, seed: int) -> Row:
    """Measure in a process of its own."""
    words = ["--one", "--family", family, "--size", str(size), "--seed", str(seed)]
    command = [sys.executable, "-m", "benchmarks.reduce", *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr[-3000:]}")
    return Row(**json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Print one line per problem."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--family", choices=FAMILIES, action="append")
    parser.add_argument("--size", type=int, action="append")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--one", action="store_true", help="print one problem as JSON")
    parser.add_argument("--in-process", action="store_true", help="no process for each problem")
    words = parser.parse_args()
    if words.one:
        print(json.dumps(measured(words.family[0], words.size[0], words.seed).as_json()))
        return
    print(HEAD)
    measure = measured if words.in_process else in_a_process
    for name in words.family or FAMILIES:
        for size in words.size or FAMILIES[name].sizes:
            for seed in range(words.seeds):
                print(line(measure(name, size, seed)), flush=True)


if __name__ == "__main__":
    main()
