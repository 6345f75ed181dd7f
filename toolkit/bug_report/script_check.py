"""Whether a short script shows the failure: run it in a clean process, then without a compiler.

    python script.py                           must end as the failure demands
    TORCHDYNAMO_DISABLE=1 python script.py     must not: eager alone would look like a failure

The second run finds a script that fails by itself: a program whose state changes with each call,
a comparison that its own random numbers break.
"""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ctk.toolkit.bug_report.short_script import (
    COMPARED,
    EAGER_RUNS,
    HANG_SECONDS,
    RAISED,
    RAISES_NOTHING,
)
from ctk.toolkit.case.failure import FailureKind, Signature
from ctk.toolkit.case.formats.files import write_text
from ctk.toolkit.case.formats.scrub import scrub
from ctk.toolkit.repro.header import shorten_paths
from ctk.toolkit.repro.run import ReproRun, run_repro

FILE = "repro.py"
SECONDS = 300.0
"""Longest time of one run."""

WITHOUT_COMPILER = {"TORCHDYNAMO_DISABLE": "1"}
_NO_CACHES = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
_WORDS: dict[FailureKind, tuple[str, ...]] = {
    "dtype": ("dtype",),
    "shape": ("shape",),
    "stride": ("stride",),
    "structure": ("length", "sequence", "type", "keys", "NoneType"),
}
"""Words of `assert_close` and `assertEqual` about a difference of one kind."""

_VALUES = ("not close", "not equal", "mismatched elements")


@dataclass(frozen=True, slots=True)
class CheckedScript:
    """A script of an issue, and its run in a clean process.

    Attributes:
        text: The whole script; of an attached one, the program in it.
        output: Of the run, without secrets and paths of this machine.
        shows: Whether it shows the failure; a short one, only with a compiler.
        why: Why it does not; of an attached one, why it is not short.
        attached: The files to attach, where the script is not short.
    """

    text: str
    output: str = ""
    shows: bool = False
    why: str = ""
    attached: tuple[Path, ...] = ()


def check_script(text: str, signature: Signature, *, is_test: bool = False) -> CheckedScript:
    """Run a script or a test with and without a compiler."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        write_text(path, text)
        seen = run_repro(path, timeout_seconds=SECONDS, variables=_NO_CACHES)
        output = readable(seen.output.replace(f"{folder}{os.sep}", ""))
        if not shows(signature, seen, is_test=is_test):
            why = f"in a clean process it ends with exit code {seen.exit_code} and does not show it"
            return CheckedScript(text, output, why=why)
        alone = run_repro(path, timeout_seconds=SECONDS, variables=WITHOUT_COMPILER)
    if shows(signature, alone, is_test=is_test) or (is_test and alone.exit_code):
        return CheckedScript(text, output, why="it fails without a compiler too")
    return CheckedScript(text, output, shows=True)


def readable(output: str) -> str:
    """Return the output of a script for people on other machines."""
    return shorten_paths(scrub(output)).strip()


def shows(signature: Signature, run: ReproRun, *, is_test: bool = False) -> bool:
    """Return whether a run ended as a failure demands."""
    kind, output = signature.kind, run.output
    if kind == "signal":
        return run.exit_code == -(signature.signal or 0)
    if kind == "timeout":
        return run.exit_code == 1 and f"Timeout (0:{HANG_SECONDS // 60:02d}:" in output
    if run.exit_code != 1:
        return False
    if kind in RAISED:
        return (signature.exception or "") in output and (is_test or EAGER_RUNS in output)
    if kind == "missing-error":
        return RAISES_NOTHING in output or (is_test and " not raised" in output)
    lowered = output.lower()
    words = _WORDS.get(kind, _VALUES)
    return (
        kind in COMPARED and "AssertionError" in output and any(w.lower() in lowered for w in words)
    )
