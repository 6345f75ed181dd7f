"""The modules that hold rules: objects, dotted names, and files."""

import importlib
from pathlib import Path
from types import ModuleType

from ctk.compiler.errors import ConfigError, nearest
from ctk.compiler.usercode.python_files import load_file
from ctk.compiler.usercode.references import near_file, search_last, user_traceback


def module_named(name: str | Path | ModuleType) -> tuple[ModuleType, str | None]:
    """Return a module by its name or its file, and the name in it that `MODULE:NAME` adds.

    The module is run if it was not loaded.

    Raises:
        ConfigError: There is no such file, module or name, or its code raises.
    """
    if isinstance(name, ModuleType):
        return name, None
    head, _, tail = str(name).rpartition(":")
    is_pair = bool(head) and tail.isidentifier()
    module = _loaded(head if is_pair else name)
    if is_pair and not hasattr(module, tail):
        known = nearest(tail, vars(module))
        raise ConfigError(f"rules in {str(name)!r}: {head} has no {tail!r}{known}")
    return module, tail if is_pair else None


def _loaded(name: str | Path) -> ModuleType:
    path = Path(name).expanduser().resolve() if str(name).endswith(".py") else None
    if path is not None and not path.is_file():
        raise ConfigError(f"rules in {str(name)!r}: no such file: {path}{near_file(path)}")
    try:
        if path is not None:
            return load_file(path)
        with search_last(Path.cwd()):
            return importlib.import_module(str(name))
    except (Exception, SystemExit) as raised:
        raise ConfigError(
            f"rules in {str(name)!r} cannot be loaded: {user_traceback(raised, path)}\n"
            "next: name a module that can be imported, or path/to/file.py"
        ) from raised
