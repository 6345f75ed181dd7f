"""Standalone repro scripts: write one from a case, run it in a clean process, note what it showed.

A repro needs torch, and its target if that is no part of torch; nothing else of ours. It exits 0
without a failure, 1 with one, 125 when it cannot tell.
"""

import contextlib
import datetime
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from safetensors.torch import save

from ctk.toolkit.case.carried_sources import copy_sources, plan_sources
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.files import raise_storage_errors, replace_file, write_text
from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.processes.commands import run_group
from ctk.toolkit.repro.header import shorten_paths
from ctk.toolkit.repro.script import DATA_FILE, ReproScript, ScriptLimits, render_script

Says = Literal["reproduced", "not reproduced", "cannot tell"]

REPRO = "repro.py"
_TIMED_OUT = 124
LINGER_SECONDS = 5.0
"""How long a script may live on after its verdict."""

_VERDICTS: Mapping[str, tuple[int, Says]] = {
    "FAILURE: another failure:": (1, "not reproduced"),
    "FAILURE:": (1, "reproduced"),
    "NO FAILURE:": (0, "not reproduced"),
    "CANNOT TELL:": (125, "cannot tell"),
}
_KEPT = (
    "PATH", "HOME", "TMP", "TMPDIR", "TEMP", "OMP_NUM_THREADS", "LD_LIBRARY_PATH", "PYTHONPATH",
    "CUDA_VISIBLE_DEVICES", "CC", "CXX", "LANG", "LC_ALL", "USER", "LOGNAME", "VIRTUAL_ENV",
)  # fmt: skip


_ASIDE: Mapping[str, str] = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONSAFEPATH": "1"}


@document
@dataclass(frozen=True, slots=True)
class ReproRun:
    """What one run of a repro showed.

    Attributes:
        exit_code: Of the process; negative for a signal, 124 when it did not end in time.
        output: Standard output, then standard error.
        says: `reproduced` only for the failure that the script was written for.
        verdict: The line that the script printed as its verdict; empty if it got no further.
    """

    exit_code: int
    output: str
    says: Says
    verdict: str = ""


def write_repro(
    case: Case,
    folder: Path,
    culprit_pass: str | None = None,
    limits: ScriptLimits | None = None,
    *,
    failure: str | None = None,
) -> Path:
    """Write `repro.py` and what it needs (a data file, `sources/`) into an existing folder.

    Args:
        case: The failure to show.
        folder: Exists. Files are written under temporary names and renamed, the script last.
        culprit_pass: The guilty pass, for the header (`joint/fold`).
        limits: Of a program that hangs, or takes more and more memory.
        failure: What the header calls the failure; None: the signature of the case.

    Returns:
        The path of the script.

    Raises:
        CaseError: The graph, an input or a source cannot be written.
    """
    return _write(case, folder, culprit_pass, "not run", limits, failure)


def write_verified_repro(
    case: Case,
    folder: Path,
    culprit_pass: str | None = None,
    limits: ScriptLimits | None = None,
    *,
    timeout_seconds: float = 600.0,
) -> tuple[Path, ReproRun]:
    """Write a repro, run it in a clean process, and put into its header what that run showed.

    Returns:
        The path of the script, and the run.

    Raises:
        CaseError: As for `write_repro`.
    """
    path = write_repro(case, folder, culprit_pass, limits)
    result = run_repro(path, timeout_seconds=timeout_seconds)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    status = f"inputs synthetic: {result.says}" if case.synthetic else result.says
    seen = result.verdict or f"no verdict, exit code {result.exit_code}"
    said = f"{status} on {today} ({shorten_paths(seen)})"
    return _write(case, folder, culprit_pass, said, limits), result


def run_repro(
    path: Path, *, python: str = sys.executable, timeout_seconds: float = 600.0
) -> ReproRun:
    """Run a repro in a clean process: none of our or torch's debugging variables, its own folder.

    It leaves no `__pycache__` in the folder of the case, and no file of that folder stands in for a
    module: the folder may have been a stranger's before we wrote there.

    Args:
        path: The script.
        python: The interpreter; it needs torch, and the target of the case.
        timeout_seconds: Wall-clock limit, for the script and all processes that it starts.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:  # a daemon holds a pipe
        with run_group(  # compilers start children, which end with the group
            [python, path.name],
            folder=path.resolve().parent,
            environ={**clean_environment(os.environ), **_ASIDE},
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

    A thread that the program has left may keep a script from ending that has said all.
    """
    deadline = time.monotonic() + timeout_seconds
    while (left := deadline - time.monotonic()) > 0:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(min(left, LINGER_SECONDS))
        for line in _text_of(out).splitlines():
            for prefix, (code, _) in _VERDICTS.items():
                if line.startswith(prefix):
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        return process.wait(LINGER_SECONDS)
                    return code
    return None


def _text_of(file: BinaryIO) -> str:
    """Return what was written so far: the place is the writer's too, and is left alone."""
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), size, 0).decode(errors="replace")


def read_run(exit_code: int, stdout: str, stderr: str) -> ReproRun:
    """Read what a script printed; a verdict counts only with the exit code that belongs to it."""
    output = stdout + stderr
    for prefix, (code, says) in _VERDICTS.items():
        for line in stdout.splitlines():
            if line.startswith(prefix) and exit_code == code:
                return ReproRun(exit_code, output, says, line)
    return ReproRun(exit_code, output, "cannot tell")


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a program needs to run and compile, and no others."""
    return {name: environ[name] for name in _KEPT if name in environ}


def _write(
    case: Case,
    folder: Path,
    culprit_pass: str | None,
    clean_run: str,
    limits: ScriptLimits | None,
    failure: str | None = None,
) -> Path:
    plan = plan_sources(case, modules=True)
    script = render_script(
        case,
        plan,
        culprit_pass=culprit_pass,
        clean_run=clean_run,
        limits=limits,
        failure=failure,
    )
    copy_sources(plan, folder)
    _write_data(script, folder)
    path = folder / REPRO
    write_text(path, script.text)
    return path


def _write_data(script: ReproScript, folder: Path) -> None:
    path = folder / DATA_FILE
    if script.data:
        replace_file(path, save(dict(script.data)))
    else:
        with raise_storage_errors(path):
            path.unlink(missing_ok=True)
