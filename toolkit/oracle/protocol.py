"""What parent, worker and child say to each other: one JSON object per line over pipes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from ctk.compiler import errors
from ctk.compiler.errors import CtkError
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.formats.schema import convert, document, encode
from ctk.toolkit.oracle.judgement import Judgement


@document
@dataclass(frozen=True, slots=True)
class Question:
    """A question to a child.

    Attributes:
        target: Its target: what the worker imports before it forks.
        folder: The case, as `ctk.toolkit.case.store` saves it with full inputs.
        expected: The failure that is looked for; None: any.
        allow_imports: Modules that loading may import.
        timeout_seconds: After this the child is killed; None: never.
        is_eager: Only run the program in eager (to see whether it is the program that crashes).
        veto: What must not happen in the compile; None leaves it unobserved.
    """

    target: str
    folder: str
    expected: Signature | None = None
    allow_imports: tuple[str, ...] = ()
    timeout_seconds: float | None = None
    is_eager: bool = False
    veto: Veto | None = None


@document
@dataclass(frozen=True, slots=True)
class Failure:
    """The oracle raised: a wrong target, config or case. `kind` is the exception's type name."""

    kind: str
    message: str


Answer = Judgement | Failure


def write_line(file: BinaryIO, data: Mapping[str, object]) -> None:
    """Write one object and flush."""
    file.write(json.dumps(data).encode() + b"\n")
    file.flush()


def read_line(file: BinaryIO) -> dict[str, Any] | None:
    """Read one object; None when the other side has closed the pipe."""
    line = file.readline()
    return json.loads(line) if line.endswith(b"\n") else None


def question_to_json(question: Question) -> dict[str, object]:
    """Return a question as JSON."""
    return encode(question)


def question_from_json(data: Mapping[str, object]) -> Question:
    """Return a question that `question_to_json` wrote."""
    return convert(Question, data, where="question")


def answer_to_json(answer: Answer) -> dict[str, object]:
    """Return an answer as JSON."""
    return encode(answer)


def answer_from_json(data: Mapping[str, object]) -> Answer:
    """Return an answer that `answer_to_json` wrote."""
    if "verdict" in data:
        return convert(Judgement, data, where="answer")
    return convert(Failure, data, where="answer")


def failure_of(error: BaseException) -> Failure:
    """Return the failure for an exception of the oracle."""
    return Failure(type(error).__name__, str(error) or repr(error))


def error_of(failure: Failure) -> CtkError:
    """Return the exception for a failure: of its own type if that is one of ours."""
    found = getattr(errors, failure.kind, None)
    if isinstance(found, type) and issubclass(found, CtkError):
        return found(failure.message)
    return CtkError(f"the oracle failed in its child process: {failure.kind}: {failure.message}")
