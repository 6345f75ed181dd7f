"""Shell completions for options and arguments.

Looks at names only: it imports no torch and opens no file of a case.
"""

import os
from pathlib import Path

from ctk.toolkit.case.formats.files import is_partial

TARGETS = ("ctk", "inductor", "aot_inductor", "aot_eager", "torchscript", "eager")
"""Targets that every installation has; a test holds them to the table of targets."""

_PROGRAMS = (".py", ".pt2")
_TEST = "pytest:"


def complete_target(incomplete: str) -> list[str]:
    """Return the names of targets that start so."""
    return [name for name in TARGETS if name.startswith(incomplete)]


def complete_case(incomplete: str) -> list[str]:
    """Return programs, case folders, and folders on the way; behind `pytest:` test files."""
    prefix = _TEST if incomplete.startswith(_TEST) else ""
    beside = _beside(incomplete.removeprefix(prefix))
    suffixes = (".py",) if prefix else _PROGRAMS
    return [prefix + name for name, path in beside if path.is_dir() or path.suffix in suffixes]


def complete_folder(incomplete: str) -> list[str]:
    """Return folders."""
    return [name for name, path in _beside(incomplete) if path.is_dir()]


def _beside(incomplete: str) -> list[tuple[str, Path]]:
    """Return the paths with this prefix, spelled alike; folders other than cases end in a slash."""
    before, slash, stem = incomplete.rpartition("/")
    folder = Path(f"{before}{slash}" or ".").expanduser()
    try:
        names = sorted(entry.name for entry in os.scandir(folder))
    except OSError:
        return []
    found: list[tuple[str, Path]] = []
    for name in names:
        path = folder / name
        is_hidden = name.startswith(".") and not stem.startswith(".")
        if not name.startswith(stem) or is_partial(path) or is_hidden:
            continue
        is_open = path.is_dir() and not (path / "manifest.json").exists()
        found.append((f"{before}{slash}{name}{'/' if is_open else ''}", path))
    return found
