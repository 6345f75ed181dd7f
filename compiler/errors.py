"""Every exception of ctk. A message gives the values seen, the place, and the next step."""

import difflib
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.fx import GraphModule


class CtkError(Exception):
    """Base of all ctk errors; users get the message without a traceback."""


class ConfigError(CtkError):
    """A configuration key or value is not allowed."""


class UnknownPass(ConfigError):
    """An option names a pass that a compile does not have; another option may bring it."""


class UnsupportedPlatform(CtkError):
    """This platform cannot run the pipeline."""


class MissingTorchName(CtkError):
    """The installed torch lacks a private name that a feature needs; the message names both."""


class CodegenUnsupported(CtkError):
    """A code generator cannot take this graph; the next one in `Config.fallback` may."""


class DiscardedParameterError(CtkError, RuntimeError):
    """The program touches a parameter whose numbers freezing dropped."""


class VerifyError(CtkError):
    """A pass left an ill-formed graph, or changed the type of a value; `node` has its name."""

    def __init__(self, message: str, node: str | None = None) -> None:
        super().__init__(message)
        self.node = node


class RuleError(VerifyError):
    """A function of a rule misreads its match, or returns another number of nodes.

    Attributes:
        advice: The next step for its author.
    """

    def __init__(self, message: str, advice: str) -> None:
        super().__init__(message)
        self.advice = advice


class CaseError(CtkError):
    """A case folder, graph or input file cannot be read or written."""


class NoSuchCase(CaseError):
    """A case, or a graph, pass or record of it, does not exist."""


class SchemaError(CaseError):
    """A file was written by another version of ctk."""


class NotHeld(CaseError):
    """A case or repro cannot hold a value or function of the program."""


class FolderTaken(CaseError):
    """A folder for output holds something already, or a run that cannot be resumed."""


class TrustError(CaseError):
    """A case names code, or an option, that only runs once the user trusts the case."""


class ArtifactError(CtkError):
    """A compiled graph cannot be stored, or a stored one cannot be used here."""


class InputError(ArtifactError, ValueError):
    """An argument does not fit the compiled signature of a package."""


class StorageError(CtkError):
    """A write of ctk failed: full disk, no permission, closed output."""


class ContainerError(CtkError):
    """A package or an entry of the cache was changed or damaged, and is not used."""


class UnreadableContainer(ContainerError):
    """A package or an entry of the cache cannot be read now; it may be intact."""


class Uncacheable(CtkError):
    """A compile cannot be stored for other processes; the message gives the reason."""


class TargetError(CtkError):
    """A target is unknown, cannot be imported, or is not for the question."""


class ProgramError(CtkError):
    """A user's program file cannot be loaded, or fails before a compiler runs."""


class CaptureError(CtkError):
    """Dynamo could not capture a program as graphs."""


class NoGraphError(CaptureError):
    """Dynamo captured no graph of a program: all of it runs in eager."""


class BuildError(ProgramError):
    """A user's program raises while it is loaded, or while it builds its model or inputs."""


class ExportRefused(CtkError):
    """A program cannot be compiled ahead of time, by the rules of torch.export or of packages."""


class EagerError(ProgramError):
    """A program raises in eager, so that no compiler is at fault."""


class MiscompileError(CtkError):
    """A compiled graph gives other values than eager; raised by the debug hooks when checking."""


class WrongCompile(MiscompileError, AssertionError):
    """A function compiles wrongly: fails a test, by `ctk.assert_compiles` or the pytest plugin.

    Attributes:
        folder: Its case; None if it could not be saved.
        command: The command that shows more; empty if there is none.
    """

    def __init__(self, message: str, *, folder: Path | None = None, command: str = "") -> None:
        super().__init__(f"{message}\n  next: {command}" if command else message)
        self.folder, self.command = folder, command


class PrecisionRefused(CtkError):
    """A program cannot run with its floats in float64; its own dtype is the reference then."""


class InstallError(CtkError):
    """A package is not installed as it must be, or pip cannot list or install its releases."""


class ChildError(CtkError):
    """A process that ctk started has ended, or cannot answer."""


class DoesNotReproduce(CtkError):
    """A case does not show the failure to bisect or reduce."""


class LostAccelerator(CtkError):
    """A kernel of the program itself has broken CUDA: this process can run no further question.

    The message begins with the exception of the program.
    """


class PredicateError(CtkError):
    """A user's predicate raised; `graph` and `inputs` are the smallest case so far."""

    def __init__(self, message: str, graph: "GraphModule", inputs: tuple[object, ...]) -> None:
        super().__init__(message)
        self.graph, self.inputs = graph, inputs


MALFORMED = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    StopIteration,
    SyntaxError,
    TypeError,
    ValueError,
)
"""Exceptions from reading data of an unexpected form: a number for a list, a missing key, lists too
deep, a size divided by zero."""

_LONGEST_NAME, _MOST_NAMES = 100, 3_000


def count_of(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 graph`, `2 graphs`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def any_of(words: Iterable[object]) -> str:
    """Return alternatives for a sentence: `a, b or c`."""
    *most, last = map(str, words)
    return f"{', '.join(most)} or {last}" if most else last


def not_taken(name: str, value: object, allowed: str, hint: str = "") -> ConfigError:
    """Return the error for a value of an option: `verify takes true or false, not 'maybe'`."""
    return ConfigError(f"{name} takes {allowed}, not {value!r}{hint}")


def nearest(name: str, allowed: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return `; did you mean 'x'?` for the nearest allowed name, or an empty string."""
    if len(name) > _LONGEST_NAME:
        return ""  # comparing costs the product of the lengths
    names = [each for each in itertools.islice(allowed, _MOST_NAMES) if len(each) <= _LONGEST_NAME]
    match = difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    return f"; did you mean {match[0]!r}?" if match else ""


def message_of(error: BaseException) -> str:
    """Return an exception's message, or a substitute if its `__str__` raises."""
    try:
        return str(error)
    except Exception as refusal:
        return f"its message cannot be read: {type(refusal).__name__}"
