"""How small failures of known size become, in how many questions, beside torch's minifier.

    python -m benchmarks.reduce                                  the table and the plots
    python -m benchmarks.reduce --family nan --size 50 --seeds 2  one line per problem
    python -m benchmarks.reduce --write DIR                      the problems as folders

`tests/helpers/reduce_families` has the problems: graphs of 50 to 20,000 nodes, random ones and
those of real models, each with a pure predicate and its known minimum. Nothing is compiled: with
Inductor a question costs 2-4 s, so that questions are what counts. Both reducers are asked in the
same process, about the same graph and with the same predicate; torch's minifier is slow, so that it
gets a time limit per problem. Each size has a process of its own (each problem, from 2,000
nodes on), so that memory is honest.
"""

import argparse
import dataclasses
import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from benchmarks.reduce_measure import Row, measured
from benchmarks.reduce_plot import saved_plots
from benchmarks.reduce_table import HEAD, line, table
from benchmarks.reduce_write import write
from tests.helpers.reduce_families import FAMILIES

RESULTS = Path(__file__).parent / "results"
Problem = tuple[str, int, int]
"""Family, size and seed."""

ALONE_FROM = 2_000
"""Nodes from which each problem has a process of its own."""


def measured_in_children(words: argparse.Namespace) -> Iterator[Row]:
    """Measure each size in a process; what the file of rows has already is not measured again."""
    known = known_rows(words.rows)
    sizes = [
        (name, size)
        for name in words.family or FAMILIES
        for size in words.size or FAMILIES[name].sizes
    ]
    wanted = [(*size, seed) for size in sizes for seed in range(words.seeds)]
    missing = [problem for problem in wanted if problem not in known]
    for row in in_children(missing, words.torch_seconds, words.jobs):
        known[row.family, row.size, row.seed] = row
        keep(row, words.rows)
    yield from (known[problem] for problem in wanted)


def in_children(problems: list[Problem], torch_seconds: float, jobs: int = 1) -> Iterator[Row]:
    """Measure problems: one process for each size, and for each large problem."""
    groups: dict[tuple[str, int, int], list[int]] = {}
    for name, size, seed in problems:
        groups.setdefault((name, size, seed if size >= ALONE_FROM else 0), []).append(seed)
    with ThreadPoolExecutor(jobs) as pool:
        children = [
            pool.submit(in_a_child, name, size, seeds, torch_seconds)
            for (name, size, _), seeds in groups.items()
        ]
        for child in as_completed(children):
            yield from child.result()


def again(words: argparse.Namespace) -> Iterator[Row]:
    """Measure ctk again, and yield rows with what is known of torch's minifier."""
    known = known_rows(words.again)
    measured_now = {
        (row.family, row.size, row.seed): row for row in in_children(list(known), 0, words.jobs)
    }
    for problem, row in known.items():
        yield dataclasses.replace(measured_now[problem], theirs=row.theirs)


def in_a_child(name: str, size: int, seeds: list[int], torch_seconds: float) -> list[Row]:
    """Measure some problems in a process of their own."""
    words = ["--one", "--family", name, "--size", str(size), "--torch-seconds", str(torch_seconds)]
    command = [sys.executable, "-m", "benchmarks.reduce", *words, "--seed", *map(str, seeds)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr[-3000:]}")
    rows = [text for text in done.stdout.splitlines() if text.startswith("{")]
    return [Row.from_json(json.loads(text)) for text in rows]


def known_rows(path: Path | None) -> dict[Problem, Row]:
    """Return what an earlier, ended run has measured, by family, size and seed."""
    if path is None or not path.exists():
        return {}
    rows = [Row.from_json(json.loads(text)) for text in path.read_text().splitlines()]
    return {(row.family, row.size, row.seed): row for row in rows}


def keep(row: Row, path: Path | None) -> None:
    """Append a row to the file of rows, if there is one."""
    if path is not None:
        with path.open("a") as file:
            file.write(json.dumps(row.as_json()) + "\n")


def parsed() -> argparse.Namespace:
    """Return the words of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--family", choices=FAMILIES, action="append", help="default: all")
    parser.add_argument("--size", type=int, action="append", help="default: those of the family")
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--torch-seconds", type=float, help="CPU time of torch's minifier")
    parser.add_argument("--rows", type=Path, help="a file of rows; those in it are not repeated")
    parser.add_argument("--again", type=Path, help="rows: measure only ctk, not torch's minifier")
    parser.add_argument("--write", type=Path, metavar="DIR", help="write the problems as folders")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, nargs="*", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Print one line per problem, or the table; save the plots."""
    words = parsed()
    is_whole = not (words.family or words.size)
    if words.torch_seconds is None:
        words.torch_seconds = 10.0 if is_whole else 0.0
    if words.write:
        print(write(words.write, words.family or FAMILIES, words.size, range(words.seeds)))
    elif words.one:
        for seed in words.seed:
            row = measured(words.family[0], words.size[0], seed, words.torch_seconds)
            print(json.dumps(row.as_json()), flush=True)
    elif not is_whole:
        print(HEAD)
        for row in measured_in_children(words):
            print(line(row), flush=True)
    else:
        rows = list(again(words) if words.again else measured_in_children(words))
        versions = ", ".join(sorted({row.torch for row in rows}))
        about = f"torch {versions}, {platform.machine()}, {words.seeds} seeds"
        text = table(rows, about, words.torch_seconds)
        print(text)
        saved_plots(rows, RESULTS / "reduce")


if __name__ == "__main__":
    main()
