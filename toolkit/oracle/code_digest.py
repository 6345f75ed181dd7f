"""A digest of a function: two that may answer differently have different ones, in any process.

    def make(word):                        make("relu") and make("cos") have one name and one code,
        def fails(case):                   and other values of `word`: they are different questions
            return word in names(case)
        return fails

Told are the code, with the functions in it, defaults, values of enclosing functions, and global
names that it reads: other functions of the user likewise, objects by their state, what is installed
by its name. What a function changes itself (`asked.append(case)`, `nonlocal count`) is its notes,
not its question: of these only the type is told, else it would be another function after each call.
"""

import ast
import builtins
import dis
import hashlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from logging import Logger
from pathlib import Path, PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, cast

import torch
from torch.fx import GraphModule

from ctk.compiler.usercode.python_files import is_installed
from ctk.compiler.usercode.references import files_of
from ctk.toolkit.case.case import Case
from ctk.toolkit.oracle.cache import Digests, fingerprint
from ctk.toolkit.oracle.tensor_text import TensorTexts

_MOST = 20_000
"""Values that are looked at, before an object counts as too large to compare."""

_NEVER_THEIRS = frozenset({"ctk", "torch"})
"""Packages that are no user's, even where they are not installed (a checkout)."""

_CHANGES = frozenset({
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "put",
    "remove", "setdefault", "sort", "update", "write", "writelines",
})  # fmt: skip
"""Methods that change what they are called on."""

