"""Standalone repro scripts: write one from a case, run it in a clean process, record its verdict.

A repro needs torch and its target, but not ctk. Its exit code is 0 without a failure, 1 with one,
and 125 without a verdict.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Literal

from safetensors.torch import save

from ctk.toolkit.case.carried_sources import copy_sources, plan_sources
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.files import raise_storage_errors, replace_file, write_text
from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.processes.commands import run_group
from ctk.toolkit.repro.header import CleanRun
from ctk.toolkit.repro.script import DATA_FILE, PLAIN, ScriptForm, ScriptLimits, render_script

Outcome = Literal["reproduced", "not reproduced", "cannot tell"]

REPRO = "repro.py"
_TIMED_OUT = 124
LINGER_SECONDS = 5.0
"""How long a script may live on after its verdict."""

_VERDICTS: Mapping[str, tuple[int, Outcome]] = {
    "FAILURE: another failure:": (1, "not reproduced"),
    "FAILURE:": (1, "reproduced"),
    "NO FAILURE:": (0, "not reproduced"),
    "CANNOT TELL:": (125, "cannot tell"),
}
_KEPT_VARIABLES = (
    "PATH", "HOME", "TMP", "TMPDIR", "TEMP", "OMP_NUM_THREADS", "LD_LIBRARY_PATH", "PYTHONPATH",
    "CUDA_VISIBLE_DEVICES", "CC", "CXX", "LANG", "LC_ALL", "USER", "LOGNAME", "VIRTUAL_ENV",
)  # fmt: skip


_ISOLATION: Mapping[str, str] = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": "1"}


@document
@dataclass(frozen=True, slots=True)
class ReproRun:
    """The result of one run of a repro.

    Attributes:
        exit_code: Of the process; negative for a signal, 124 past the time limit.
        outcome: `reproduced` only for the failure that the script was written for.
        verdict: The verdict line of the script; empty if it printed none.
    """

    exit_code: int
    output: str
    outcome: Outcome
    verdict: str = ""


def write_repro(
    case: Case,
    folder: Path,
    culprit_pass: str | None = None,
    limits: ScriptLimits | None = None,
    *,
    failure: str | None = None,
    clean_run: CleanRun | None = None,
    form: ScriptForm = PLAIN,
) -> Path:
    """Write `repro.py` with its data file and `sources/` into an existing folder.

    Args:
        folder: Exists. Files are written under temporary names and renamed, the script last.
        limits: Of a program that hangs or whose memory grows.
        failure: The failure in the header; None: the signature of the case.
        clean_run: The result of a run in a clean process, for the header.

    Raises:
        CaseError: The graph, an input or a source cannot be written.
    """
    plan = plan_sources(case, modules=True)
    script = render_script(
        case,
        plan,
        culprit_pass=culprit_pass,
        clean_run=clean_run,
        limits=limits,
        failure=failure,
        form=form,
    )
    copy_sources(plan, folder)
    data = folder / DATA_FILE
    if script.data:
        replace_file(data, save(dict(script.data)))
    else:
        with raise_storage_errors(data):
            data.unlink(missing_ok=True)
    write_text(folder / REPRO, script.text)
    return folder / REPRO


def run_repro(
    path: Path,
    *,
    python: str = sys.executable,
    timeout_seconds: float = 600.0,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> ReproRun:
    """Run a repro in a clean process, in its folder, without debugging variables of ctk and torch.

    It leaves no `__pycache__` in the folder of the case, and imports no module from it: the folder
    may have been untrusted before.

    Args:
        python: The interpreter; it needs torch, and the target of the case.
        timeout_seconds: Wall-clock limit, for the script and all processes that it starts.
        variables: Set for the script, over the kept ones.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:  # a daemon holds a pipe
        with run_group(  # compilers start children, which end with the group
            [python, path.name],
            folder=path.resolve().parent,
            environ={**clean_environment(os.environ), **_ISOLATION, **variables},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        ) as process:
            exit_code = _exit_code(process, out, timeout_seconds)
        if exit_code is None:
            note = f"{path.name} did not end within {timeout_seconds:g} s"
            return ReproRun(_TIMED_OUT, note, "cannot tell", note)
        return read_run(exit_code, _text_of(out), _text_of(err))


def _exit_code(
    process: "subprocess.Popen[bytes]", out: BinaryIO, timeout_seconds: float
) -> int | None:
    """Wait for a script's exit code; None when the time is up.

    A remaining thread of the program may keep a script from ending after its verdict.
    """
    deadline = time.monotonic() + timeout_seconds
    while (left := deadline - time.monotonic()) > 0:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(min(left, LINGER_SECONDS))
        for _, code, _ in _verdicts(_text_of(out)):
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(LINGER_SECONDS)
            return code
    return None


def _verdicts(stdout: str) -> Iterator[tuple[str, int, Outcome]]:
    """Yield the verdicts that a script printed: the line, the exit code for it, the outcome."""
    for line in stdout.splitlines():
        prefix = next((each for each in _VERDICTS if line.startswith(each)), None)
        if prefix is not None:
            yield line, *_VERDICTS[prefix]


def _text_of(file: BinaryIO) -> str:
    """Return the text written so far, without moving the file offset, which the writer shares."""
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), size, 0).decode(errors="replace")


def read_run(exit_code: int, stdout: str, stderr: str) -> ReproRun:
    """Read the output of a script; a verdict counts only with its exit code."""
    output = stdout + stderr
    for line, code, outcome in _verdicts(stdout):
        if exit_code == code:
            return ReproRun(exit_code, output, outcome, line)
    return ReproRun(exit_code, output, "cannot tell")


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return only the variables that a program needs to run and compile."""
    return {name: environ[name] for name in _KEPT_VARIABLES if name in environ}
