"""Messages between parent, worker and child: one JSON object per line over pipes."""

import json
from dataclasses import dataclass
from typing import BinaryIO

from ctk.compiler import errors
from ctk.compiler.errors import ChildError, CtkError
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.schema import decode, document, encode
from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.processes.warm import write_json

CANCEL = b"\n"
"""The message that cancels the running question."""


@document
@dataclass(frozen=True, slots=True)
class ChildQuestion:
    """A question to a child.

    Attributes:
        target: The target of the case, which the worker imports before it forks.
        folder: The case, as `ctk.toolkit.case.store` saves it with full inputs.
        expected: The failure to look for; None: any.
        busy_seconds: Largest extension of it for the time in which the child had no core.
        is_eager: Only run the program in eager, to see whether it crashes by itself.
        veto: Passes, rewrites and kernels to leave out; None leaves the compile unobserved.
        eager_raised: The error of eager in an earlier child, which lost CUDA by it; else None.
    """

    target: str
    folder: str
    expected: Signature | None = None
    timeout_seconds: float | None = None
    busy_seconds: float = 0.0
    memory_nbytes: int | None = None
    is_eager: bool = False
    veto: Veto | None = None
    eager_raised: str | None = None


@document
@dataclass(frozen=True, slots=True)
class Failure:
    """An exception of the oracle (wrong target, config or case); `kind` is its type name."""

    kind: str
    message: str


Answer = Judgement | Failure


class Cancelled(CtkError):
    """The question was cancelled."""


def write_line(file: BinaryIO, message: ChildQuestion | Answer) -> None:
    """Write a message and flush."""
    write_json(file, encode(message))


def read_question(file: BinaryIO) -> ChildQuestion | None:
    """Read a question; None when the other side has closed the pipe.

    Empty lines are skipped: they cancelled questions that had been answered already.
    """
    while (line := file.readline()) == CANCEL:
        pass
    return decode(ChildQuestion, line, where="question") if line.endswith(b"\n") else None


def read_answer(file: BinaryIO) -> Answer | None:
    """Read an answer; None when the other side has closed the pipe."""
    line = file.readline()
    if not line.endswith(b"\n"):
        return None
    return decode(Judgement if "verdict" in json.loads(line) else Failure, line, where="answer")


def failure_of(error: BaseException) -> Failure:
    """Return the failure for an exception of the oracle."""
    return Failure(type(error).__name__, str(error) or repr(error))


def error_of(failure: Failure) -> CtkError:
    """Return the exception for a failure: of its own type if ctk defines it."""
    if failure.kind == Cancelled.__name__:
        return Cancelled()
    found = getattr(errors, failure.kind, None)
    if isinstance(found, type) and issubclass(found, CtkError):
        return found(failure.message)
    return ChildError(f"the oracle failed in its child process: {failure.kind}: {failure.message}")
