"""The modules that hold rules: objects, dotted names, and files."""

import importlib
from pathlib import Path
from types import ModuleType

from ctk.compiler.errors import ConfigError
from ctk.compiler.python_files import load_file
from ctk.compiler.references import near_file, searched_last, user_traceback


def module_named(name: str | Path | ModuleType) -> ModuleType:
    """Return a module by its name or its file; it is run if it was not loaded.

    Raises:
        ConfigError: There is no such file or module, or its code raises.
    """
    if isinstance(name, ModuleType):
        return name
    path = Path(name).expanduser().resolve() if str(name).endswith(".py") else None
    if path is not None and not path.is_file():
        raise ConfigError(f"rules in {str(name)!r}: no such file: {path}{near_file(path)}")
    try:
        if path is not None:
            return load_file(path)
        with searched_last(Path.cwd()):
            return importlib.import_module(str(name))
    except (Exception, SystemExit) as raised:
        raise ConfigError(
            f"rules in {str(name)!r} cannot be loaded: {user_traceback(raised, path)}\n"
            "next: name a module that can be imported, or path/to/file.py"
        ) from raised
