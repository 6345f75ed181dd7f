"""Exceptions as outcomes: whether a compiled program raises the error of the eager one.

The same error seldom has the same words on both sides, so this is decided in steps:

1. Wrappers are removed: `inner_exception` (Inductor, Dynamo), Dynamo's "got ValueError('...')",
   TorchScript's traceback, the excerpt that `torch.fx.Interpreter` appends.
2. Same words, but for numbers, paths and addresses: the same error, of any type.
   TorchScript turns each type into RuntimeError; AOTAutograd's checks raise ValueError or
   RuntimeError where C++ raises IndexError.
3. The same topic (an index out of range, a division by zero, a singular matrix, shapes or dtypes
   that do not fit, ...) is the same error as well: eager raises "index 9 is out of bounds for
   dimension 0 with size 4", Inductor's kernel "index out of bounds: 0 <= tmp2 < 4L". This holds
   only for errors of operators and kernels. An error of the compiler itself is not a check of the
   program, with any words.
4. An error that a `raise` of the program's own code raised keeps its type: another type from
   another such `raise` is another error, even with the same words. An `assert` of the program that
   became an operator of a graph does not count as such a `raise`.

    eager                                        compiled                               the same?
    IndexError: index out of range in self       RuntimeError: index out of bounds ...  yes (3)
    RuntimeError: mat1 and mat2 shapes ...       ... must have same reduction dim ...   yes (3)
    RuntimeError: all elements of input ...      _LinAlgError: ... is singular          no
    IndexError: index 9 is out of bounds ...     AssertionError in a pass               no
    raise ValueError("no")                       raise KeyError("no")                   no (4)
"""

import re
import traceback
from dataclasses import dataclass

from ctk.repro_templates.graph.code_owner import is_raised_by_statement

TOPICS = {
    "index": r"out of (range|bounds?)\b|\bind(ex|ices)\b.*\b(invalid|range|size|bounds?)\b"
    r"|invalid\b.*\bindex\b|device-side assert|class values",
    "zero": r"zero ?division|(division|divide|modulo|modulus)\w* by zero",
    "singular": r"\bsingular\b|positive-(semi)?definite|invertible|fac?torization",
    "shape": r"\bshapes?\b|\bsizes?\b|\bdim(ension)?s?\b|broadcast|\brank\b|\bstrides?\b"
    r"|\bnumel\b|elements? of storage",
    "dtype": r"\bd?types?\b|\bscalar\b|overflow|\b(float|double|half|int|long|bool)\w*\b.*\bgot\b",
    "autograd": r"in-?place\b|\bleaf\b|requires?[ _]grad|does not have a grad_fn|backward",
    "assert": r"\bassert|expected .*(to be true|nonzero)",
    "device": r"\bdevices?\b(?!-side)",
    "probability": r"probabilit|multinomial|bernoulli|\bp_in\b",
}
"""Topics of errors, by words of their messages."""

OPERATORS = (
    "torch._ops", "torch._meta_registrations", "torch._prims", "torch._prims_common",
    "torch._refs", "torch._decomp", "torch._subclasses", "torch.functional",
    "torch.nn.functional", "torch.overrides",
)  # fmt: skip
"""Modules that check the arguments of operators, for real tensors or for fake ones."""

UNNAMED = "an exception that TorchScript does not name"
"""TorchScript's interpreter often keeps neither type nor words of an operator's error."""

MISSING = {
    "ImportError", "ModuleNotFoundError", "FileNotFoundError", "InvalidCxxCompiler",
    "TritonMissing", "GPUTooOldForTriton",
}  # fmt: skip
"""Exceptions of a machine that lacks a module, a file, a compiler."""

_MISSING = re.compile(
    r"'_OpNamespace' .* has no attribute|not compiled with CUDA|No CUDA GPUs|no NVIDIA driver"
    r"|NVIDIA driver on your system is too old|invalid device ordinal"
)
"""Words of exceptions about a missing operator or GPU."""

