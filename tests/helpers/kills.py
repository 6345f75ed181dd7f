"""Kill commands with SIGKILL at random moments, and look at what they leave.

    victim "command"   the process that the user sees, as `kill -9 PID` does
    victim "worker"    the half that works: the command should go on
    victim "group"     both at once, as when a terminal or a job's runner goes

What is looked at is what was announced: each path that was printed exists, each file and folder
under a final name is whole, and after the next run no process and no temporary folder is left.
"""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from ctk.compiler.usercode.process_name import start_time
from ctk.toolkit.case.store import load_case
from ctk.toolkit.processes.scratch import sweep
from ctk.toolkit.processes.tree import find_carriers
from tests.helpers.warm_python import warm_python

VICTIMS = ("command", "worker", "group")
FINISH_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Killed:
    """One command that was killed.

    Attributes:
        victim: Which process it was that was killed.
        seconds: How long after its start.
        exit_code: Of what the user sees.
        printed: Its whole lines on stdout and stderr.
    """

    victim: str
    seconds: float
    exit_code: int
    printed: tuple[str, ...]


class Victim:
    """A running command: the warm client that stands for it, and its two halves."""

    def __init__(self, words: list[str], folder: Path, tmp: Path) -> None:
        tmp.mkdir(exist_ok=True)
        self._tmp = tmp
        self._out = (folder / f"printed-{time.monotonic_ns()}.txt").open("w+b")
        self.process = subprocess.Popen(
            [warm_python().with_name("ctk"), *words],
            cwd=folder,
            env={**os.environ, "TMPDIR": str(tmp), "WARM_CHILDREN": "1"},
            stdout=self._out,
            stderr=subprocess.STDOUT,
        )

    def half(self) -> int | None:
        """Return the process that works, once it has a temporary folder with its name."""
        for folder in self._tmp.glob("ctk-run-*"):
            pid = int(folder.name.split("-")[3])
            if start_time(pid) is not None:
                return pid
        return None

    def kill(self, victim: str) -> str:
        """Kill one process, or all; return which it was."""
        half = self.half()
        pid = half if victim == "worker" else parent_of(half) if half is not None else None
        if victim == "group" or pid is None:  # the warm server kills the group with its client
            self.process.kill()
            return "group"
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return victim

    def finish(self) -> tuple[int, tuple[str, ...]]:
        """Wait for the end; return exit code and whole lines."""
        code = self.process.wait(FINISH_SECONDS)
        self._out.seek(0)
        lines = self._out.read().decode(errors="replace").splitlines(keepends=True)
        self._out.close()
        return code, tuple(line.rstrip("\n") for line in lines if line.endswith("\n"))


def parent_of(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return None


def kill_one(
    words: list[str], folder: Path, tmp: Path, chance: random.Random, span: float
) -> Killed:
    """Start a command, kill it after a random part of `span` seconds, and wait for its end."""
    seconds, victim = chance.uniform(0.0, span), chance.choice(VICTIMS)
    running = Victim(words, folder, tmp)
    time.sleep(seconds)
    killed = running.kill(victim)
    code, printed = running.finish()
    return Killed(killed, seconds, code, printed)


def duration_of(words: list[str], folder: Path, tmp: Path) -> float:
    """Return how long a command takes that nobody kills; it must find its failure."""
    started = time.monotonic()
    running = Victim(words, folder, tmp)
    code, printed = running.finish()
    assert code == 1, "\n".join(printed)
    return time.monotonic() - started


def problems_of(killed: Killed, out: Path) -> list[str]:
    """Return what is wrong with what a killed command left in its folder."""
    return [*missing(killed.printed, out), *broken_files(out), *broken_cases(out)]


def missing(printed: tuple[str, ...], out: Path) -> list[str]:
    """Return the paths below the folder that were printed and do not exist."""
    named = {
        path.rstrip(".,;:)'\"") for line in printed for path in re.findall(rf"{out}[^\s]*", line)
    }
    return [f"announced, and not there: {path}" for path in named if not Path(path).exists()]


def broken_files(out: Path) -> list[str]:
    """Return the JSON files under final names that do not parse."""
    found: list[str] = []
    for path in out.rglob("*.json"):
        if not is_partial(path, out):
            try:
                json.loads(path.read_text(encoding="utf-8"))
            except ValueError as error:
                found.append(f"{path}: {error}")
    return found


def broken_cases(out: Path) -> list[str]:
    """Return the case folders under final names that cannot be loaded."""
    found: list[str] = []
    for manifest in out.rglob("manifest.json"):
        if not is_partial(manifest, out):
            try:
                load_case(manifest.parent, trust=True)
            except Exception as error:
                found.append(f"{manifest.parent}: {type(error).__name__}: {error}")
    return found


def is_partial(path: Path, out: Path) -> bool:
    return any(part.endswith(".partial") for part in path.relative_to(out).parts)


def left_after_the_next_run(tmp: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Do what the next run does first; return which processes and folders are left all the same."""
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(tmp))
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            sweep()
            processes = find_carriers(f"TMPDIR={tmp}")
            folders = [path.name for path in tmp.iterdir() if path.name.startswith("ctk-")]
            left = [*map(str, processes), *folders]
            if not left:
                return []
            time.sleep(0.1)
    return left
