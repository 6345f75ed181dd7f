"""Names of functions and passes, so that a case holds them as text and another process finds them.

A name is `module:function`, or `/path/to/script.py:function` for objects of the running script or
of a file that was loaded by its path. Local functions and lambdas have none.
"""

import json
import operator
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import cast

from ctk.compiler.usercode.python_files import is_of_folder, loaded_modules


def reference_to(value: object) -> str | None:
    """Return a name under which another process finds `value`, or None.

    Cases: 1. a function or class at the top level of a module; 2. anything else that a module has
    as an attribute: that of its function (`value.run`, as of a `Pass`), or a module of the user.
    """
    function = value if hasattr(value, "__qualname__") else getattr(value, "run", None)
    own = sys.modules.get(getattr(function, "__module__", None) or "")
    modules = [*([own] if own is not None else []), *modules_of_user()]
    found = ((each, name) for each in modules if (name := _name_in(each, value)) is not None)
    module, name = next(found, (None, None))
    if module is None:
        return None
    if module.__name__ != "__main__" and not is_of_folder(module.__name__):
        return f"{module.__name__}:{name}"
    file = getattr(module, "__file__", None)
    return f"{Path(file).resolve()}:{name}" if file else None


def script_file() -> Path | None:
    """Return the file of the running script; None in an interactive session."""
    file = getattr(sys.modules["__main__"], "__file__", None)
    return Path(file).resolve() if file else None


def json_options(options: Mapping[str, object]) -> tuple[dict[str, object], tuple[str, ...]]:
    """Return options as JSON values, functions by name, and the keys that have no such form."""
    kept: dict[str, object] = {}
    lost: list[str] = []
    for key, value in options.items():
        named = _with_references(value)
        try:
            kept[key] = json.loads(json.dumps(named))
        except (TypeError, ValueError):
            lost.append(key)
    return kept, tuple(lost)


def _with_references(value: object) -> object:
    """Return a value with every function in it replaced by its name, if it has one."""
    if isinstance(value, Mapping):
        return {
            key: _with_references(item) for key, item in cast("Mapping[str, object]", value).items()
        }
    if isinstance(value, list | tuple):
        return [_with_references(item) for item in cast("Sequence[object]", value)]
    if callable(value) or hasattr(value, "run"):
        return reference_to(value) or value
    return value


_OTHER_PACKAGES = frozenset({"__main__", "ctk"})


def modules_of_user() -> list[ModuleType]:
    """Return the modules of the user's own files, the running script last: it need not run then."""
    own = [
        sys.modules[name]
        for name, _ in loaded_modules(installed=False)
        if name.partition(".")[0] not in _OTHER_PACKAGES
    ]
    return [*own, sys.modules["__main__"]]


def _name_in(module: object, value: object) -> str | None:
    qualified = getattr(value, "__qualname__", None)
    if isinstance(qualified, str) and "<" not in qualified:
        try:
            found = operator.attrgetter(qualified)(module)
        except AttributeError:
            found = None
        if found is value:
            return qualified
    return next((name for name, item in list(vars(module).items()) if item is value), None)
