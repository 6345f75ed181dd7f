"""The questions of a search over releases, and their answers; several at the same time."""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from ctk.compiler.errors import ConfigError, InstallError, message_of
from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.oracle.progress import Say
from ctk.toolkit.processes.commands import Outcome
from ctk.toolkit.processes.signals import defer_interrupts
from ctk.toolkit.processes.tree import kill_descendants
from ctk.toolkit.releases.environments import Environments
from ctk.toolkit.releases.interpreters import Interpreter, Versions, read_versions
from ctk.toolkit.releases.pip_commands import Release
from ctk.toolkit.releases.script_runs import ask_script

_END_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class VersionQuestion:
    """Does the script fail with this torch and this Triton?

    Attributes:
        triton: A requirement (`triton==3.6.0`) in place of the Triton of that torch; empty: its
            own. For an installed interpreter, the version that it has.
        interpreter: An installed interpreter in place of an environment.
    """

    torch: Release
    triton: str = ""
    interpreter: Interpreter | None = None

    @property
    def name(self) -> str:
        """A text for people, and for the key of the answer."""
        if self.interpreter is not None:
            return str(self.interpreter.python)
        return f"torch {self.torch.version}" + (f" with {self.triton}" if self.triton else "")


@document
@dataclass(frozen=True, slots=True)
class VersionAnswer:
    """The answer of a question.

    Attributes:
        reason: The verdict of the script, how it ended, or why the release is not installed.
        versions: Of the interpreter; None if the release is not installed.
    """

    outcome: Outcome
    reason: str
    seconds: float
    versions: Versions | None = None

    @property
    def is_bad(self) -> bool | None:
        """Whether the script fails; None: cannot tell."""
        return {"good": False, "bad": True}.get(self.outcome)

    @property
    def exit_code(self) -> int:
        """The answer as `git bisect run` reads it."""
        return {"good": 0, "bad": 1}.get(self.outcome, 125)


@dataclass(frozen=True, slots=True)
class Asker:
    """Asks a script; environments are made when they are needed."""

    script: Path
    environments: Environments
    seconds: float

    def ask(self, question: VersionQuestion) -> VersionAnswer:
        """Return the answer of the script.

        Raises:
            StorageError: The disk has too little space for an installation.
        """
        started = time.monotonic()
        if question.interpreter is not None:
            return self._run(question.interpreter, started)
        try:
            with self.environments.hold(question.torch, question.triton) as interpreter:
                return self._run(interpreter, started)
        except InstallError as error:
            reason = f"does not install: {message_of(error).splitlines()[0]}"
        except ConfigError as error:  # its interpreter does not run
            reason = message_of(error).splitlines()[0]
        return VersionAnswer("cannot tell", reason, round(time.monotonic() - started, 1))

    def _run(self, interpreter: Interpreter, started: float) -> VersionAnswer:
        versions = read_versions(interpreter)
        answer = ask_script(self.script, interpreter, self.seconds)
        seconds = round(time.monotonic() - started, 1)
        return VersionAnswer(answer.outcome, answer.reason, seconds, versions)


def ask_together(
    questions: Sequence[VersionQuestion],
    ask: Callable[[VersionQuestion], VersionAnswer],
    on_answer: Callable[[VersionQuestion, VersionAnswer], None],
) -> Mapping[VersionQuestion, VersionAnswer]:
    """Return the answers of questions that are asked at the same time.

    The first error ends the others, as Ctrl-C does: every process that they started is killed, and
    their answers, which are those of killed scripts, are dropped.

    Args:
        on_answer: Called with each answer as soon as it is known, by any thread.
    """
    is_ending = threading.Event()

    def answer(question: VersionQuestion) -> VersionAnswer:
        found = ask(question)
        if not is_ending.is_set():
            on_answer(question, found)
        return found

    if len(questions) == 1:
        return {questions[0]: answer(questions[0])}
    with ThreadPoolExecutor(len(questions)) as pool:
        futures = {question: pool.submit(answer, question) for question in questions}
        try:
            wait(futures.values(), return_when="FIRST_EXCEPTION")
            failed = [each for each in futures.values() if each.done() and each.exception()]
            for future in failed or futures.values():
                future.result()
            return {question: future.result() for question, future in futures.items()}
        except BaseException:
            is_ending.set()
            with defer_interrupts():  # threads remove their half-built environments
                _end(list(futures.values()))
            raise


def _end(futures: Sequence["Future[VersionAnswer]"]) -> None:
    """Kill the processes of questions until each thread has ended."""
    for future in futures:
        future.cancel()
    while not all(future.done() for future in futures):
        kill_descendants(os.getpid())
        wait(futures, timeout=_END_SECONDS)


class Progress:
    """Reports from several threads, one line at a time."""

    def __init__(self, say: Say) -> None:
        self._say, self._lock = say, threading.Lock()

    def __call__(self, message: str, done: int | None = None, total: int | None = None) -> None:
        with self._lock:
            self._say(message, done, total)
