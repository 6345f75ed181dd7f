"""Files and folders that appear whole or not at all, under names that nobody else has.

A folder is written under a temporary name beside its place and renamed when it is complete. What it
does not do: it overwrites no folder, and protects nothing against a second writer of one file.
"""

import contextlib
import itertools
import os
import shutil
from collections.abc import Generator, Iterable
from pathlib import Path

from ctk.compiler.errors import CaseError

PARTIAL = ".partial"
"""Ending of a folder or file that is still being written, or whose writer died."""


@contextlib.contextmanager
def atomic_folder(destination: Path) -> Generator[Path]:
    """Give a new folder to write into; it becomes `destination` if the block ends well.

    Args:
        destination: A path that does not exist, or an empty folder. Parents are made.

    Raises:
        CaseError: There is something at `destination`, before or by the time the block ends.
    """
    check_free(destination)
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with scratch_folder(destination) as partial:
            yield partial
            partial.rename(destination)
    except OSError as error:
        check_free(destination)
        raise CaseError(f"{destination} cannot be written: {error}") from error


@contextlib.contextmanager
def scratch_folder(destination: Path) -> Generator[Path]:
    """Give a new folder beside `destination`, on the same disk; it is gone when the block ends."""
    partial = unique_folder(destination.parent, f".{destination.name}", suffix=PARTIAL)
    try:
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def is_free(destination: Path) -> bool:
    """Return whether nothing is at a path, or an empty folder."""
    if destination.is_dir() and not destination.is_symlink():
        return not any(destination.iterdir())
    return not os.path.lexists(destination)


def check_free(destination: Path) -> None:
    """Check that a folder can be written without overwriting anything.

    Raises:
        CaseError: There is something already.
    """
    if not is_free(destination):
        raise CaseError(
            f"{destination} exists already, and ctk overwrites nothing; "
            f"name another folder, or remove it: rm -r {destination}"
        )


def unique_folder(parent: Path, stem: str, *, suffix: str = "") -> Path:
    """Make and return a folder that no other graph, process or rank has.

    The name is `stem`, with the rank where there are several, and with the process id and a number
    where that name is taken: `graph0`, `graph0-rank1`, `graph0-rank1-4711-2`.

    Args:
        parent: An existing folder.
        stem: Start of the name.
        suffix: End of the name.
    """
    rank = os.environ.get("RANK", "")
    base = f"{stem}-rank{rank}" if rank.isdigit() else stem
    numbered = (f"{base}-{os.getpid()}-{number}" for number in itertools.count(1))
    names = itertools.chain([base], numbered)
    return claim_folder(parent / f"{name}{suffix}" for name in names)


def claim_folder(candidates: Iterable[Path]) -> Path:
    """Make and return the first folder that does not exist; of two processes, one gets it."""
    for folder in candidates:
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise AssertionError("an endless count has ended")


def free_path(path: Path) -> Path:
    """Return `path`, or the first of `stem_2`, `stem_3`, … (with its suffix) that does not exist.

    For one process alone; `unique_folder` also holds against others.
    """
    names = (f"{path.stem}_{number}{path.suffix}" for number in itertools.count(2))
    candidates = itertools.chain([path], map(path.with_name, names))
    return next(candidate for candidate in candidates if not candidate.exists())


def is_partial(path: Path) -> bool:
    """Return whether a name is that of something half-written."""
    return path.name.endswith(PARTIAL)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file in one step: readers see the old content or the new one."""
    partial = path.with_name(f".{path.name}-{os.getpid()}{PARTIAL}")
    try:
        partial.write_bytes(data)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
