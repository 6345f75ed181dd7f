"""Compare the files of an installed distribution with its RECORD: the sizes and digests of a wheel.

A program that runs on a patched torch gets verdicts about that torch, not about the release. The
cases, for each distribution:

    changed    another size or digest than recorded
    missing    recorded, and not there
    added      a Python file or extension module in one of its packages, and not recorded
    shadowed   Python imports the package from another place
    doubled    another version of it is in the same folder

Every file is compared by its size, and by its digest up to `LARGEST_NBYTES`: the digests of the
shared libraries of torch would take minutes. Byte code is not compared. An editable installation
records no files of its packages, and some package managers record none at all.
"""

import base64
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

LARGEST_NBYTES = 1 << 20
_CODE = (".py", ".so", ".pyd", ".dylib")
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class FileCheck:
    """The comparison of a distribution with its RECORD.

    Attributes:
        name: Of the distribution, with its version.
        problems: The differences: `changed torch/fx/graph.py`.
        note: Why it could not be compared; empty if it was.
        compared: Number of files.
    """

    name: str
    problems: tuple[str, ...] = ()
    note: str = ""
    compared: int = 0

    def __str__(self) -> str:
        if not self.problems:
            return f"{self.name}: {self.note or f'{self.compared} files as recorded'}"
        more = len(self.problems) - _SHOWN
        shown = ", ".join(self.problems[:_SHOWN])
        return f"{self.name}: {shown}{f' and {more} more' if more > 0 else ''}"


def check_files(name: str, folder: Path | None = None) -> FileCheck | None:
    """Compare the files of a distribution with its RECORD; None if it is not installed.

    Args:
        folder: The packages of another interpreter, of which only files in it are compared, no
            scripts; None for those of this one.
    """
    path = sys.path if folder is None else [str(folder)]
    found = list(metadata.distributions(name=name, path=path))
    if not found:
        return None
    first, *others = found
    title = f"{name} {first.version}"
    doubled = [
        f"doubled by {name} {each.version}"
        for each in others
        if each.version != first.version and _folder_of(each) == _folder_of(first)
    ]
    try:
        recorded = first.files
        is_empty = first.read_text("RECORD") == ""
    except ValueError:  # not text, or not rows of a name, a digest and a size
        return FileCheck(title, (*doubled, "unreadable RECORD"))
    files = [each for each in recorded or () if each.hash is not None]
    if folder is not None:
        files = [each for each in files if ".." not in each.parts]
    if is_empty:
        return FileCheck(title, (*doubled, "empty RECORD"))
    if _is_editable(first) or not files:
        why = "editable" if _is_editable(first) else "installed without a list of files"
        return FileCheck(title, tuple(doubled), f"not compared: {why}")
    packages = _packages(files)
    shadowed = _shadowed(first, packages) if folder is None else ()
    problems = (*doubled, *shadowed, *_differences(first, files, packages))
    return FileCheck(title, problems, compared=len(files))


def _differences(
    distribution: metadata.Distribution, files: list[metadata.PackagePath], packages: list[str]
) -> Iterator[str]:
    """Yield changed and missing files, then added ones."""
    root = _folder_of(distribution)
    for file in files:
        try:
            state = _state_of(root / file, file)
        except OSError as error:
            state = f"unreadable ({error.strerror})"
        if state:
            yield f"{state} {file.as_posix()}"
    listed = {os.path.normpath(file) for file in distribution.files or ()}
    for package in packages:
        for place in _code_in(root / package):
            if os.path.relpath(place, root) not in listed:
                yield f"added {place.relative_to(root).as_posix()}"


def _state_of(path: Path, recorded: metadata.PackagePath) -> str:
    """Return how a file differs from its entry; empty if it does not."""
    if recorded.suffix == ".pyc" or recorded.hash is None:
        return ""
    if not path.is_file():
        return "missing"
    size = path.stat().st_size
    if recorded.size is not None and size != recorded.size:
        return "changed"
    if size > LARGEST_NBYTES or recorded.hash.mode not in hashlib.algorithms_available:
        return ""
    digest = hashlib.new(recorded.hash.mode, path.read_bytes()).digest()
    text = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    return "" if text == recorded.hash.value.rstrip("=") else "changed"


def _packages(files: list[metadata.PackagePath]) -> list[str]:
    """Return the packages of a distribution: folders at its top with an `__init__.py`."""
    names = {file.parts[0] for file in files if file.parts[1:] == ("__init__.py",)}
    return sorted(names)


def _code_in(folder: Path) -> Iterator[Path]:
    """Yield the Python files and extension modules below a folder."""
    for parent, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if each != "__pycache__"]
        yield from (Path(parent, name) for name in sorted(names) if name.endswith(_CODE))


def _shadowed(distribution: metadata.Distribution, packages: list[str]) -> Iterator[str]:
    """Yield the packages that Python imports from another place than the distribution's."""
    for package in packages:
        spec = find_spec(package)
        origin = None if spec is None or spec.origin is None else Path(spec.origin).resolve()
        own = (_folder_of(distribution) / package / "__init__.py").resolve()
        if origin is not None and origin != own:
            yield f"shadowed {package}, imported from {origin.parent}"


def _folder_of(distribution: metadata.Distribution) -> Path:
    return Path(str(distribution.locate_file("")))


def _is_editable(distribution: metadata.Distribution) -> bool:
    text = distribution.read_text("direct_url.json")
    try:
        return bool(text) and bool(json.loads(text)["dir_info"]["editable"])
    except (ValueError, KeyError, TypeError):
        return False
