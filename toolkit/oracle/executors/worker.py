"""The warm server that judges cases, started by worker_client.py.

It forks a child that answers questions until it crashes or takes too long; the next child is forked
from the same warm process, which costs milliseconds instead of seconds.

    parent  <- stdin, stdout ->  worker (warm)  <- pipes ->  child (its own process group)

A crash becomes a verdict here: signal or exit status of the child. A question whose child was
killed from outside is repeated once: that is not a property of the program. The worker and its
child end when its stdin is closed; an empty line cancels the running question.

Several workers are forked from one zygote (zygote.py).
"""

import contextlib
import faulthandler
import math
import os
import select
import signal
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Literal

from ctk.compiler.errors import LostAccelerator
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.files import replace_file
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.case.store import load_case
from ctk.toolkit.compile_log.recorder import Recorder
from ctk.toolkit.execution.execute import run_eager
from ctk.toolkit.oracle.executors.protocol import (
    Answer,
    Cancelled,
    ChildQuestion,
    Failure,
    failure_of,
    read_answer,
    read_question,
    write_line,
)
from ctk.toolkit.oracle.questions.judge import judge
from ctk.toolkit.processes.accelerator import LOST_CUDA, has_lost_cuda
from ctk.toolkit.processes.forks import ForkedChild
from ctk.toolkit.processes.groups import die_first, die_with_parent, reap_orphans
from ctk.toolkit.processes.memory import describe_excess, held_nbytes
from ctk.toolkit.processes.tree import CoreWaits, find_descendants, kill_descendants
from ctk.toolkit.processes.warm import ServerPipes, become_server
from ctk.toolkit.targets import target_of

_POLL_SECONDS = 0.1
"""How often a silent child is checked: memory can grow by gigabytes a second."""

_DEATH_SECONDS = 5.0
"""How long a child that has closed its pipe may take to end."""


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """The end of a child without an answer: its exit status, and the limit it was killed for."""

    status: int
    killed_for: Literal["time", "memory"] | None = None

    @property
    def is_from_outside(self) -> bool:
        """Whether a person killed it, or the system for want of memory."""
        return self.killed_for is None and self.status == -signal.SIGKILL


@dataclass(slots=True)
class _Clock:
    """The deadline of one question, extended while its processes wait for a core.

    Attributes:
        busy_seconds: How far it may still be extended.
    """

    ends_at: float
    busy_seconds: float
    waits: CoreWaits

    @classmethod
    def of(cls, question: ChildQuestion) -> "_Clock":
        limit = question.timeout_seconds
        ends_at = math.inf if limit is None else time.monotonic() + limit
        return cls(ends_at, question.busy_seconds, CoreWaits())

    def left_seconds(self) -> float:
        if self.busy_seconds > 0 and self.ends_at < math.inf:
            waited = min(self.waits.since(find_descendants(os.getpid())), self.busy_seconds)
            self.busy_seconds -= waited
            self.ends_at += waited
        return self.ends_at - time.monotonic()


class ParentGone(Exception):
    """The process that asks has closed the pipe."""


def main() -> None:
    """Answer questions from stdin on stdout until stdin is closed."""
    parent = become_server()
    child: ForkedChild | None = None
    try:
        while (question := read_question(parent.requests)) is not None:
            with die_with_parent():  # it may import the user's files while the pipe is not read
                target_of(question.target).preload()
            try:
                child, answer = _answer(child, question, parent)
            except Cancelled as error:
                child, answer = None, failure_of(error)
            write_line(parent.answers, answer)
    except (ParentGone, BrokenPipeError):
        pass
    finally:
        if child is not None:
            _end(child)


def _answer(
    child: ForkedChild | None, question: ChildQuestion, parent: ServerPipes
) -> tuple[ForkedChild | None, Answer]:
    """Ask a child, forking one if there is none; return it, if it lives on, and the answer."""
    is_fresh = child is None
    child = child or _fork(parent)
    found = _ask(child, question, parent)
    if isinstance(found, ChildEnd) and found.is_from_outside:
        is_fresh, child = True, _fork(parent)
        found = _ask(child, question, parent)
    if isinstance(found, ChildEnd) and found.status == LOST_CUDA and not is_fresh:
        child = _fork(parent)
        found = _ask(child, question, parent)
    if isinstance(found, Failure) and found.kind == LostAccelerator.__name__:
        _end(child)
        child = _fork(parent)
        first_line = found.message.splitlines()[0]
        found = _ask(child, replace(question, eager_raised=first_line), parent)
    if not isinstance(found, ChildEnd):
        return _reuse_or_end(child), found
    seen = _signature_of(found, question)
    expected = question.expected
    is_wanted = expected is None or expected.matches(seen)
    if found.killed_for == "time" and (expected is None or not is_wanted):
        return None, Judgement(Verdict.TIMEOUT, seen, seen.message)
    if not is_wanted:
        return None, Judgement(Verdict.DIFFERENT, seen, seen.message)
    child = _fork(parent)
    eager = _ask(child, replace(question, is_eager=True), parent)
    if isinstance(eager, ChildEnd):
        return None, Judgement(Verdict.INVALID, seen, f"eager alone fails as well: {seen.message}")
    return _reuse_or_end(child), Judgement(Verdict.REPRODUCES, seen, seen.message)


