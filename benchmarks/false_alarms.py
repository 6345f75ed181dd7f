"""Healthy programs of hard kinds: what `check` and `diagnose` say of them, per target and device.

python -m benchmarks.false_alarms [--target ctk --target inductor] [--device cpu] [NAME ...]
"""

import argparse
import contextlib
import io
import os
import platform
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch

import ctk
from tests.helpers.healthy import HEALTHY
from tests.helpers.healthy.base import Healthy


def keywords(program: Healthy, target: str, device: str) -> dict[str, Any]:
    """Return how a program is asked about.

    On a GPU, Inductor pads the rows of a product where its own timings say that it pays: strides of
    results are then other than eager's, in one run and not in the next.
    """
    pads = (target, device) == ("inductor", "cuda")
    return {
        "target": target,
        "backward": program.backward,
        "dynamic": program.dynamic,
        "strides": not pads,
    }


def checked(program: Healthy, target: str, device: str) -> tuple[bool, str]:
    """Return whether `check` sees no failure, and what it says."""
    function, inputs = program.build(device)
    report = ctk.check(function, inputs, **keywords(program, target, device))
    hidden = f" (hidden: {len(report.hidden)})" if report.ok and report.hidden else ""
    return report.ok, f"{report}{hidden}"


def diagnosed(program: Healthy, target: str, device: str) -> tuple[bool, str]:
    """Return whether `diagnose` sees no failure, and what it says."""
    function, inputs = program.build(device)
    with tempfile.TemporaryDirectory() as folder:
        found = ctk.diagnose(
            function,
            inputs,
            out=Path(folder) / "out",
            **keywords(program, target, device),
        )
    return found.judgement.verdict is ctk.Verdict.PASSES, str(found.judgement)


ASKED = {"check": checked, "diagnose": diagnosed}


def main() -> None:
    """Ask about each program and print every answer that is no "no failure"."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs; all if none is named")
    parser.add_argument("--target", action="append", help="ctk and inductor if not given")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", choices=ASKED, help="one of the two questions")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    programs = [p for p in HEALTHY if not options.names or p.name in options.names]
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    print(f"torch {torch.__version__}, {machine}, {options.device}, {len(programs)} programs")
    for target in options.target or ("ctk", "inductor"):
        for question in [options.only] if options.only else ASKED:
            told = Counter[str]()
            started = time.perf_counter()
            for program in programs:
                said = answer(question, program, target, options.device)
                told["no failure" if said is None else "alarm or error"] += 1
                if said is not None:
                    print(f"  {program.name}: {said}", flush=True)
            seconds = time.perf_counter() - started
            print(f"{target} {question}: {dict(told)} of {len(programs)}, {seconds:.0f} s")


def answer(question: str, program: Healthy, target: str, device: str) -> str | None:
    """Return what is wrong with the answer about a program; None for "no failure"."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            is_right, said = ASKED[question](program, target, device)
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__} at {at.name}: {str(error).splitlines()[:1]}"
    if (target, device) in program.bugs:
        return None if not is_right else "no failure, but this is a bug of the target"
    return None if is_right else said.splitlines()[0]


if __name__ == "__main__":
    main()
