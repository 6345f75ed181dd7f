"""The origin of code: a library, whose name determines it, or the user, whose files do."""

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FunctionType, ModuleType

from ctk.compiler.errors import Uncacheable
from ctk.compiler.fx.literals import NoText, text_of
from ctk.compiler.usercode.python_files import is_installed
from ctk.compiler.usercode.references import files_of

Known = FunctionType | type | ModuleType

_LIBRARIES = frozenset({*sys.stdlib_module_names, "ctk", "numpy", "sympy", "torch", "triton"})
"""Packages that a cache key knows by name: it holds their versions, and the text of ctk."""

_NEVER_THEIRS = frozenset({"ctk", "torch"})
"""Packages that are not the user's, even where they are not installed (a checkout)."""


def values_reached(
    values: Sequence[object], names: Sequence[str]
) -> tuple[list[object], list[ModuleType]]:
    """Return the values that code takes out of modules, and the modules of the program.

    `helpers.f` is the name `f`. A library's module counts only by values that the program put in.
    """
    found: list[object] = []
    modules = [value for value in values if isinstance(value, ModuleType)]
    for module in modules:  # grows
        is_own = _is_own_module(module)
        for name in names:
            value = getattr(module, name, None) if is_own else vars(module).get(name)
            if isinstance(value, ModuleType):
                if not any(value is each for each in modules):
                    modules.append(value)
            elif value is not None and (is_own or _may_be_put_there(value)):
                found.append(value)
    return found, [each for each in modules if _is_own_module(each)]


def _may_be_put_there(value: object) -> bool:
    """Return whether an attribute of a library's module may be the program's: `math.factor = 2`."""
    if isinstance(value, FunctionType | type):
        return not is_of_library(value)
    try:
        return bool(text_of(value))
    except NoText:
        return False


def _is_own_module(value: object) -> bool:
    return isinstance(value, ModuleType) and not is_of_library(value)


def file_digest(value: Known) -> str:
    """Return a digest of the file of a function, class or module, as it is on disk now."""
    if isinstance(value, FunctionType):
        name = value.__code__.co_filename
    else:
        module = value if isinstance(value, ModuleType) else sys.modules.get(value.__module__)
        name = getattr(module, "__file__", None) or ""
    path = Path(name)
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "no file"
    except OSError as error:
        raise Uncacheable(f"{path} cannot be read: {error.strerror}") from error


def is_of_library(value: Known) -> bool:
    """Return whether the name of a function, class or module determines it for a cache key."""
    if isinstance(value, ModuleType):
        return value.__name__.partition(".")[0] in _LIBRARIES
    package = (value.__module__ or "").partition(".")[0]
    return package in _LIBRARIES and "<locals>" not in value.__qualname__ and package != "__main__"


def _is_users(module: str) -> bool:
    """Return whether a module is the user's own: not installed, not built in, not ctk's."""
    found = sys.modules.get(module)
    if module == "__main__":
        return True
    file = getattr(found, "__file__", None)
    if found is None or module.partition(".")[0] in _NEVER_THEIRS:
        return found is None
    return file is not None and not is_installed(Path(file))


def is_named_code(value: Known) -> bool:
    """Return whether a function, class or module is not the user's, and its name leads to it."""
    if isinstance(value, ModuleType):
        return getattr(value, "__file__", None) is None or not _is_users(value.__name__)
    if _is_users(str(value.__module__)):
        return False
    found: object = sys.modules.get(str(value.__module__))
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None)
    return isinstance(value, type) or found is value


def import_digest(module: ModuleType) -> str:
    """Return a digest of the file of a module and of the neighbours that it imports."""
    digest = hashlib.sha256()
    for path in files_of(Path(str(module.__file__))):
        digest.update(path.read_bytes())
    return digest.hexdigest()
