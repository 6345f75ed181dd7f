"""Read a file that a stranger made: a plain file of bounded size, no link, nothing that blocks.

What it does not do: it does not say what is in it.
"""

import errno
import os
import stat
from pathlib import Path

from ctk.compiler.errors import CaseError


def read_bounded(path: Path, limit: int) -> bytes:
    """Return the bytes of a file.

    Args:
        path: Perhaps a pipe, a device, a folder or a link: refused, never waited for or followed.
        limit: Of its size in bytes, looked at before anything is read.

    Raises:
        CaseError: It is larger, or no plain file.
        OSError: It is missing or cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise CaseError(f"{path.name} in {path.parent} is a link: refused") from error
        raise
    known = os.fstat(descriptor)
    if not stat.S_ISREG(known.st_mode):
        os.close(descriptor)
        raise CaseError(f"{path.name} in {path.parent} is no plain file: refused")
    with os.fdopen(descriptor, "rb") as file:
        check_nbytes(path, known.st_size, limit)
        return file.read(limit)


def check_no_link(folder: Path, path: Path) -> None:
    """Check that neither a file nor a folder between it and `folder` is a link.

    Raises:
        CaseError: One is.
    """
    place = path.relative_to(folder)
    for part in (place, *place.parents):
        if part != Path() and (folder / part).is_symlink():
            raise CaseError(f"{place} in {folder} is a link, or lies behind one: refused")


def check_nbytes(path: Path, nbytes: int, limit: int) -> None:
    """Check the size of a file.

    Raises:
        CaseError: It is larger than the limit.
    """
    if nbytes > limit:
        raise CaseError(
            f"{path.name} in {path.parent} has {nbytes:,} bytes, more than the {limit:,} that ctk "
            "reads of such a file: it is no file that ctk wrote"
        )
