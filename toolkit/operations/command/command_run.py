"""Run the command once, with a plan, and read its exit code as `git bisect run` does.

0 is good, 125 cannot tell, anything else is bad: also a signal, and the time limit. The command has
the startup hook of ctk first on its `PYTHONPATH`, as the children of `ctk run` do (child_start.py).
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.operations.command.plan import Suspect, read_suspects, write_plan
from ctk.toolkit.processes.commands import Outcome, describe_exit, read_outcome, run_group
from ctk.toolkit.processes.link import report_alive
from ctk.toolkit.processes.scratch import remove_folder, scratch_root
from ctk.toolkit.watch import child_start

HOOK = "ctk.toolkit.operations.command.steering:steer_here"


@document
@dataclass(frozen=True, slots=True)
class CommandRun:
    """One run."""

    outcome: Outcome
    ended: str
    asked: tuple[Suspect, ...]


def run_command(
    words: Sequence[str], left_out: Iterable[Suspect] = (), *, seconds: float | None = None
) -> CommandRun:
    """Run a command with some parts left out of its compiles; then its output is not shown.

    Raises:
        ProgramError: There is no such program.
    """
    left_out = tuple(left_out)
    with _folder() as folder:
        write_plan(folder, left_out)
        code = _exit_code(words, folder, seconds, is_shown=not left_out)
        asked = read_suspects(folder)
    report_alive()
    if code is None:
        return CommandRun("bad", f"did not end within {seconds:g} s", asked)
    return CommandRun(read_outcome(code), describe_exit(code), asked)


@contextlib.contextmanager
def _folder() -> Generator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="command-", dir=scratch_root()))
    try:
        (folder / child_start.BOOK).touch()
        (folder / child_start.HOOK).write_text(HOOK, encoding="utf-8")
        shutil.copyfile(child_start.__file__, folder / "sitecustomize.py")
        yield folder
    finally:
        remove_folder(folder)


def _exit_code(
    words: Sequence[str], folder: Path, seconds: float | None, *, is_shown: bool
) -> int | None:
    """Return the exit code, None after the time limit; its children end with it."""
    before = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(folder), *([before] if before else [])])
    environ, out = {**os.environ, "PYTHONPATH": path}, None if is_shown else subprocess.DEVNULL
    with run_group(words, environ=environ, stdout=out, stderr=out) as process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
