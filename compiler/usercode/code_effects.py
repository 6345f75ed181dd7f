"""Effects of code that a walk over values does not find.

    def scale(graph): ... os.environ["SCALE"]      reads the environment: part of the identity
    def scale(graph): ... open("scale.txt")        reads a file: refused, its text is unknown
    def fails(case): asked.append(case)            changes `asked`: only its type counts

Reads are found by the names that byte code loads, and rather too many are refused than too few:
refused code is compiled each time. Changes are found in the source of the function.
"""

import ast
import builtins
import dis
import hashlib
import importlib
import inspect
import io
import itertools
import os
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType

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
_CHANGES = frozenset({
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "put",
    "remove", "setdefault", "sort", "update", "write", "writelines",
})  # fmt: skip
"""Methods that change their object."""

_LOADS_GLOBAL = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"})
_LOADS_ATTRIBUTE = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM"})


@dataclass(frozen=True, slots=True)
class Loads:
    """The names that byte code loads, functions in it included.

    Attributes:
        attributes: Names of attributes, and names imported from a module.
        modules: Names of modules that the code imports when it runs.
    """

    names: frozenset[str]
    attributes: frozenset[str]
    modules: frozenset[str]


def loads_of(code: CodeType) -> Loads:
    """Return the names that byte code loads."""
    found = [(instruction.opname, str(instruction.argval)) for instruction in _instructions(code)]
    return Loads(
        frozenset(name for kind, name in found if kind in _LOADS_GLOBAL),
        frozenset(name for kind, name in found if kind in _LOADS_ATTRIBUTE),
        frozenset(name for kind, name in found if kind == "IMPORT_NAME"),
    )


def modules_of_import(loads: Loads, package: str, subject: str) -> dict[str, ModuleType]:
    """Return the modules that code imports when it runs.

    Raises:
        Uncacheable: A module is not loaded yet, so its content is unknown.
    """
    found: dict[str, ModuleType] = {}
    for name in sorted(loads.modules):
        folders = ["", *itertools.accumulate(package.split("."), "{}.{}".format)]  # relative
        candidates = [f"{folder}.{name}".strip(".") for folder in folders]
        there = [sys.modules[candidate] for candidate in candidates if candidate in sys.modules]
        if not there and name.partition(".")[0] not in sys.stdlib_module_names:
            raise Uncacheable(
                f"{subject} imports {name or 'a module'} where it runs: import it at the top"
            )
        found.update({each.__name__: each for each in there})
    return found


def require_known(
    loads: Loads, used: Mapping[str, object], own: Sequence[ModuleType], subject: str
) -> None:
    """Refuse code that reads a value which its text does not determine.

    Raises:
        Uncacheable: It opens files, or looks names up by text; the message has the name it uses.
    """
    plain = (loads.names & _BUILTINS) - used.keys()
    is_sys = sys in used.values() or "sys" in loads.modules
    if is_sys and "modules" in loads.attributes:
        plain |= {"sys.modules"}
    if {"getattr", "hasattr"} & loads.names:
        hidden = [getattr(each, "__name__", "") for each in used.values() if _hides(each, own)]
        plain |= {f"getattr of {name}" for name in hidden}
    if found := [*sorted(plain), *sorted(loads.attributes & _ATTRIBUTES)]:
        raise Uncacheable(
            f"{subject} uses {found[0]}: the value that it reads there cannot be known"
        )


def require_known_function(value: object, subject: str) -> None:
    """Raise `Uncacheable` for a function of the library that opens files or looks names up."""
    if any(value is each for each in _FUNCTIONS):
        name = getattr(value, "__name__", "")
        raise Uncacheable(f"{subject} uses {name}: the value that it reads there cannot be known")


def environment_text(loads: Loads) -> str:
    """Return a digest of the whole environment if code names it; else an empty text."""
    if not _ENVIRONMENT & (loads.attributes | loads.names):
        return ""
    pairs = sorted(os.environ.items())
    return f"environment {hashlib.sha256(repr(pairs).encode()).hexdigest()}"


def _hides(value: object, own: Sequence[ModuleType]) -> bool:
    return any(value is each for each in (os, sys, builtins, importlib, *own))


def _instructions(code: CodeType) -> Iterator[dis.Instruction]:
    yield from dis.get_instructions(code)
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _instructions(const)


def names_changed(function: object, prefix: str = "") -> frozenset[str]:
    """Return the names whose values the source of a function changes; none without a source.

    Args:
        prefix: `self.` for attributes of the object that the method belongs to.
    """
    if not isinstance(function, FunctionType):
        return frozenset()
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # typed in, or a lambda within a longer line
        return frozenset()
    found = {name for node in ast.walk(tree) for name in _changes_of(node)}
    return frozenset(n.removeprefix(prefix) for n in found if n.startswith(prefix))


def _changes_of(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node changes: `asked` of `asked.append(1)` and `asked[0] += 1`."""
    match node:
        case ast.Nonlocal(names=names) | ast.Global(names=names):
            yield from names
        case ast.Call(func=ast.Attribute(value=changed, attr=attribute)) if attribute in _CHANGES:
            yield from _roots(changed)
        case ast.Subscript(value=changed, ctx=ast.Store() | ast.Del()):
            yield from _roots(changed)
        case ast.Attribute(ctx=ast.Store() | ast.Del()):
            yield from _roots(node)
            yield from _roots(node.value)
        case _:
            pass


def _roots(changed: ast.expr) -> Iterator[str]:
    """Yield the name that an expression starts from; `self.x` of an attribute of `self`."""
    while isinstance(changed, ast.Subscript):
        changed = changed.value
    if isinstance(changed, ast.Name):
        yield changed.id
    elif isinstance(changed, ast.Attribute) and isinstance(changed.value, ast.Name):
        yield f"{changed.value.id}.{changed.attr}"
    elif isinstance(changed, ast.Attribute):
        yield from _roots(changed.value)
