"""The user's own source files that a target spec or options name, for cases and repros to carry.

No file is loaded, but finding `a.b:function` imports the package `a`, as Python does.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path

from ctk import compiler, toolkit
from ctk.compiler.usercode.python_files import import_root, is_installed
from ctk.compiler.usercode.references import Reference, files_of, search_last
from ctk.repro_templates.graph.running import leaves


def source_files(target: str, config: object, folder: Path) -> tuple[Path, ...]:
    """Return the files of the user's own code that a target spec or options name.

    Understands `module:function` and `path/to/file.py:function`, relative to the working folder or
    to `folder`. Code that is installed (site-packages, the standard library) does not count.
    """
    found = (_source_file(reference, folder) for reference in references_in(target, config))
    return tuple(dict.fromkeys(path for path in found if path is not None))


def place_sources(files: Sequence[Path], roots: Mapping[Path, Path]) -> dict[str, Path]:
    """Return where to copy files, with the neighbours they import, below a folder `sources`.

    A folder's files keep their relative paths; the modules of a package lie in the package.
    A file whose path is taken by another one goes to a folder of its own, with its neighbours:

        a/fold.py, a/helper.py  ->  fold.py, helper.py
        b/pad.py, b/helper.py   ->  1/pad.py, 1/helper.py

    Args:
        roots: The import roots of copies of modules, whose originals may be loaded instead.
    """
    placed: dict[str, Path] = {}
    for number, file in enumerate(files):
        root = roots.get(file) or import_root(file)
        group = {path.relative_to(root).as_posix(): path for path in files_of(file, root)}
        is_taken = any(placed.get(place, path) != path for place, path in group.items())
        prefix = f"{number}/" if is_taken else ""
        placed |= {f"{prefix}{place}": path for place, path in group.items()}
    return placed


def references_in(*values: object) -> list[Reference]:
    """Return the references among the strings in nested mappings and sequences, each once."""
    texts = (leaf for leaf in leaves(values) if isinstance(leaf, str))
    return [found for text in dict.fromkeys(texts) if (found := Reference.parse(text))]


def _source_file(reference: Reference, folder: Path) -> Path | None:
    if reference.is_file:
        candidates = (reference.path(), reference.path(folder))
        return next((path for path in candidates if path.is_file()), None)
    try:
        with search_last(folder):
            spec = importlib.util.find_spec(reference.place)
    except (ImportError, ValueError):  # no such module: resolving the spec reports it
        return None
    path = Path(spec.origin).resolve() if spec and spec.has_location and spec.origin else None
    return path if path and not is_installed(path) and not _is_ours(path) else None


def _is_ours(path: Path) -> bool:
    packages = (Path(str(package.__file__)).resolve().parent for package in (compiler, toolkit))
    return any(path.is_relative_to(package) for package in packages)
