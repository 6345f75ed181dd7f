"""A copy of the process as it was before a call: forked, it makes the call in other ways.

    keeper = Keeper.start(play)      the program goes on and makes its own call
    keeper.asked("eager")            a fork of the keeper makes the same call in eager
    keeper.asked("dynamo")           another one makes it with Dynamo's backend `eager`

The system copies all state when it forks (tensors, Python variables, whatever C++ holds), and what
the copies do reaches the program nowhere: they have one thread, and nowhere to write to. What it
does not do: processes with other threads or with CUDA in use cannot be forked (`why_not`).
"""

import contextlib
import os
import signal
import stat
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch

from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.repro_templates.program.program_sides import in_own_process
from ctk.repro_templates.program.program_values import read_values, write_values
from ctk.toolkit.processes.closeable import Closeable
from ctk.toolkit.processes.groups import die_with
from ctk.toolkit.processes.scratch import scratch_root

Play = Callable[[str], Mapping[str, object]]
"""Makes the call in the way that is named, and returns what it gave, by name."""

SECONDS = 120.0
"""Longest that a copy may take."""


def why_not() -> str:
    """Return why this process cannot be copied; empty if it can."""
    if not hasattr(os, "fork"):
        return "this system cannot copy a process"
    if torch.cuda.is_initialized():
        return "a process that uses CUDA cannot be copied"
    others = {*threading.enumerate()} - {threading.current_thread()}
    if others - inductor.compiler_threads():
        return "a process with several threads cannot be copied"
    return ""


@dataclass(slots=True)
class Keeper(Closeable):
    """The process that waits, as it was; a context manager that ends it.

    Attributes:
        pid: Its number.
        folder: Where it answers.
    """

    pid: int
    folder: tempfile.TemporaryDirectory[str]
    _questions: int
    _answers: int

    @classmethod
    def start(cls, play: Play) -> Self:
        """Copy this process."""
        folder = tempfile.TemporaryDirectory(prefix="call-", dir=scratch_root())
        question_out, question_in = os.pipe()
        answer_out, answer_in = os.pipe()
        parent = os.getpid()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # threads of C++ are idle here
            pid = os.fork()
        if pid == 0:
            try:
                die_with(parent)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # it waits for what it starts
                os.close(question_in)
                os.close(answer_out)
                _attend(play, Path(folder.name), question_out, answer_in)
            finally:
                os._exit(0)
        os.close(question_out)
        os.close(answer_in)
        return cls(pid, folder, question_in, answer_out)

    def asked(self, way: str) -> dict[str, Any]:
        """Return what the call gives in some way; `died` says how its process ended."""
        try:
            os.write(self._questions, f"{way}\n".encode())
            done = os.read(self._answers, 1)
        except OSError:
            done = b""
        path = Path(self.folder.name) / "answer"
        if not done or not path.is_file():
            return {"died": "exit of the copy of the process"}
        return read_values(path)

    def close(self) -> None:
        """End the keeper and what it has started."""
        os.close(self._questions)
        os.close(self._answers)
        # It may have ended; and where SIGCHLD is ignored, the system has waited for it.
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self.folder.cleanup()


def _attend(play: Play, folder: Path, questions: int, answers: int) -> None:
    """Be the keeper: answer until there are no more questions."""
    _cut_off({questions, answers})
    torch.set_num_threads(1)  # threads are not copied
    inductor.compile_without_threads()
    tempfile.tempdir = str(folder)  # nothing stays behind if this is killed
    keeper = os.getpid()

    def played(way: str) -> Mapping[str, object]:
        die_with(keeper)
        return play(way)

    with os.fdopen(questions) as lines:
        for line in lines:
            way = line.strip()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                values = in_own_process(partial(played, way), SECONDS)
            write_values(values, folder / "answer")
            os.write(answers, b"!")


def _cut_off(kept: set[int]) -> None:
    """Let everything that is open lead nowhere, so that a copy writes into nobody's files."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in [int(entry.name) for entry in Path("/dev/fd").iterdir()]:
        try:
            kind = os.fstat(descriptor).st_mode
        except OSError:
            continue
        is_shared = stat.S_ISREG(kind) or stat.S_ISSOCK(kind) or stat.S_ISFIFO(kind)
        if descriptor not in kept and (is_shared or descriptor in (0, 1, 2)):
            os.dup2(nothing, descriptor)
