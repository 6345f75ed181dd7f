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
import csv
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

LARGEST_NBYTES = 1 << 20
_CODE = (".py", ".so", ".pyd", ".dylib")
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of RECORD.

    Attributes:
        hash: The digest with the name of its algorithm: `sha256=47DEQ`; empty for byte code.
        size: In bytes; None if there is none.
    """

    path: PurePosixPath
    hash: str
    size: int | None


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
        text = first.read_text("RECORD")
        recorded = _entries(text or "")
    except (ValueError, csv.Error):  # not text, or not rows of a name, a digest and a size
        return FileCheck(title, (*doubled, "unreadable RECORD"))
    files = [each for each in recorded if each.hash]
    if folder is not None:
        files = [each for each in files if ".." not in each.path.parts]
    if text == "":
        return FileCheck(title, (*doubled, "empty RECORD"))
    if _is_editable(first) or not files:
        why = "editable" if _is_editable(first) else "installed without a list of files"
        return FileCheck(title, tuple(doubled), f"not compared: {why}")
    packages = _packages(files)
    shadowed = _shadowed(first, packages) if folder is None else ()
    listed = {os.path.normpath(each.path) for each in recorded}
    differences = _differences(_folder_of(first), files, packages, listed)
    problems = (*doubled, *shadowed, *differences)
    return FileCheck(title, problems, compared=len(files))


def _entries(text: str) -> list[Entry]:
    """Return the rows of a RECORD; the `files` of a distribution leave missing ones out.

    Raises:
        ValueError: A row is not a name, a digest and a size.
    """
    rows = [row for row in csv.reader(text.splitlines()) if row]
    return [
        Entry(PurePosixPath(path), digest, int(size) if size else None)
        for path, digest, size in rows
    ]


def _differences(
    root: Path, files: list[Entry], packages: list[str], listed: set[str]
) -> Iterator[str]:
    """Yield changed and missing files, then added ones."""
    for file in files:
        try:
            state = _state_of(root / file.path, file)
        except OSError as error:
            state = f"unreadable ({error.strerror})"
        if state:
            yield f"{state} {file.path}"
    for package in packages:
        for place in _code_in(root / package):
            if os.path.relpath(place, root) not in listed:
                yield f"added {place.relative_to(root).as_posix()}"


def _state_of(path: Path, recorded: Entry) -> str:
    """Return how a file differs from its entry; empty if it does not."""
    if recorded.path.suffix == ".pyc":
        return ""
    if not path.is_file():
        return "missing"
    size = path.stat().st_size
    if recorded.size is not None and size != recorded.size:
        return "changed"
    algorithm, _, value = recorded.hash.partition("=")
    if size > LARGEST_NBYTES or algorithm not in hashlib.algorithms_available:
        return ""
    digest = hashlib.new(algorithm, path.read_bytes()).digest()
    text = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    return "" if text == value.rstrip("=") else "changed"


def _packages(files: list[Entry]) -> list[str]:
    """Return the packages of a distribution: folders at its top with an `__init__.py`."""
    names = {each.path.parts[0] for each in files if each.path.parts[1:] == ("__init__.py",)}
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
