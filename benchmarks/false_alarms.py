"""Healthy programs of hard kinds: what `check` and `diagnose` say of them, per target and device.

python -m benchmarks.false_alarms [--target ctk --target inductor] [--device cpu] [NAME ...]

An alarm is any answer but "no failure", and a step that is reported as wrong behind right results.
Programs of packages that are not installed are listed as left out (the extra `ecosystem` has them).
"""

import argparse
import contextlib
import io
import multiprocessing
import os
import platform
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

import ctk
from ctk.compiler.errors import LostAccelerator
from tests.helpers.healthy import HEALTHY
from tests.helpers.healthy.base import Healthy


def keywords(program: Healthy, target: str) -> dict[str, Any]:
    """Return how a program is asked about."""
    return {"target": target, "backward": program.backward, "dynamic": program.dynamic}


def checked(program: Healthy, target: str, device: str) -> tuple[bool, str]:
    """Return whether `check` sees no failure and no wrong step, and what it says."""
    function, inputs = program.build(device)
    report = ctk.check(function, inputs, **keywords(program, target))
    return report.ok and not report.hidden, str(report)


def diagnosed(program: Healthy, target: str, device: str) -> tuple[bool, str]:
    """Return whether `diagnose` sees no failure, and what it says."""
    function, inputs = program.build(device)
    with tempfile.TemporaryDirectory() as folder:
        found = ctk.diagnose(
            function, inputs, out=Path(folder) / "out", **keywords(program, target)
        )
    return found.judgement.is_no_failure, str(found.judgement)


ASKED = {"check": checked, "diagnose": diagnosed}


def main() -> None:
    """Ask about each program and print every alarm."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs; all if none is named")
    parser.add_argument("--target", action="append", help="ctk and inductor if not given")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", choices=ASKED, help="one of the two questions")
    parser.add_argument("--jobs", type=int, default=1, help="processes beside each other")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="every Nth program, from I")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    first, step = map(int, options.shard.split("/"))
    named = [p for p in HEALTHY if not options.names or p.name in options.names][first - 1 :: step]
    programs = [program for program in named if program.is_available]
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    print(f"torch {torch.__version__}, {machine}, {options.device}, {len(programs)} programs")
    for package in sorted({program.package for program in named} - {""}):
        missing = [p.name for p in named if p.package == package and not p.is_available]
        if missing:
            print(f"left out, {package} is not installed: {', '.join(missing)}")
    alarms = asked = 0
    for target in options.target or ("ctk", "inductor"):
        for question in [options.only] if options.only else ASKED:
            started = time.perf_counter()
            ask = partial(_answer_named, question, target=target, device=options.device)
            wrong = 0
            names = [program.name for program in programs]
            for name, said in zip(names, _map(ask, names, options.jobs), strict=True):
                if said is not None:
                    wrong += 1
                    print(f"  {name}: {said}", flush=True)
            seconds = time.perf_counter() - started
            print(f"{target} {question}: alarms: {wrong} of {len(programs)}, {seconds:.0f} s")
            alarms, asked = alarms + wrong, asked + len(programs)
    print(f"alarms: {alarms} of {asked}")


def _map(ask: Callable[[str], str | None], names: Sequence[str], jobs: int) -> Iterator[str | None]:
    """Yield the answers in order, each from a fork of its own: a program may break the GPU."""
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
        yield from pool.imap(ask, names, chunksize=1)


def _answer_named(question: str, name: str, target: str, device: str) -> str | None:
    return answer(question, next(p for p in HEALTHY if p.name == name), target, device)


def answer(question: str, program: Healthy, target: str, device: str) -> str | None:
    """Return what is wrong with the answer about a program; None for "no failure"."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            is_right, said = ASKED[question](program, target, device)
    except LostAccelerator as error:
        is_right, said = False, str(error)
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} at {at.name}: {str(error).splitlines()[:1]}"
    if (target, device) in program.bugs:
        return None if not is_right else "no failure, but this is a bug of the target"
    return None if is_right else said.splitlines()[0]


if __name__ == "__main__":
    main()
