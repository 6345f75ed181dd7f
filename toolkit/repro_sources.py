"""Copy the user's own passes and backends next to a repro, and point its config at the copies.

A reference is `path/to/file.py:function` or `module:function`. It is rewritten to `sources/file.py:function` when the
file is one of `Case.sources`, or is found as the user's own (not of an installed package). Anything else stays as it
is: the repro then imports it from the environment.
"""

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from compiler.errors import CaseError
from toolkit.case import Case
from toolkit.sources import source_files

FOLDER = "sources"


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """What a repro needs of the user's own code.

    Attributes:
        target: The target spec, its file replaced by `sources/...`.
        config: The config, likewise.
        copies: Each file to copy, by its name inside `sources/`.
    """

    target: str
    config: dict[str, object]
    copies: Mapping[str, Path]

    @property
    def config_has_paths(self) -> bool:
        return any(text.startswith(f"{FOLDER}/") for text in _strings(self.config))


def plan_sources(case: Case) -> SourcePlan:
    """Decide which files go along with a case's repro.

    Raises:
        CaseError: A listed source is missing, or two have the same name.
    """
    copies: dict[str, Path] = {}
    for path in dict.fromkeys((*case.sources, *source_files(case.target, case.config, Path.cwd()))):
        if not path.is_file():
            raise CaseError(f"source {path} of case {case.name} does not exist; put it back, or edit `sources`")
        _add(copies, path)
    config = cast("dict[str, object]", _rewrite(dict(case.config), copies))
    return SourcePlan(_rewrite_reference(case.target, copies), config, copies)


def copy_sources(plan: SourcePlan, folder: Path) -> None:
    """Copy the files to `folder/sources`, each atomically; a file that is already the copy stays."""
    if not plan.copies:
        return
    destination = folder / FOLDER
    destination.mkdir(exist_ok=True)
    for name, path in plan.copies.items():
        if path.resolve() != (destination / name).resolve():
            write_atomically(destination / name, path.read_bytes())


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file under a temporary name in the same folder, then rename it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _add(copies: dict[str, Path], path: Path) -> str:
    known = copies.setdefault(path.name, path)
    if known.resolve() != path.resolve():
        raise CaseError(f"two sources are named {path.name}: {known} and {path}; rename one of them")
    return path.name


def _rewrite(value: object, copies: Mapping[str, Path]) -> object:
    if isinstance(value, Mapping):
        items = cast("Mapping[str, object]", value).items()
        return {key: _rewrite(item, copies) for key, item in items}
    if isinstance(value, (list, tuple)):
        return [_rewrite(item, copies) for item in cast("Sequence[object]", value)]
    return _rewrite_reference(value, copies) if isinstance(value, str) else value


def _rewrite_reference(reference: str, copies: Mapping[str, Path]) -> str:
    """Return `sources/file.py:function` for a reference to one of the copies, else the reference."""
    place, colon, function = reference.rpartition(":")
    if not colon or not place or not function.replace(".", "_").isidentifier():
        return reference
    name = _known(place, copies)
    return f"{FOLDER}/{name}:{function}" if name else reference


def _known(place: str, copies: Mapping[str, Path]) -> str | None:
    """Return the copy that `place` (a path or a module) names."""
    wanted = Path(place if place.endswith(".py") else f"{place.replace('.', '/')}.py")
    for name, path in copies.items():
        if path.resolve() == wanted.resolve() or path.parts[-len(wanted.parts) :] == wanted.parts:
            return name
    return wanted.name if place.endswith(".py") and wanted.name in copies else None


def _strings(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for item in cast("Mapping[str, object]", value).values() for text in _strings(item)]
    if isinstance(value, (list, tuple)):
        return [text for item in cast("Sequence[object]", value) for text in _strings(item)]
    return []
