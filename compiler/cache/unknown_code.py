"""Code that reads what no walk over code finds: files, other modules by text, the environment.

    def scale(graph): ... os.environ["SCALE"]      the environment belongs to what the code is
    def scale(graph): ... open("scale.txt")        unknown: who can say what stands there

Seen by the names that byte code loads. Too much is refused rather than too little: what is refused
is compiled each time.
"""

import builtins
import dis
import hashlib
import importlib
import io
import itertools
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, ModuleType

from ctk.compiler.errors import Uncacheable

_ENVIRONMENT = frozenset({"environ", "environb", "getenv", "getenvb"})
_BUILTINS = frozenset({"__import__", "eval", "exec", "globals", "input", "open", "vars"})
_ATTRIBUTES = frozenset({
    "__builtins__", "__dict__", "__globals__", "_getframe", "currentframe", "from_file", "fromfile",
    "genfromtxt", "import_module", "load", "loadtxt", "memmap", "open", "popen", "read_bytes",
    "read_text",
})  # fmt: skip
_FUNCTIONS = (
    *(getattr(builtins, name) for name in sorted(_BUILTINS)),
    importlib.import_module,
    io.open_code,
    os.open,
)
_LOADS_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_LOADS_ATTRIBUTE = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM"})


@dataclass(frozen=True, slots=True)
class Loads:
    """What byte code loads, the functions in it included.

    Attributes:
        names: Global names.
        attributes: Names of attributes, and what is imported from a module.
        modules: Names of modules that are imported where the code runs; relative ones with dots.
    """

    names: frozenset[str]
    attributes: frozenset[str]
    modules: frozenset[str]


def loads_of(code: CodeType) -> Loads:
    """Return what byte code loads."""
    found = [(each.opname, str(each.argval)) for each in _instructions(code)]
    return Loads(
        frozenset(name for kind, name in found if kind in _LOADS_GLOBAL),
        frozenset(name for kind, name in found if kind in _LOADS_ATTRIBUTE),
        frozenset(name for kind, name in found if kind == "IMPORT_NAME"),
    )


def imported(loads: Loads, package: str, what: str) -> dict[str, ModuleType]:
    """Return the modules that code imports where it runs.

    Args:
        loads: What it loads.
        package: Of the module that it stands in.
        what: What it is, for the message.

    Raises:
        Uncacheable: One is not there yet, and what it holds unknown.
    """
    found: dict[str, ModuleType] = {}
    for name in sorted(loads.modules):
        folders = ["", *itertools.accumulate(package.split("."), "{}.{}".format)]  # relative, too
        candidates = [f"{each}.{name}".strip(".") for each in folders]
        there = [sys.modules[each] for each in candidates if each in sys.modules]
        if not there and name.partition(".")[0] not in sys.stdlib_module_names:
            raise Uncacheable(
                f"{what} imports {name or 'a module'} where it runs: import it at the top"
            )
        found.update({each.__name__: each for each in there})
    return found


def require_known(
    loads: Loads, used: Mapping[str, object], own: Sequence[ModuleType], what: str
) -> None:
    """Refuse code that reads what its text does not tell.

    Args:
        loads: What it loads.
        used: The values of the global names that it uses.
        own: Modules of the program among what it reaches.
        what: What it is, for the message.

    Raises:
        Uncacheable: It names what it reads.
    """
    plain = (loads.names & _BUILTINS) - used.keys()
    is_sys = sys in used.values() or "sys" in loads.modules
    if is_sys and "modules" in loads.attributes:
        plain |= {"sys.modules"}
    if {"getattr", "hasattr"} & loads.names:
        hidden = [getattr(each, "__name__", "") for each in used.values() if _hides(each, own)]
        plain |= {f"getattr of {name}" for name in hidden}
    if found := [*sorted(plain), *sorted(loads.attributes & _ATTRIBUTES)]:
        raise Uncacheable(f"{what} uses {found[0]}: what it reads there cannot be known")


def require_known_function(value: object, what: str) -> None:
    """Refuse a function of the library that reads what cannot be known.

    Raises:
        Uncacheable: It is one.
    """
    if any(value is each for each in _FUNCTIONS):
        name = getattr(value, "__name__", "")
        raise Uncacheable(f"{what} uses {name}: what it reads there cannot be known")


def environment_text(loads: Loads) -> str:
    """Return a digest of the environment if code names it; which variable it reads may be text."""
    if not _ENVIRONMENT & (loads.attributes | loads.names):
        return ""
    pairs = sorted(os.environ.items())
    return f"environment {hashlib.sha256(repr(pairs).encode()).hexdigest()}"


def _hides(value: object, own: Sequence[ModuleType]) -> bool:
    return any(value is each for each in (os, sys, builtins, importlib, *own))


def _instructions(code: CodeType) -> Iterator[dis.Instruction]:
    yield from dis.get_instructions(code)
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _instructions(each)
