"""Read an untrusted file: a plain file of bounded size, not a link, not a pipe or device."""

import errno
import os
import stat
from pathlib import Path

from ctk.compiler.errors import CaseError
from ctk.compiler.posix import NO_LINK, READ, refuse_link


def read_bounded(path: Path, limit: int) -> bytes:
    """Return the bytes of a file.

    Args:
        path: A pipe, device, folder or link is refused without waiting for or following it.
        limit: Of its size in bytes, checked before reading.

    Raises:
        CaseError: It is larger, or not a plain file.
        OSError: It is missing or cannot be read.
    """
    try:
        refuse_link(path)
        descriptor = os.open(path, READ | NO_LINK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise CaseError(f"{path.name} in {path.parent} is a link: refused") from error
        raise
    known = os.fstat(descriptor)
    if not stat.S_ISREG(known.st_mode):
        os.close(descriptor)
        raise CaseError(f"{path.name} in {path.parent} is not a plain file: refused")
    with os.fdopen(descriptor, "rb") as file:
        check_nbytes(path, known.st_size, limit)
        return file.read(limit)


def check_no_link(folder: Path, path: Path) -> None:
    """Raise `CaseError` if a file, or a folder between it and `folder`, is a link."""
    place = path.relative_to(folder)
    for part in (place, *place.parents):
        if part != Path() and (folder / part).is_symlink():
            raise CaseError(f"{place} in {folder} is a link, or lies behind one: refused")


def check_nbytes(path: Path, nbytes: int, limit: int) -> None:
    """Raise `CaseError` if a file is larger than a limit."""
    if nbytes > limit:
        raise CaseError(
            f"{path.name} in {path.parent} has {nbytes:,} bytes, more than the {limit:,} that ctk "
            "reads of such a file: ctk did not write it"
        )
