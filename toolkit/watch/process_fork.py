"""Fork the process before a call, so that forks can repeat the call from the same state.

    keeper = Keeper.start(play)      then the program makes its own call
    keeper.ask("eager")              a fork of the keeper makes the same call in eager
    keeper.ask("dynamo")             another fork makes it with Dynamo's backend `eager`

A fork copies all state: tensors, Python variables, and state in C++. Forks cannot affect the
program: they have one thread, and their files lead to the null device. Processes with several
threads, with CUDA in use, or in a group with others cannot be forked (`find_obstacle`).
"""

import contextlib
import json
import os
import signal
import stat
import tempfile
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Self

import torch

from ctk.compiler.torch_compat.dynamo import dynamo_api as dynamo
from ctk.compiler.torch_compat.inductor import inductor_api as inductor
from ctk.repro_templates.graph.excuses import NO_VARIATION, Variation
from ctk.repro_templates.program.program_sides import in_own_process
from ctk.repro_templates.program.program_values import read_values, write_values
from ctk.toolkit.processes.closeable import Closeable
from ctk.toolkit.processes.forks import ForkedChild
from ctk.toolkit.processes.groups import die_with
from ctk.toolkit.processes.scratch import scratch_root

Play = Callable[[str, Variation], Mapping[str, object]]
"""Makes the call in the named way, varied, and returns its packed results by name."""

SECONDS = 120.0
"""Time limit of a fork."""


def find_obstacle() -> str:
    """Return why this process cannot be forked; empty if it can."""
    if not hasattr(os, "fork"):
        return "this system cannot fork a process"
    if torch.cuda.is_initialized():
        return "a process that uses CUDA cannot be forked"
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return "a rank of a process group cannot be forked"
    others = {*threading.enumerate()} - {threading.current_thread()}
    if others - inductor.compiler_threads():
        return "a process with several threads cannot be forked"
    return ""


@dataclass(slots=True)
class Keeper(Closeable):
    """A waiting fork of this process as it was at the start; a context manager that ends it."""

    child: ForkedChild
    folder: tempfile.TemporaryDirectory[str]

    @classmethod
    def start(cls, play: Play) -> Self:
        """Fork this process; the fork stays in its process group."""
        folder = tempfile.TemporaryDirectory(prefix="call-", dir=scratch_root())
        serve = partial(_serve, play, Path(folder.name))
        return cls(ForkedChild.start(serve, leads_group=False), folder)

    def ask(self, way: str, variation: Variation = NO_VARIATION) -> dict[str, Any]:
        """Return the values of the call made in some way; `died` is how its process ended."""
        request = json.dumps([way, asdict(variation)])
        try:
            self.child.requests.write(f"{request}\n".encode())
            self.child.requests.flush()
            done = self.child.answers.read(1)
        except OSError:
            done = b""
        path = Path(self.folder.name) / "answer"
        if not done or not path.is_file():
            return {"died": "exit of the copy of the process"}
        return read_values(path)

    def close(self) -> None:
        """End the keeper and all processes that it has started."""
        with contextlib.suppress(ChildProcessError):  # with SIGCHLD ignored, the system reaps it
            self.child.end()
        self.folder.cleanup()


def _serve(play: Play, folder: Path, requests: BinaryIO, answers: BinaryIO) -> int:
    """Be the keeper: answer until there are no more requests."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # it waits for its own children
    _redirect_open_files({requests.fileno(), answers.fileno()})
    dynamo.use_one_thread()  # threads are not copied
    inductor.compile_without_threads()
    tempfile.tempdir = str(folder)  # removed with the folder if this process is killed
    keeper = os.getpid()

    def play_in_child(way: str, variation: Variation) -> Mapping[str, object]:
        die_with(keeper)
        return play(way, variation)

    for line in requests:
        way, fields = json.loads(line)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = in_own_process(partial(play_in_child, way, Variation(**fields)), SECONDS)
        write_values(values, folder / "answer")
        answers.write(b"!")
        answers.flush()
    return 0


def _redirect_open_files(kept: set[int]) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in [int(entry.name) for entry in Path("/dev/fd").iterdir()]:
        try:
            kind = os.fstat(descriptor).st_mode
        except OSError:
            continue
        is_shared = stat.S_ISREG(kind) or stat.S_ISSOCK(kind) or stat.S_ISFIFO(kind)
        if descriptor not in kept and (is_shared or descriptor in (0, 1, 2)):
            os.dup2(nothing, descriptor)
