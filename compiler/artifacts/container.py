"""One file of named members: the form of packages and of cache entries.

It is a zip without compression, so that `unzip -l` lists it and a member is used in place: each
starts at a multiple of 64 bytes. The comment of the zip is its seal,

    ctk-package 1 sha256=<64 hex digits> crc32=<8 hex digits>

over all bytes before the seal. A flipped, missing or added byte breaks it, and no member is
returned before the seal was checked. The short sum is for readers without SHA-256, such as the C
interface; it also covers the text of the seal up to itself.

    write(path, {"meta.json": b"{}", "weights/0": tensor_bytes})
    open_container(path).members["weights/0"]  # a memoryview of the file, no copy

A seal does not prove the origin: every writer of the file can seal it again. So a well-sealed file
is checked all the same: each name is relative and unique, and the members lie one after the other
within the file.
"""

import contextlib
import errno
import hashlib
import mmap
import os
import re
import stat
import struct
import sys
import zipfile
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BufferedRandom, BufferedReader
from pathlib import Path
from shlex import quote
from types import MappingProxyType

from ctk.compiler.artifacts import partial_files as partial
from ctk.compiler.errors import ContainerError, StorageError, UnreadableContainer
from ctk.compiler.posix import IS_POSIX, NEW_FILE, READ

ALIGNMENT = 64
"""Alignment of each member in bytes: tensors and vector loads rely on it."""

_FORMAT = 1
_BEGIN = b"PK\3\4"
_SEAL = re.compile(rb"([a-z-]+) (\d{1,6}) sha256=([0-9a-f]{64}) crc32=([0-9a-f]{8})\Z")
_LONGEST_SEAL = 256
_LONGEST_NAME = 1024
_CHUNK = 1 << 20  # both sums of a chunk are taken while it is in the processor's cache
_READ_NBYTES = 1 << 20
_FIRST_DAY = (1980, 1, 1, 0, 0, 0)  # equal members make equal files
_PADDING_ID = 0xD935  # the extra field that other tools use for alignment
_ZIP64_EXTRA = 20
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_MALFORMED = (
    zipfile.BadZipFile,
    ValueError,
    struct.error,
    OverflowError,
    NotImplementedError,
    EOFError,
)

Bytes = bytes | memoryview


@dataclass(frozen=True, slots=True)
class Container:
    """An open container, whose seal was checked.

    Attributes:
        digest: SHA-256 of the file up to its seal, in hex: its identity in messages and lists.
        members: Each member by name. Views of private memory: writes to them are seen neither by
            the file nor by other processes, and they keep that memory alive.
    """

    path: Path
    digest: str
    members: Mapping[str, memoryview]


# --- writing ------------------------------------------------------------------------------------


def write(
    path: Path, members: Mapping[str, Bytes], *, magic: str = "ctk-package", private: bool = False
) -> None:
    """Write a container in one step: readers see the old file or the new one.

    Equal members in equal order give equal bytes. Partial files of killed writers are removed.

    Args:
        path: In an existing folder. If writing fails, an old file stays.
        members: Their bytes by name; a name is a relative path with `/`.
        magic: The kind of container: lower-case letters and `-`.
        private: Only the owner may read it (0600); else the umask decides.

    Raises:
        ContainerError: A name is not allowed.
        StorageError: The file cannot be written.
    """
    for name in members:
        if (problem := _name_problem(name)) is not None:
            raise ContainerError(f"cannot write {path}: the member name {name!r} {problem}")
    if (problem := place_problem(path)) is not None:
        raise StorageError(f"cannot write {path}: {problem}")
    partial.sweep(path.parent)
    temporary = partial.partial_path(path)
    try:
        handle = os.open(temporary, NEW_FILE, 0o600 if private else 0o666)
        with os.fdopen(handle, "w+b") as file:
            _write_members(file, members, magic)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror or error}\n"
            "next: look for space (df) and permission (ls -ld) there, or write to another folder"
        ) from error
    finally:
        with contextlib.suppress(OSError):  # it has its final name by now, or was never made
            temporary.unlink()


