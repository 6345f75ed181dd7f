"""Every exception of ctk: messages say what (values seen), where (stage, pass, node), and next."""

import difflib
import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.fx import GraphModule


class CtkError(Exception):
    """Base of all ctk errors; shown to users as a message, never as a traceback."""


class ConfigError(CtkError):
    """A configuration key or value is not allowed."""


class UnsupportedPlatform(CtkError):
    """This platform cannot run the pipeline."""


class CodegenUnsupported(CtkError):
    """A code generator cannot take this graph; the next one in `Config.fallback` may."""


class DiscardedParameterError(CtkError, RuntimeError):
    """The program touches a parameter whose numbers were dropped when a graph was frozen."""


class VerifyError(CtkError):
    """A pass left an ill-formed graph, or changed the type of a value; `node` has its name."""

    def __init__(self, message: str, node: str | None = None) -> None:
        super().__init__(message)
        self.node = node


class CaseError(CtkError):
    """A case folder, graph or input file cannot be read or written."""


class TrustError(CaseError):
    """A case names code, or an option, that only runs once the user trusts the case."""


class ArtifactError(CtkError):
    """A compiled graph cannot be stored, or what was stored cannot be used here; says why."""


class InputError(ArtifactError, ValueError):
    """A package was called with what it was not compiled for; names the argument."""


class StorageError(CtkError):
    """What ctk was to write could not be written: full disk, no permission, closed output."""


class ContainerError(CtkError):
    """A package or an entry of the cache is not what was once written, and is not used."""


class UnreadableContainer(ContainerError):
    """A package or an entry of the cache cannot be read now; what it holds is not known."""


class Uncacheable(CtkError):
    """A compile cannot be kept for other processes; the message says why."""


class TargetError(CtkError):
    """A target is unknown or cannot be imported."""


class ProgramError(CtkError):
    """A user's program file cannot be loaded, or fails before any compiler sees it."""


class CaptureError(CtkError):
    """Dynamo could not capture a program as graphs."""


class NoGraphError(CaptureError):
    """Dynamo gave no graph of a program: all of it runs in eager."""


class EagerError(ProgramError):
    """A program raises in eager; that is what it gives, and no fault of a compiler."""


class MiscompileError(CtkError):
    """A compiled graph gives other values than eager; raised by the debug hooks when checking."""


class PrecisionRefused(CtkError):
    """A program cannot be run with its floats in float64; its own dtype is the reference then."""


class DoesNotReproduce(CtkError):
    """A case does not show the failure that is to be bisected or reduced."""


class LostAccelerator(CtkError):
    """A kernel of the program itself has broken CUDA: this process can ask nothing more.

    The first line of the message is what the program raised.
    """


class PredicateError(CtkError):
    """A user's predicate raised; `graph` and `inputs` are the smallest ones so far."""

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
"""What reading data raises that has another form than expected: a number for a list, a missing key,
lists too deep, a size divided by zero."""

_LONGEST_NAME, _MOST_NAMES = 100, 3_000


def nearest(name: str, allowed: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return `; did you mean 'x'?` for the nearest allowed name, or an empty string."""
    if len(name) > _LONGEST_NAME:
        return ""  # comparing costs the product of the lengths
    names = [each for each in itertools.islice(allowed, _MOST_NAMES) if len(each) <= _LONGEST_NAME]
    match = difflib.get_close_matches(name, names, n=1, cutoff=cutoff)
    return f"; did you mean {match[0]!r}?" if match else ""


def message_of(error: BaseException) -> str:
    """Return an exception's message; one of the user's may not let itself be read."""
    try:
        return str(error)
    except Exception as refusal:
        return f"its message cannot be read: {type(refusal).__name__}"
