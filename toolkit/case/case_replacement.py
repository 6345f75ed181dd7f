"""Replace the case in a folder atomically: at every moment the old or the new case is whole.

A case is several files, which cannot be renamed at once. So the new case is first written into a
folder of its own beside the old files, and one rename makes it the case:

    .new.partial/    being written; the old files are the case        kill: the old case
    .new/            renamed; from here on, this is the case          kill: the new case
    graph.json, ...  the same files (links) replace the old ones      kill: the new case, in .new/
    (.new/ removed)  the folder holds the new case and nothing else

Readers call `whole_case`. The next save completes the replacement of a killed process, or removes
its half-written folder. Two writers are not synchronized.
"""

import contextlib
import errno
import glob
import os
import shutil
from collections.abc import Generator
from pathlib import Path

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.formats.files import (
    PARTIAL,
    make_folder,
    raise_storage_errors,
    replace_file,
    scratch_folder,
)
from ctk.toolkit.case.manifest import GRAPH, MANIFEST, read_manifest

NEW = ".new"
"""The folder of a complete case that replaces the case around it."""

_OLD = "old"

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK, errno.ENOSYS)


def is_part_of_case(name: str) -> bool:
    """Return whether a folder of this name is a new case, complete or not, inside of a case."""
    return name == NEW or (name.startswith(NEW) and name.endswith(PARTIAL))


def whole_case(folder: Path) -> Path:
    """Return the folder that holds the whole case: `folder`, or the new case in it."""
    new = folder / NEW
    return new if (new / MANIFEST).is_file() and not new.is_symlink() else folder


@contextlib.contextmanager
def replace_case(folder: Path) -> Generator[Path]:
    """Yield a folder to write a case into; afterwards it replaces the case in `folder`.

    Args:
        folder: Exists. Files in it that belong to no case stay.

    Raises:
        StorageError: It cannot be written; the old case, or the new one, is whole.
    """
    _finish(folder)
    _remove_half_written(folder)
    with scratch_folder(folder / NEW.removeprefix(".")) as partial:
        yield partial
        with raise_storage_errors(folder / NEW):
            shutil.rmtree(folder / NEW, ignore_errors=True)  # an incomplete one: see `_finish`
            partial.rename(folder / NEW)
    _finish(folder)


def _finish(folder: Path) -> None:
    """Bring the files of a whole new case to their places, the manifest last."""
    new = whole_case(folder)
    if new == folder:
        return
    files = {path.relative_to(new) for path in new.rglob("*") if path.is_file()}
    for name in sorted(files, key=lambda name: (name == Path(MANIFEST), name)):
        if name == Path(MANIFEST):
            _remove(folder, _old_files(folder) - files)
        _place(new / name, folder / name)
    with raise_storage_errors(new), scratch_folder(folder / _OLD) as old:
        new.rename(old / NEW)


def _remove_half_written(folder: Path) -> None:
    files = {GRAPH, MANIFEST, *map(str, _old_files(folder))}
    places = {folder / NEW.removeprefix("."), folder / _OLD, *(folder / name for name in files)}
    for place in places:
        for left in place.parent.glob(f".{glob.escape(place.name)}*{PARTIAL}"):
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)


def _old_files(folder: Path) -> set[Path]:
    with contextlib.suppress(CaseError):
        return {Path(name) for name in read_manifest(folder).files}
    return set()


def _remove(folder: Path, names: set[Path]) -> None:
    for name in names:
        with raise_storage_errors(folder / name):
            (folder / name).unlink(missing_ok=True)


def _place(file: Path, place: Path) -> None:
    """Link or copy a file to a second place in one step."""
    make_folder(place.parent)
    with scratch_folder(place) as partial, raise_storage_errors(place):
        try:
            os.link(file, partial / file.name)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            replace_file(partial / file.name, file.read_bytes())
        (partial / file.name).replace(place)
