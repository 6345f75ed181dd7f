"""Between commands and the shell: answers, errors, Ctrl-C, who may write to stdout.

While a command runs, whatever the user's program, its compiler or a child process prints goes to
stderr, so that stdout starts with the answer and holds nothing but JSON under `--json`.
"""

import contextlib
import functools
import inspect
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import typer

from ctk.compiler.errors import (
    CaptureError,
    CodegenUnsupported,
    CtkError,
    DoesNotReproduce,
    StorageError,
    UnsupportedPlatform,
    VerifyError,
)
from ctk.toolkit.cli.answer import Answer, ExitCode, emit
from ctk.toolkit.cli.flatten import flattened, with_parameters
from ctk.toolkit.cli.options import JsonOutput
from ctk.toolkit.processes.link import find_link

CANNOT_TELL_ERRORS = (
    UnsupportedPlatform,
    CaptureError,
    DoesNotReproduce,
    StorageError,
    VerifyError,
    CodegenUnsupported,
)
"""Errors that are not the caller's: a fair question that cannot be answered here."""

BUG_MESSAGE = """The traceback is in {path}
Please report it with that file, the command line and the output of `ctk doctor`."""


JSON = inspect.Parameter(
    "json_output", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=JsonOutput
)
"""The option that every command has."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its name, and the function whose parameters and docstring make its help.

    A parameter that is a dataclass of options stands for the fields of that class (`options.py`).
    """

    name: str
    run: Callable[..., Answer]
    passes_arguments_on: bool = False  # unknown options belong to the user's script


def guarded(command: Command) -> Callable[..., None]:
    """Return the function that Typer calls: it runs the command, prints its answer and exits."""

    flat = flattened(command.run)

    @functools.wraps(flat)
    def run(*, json_output: bool = False, **options: object) -> None:
        link = find_link()
        if link is not None:
            link.started(command.name, as_json=json_output)
        with terminate_as_interrupt(), stdout_to_stderr():
            answer = answer_of(lambda: flat(**options))
        emit(command.name, answer, as_json=json_output)
        if link is not None:
            link.answered(int(answer.exit_code))
        raise typer.Exit(int(answer.exit_code))

    own = inspect.signature(flat).parameters.values()
    return with_parameters(run, [*own, JSON])


def answer_of(run: Callable[[], Answer]) -> Answer:
    """Run a command and turn whatever it raises into an answer with the documented exit code."""
    try:
        return run()
    except CtkError as error:
        code = ExitCode.CANNOT_TELL if isinstance(error, CANNOT_TELL_ERRORS) else ExitCode.USAGE
        return refusal(error, code)
    except KeyboardInterrupt as interrupt:
        return Answer(
            ExitCode.CANNOT_TELL,
            "cannot tell: interrupted before there was a result",
            {"error": {"type": "KeyboardInterrupt", "message": "interrupted"}},
            notes_of(interrupt) or ("Run the same command again to start over.",),
        )
    except Exception as error:
        return bug(error)


def refusal(error: CtkError, code: ExitCode) -> Answer:
    """Return the answer for an expected error: its message, no traceback."""
    first, *rest = "\n".join((str(error) or type(error).__name__, *notes_of(error))).splitlines()
    word = "cannot tell" if code is ExitCode.CANNOT_TELL else "ctk"
    return Answer(code, f"{word}: {first}", error_data(error), ("\n".join(rest),) if rest else ())


def bug(error: Exception) -> Answer:
    """Return the answer for an unexpected exception, with its traceback in a file of its own."""
    path = save_traceback(error)
    summary = f"{type(error).__name__}: {error}".splitlines()[0]
    data = error_data(error) | {"traceback": str(path)}
    headline = f"cannot tell: ctk itself failed, which is a bug: {summary}"
    body = (BUG_MESSAGE.format(path=path), *notes_of(error))
    return Answer(ExitCode.CANNOT_TELL, headline, data, body)


def notes_of(error: BaseException) -> tuple[str, ...]:
    """Return what was noted on an exception on its way: what is kept, and how to go on."""
    return tuple(getattr(error, "__notes__", ()))


def error_data(error: BaseException) -> dict[str, object]:
    """Return the JSON form of an error."""
    notes = list(notes_of(error))
    data = {"type": type(error).__name__, "message": str(error)}
    return {"error": data | ({"notes": notes} if notes else {})}


def save_traceback(error: BaseException) -> Path:
    """Write a traceback (without the values of variables) to a new file; return its path."""
    handle, name = tempfile.mkstemp(prefix="ctk-bug-", suffix=".txt", text=True)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write("".join(traceback.format_exception(error)))
    return Path(name)


@contextlib.contextmanager
def stdout_to_stderr() -> Generator[None]:
    """Send what is written to stdout to stderr: by Python, by C++ and by child processes."""
    with contextlib.redirect_stdout(sys.stderr), _descriptor_to_stderr():
        yield


@contextlib.contextmanager
def _descriptor_to_stderr() -> Generator[None]:
    if sys.__stdout__ is not None:
        sys.__stdout__.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)


@contextlib.contextmanager
def terminate_as_interrupt() -> Generator[None]:
    """Treat SIGTERM (a CI job's time limit) like Ctrl-C, so that the best result so far is kept."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