def place_problem(path: Path) -> str | None:
    """Return why no file may be put at a path; None if it is free, a file or a link."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISLNK(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a device, a pipe or a socket"
            return f"it is {kind}\nnext: name a file"
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        return f"{error}\nnext: name a file in a folder that you may write to"
    if path.parent.is_dir():
        return None
    return f"{os.strerror(errno.ENOENT)}\nnext: make its folder first"


def _write_members(file: BufferedRandom, members: Mapping[str, Bytes], magic: str) -> None:
    """Write a zip with room for the seal, then the seal of all bytes before it."""
    room = len(_seal(magic, "0" * 64, 0))
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.comment = bytes(room)
        for name, data in members.items():
            view = memoryview(data)
            flat = view.cast("B") if view.nbytes else b""
            archive.writestr(_header(name, view.nbytes, file.tell()), flat)
    end = file.seek(-room, os.SEEK_END)
    file.flush()
    file.seek(0)
    digest, crc = _sums(_chunks(file, end))
    file.seek(end)
    file.write(_seal(magic, digest, crc))


def _header(name: str, nbytes: int, offset: int) -> zipfile.ZipInfo:
    """Return a member's header, padded so that its bytes start at a multiple of 64."""
    info = zipfile.ZipInfo(name, _FIRST_DAY)
    info.create_system = 3  # Unix, for the permissions that follow
    info.external_attr = (stat.S_IFREG | 0o644) << 16
    info.file_size = nbytes
    is_large = nbytes * 1.05 > zipfile.ZIP64_LIMIT  # as zipfile decides: 20 bytes more
    start = offset + 30 + len(name.encode()) + (_ZIP64_EXTRA if is_large else 0) + 4
    padding = -start % ALIGNMENT
    info.extra = struct.pack("<HH", _PADDING_ID, padding) + bytes(padding)
    return info


def _chunks(file: BufferedRandom, end: int) -> Iterator[bytes]:
    while end > 0 and (chunk := file.read(min(_CHUNK, end))):
        end -= len(chunk)
        yield chunk


def _sync_folder(folder: Path) -> None:
    """Make a new name survive a crash of the machine, if the file system can."""
    if not IS_POSIX:  # no folder can be opened
        return
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# --- reading ------------------------------------------------------------------------------------


def open_container(path: Path, magic: str = "ctk-package") -> Container:
    """Open a container, and check all of it.

    Raises:
        UnreadableContainer: It does not exist, or the system refuses to read it.
        ContainerError: It is not a sealed file of this kind; the message has the reason.
    """
    with _open_file(path) as file:
        whole = memoryview(_private_memory(file))
        digest, seal = _check_seal(path, whole, magic)
        try:
            with zipfile.ZipFile(file) as archive:
                infos, comment = archive.infolist(), archive.comment
                contents = whole[: archive.start_dir]  # where the table of contents starts
        except _MALFORMED as error:
            raise _refusal(path, f"its table of contents cannot be read: {error}") from error
    if comment != seal:
        raise _refusal(path, "its seal is not the comment of the zip")
    return Container(path, digest, MappingProxyType(_locate(path, contents, infos)))


def _private_memory(file: BufferedReader) -> mmap.mmap:
    """Return the bytes of a file in private memory, at the start of a page.

    A large file is mapped. Until Python 3.13 a mapping holds the file open, and a program may have
    hundreds of small packages: these are read.
    """
    nbytes = os.fstat(file.fileno()).st_size
    if nbytes <= _READ_NBYTES:
        memory = mmap.mmap(-1, nbytes, access=mmap.ACCESS_COPY)
        file.readinto(memory)
        return memory
    if sys.version_info >= (3, 13):
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY, trackfd=False)
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)


def peek(path: Path, name: str) -> bytes | None:
    """Return a small member without checking the seal: to show, not to rely on.

    Its own short sum is checked. None if the file is not a zip, or has no such member.
    """
    try:
        with _open_file(path) as file, zipfile.ZipFile(file) as archive:
            info = archive.getinfo(name)
            is_plain = info.compress_type == zipfile.ZIP_STORED and info.file_size <= _CHUNK
            return archive.read(info) if is_plain else None
    except (ContainerError, KeyError, RuntimeError, *_MALFORMED):
        return None


