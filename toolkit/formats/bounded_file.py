"""Read a file that a stranger made: a plain file of bounded size, and nothing that blocks.

What it does not do: it does not say what is in it, and follows links (who lists the files of a
case refuses those).
"""

import os
import stat
from pathlib import Path

from ctk.compiler.errors import CaseError


def read_bounded(path: Path, limit: int) -> bytes:
    """Return the bytes of a file.

    Args:
        path: Perhaps a pipe, a device or a folder: these are refused, and never waited for.
        limit: Of its size in bytes, looked at before anything is read.

    Raises:
        CaseError: It is larger, or no plain file.
        OSError: It is missing or cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        known = os.fstat(descriptor)
        if not stat.S_ISREG(known.st_mode):
            raise CaseError(f"{path.name} in {path.parent} is no plain file: refused")
        check_nbytes(path, known.st_size, limit)
        return file.read(limit)


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
