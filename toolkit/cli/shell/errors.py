"""Exceptions of a command as answers with documented exit codes.

| raised | exit code |
|---|---|
| an error of ctk about the caller's input | 2 |
| an error of ctk about this machine; disk, memory, stack; Ctrl-C; an internal error | 125 |
"""

import errno
import os
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import typer

from ctk.compiler.errors import (
    BuildError,
    CaptureError,
    ChildError,
    CodegenUnsupported,
    CtkError,
    DoesNotReproduce,
    EagerError,
    ExportRefused,
    InstallError,
    LostAccelerator,
    MissingTorchName,
    StorageError,
    UnsupportedPlatform,
    VerifyError,
    message_of,
)
from ctk.compiler.installed_torch import refusal_of
from ctk.toolkit.case.formats.files import NEXT_STEPS
from ctk.toolkit.case.formats.scrub import scrub
from ctk.toolkit.cli.shell.answer import Answer, ExitCode
from ctk.toolkit.cli.shell.error_codes import TORCH, ErrorCode, code_of
from ctk.toolkit.operations.doctor import REASON_LENGTH, TORCH_ADVICE

CANNOT_TELL_ERRORS = (
    UnsupportedPlatform,
    BuildError,
    EagerError,
    ExportRefused,
    CaptureError,
    DoesNotReproduce,
    StorageError,
    VerifyError,
    CodegenUnsupported,
    InstallError,
    ChildError,
    LostAccelerator,
    MissingTorchName,
)
"""Errors that are not the caller's: a fair question that cannot be answered here."""

GONE = "the working folder is gone: it was removed or moved"
BUG_MESSAGE = """The traceback is in {path}
Please report it with that file, the command line and the output of `ctk doctor`."""

UNSAVED_MESSAGE = """The traceback could not be saved ({why}); see it with --verbose.
Please report it with the command line and the output of `ctk doctor`."""


def answer_of(run: Callable[[], Answer]) -> Answer:
    """Run a command, and turn an exception into an answer with a documented exit code."""
    try:
        return run()
    except BaseException as error:  # also sys.exit of the user's program
        return answer_for(error)


def answer_for(error: BaseException) -> Answer:
    """Return the answer for an exception of a command."""
    error = refusal_of(error) or error
    match error:
        case CtkError():
            cannot = isinstance(error, CANNOT_TELL_ERRORS)
            return refusal(error, ExitCode.CANNOT_TELL if cannot else ExitCode.USAGE)
        case KeyboardInterrupt() | typer.Abort():
            said = "interrupted before there was a result"
            return cannot_tell(error, said, "Run the same command again to start over.")
        case SystemExit():  # its own code might be 1, which would say that a failure was found
            said = f"the program ended itself: sys.exit({error.code!r})"
            return cannot_tell(error, said, "ctk needs it to go on.")
        case MemoryError():
            return cannot_tell(error, "there is not enough memory", "Try a smaller input.")
        case RecursionError():
            return cannot_tell(
                error,
                "something is nested too deeply for Python's stack",
                "Try sys.setrecursionlimit in the program, or a smaller graph.",
            )
        case OSError() if not has_working_folder():
            return cannot_tell(error, GONE, "cd to a folder that exists, and try again.")
        case OSError() if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            said = f"{error.strerror}: {str(error.filename)[:80]}"
            code = code_of(type(error))
            return Answer(
                ExitCode.USAGE, f"ctk: {said}", error_data(error, code, said), help_of(code)
            )
        case OSError() if error.errno in NEXT_STEPS:
            return cannot_tell(error, str(error), NEXT_STEPS[error.errno])
        case Exception() if has_failed_to_import_torch(error):
            why = " ".join(message_of(error).split())[:REASON_LENGTH]
            said = f"torch cannot be imported: {type(error).__name__}: {why}"
            return cannot_tell(error, said, TORCH_ADVICE, code=TORCH)
        case _:
            return bug(error)


def has_failed_to_import_torch(error: Exception) -> bool:
    """Return whether torch is missing or has raised while it was imported: settings, not whole."""
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        return True
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(
        frame.f_code.co_name == "<module>" and frame.f_globals.get("__name__") == "torch"
        for frame in frames
    )


def has_working_folder() -> bool:
    """Return whether the working folder is still there."""
    try:
        Path.cwd()
    except OSError:
        return False
    return True


def require_working_folder() -> None:
    """Refuse to begin in a folder that was removed: torch itself would end the process there.

    Raises:
        StorageError: It is gone.
    """
    if not has_working_folder():
        raise StorageError(f"{GONE}; next: cd to a folder that exists, and try again")


def cannot_tell(
    error: BaseException, said: str, advice: str, *, code: ErrorCode | None = None
) -> Answer:
    """Return the answer for an error that the user did not cause; its notes list saved files."""
    code = code or code_of(type(error))
    body = (*(notes_of(error) or (f"next: {advice}",)), *help_of(code))
    data = error_data(error, code, said)
    return Answer(ExitCode.CANNOT_TELL, f"cannot tell: {said}", data, body)


def refusal(error: CtkError, code: ExitCode) -> Answer:
    """Return the answer for an expected error: its message, no traceback."""
    first, *rest = "\n".join((str(error) or type(error).__name__, *notes_of(error))).splitlines()
    word = "cannot tell" if code is ExitCode.CANNOT_TELL else "ctk"
    known = code_of(type(error))
    body = "\n".join((*rest, *help_of(known)))
    return Answer(code, f"{word}: {first}", error_data(error, known), (body,))


def bug(error: BaseException) -> Answer:
    """Return the answer for an unexpected exception, with its traceback in a file of its own."""
    summary = f"{type(error).__name__}: {message_of(error)}".splitlines()[0]
    headline = f"cannot tell: ctk itself failed, which is a bug: {summary}"
    try:
        path = save_traceback(error)
    except OSError as problem:
        body, saved = UNSAVED_MESSAGE.format(why=problem), None
    else:
        body, saved = BUG_MESSAGE.format(path=path), str(path)
    code = code_of(type(error))
    data = error_data(error, code) | {"traceback": saved}
    return Answer(ExitCode.CANNOT_TELL, headline, data, (body, *notes_of(error), *help_of(code)))


def help_of(code: ErrorCode | None) -> tuple[str, ...]:
    """Return the line that leads to the page about an error."""
    return (code.help,) if code is not None else ()


def notes_of(error: BaseException) -> tuple[str, ...]:
    """Return the notes of an exception: saved files, and the command that resumes."""
    return tuple(getattr(error, "__notes__", ()))


def error_data(error: BaseException, code: ErrorCode | None, said: str = "") -> dict[str, object]:
    """Return the JSON form of an error; Ctrl-C has no code."""
    notes = list(notes_of(error))
    data = {"type": type(error).__name__, "message": message_of(error) or said}
    data |= {"code": code.code} if code is not None else {}
    return {"error": data | ({"notes": notes} if notes else {})}


def save_traceback(error: BaseException) -> Path:
    """Write a traceback (without the values of variables) to a new file; return its path."""
    handle, name = tempfile.mkstemp(prefix="ctk-bug-", suffix=".txt", text=True)
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(scrub("".join(traceback.format_exception(error))))
    return Path(name)
