"""Load what `MODULE:CALLABLE` or `path/to/file.py:callable` names, as a target.

A file is loaded once per path, under a module name that no import can clash with; its folder is
on `sys.path` while it is loaded, as for a script. Loading runs the user's code: callers ask first
where the spec is not the user's own.
"""

import importlib
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from ctk.compiler import references as python_files
from ctk.compiler.errors import TargetError, nearest
from ctk.compiler.observe import first_line
from ctk.toolkit.usercode.program import importable


def load_callable(spec: str) -> Callable[..., Any]:
    """Return the callable that a spec names.

    Raises:
        TargetError: It cannot be imported, has no such attribute, or cannot be called. Says what
            to do.
    """
    location, _, name = spec.rpartition(":")
    if not location or not name:
        raise TargetError(
            f"target {spec!r} is no MODULE:CALLABLE\nnext: write it as my_backends:fancy"
        )
    module = (
        _load_file(location, spec) if location.endswith(".py") else _load_module(location, spec)
    )
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise TargetError(
                f"target {spec!r}: {location} has no {name!r}{nearest(part, _public(found))}"
            )
        found = getattr(found, part)
    if not callable(found):
        raise TargetError(
            f"target {spec!r}: {name} is {type(found).__name__}, which cannot be called\n"
            "next: name a function of (gm, example_inputs) that returns a callable"
        )
    return cast("Callable[..., Any]", found)


def _public(module: object) -> list[str]:
    return [name for name in dir(module) if not name.startswith("_")]


def _load_module(name: str, spec: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == name.split(".")[0]
        raise TargetError(
            f"target {spec!r} cannot be imported: {type(error).__name__}: {first_line(error)}"
            f"{_place(error)}\nnext: "
            + (
                f"add the folder of {name} to PYTHONPATH, install its package, or name the file: "
                f"path/to/{name.split('.')[-1]}.py:{spec.rpartition(':')[2]}"
                if missing
                else f'see the whole traceback: python -c "import {name}"'
            )
        ) from error


def _load_file(location: str, spec: str) -> ModuleType:
    path = Path(location).expanduser().resolve()
    if not path.is_file():
        raise TargetError(
            f"target {spec!r}: no such file: {location} (looked at {path})"
            f"{nearest(path.name, _neighbours(path))}"
        )
    name = f"_ctk_target_{path}"
    if name in sys.modules:
        return sys.modules[name]
    try:
        with importable(path.parent):
            return python_files.import_file(path, name)
    except (Exception, SystemExit) as error:
        raise TargetError(
            f"target {spec!r} cannot be loaded: {type(error).__name__}: {first_line(error)}"
            f"{_place(error)}\nnext: see the whole traceback: python {location}"
        ) from error


def _neighbours(path: Path) -> list[str]:
    return [file.name for file in path.parent.glob("*.py")] if path.parent.is_dir() else []


def _place(error: BaseException) -> str:
    """Return the innermost line of the user's file that raised."""
    ours = (__file__, python_files.__file__)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename not in ours and "importlib" not in frame.filename
    ]
    if not frames:
        return ""
    return f"\n  {Path(frames[-1].filename).name}, line {frames[-1].lineno}: {frames[-1].line}"
