"""What parent, worker and child say to each other: one JSON object per line over pipes."""

import json
from dataclasses import dataclass
from typing import BinaryIO

from ctk.compiler import errors
from ctk.compiler.errors import CtkError
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.schema import decode, document, encode
from ctk.toolkit.case.judgement import Judgement
from ctk.toolkit.compile_log.recorder import Veto

UNWANTED = b"\n"
"""What a worker is told while it is asked, when nobody wants the answer any more."""


@document
@dataclass(frozen=True, slots=True)
class ChildQuestion:
    """A question to a child.

    Attributes:
        target: Its target: what the worker imports before it forks.
        folder: The case, as `ctk.toolkit.case.store` saves it with full inputs.
        expected: The failure that is looked for; None: any.
        timeout_seconds: After this the child is killed; None: never.
        busy_seconds: How much later that may be where the child had to wait for a core.
        memory_nbytes: With more than this it is killed, with what it has started; None: any.
        is_eager: Only run the program in eager (to see whether it is the program that crashes).
        veto: What must not happen in the compile; None leaves it unobserved.
        eager_raised: What eager raised in an earlier child, which lost CUDA by it; else None.
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
    """The oracle raised: a wrong target, config or case. `kind` is the exception's type name."""

    kind: str
    message: str


Answer = Judgement | Failure


class Unwanted(CtkError):
    """Nobody wants the answer any more."""


def write_line(file: BinaryIO, message: ChildQuestion | Answer) -> None:
    """Write a message and flush."""
    file.write(json.dumps(encode(message)).encode() + b"\n")
    file.flush()


def read_question(file: BinaryIO) -> ChildQuestion | None:
    """Read a question; None when the other side has closed the pipe.

    An empty line is no question: an answer was not wanted any more that had been given already.
    """
    while (line := file.readline()) == UNWANTED:
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
    """Return the exception for a failure: of its own type if that is one of ours."""
    found = getattr(errors, failure.kind, None)
    if isinstance(found, type) and issubclass(found, CtkError):
        return found(failure.message)
    return CtkError(f"the oracle failed in its child process: {failure.kind}: {failure.message}")
