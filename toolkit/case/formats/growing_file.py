"""An append-only file of JSON lines: a line is on disk, whole, when `append` returns.

Each line starts with a digest of itself and of the line before, which detects changed, lost and
moved lines. A process that dies during a write tears at most the last line, which then has no line
end and is skipped by the next reader:

    {"sum":"0f3a…","kind":"header",…}
    {"sum":"77b1…","kind":"Judgement",…}
    {"sum":"c0                               (torn)

One process writes: the file is locked, and the lock ends with the process (a forked child does not
hold it). Without fsync, a crash of the machine may lose lines.
"""

import errno
import hashlib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from ctk.compiler.errors import CaseError, FolderTaken, StorageError
from ctk.compiler.posix import claim_file, require_posix
from ctk.toolkit.case.formats.bounded_file import check_nbytes, read_bounded
from ctk.toolkit.case.formats.files import raise_storage_errors, storage_error
from ctk.toolkit.processes.closeable import Closeable

MAX_BYTES = 1 << 28

_LINE = re.compile(rb'\{"sum":"([0-9a-f]{16})",(.*)')

NEXT = "start in another folder (--out DIR, without --resume)"


@dataclass(slots=True)
class GrowingFile(Closeable):
    """The open file, locked; a context manager.

    Attributes:
        lines: The JSON text of each whole line, without its digest.
        problem: Why the last lines are not on disk; empty if they are. The next `append` retries.
    """

    path: Path
    descriptor: int
    lines: list[bytes]
    problem: str = ""
    _size: int = 0
    _sum: bytes = b""
    _waiting: list[bytes] = field(default_factory=list[bytes])

    def append(self, text: str) -> None:
        """Write a JSON object as a line; on a full disk, set `problem`."""
        assert text.startswith("{") and "\n" not in text
        body = text.encode()[1:]
        self._sum = _digest(self._sum, body)
        self.lines.append(b"{" + body)
        self._waiting.append(b'{"sum":"' + self._sum + b'",' + body + b"\n")
        self._write()

    def _write(self) -> None:
        data = b"".join(self._waiting)
        try:  # at its offset: overwrites a partial write to a full disk
            written = os.pwrite(self.descriptor, data, self._size)
            if written < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self.problem = f"{self.path} cannot be written: {error.strerror}"
            return
        self._size += len(data)
        self._waiting.clear()
        self.problem = ""

    def close(self) -> None:
        """Close the file, which unlocks it."""
        os.close(self.descriptor)


def create(path: Path) -> GrowingFile:
    """Make an empty file and lock it.

    Raises:
        CaseError: It exists. StorageError: It cannot be created.
    """
    return GrowingFile(path, _open(path, os.O_CREAT | os.O_EXCL), [])


def reopen(path: Path) -> GrowingFile:
    """Lock a file, read its lines, and cut off a torn one.

    Raises:
        CaseError: Another process writes it, or it is damaged. StorageError: It cannot be written.
    """
    descriptor = _open(path, 0)
    try:
        with raise_storage_errors(path):
            data = _read(path, descriptor)
            whole = data[: data.rfind(b"\n") + 1]
            lines, last = _check_digests(path, whole)
            os.ftruncate(descriptor, len(whole))
    except BaseException:
        os.close(descriptor)
        raise
    return GrowingFile(path, descriptor, lines, _size=len(whole), _sum=last)


def read_lines(path: Path) -> list[bytes]:
    """Return the JSON text of each whole line, also while another process writes it.

    Not for a file that this process has open: closing it again would release the lock.

    Raises:
        CaseError: It cannot be read, or is damaged.
    """
    try:
        data = read_bounded(path, MAX_BYTES)
    except OSError as error:
        raise CaseError(f"{path} cannot be read: {error.strerror}") from error
    return _check_digests(path, data[: data.rfind(b"\n") + 1])[0]


def _open(path: Path, more: int) -> int:
    require_posix(f"the journal {path}")
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags | more, 0o600)
    except FileExistsError as error:
        raise FolderTaken(f"{path} exists already: another process was faster; {NEXT}") from error
    except OSError as error:
        raise storage_error(path, error) from error
    try:
        claim_file(descriptor)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise FolderTaken(
                f"{path.parent} is in use: another process of ctk works there; wait until it is "
                f"done, or {NEXT}"
            ) from error
        raise StorageError(f"{path} cannot be locked: {error.strerror}") from error
    return descriptor


def _read(path: Path, descriptor: int) -> bytes:
    """Read an open file by its descriptor: closing another one would release the lock."""
    check_nbytes(path, os.fstat(descriptor).st_size, MAX_BYTES)
    parts: list[bytes] = []
    while part := os.pread(descriptor, 1 << 20, sum(map(len, parts))):
        parts.append(part)
    return b"".join(parts)


def _check_digests(path: Path, whole: bytes) -> tuple[list[bytes], bytes]:
    """Return the lines without their digests, and the last digest."""
    lines: list[bytes] = []
    last = b""
    for number, line in enumerate(whole.split(b"\n")[:-1], 1):
        matched = _LINE.fullmatch(line)
        last = _digest(last, matched[2]) if matched else b""
        if matched is None or matched[1] != last:
            raise CaseError(f"{path} is damaged: line {number} is not as it was written; {NEXT}")
        lines.append(b"{" + matched[2])
    return lines, last


def _digest(before: bytes, body: bytes) -> bytes:
    return hashlib.blake2b(before + body, digest_size=8).hexdigest().encode()
