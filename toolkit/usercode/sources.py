"""Find the user's own source files that a target spec or options name: cases carry them along."""

import importlib.util
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from ctk.toolkit.usercode.program import importable


def source_files(target: str, config: object, folder: Path) -> tuple[Path, ...]:
    """Return the files of the user's own code that a target spec or options name.

    Understands `module:function` and `path/to/file.py:function`, relative to the working folder or
    to `folder`. Code that is installed (site-packages, the standard library) does not count.
    """
    found = (_source_file(text, folder) for text in (target, *strings_in(config)))
    return tuple(dict.fromkeys(path for path in found if path is not None))


def strings_in(value: object) -> Iterator[str]:
    """Yield the strings in nested mappings and sequences, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (
            s for item in cast("Mapping[object, object]", value).values() for s in strings_in(item)
        )
    elif isinstance(value, tuple | list):
        yield from (s for item in cast("Sequence[object]", value) for s in strings_in(item))


def _source_file(text: str, folder: Path) -> Path | None:
    location, _, attribute = text.rpartition(":")
    if not location or not attribute.replace(".", "_").isidentifier():
        return None
    if location.endswith(".py"):
        candidates = (Path(location).expanduser(), folder / location)
        return next((path.resolve() for path in candidates if path.is_file()), None)
    try:
        with importable(folder):
            spec = importlib.util.find_spec(location)
    except (ImportError, ValueError):  # no such module: whoever resolves the spec says so
        return None
    path = Path(spec.origin) if spec and spec.has_location and spec.origin else None
    return path if path and not _is_installed(path) else None


def _is_installed(path: Path) -> bool:
    roots = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    own = Path(__file__).resolve().parents[1]
    roots |= {str(own), str(own.parent / "compiler")}
    return any(path.resolve().is_relative_to(Path(root).resolve()) for root in roots)