def _reuse_or_end(child: ForkedChild) -> ForkedChild | None:
    """Return the child for the next question; end it if its question left processes."""
    if all(pid == child.pid for pid in find_descendants(os.getpid())):
        return child
    _end(child)
    return None


def _signature_of(end: ChildEnd, question: ChildQuestion) -> Signature:
    """Return the failure for the end of a child.

    SIGKILL from outside nearly always comes from the system, which has run out of memory: it is not
    a crash of the compiled program.
    """
    where = _last_start(question)
    if end.killed_for == "time":
        message = f"no answer within {question.timeout_seconds:g} seconds"
        return Signature("timeout", where=where, message=message)
    if end.killed_for == "memory":
        message = describe_excess(question.memory_nbytes or 0)
        return Signature("memory", where=where, message=message)
    if end.is_from_outside:
        message = "killed from outside (SIGKILL): probably no memory was left"
        return Signature("memory", where=where, message=message)
    if end.status < 0:
        name = signal.strsignal(-end.status) or "unknown"
        message = f"killed by signal {-end.status} ({name})"
        return Signature("signal", where=where, signal=-end.status, message=message)
    return Signature("exit", where=where, message=f"it ended the process with status {end.status}")


def _trail(question: ChildQuestion) -> Path:
    """Return the file in which an observed compile records each pass and kernel before it runs."""
    return Path(question.folder).with_name("last_start")


def _last_start(question: ChildQuestion) -> str | None:
    """Return the pass or kernel at which an observed child died."""
    trail = _trail(question)
    return trail.read_text() if question.veto is not None and trail.exists() else None


def _ask(child: ForkedChild, question: ChildQuestion, parent: ServerPipes) -> Answer | ChildEnd:
    """Return the child's answer, or how it ended."""
    clock = _Clock.of(question)
    with contextlib.suppress(BrokenPipeError):
        write_line(child.requests, question)
    while True:
        left = clock.left_seconds()
        wait = max(0, min(left, _POLL_SECONDS))
        ready, _, _ = select.select([child.answers, parent.requests], [], [], wait)
        if child.answers in ready:
            answer = read_answer(child.answers)
            return answer if answer is not None else ChildEnd(_end(_await_death(child)))
        if parent.requests in ready:
            _end(child)
            raise Cancelled if parent.requests.read(1) else ParentGone
        if left <= 0:
            return ChildEnd(_end(child), "time")
        if _holds_too_much(question):
            return ChildEnd(_end(child), "memory")
        if _is_dead(child):  # without an end of file: a process that it started holds its pipe
            return ChildEnd(_end(child))


def _holds_too_much(question: ChildQuestion) -> bool:
    """Return whether the child and all that it has started hold more than the question may."""
    limit = question.memory_nbytes
    return limit is not None and held_nbytes(find_descendants(os.getpid())) > limit


def _is_dead(child: ForkedChild) -> bool:
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _await_death(child: ForkedChild) -> ForkedChild:
    """Wait for a child that has closed its pipe: its exit status counts."""
    deadline = time.monotonic() + _DEATH_SECONDS
    while not _is_dead(child) and time.monotonic() < deadline:
        time.sleep(0.005)
    return child


def _end(child: ForkedChild) -> int:
    """End a child (or the rest of it) and all it has started; return its exit status."""
    status = child.end()
    kill_descendants(os.getpid())
    reap_orphans()
    return status


def _fork(parent: ServerPipes) -> ForkedChild:
    return ForkedChild.start(_serve, unused=(parent.requests.fileno(), parent.answers.fileno()))


def _serve(questions: BinaryIO, answers: BinaryIO) -> int:
    """Answer questions until the pipe is closed or CUDA is lost; return the exit status."""
    die_first()
    # Python 3.14 adds frames of C, which would push those of Python out of the last lines.
    frames = {"c_stack": False} if sys.version_info >= (3, 14) else {}
    faulthandler.enable(sys.__stderr__ or sys.stderr, **frames)
    while (question := read_question(questions)) is not None:
        if has_lost_cuda():
            return LOST_CUDA
        try:
            answer = _judge(question)
        except Exception as error:
            answer = failure_of(error)
        write_line(answers, answer)
    return 0


def _judge(question: ChildQuestion) -> Judgement:
    case = load_case(Path(question.folder), trust=True)  # the parent has loaded and checked it
    if question.is_eager:
        outcome = run_eager(case)
        return Judgement(Verdict.PASSES if outcome.error is None else Verdict.INVALID)
    observer = None
    if question.veto is not None:
        trail = _trail(question)

        def note(identity: str) -> None:
            replace_file(trail, identity.encode())

        observer = Recorder(question.veto, on_start=note)
    return judge(
        case, expected=question.expected, observer=observer, eager_raised=question.eager_raised
    )


if __name__ == "__main__":
    main()