_PLAIN = (
    bool, int, float, complex, str, bytes, type(None), type(...), PurePath,
    torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip


class NotComparable(Exception):
    """Something of a function has no form that another process could compare; says what."""


def digest_of(function: Callable[..., object], *, by_file: bool = False) -> str:
    """Return the digest of a function, a method or an object that is called.

    Args:
        function: Only read.
        by_file: Leave out what the text of its file says: the global names.

    Raises:
        NotComparable: It holds what cannot be compared, such as a lock or an open file.
    """
    try:
        text = _Telling(by_file=by_file).of(function, "it")
    except NotComparable:
        raise
    except Exception as error:  # what is told is the user's own objects, and runs their code
        raised = f"{type(error).__name__} when it is looked at"
        raise NotComparable(f"it holds what raises {raised}") from error
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()


@dataclass(slots=True)
class _Telling:
    """Tells values as text.

    Attributes:
        by_file: Whether global names are left out.
        seen: The number of each object that is being told or was: one may hold itself.
        kept: Keeps them alive, so that their identities stay theirs.
    """

    by_file: bool
    seen: dict[int, int] = field(default_factory=dict[int, int])
    kept: list[object] = field(default_factory=list[object])

    def of(self, value: object, where: str, own: frozenset[str] = frozenset()) -> str:
        """Return a value as text.

        Args:
            value: Anything.
            where: What holds it, for messages.
            own: Attributes that are notes of a function.
        """
        if isinstance(value, _PLAIN) and not isinstance(value, Enum):
            return f"{type(value).__name__} {value!r}"
        number = self.seen.setdefault(id(value), count := len(self.seen))
        if number != count:
            return f"again {number}"
        self.kept.append(value)
        if count > _MOST:
            raise NotComparable(f"{where} holds more than {_MOST} values")
        return self._of_new(value, where, own)

    def _of_new(self, value: object, where: str, own: frozenset[str]) -> str:
        match value:
            case CodeType():
                return self._code(value, where)
            case FunctionType():
                return self._function(value, where)
            case MethodType():
                called, notes = value.__func__, _notes_of(value.__func__, "self.")
                return f"{self.of(called, where)} of {self.of(value.__self__, where, notes)}"
            case BuiltinFunctionType():
                held = value.__self__
                is_method = held is not None and not isinstance(held, ModuleType)
                return f"{value.__qualname__} {self.of(held, where) if is_method else held!r}"
            case type():
                return self._class(value, where)
            case ModuleType():
                return _module(value)
            case Enum():
                return f"{type(value).__qualname__}.{value.name}"
            case Logger():
                return f"logger {value.name}"
            case re.Pattern():
                return f"pattern {value!r} {value.flags}"
            case GraphModule():
                return f"graph {fingerprint(Case(value, ()))}"
            case torch.Tensor():
                return TensorTexts(Digests().of).of(value)
            case _:
                return self._object(value, where, own)

    def _object(self, value: object, where: str, own: frozenset[str]) -> str:
        """Return a container, or what `copy.copy` would make an object of: class and state."""
        if type(value) in (tuple, list):
            items = cast("Sequence[object]", value)
            return f"{type(value).__name__}({', '.join(self.of(each, where) for each in items)})"
        if type(value) in (set, frozenset):
            texts = sorted(self.of(each, where) for each in cast("set[object]", value))
            return f"{type(value).__name__}({', '.join(texts)})"
        if type(value) is dict:
            pairs = cast("dict[object, object]", value).items()
            return f"dict({', '.join(self._pair(k, v, where, own) for k, v in pairs)})"
        if getattr(type(value), "__module__", "") == "torch._ops":
            return f"operator {value}"
        return self._state(value, where, own)

    def _pair(self, key: object, value: object, where: str, own: frozenset[str]) -> str:
        is_note = isinstance(key, str) and key in own
        told = f"notes {type(value).__name__}" if is_note else self.of(value, f"{where}.{key}")
        return f"{self.of(key, where)}: {told}"

    def _state(self, value: object, where: str, own: frozenset[str]) -> str:
        try:
            reduced: Any = value.__reduce_ex__(4)
        except Exception as error:
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            raise NotComparable(f"{where} is a {kind}") from error
        if isinstance(reduced, str):
            return f"{type(value).__qualname__} {reduced}"
        made, arguments, state, *items = (*reduced, None, None, None)[:5]
        listed = [list(cast("Iterator[object]", each)) if each else [] for each in items]
        own = own | _notes_of(getattr(type(value), "__call__", None), "self.")  # noqa: B004  # its code
        parts = [self.of(each, where, own) for each in (made, arguments, state, *listed)]
        return f"{type(value).__qualname__}({'; '.join(parts)})"

    def _function(self, function: FunctionType, where: str) -> str:
        if _is_named_of_others(function):
            return f"{function.__module__}.{function.__qualname__}"
        notes = _notes_of(function)
        code, name = function.__code__, function.__qualname__
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        held = {each: cell.cell_contents for each, cell in cells if not _is_empty(cell)}
        if not self.by_file:
            known = {**vars(builtins), **function.__globals__}
            held |= {each: known[each] for each in _globals_of(code) if each in known}
        defaults = (function.__defaults__, function.__kwdefaults__)
        told = [self.of(each, f"a default of {name}") for each in (code, *defaults)]
        for each, value in sorted(held.items()):
            is_note = each in notes
            text = f"notes {type(value).__name__}" if is_note else self.of(value, f"`{each}`")
            told.append(f"{each} = {text}")
        return f"def {name}({'; '.join(told)})"

    def _code(self, code: CodeType, where: str) -> str:
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        constants = ", ".join(self.of(each, where) for each in code.co_consts)
        return f"code {code.co_code.hex()} {names} {counts} ({constants})"

    def _class(self, found: type, where: str) -> str:
        name = f"{found.__module__}.{found.__qualname__}"
        if not _is_users(found.__module__):
            return f"class {name}"
        held = {k: v for k, v in vars(found).items() if _is_told(v) and not k.startswith("__abc")}
        bases = ", ".join(self.of(base, where) for base in found.__bases__)
        members = (f"{key} = {self.of(_plain(value), where)}" for key, value in held.items())
        return f"class {found.__qualname__}({bases}) {'; '.join(members)}"


def _is_told(member: object) -> bool:
    """Return whether a member of a class says what its objects do: code, and plain values."""
    kinds = (FunctionType, staticmethod, classmethod, property, *_PLAIN)
    return isinstance(member, kinds) and not isinstance(member, PurePath)


def _plain(member: object) -> object:
    if isinstance(member, property):
        return (member.fget, member.fset, member.fdel)
    is_wrapped = isinstance(member, staticmethod | classmethod)
    return cast("Any", member).__func__ if is_wrapped else member


def _is_users(module: str) -> bool:
    """Return whether a module is the user's own: not installed, not built in, not ctk's."""
    found = sys.modules.get(module)
    if module == "__main__":
        return True
    file = getattr(found, "__file__", None)
    if found is None or module.partition(".")[0] in _NEVER_THEIRS:
        return found is None
    return file is not None and not is_installed(Path(file))


def _is_named_of_others(function: FunctionType) -> bool:
    """Return whether a function is of no user, and its name leads to it."""
    if _is_users(str(function.__module__)):
        return False
    found: object = sys.modules.get(str(function.__module__))
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is function


def _module(module: ModuleType) -> str:
    """Return the name of a module, with the text of the files of one of the user's."""
    file = getattr(module, "__file__", None)
    if file is None or not _is_users(module.__name__):
        return f"module {module.__name__}"
    texts = hashlib.blake2b(digest_size=16)
    for path in files_of(Path(file)):
        texts.update(path.read_bytes())
    return f"module {module.__name__.rpartition('.')[2]} {texts.hexdigest()}"


def _is_empty(cell: object) -> bool:
    try:
        return cast("Any", cell).cell_contents is cell
    except ValueError:  # a name that is not bound yet
        return True


def _globals_of(code: CodeType) -> Iterator[str]:
    """Yield the global names that code reads, that of functions in it included."""
    for each in dis.get_instructions(code):
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield str(each.argval)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _globals_of(constant)


def _notes_of(function: object, prefix: str = "") -> frozenset[str]:
    """Return the names that a function changes, as its source says; none where there is none.

    Args:
        function: A Python function; anything else changes nothing that is known of.
        prefix: `self.` for attributes of the object whose method it is.
    """
    if not isinstance(function, FunctionType):
        return frozenset()
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # typed in, or a lambda within other text
        return frozenset()
    found = {name for node in ast.walk(tree) for name in _changed(node)}
    return frozenset(n.removeprefix(prefix) for n in found if n.startswith(prefix))


def _changed(node: ast.AST) -> Iterator[str]:
    """Yield what a piece of source changes: `asked` of `asked.append(1)` and `asked[0] += 1`."""
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
    """Yield the name that an expression starts from, and of `self.x` the attribute, too."""
    while isinstance(changed, ast.Subscript):
        changed = changed.value
    if isinstance(changed, ast.Name):
        yield changed.id
    elif isinstance(changed, ast.Attribute) and isinstance(changed.value, ast.Name):
        yield f"{changed.value.id}.{changed.attr}"
    elif isinstance(changed, ast.Attribute):
        yield from _roots(changed.value)