_GOT = re.compile(r"\bgot ([A-Za-z_]+)\((['\"])(.*?)\2,?\)", re.DOTALL)
_TORCHSCRIPT = re.compile(r"TorchScript interpreter.*\n(\w+): (.*)", re.DOTALL)
_KERNEL_FILE = re.compile(r"^kernel, \S+:\d+, ")
_VARIES = re.compile(r"0x[0-9a-f]+|(?:/[\w.+-]+)+|\btmp\d+|\d+")
_SMALL = {"the", "of", "is", "to", "be", "in", "on", "it", "an", "and", "or", "by", "not"}
_ALIKE = 0.6
"""Share of the words of the shorter message that the other one must have."""


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception of a program, without its wrappers.

    Attributes:
        name: Type of the exception.
        message: Its first line, without the text that a compiler put around it.
        is_check: Whether an operator or kernel raised it, and not the compiler itself.
        is_own: Whether a `raise` of the user's own code raised it.
    """

    name: str
    message: str
    is_check: bool = True
    is_own: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.message}" if self.message else self.name


def describe_error(error: BaseException, *, compiling: bool | None = None) -> Raised:
    """Return an exception without its wrappers.

    Args:
        compiling: Whether it was caught while compiling. None: decided by its wrappers.
    """
    wrappers = [type(each).__name__ for each in unwrap(error)]
    inner = unwrap(error)[-1]
    name, text = type(inner).__name__, _text(inner).partition("\n\nWhile executing ")[0]
    if matched := _GOT.search(text) if name == "TorchRuntimeError" else None:
        return Raised(matched[1], _line(matched[3]))
    if matched := _TORCHSCRIPT.search(text):
        return Raised(matched[1] if _line(matched[2]) else UNNAMED, _line(matched[2]))
    if compiling is None:
        compiling = bool({"BackendCompilerFailed", "InductorError"}.intersection(wrappers))
    is_check = not compiling or _innermost(inner).startswith(OPERATORS)
    is_own = is_raised_by_statement(inner.__traceback__)
    return Raised(name, _KERNEL_FILE.sub("", _line(text)), is_check, is_own)


def alike(eager: Raised, compiled: Raised) -> bool:
    """Return whether a compiled program raised the error that the program raises in eager."""
    if eager.is_own and compiled.is_own and eager.name != compiled.name:
        return False
    words, others = _words(eager.message), _words(compiled.message)
    if not others and compiled.name == UNNAMED:
        return True
    if not words or not others:
        return eager.name == compiled.name and compiled.is_check
    shorter = min(len(words), len(others))
    if len(words & others) >= _ALIKE * shorter:
        return True
    return compiled.is_check and bool(_topics(eager) & _topics(compiled))


def is_missing(error: Raised) -> bool:
    """Return whether a machine lacks a module, a file, an operator or a device of the program."""
    return error.name in MISSING or _MISSING.search(error.message) is not None


def unwrap(error: BaseException) -> list[BaseException]:
    """Return the exception, the one in its wrapper (`BackendCompilerFailed`), and so on."""
    found = [error]
    while isinstance(inner := getattr(found[-1], "inner_exception", None), BaseException):
        if any(inner is each for each in found):
            break
        found.append(inner)
    return found


def _innermost(error: BaseException) -> str:
    """Return the module of the innermost frame; `torch._check` raises for its callers."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    modules = [str(frame.f_globals.get("__name__", "")) for frame in frames]
    return next((module for module in reversed(modules) if module != "torch"), "")


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as refusal:  # its own `__str__`
        return f"its message cannot be read: {type(refusal).__name__}"


def _line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0].strip() if lines else ""


def _words(message: str) -> set[str]:
    """Return the words of a message, without numbers, paths, addresses and small words."""
    return set(re.findall(r"[a-z_]{2,}", _VARIES.sub(" ", message.lower()))) - _SMALL


def _topics(error: Raised) -> set[str]:
    text = f"{error.name} {error.message}".lower()
    return {topic for topic, words in TOPICS.items() if re.search(words, text)}


def is_of_a_leaf(error: BaseException | None) -> bool:
    """Return whether torch forbids that a leaf is changed in place.

    Inputs of a graph by itself are leaves; values that the program computed are not.
    """
    return isinstance(error, RuntimeError) and "leaf Variable that requires grad" in str(error)