@contextlib.contextmanager
def _open_file(path: Path) -> Generator[BufferedReader]:
    """Open a regular file that is not empty; errors of the system become a ContainerError."""
    try:
        handle = os.open(path, READ)
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise _refusal(path, "it is not a regular file")
            if status.st_size == 0:
                raise _refusal(path, "it is empty")
            yield file
    except OSError as error:
        raise UnreadableContainer(
            f"cannot read {path}: {error.strerror or error}\n"
            f"next: look at the file: ls -l {quote(str(path))}"
        ) from error


def _check_seal(path: Path, whole: memoryview, magic: str) -> tuple[str, bytes]:
    """Return the SHA-256 of a file, which is the one in its seal, and the seal."""
    matched = _SEAL.search(bytes(whole[-_LONGEST_SEAL:]))
    if matched is None and bytes(whole[: len(_BEGIN)]) != _BEGIN:
        raise _refusal(path, f"it is not a {magic}")
    if matched is None:
        raise _refusal(
            path, f"no seal of a {magic} is at its end: it is cut off, or something else"
        )
    seal, kind, version = matched[0], matched[1].decode(), int(matched[2])
    if kind != magic:
        raise _refusal(path, f"it is sealed as {kind!r}, not as {magic!r}")
    if version != _FORMAT:
        raise _refusal(path, f"it has format {version}; this ctk reads format {_FORMAT}")
    end = len(whole) - len(seal)
    digest, crc = _sums(whole[start : min(start + _CHUNK, end)] for start in range(0, end, _CHUNK))
    if seal != _seal(magic, digest, crc):
        raise _refusal(path, f"its bytes have changed since it was sealed (SHA-256 now {digest})")
    return digest, seal


def _locate(
    path: Path, contents: memoryview, infos: Sequence[zipfile.ZipInfo]
) -> dict[str, memoryview]:
    """Return the bytes of each member; members and headers must fill the file."""
    members: dict[str, memoryview] = {}
    end = 0
    for info in infos:
        name = info.orig_filename
        problem = "stands twice" if name in members else _name_problem(name)
        if problem is None:
            start = _start_of(contents, info, end)
            if start is not None:
                end = start + info.file_size
                members[name] = contents[start:end]
                continue
            problem = "does not lie at the place in the table of contents"
        raise _refusal(path, f"the member {name[:_LONGEST_NAME]!r} {problem}")
    if end != len(contents):
        raise _refusal(path, "it holds bytes outside its members")
    return members


def _start_of(contents: memoryview, info: zipfile.ZipInfo, expected: int) -> int | None:
    """Return the start of a member's bytes; None if it is not a plain member at `expected`."""
    is_plain = info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 1
    if not is_plain or info.header_offset != expected or info.compress_size != info.file_size:
        return None
    header = bytes(contents[expected : expected + _LOCAL_HEADER.size])
    if len(header) < _LOCAL_HEADER.size:
        return None
    mark, name_nbytes, extra_nbytes = _LOCAL_HEADER.unpack(header)
    name_start = expected + _LOCAL_HEADER.size
    start = name_start + name_nbytes + extra_nbytes
    is_its = bytes(contents[name_start : name_start + name_nbytes]) == info.orig_filename.encode()
    is_inside = start % ALIGNMENT == 0 and start + info.file_size <= len(contents)
    return start if mark == b"PK\3\4" and is_its and is_inside else None


# --- both ---------------------------------------------------------------------------------------


def _sums(chunks: Iterable[bytes | memoryview]) -> tuple[str, int]:
    digest, crc = hashlib.sha256(), 0
    for chunk in chunks:
        digest.update(chunk)
        crc = zlib.crc32(chunk, crc)
    return digest.hexdigest(), crc


def _seal(magic: str, digest: str, crc: int) -> bytes:
    """Return the seal of a file with these sums; the short one covers the seal's text too."""
    start = f"{magic} {_FORMAT} sha256={digest} ".encode()
    return start + f"crc32={zlib.crc32(start, crc):08x}".encode()


def _name_problem(name: str) -> str | None:
    """Return why a name may not name a member; None if it may."""
    if not name.isprintable() or "\\" in name or len(name.encode()) > _LONGEST_NAME:
        return "is too long, or has characters that no name of a member has"
    if name[1:2] == ":" or any(part in ("", ".", "..") for part in name.split("/")):
        return "is not a relative path"
    return None


def _refusal(path: Path, why: str) -> ContainerError:
    return ContainerError(
        f"{path} is not used: {why}\nnext: make it again, or fetch it again from where it came"
    )
