"""Write private files and folders atomically. All files of ctk are written through this module.

1. Private: a folder is created with mode 0700 and a file with 0600, under any umask; with
   `CTK_SHARE=1` the umask decides. An existing folder keeps its mode.
2. Atomic: `replace_file` and `atomic_folder` write under a name that ends in `.partial`, and
   rename it; `append_line` adds a line by one write, so that a kill can tear only the last line.
3. No links: a new file is opened with `O_EXCL` and `O_NOFOLLOW`, so that a planted link is refused.
4. Scrubbed: functions that take text remove secrets and home paths (`scrub`); functions that take
   bytes write them unchanged.
5. An `OSError` becomes a `StorageError` with the path, the reason and the next step.

    replace_file(out / "a.json", data)   # .a.json-4711-9f.partial -> rename -> a.json, -rw-------

Without fsync, a crash of the machine may lose the last seconds. Two writers of one file are not
synchronized, but each of their lines stays whole.
"""

import contextlib
import errno
import itertools
import os
import secrets
import shutil
import tempfile
from collections.abc import Generator, Iterable
from pathlib import Path
from shlex import quote

from ctk.compiler.errors import FolderTaken, StorageError
from ctk.compiler.options.environment import shares_files
from ctk.compiler.posix import APPENDED, IS_POSIX, NEW_FILE, lock_file, read_at, refuse_link
from ctk.toolkit.case.formats.scrub import scrub

PARTIAL = ".partial"
"""Ending of a folder or file that is still being written, or whose writer died."""

_ELSEWHERE = "write to another folder: --out DIR, or CTK_DUMP=DIR for dumps"
NEXT_STEPS = {
    errno.ENOSPC: f"free some space, or {_ELSEWHERE}",
    errno.EDQUOT: f"free some space of your quota, or {_ELSEWHERE}",
    errno.EROFS: f"the file system is read-only: {_ELSEWHERE}",
    errno.EACCES: _ELSEWHERE,
    errno.EPERM: _ELSEWHERE,
    errno.EIO: "the device reports an error: look at the system's log",
    errno.EPIPE: "its reader has exited",
    errno.EFBIG: "raise the limit of a file's size: ulimit -f unlimited",
    errno.ENAMETOOLONG: "choose a shorter name or path",
    errno.EMFILE: "raise the limit of open files: ulimit -n 4096",
    errno.ELOOP: "a link is in its place, and ctk writes through no links: remove it",
}
"""The next step, by the number of an `OSError` of a write."""


# --- files --------------------------------------------------------------------------------------


def replace_file(path: Path, *parts: bytes | memoryview) -> None:
    """Write a file in one step: readers see the old content or the new one.

    Args:
        path: In an existing folder. An old file stays if anything fails.
        parts: Written unchanged, one after the other; text for people goes through `write_text`.
    """
    with raise_storage_errors(path):
        partial = path.with_name(f".{path.name}-{os.getpid()}-{secrets.token_hex(4)}{PARTIAL}")
        try:
            _write_new(partial, *parts)
            partial.replace(path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def write_text(path: Path, text: str) -> None:
    """Write a text in one step, scrubbed; its folder is made if it is missing."""
    make_folder(path.parent)
    replace_file(path, scrub(text).encode("utf-8", "backslashreplace"))


def append_line(path: Path, line: str) -> None:
    """Add one line to a file, scrubbed, by one write; the file and its folder are made if missing.

    A line is written whole or not at all, except that a killed process may tear its last line; the
    next line then starts on a line of its own.

    Args:
        line: Without its newline; a document that spans lines goes through `append_text`.

    Raises:
        StorageError: It cannot be written; the file holds no part of the line.
    """
    append_text(path, f"{line}\n")


def append_text(path: Path, text: str) -> None:
    """Add lines to a file, as `append_line` does."""
    data = scrub(text).encode("utf-8", "backslashreplace")
    make_folder(path.parent)
    with raise_storage_errors(path):
        refuse_link(path)
        handle = os.open(path, APPENDED, _file_mode())
        try:
            _keep_to_owner(handle)
            lock_file(handle)
            _append(handle, data)
        finally:
            os.close(handle)


def new_file(path: Path) -> Path:
    """Create an empty file, which must not exist, for foreign code that opens it by its name."""
    with raise_storage_errors(path):
        _write_new(path)
    return path


def free_path(path: Path) -> Path:
    """Return `path`, or the first of `stem_2`, `stem_3`, … (with its suffix) that does not exist.

    Not safe against other processes, unlike `unique_folder`.
    """
    names = (f"{path.stem}_{number}{path.suffix}" for number in itertools.count(2))
    candidates = itertools.chain([path], map(path.with_name, names))
    return next(candidate for candidate in candidates if not os.path.lexists(candidate))


def is_partial(path: Path) -> bool:
    """Return whether a name is that of a half-written file or folder."""
    return path.name.endswith(PARTIAL)


# --- folders ------------------------------------------------------------------------------------


def make_folder(folder: Path) -> Path:
    """Make a folder and its missing parents; existing ones keep their modes."""
    with raise_storage_errors(folder):
        missing = itertools.takewhile(lambda path: not path.is_dir(), (folder, *folder.parents))
        for each in reversed(list(missing)):
            with contextlib.suppress(FileExistsError):  # another process was faster, or a file
                _make_folder(each)
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    return folder


@contextlib.contextmanager
def atomic_folder(destination: Path) -> Generator[Path]:
    """Yield a new folder to write into; it becomes `destination` unless the block raises.

    Args:
        destination: A path that does not exist, or an empty folder, whose mode stays. Parents are
            made.

    Raises:
        CaseError: `destination` is occupied, before or by the time the block ends.
    """
    check_free(destination)
    make_folder(destination.parent)
    with scratch_folder(destination) as partial:
        yield partial
        with raise_storage_errors(destination):
            if destination.is_dir():
                shutil.copymode(destination, partial)
            try:
                partial.rename(destination)
            except OSError:
                check_free(destination)
                raise


@contextlib.contextmanager
def scratch_folder(destination: Path) -> Generator[Path]:
    """Yield a new folder beside `destination`, on the same disk; removed after the block."""
    partial = unique_folder(destination.parent, f".{destination.name}", suffix=PARTIAL)
    try:
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextlib.contextmanager
def temporary_folder(prefix: str, root: str | Path | None = None) -> Generator[Path]:
    """Yield a private folder in `root` (the temporary directory); removed after the block."""
    with contextlib.ExitStack() as stack:
        with raise_storage_errors(Path(root or tempfile.gettempdir())):
            name = stack.enter_context(
                tempfile.TemporaryDirectory(prefix=prefix, dir=root, ignore_cleanup_errors=True)
            )
            Path(name).chmod(0o700)
        yield Path(name)


def is_free(destination: Path) -> bool:
    """Return whether a path does not exist, or is an empty folder."""
    if destination.is_dir() and not destination.is_symlink():
        return not any(destination.iterdir())
    return not os.path.lexists(destination)


def check_free(destination: Path) -> None:
    """Raise `CaseError` if writing a folder would overwrite anything."""
    if not is_free(destination):
        raise FolderTaken(
            f"{destination} exists already, and ctk overwrites nothing; "
            f"name another folder, or remove it: rm -r {quote(str(destination))}"
        )


def unique_folder(parent: Path, stem: str, *, suffix: str = "") -> Path:
    """Make and return a folder of its own for each graph, process and rank.

    The name is `stem`, with the rank if there are several, and with the process id and a number if
    that name is taken: `graph0`, `graph0-rank1`, `graph0-rank1-4711-2`.
    """
    rank = os.environ.get("RANK", "")
    base = f"{stem}-rank{rank}" if rank.isdigit() else stem
    numbered = (f"{base}-{os.getpid()}-{number}" for number in itertools.count(1))
    names = itertools.chain([base], numbered)
    return claim_folder(parent / f"{name}{suffix}" for name in names)


def claim_folder(candidates: Iterable[Path]) -> Path:
    """Make and return the first folder that does not exist; safe against other processes."""
    for folder in candidates:
        with raise_storage_errors(folder), contextlib.suppress(FileExistsError):
            _make_folder(folder)
            return folder
    raise AssertionError("an endless count has ended")


def make_output_folder(out: str | Path | None, default: str) -> Path:
    """Make and return an empty folder: `out`, else the first free `<default>[_N]` here.

    Raises:
        CaseError: `out` is not empty.
    """
    folder = Path(out).expanduser() if out is not None else free_path(Path(default))
    with raise_storage_errors(make_folder(folder)):
        is_empty = not any(folder.iterdir())
    if not is_empty:
        raise FolderTaken(f"{folder} is not empty; name a new folder, or remove it first")
    return folder


def existing_folder(folder: Path) -> Path:
    """Return a folder, or the nearest one above it that exists."""
    return next(path for path in (folder, *folder.resolve().parents) if path.exists())


def free_nbytes(folder: Path) -> int:
    """Return the free bytes of the disk of a folder, which may not exist yet."""
    return shutil.disk_usage(existing_folder(folder)).free


# --- errors -------------------------------------------------------------------------------------


@contextlib.contextmanager
def raise_storage_errors(path: Path) -> Generator[None]:
    """Turn an `OSError` of the block, which writes `path`, into a `StorageError`."""
    try:
        yield
    except OSError as error:
        raise storage_error(path, error) from error


def storage_error(path: Path, error: OSError) -> StorageError:
    """Return an error with the path, the reason and the next step."""
    folder = path.parent
    next_step = NEXT_STEPS.get(error.errno or 0, "choose a folder that you may write to: --out DIR")
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        file = next((each for each in (path, *path.parents) if each.is_file()), path)
        next_step = f"{file} is a file: name another folder, or remove it"
    elif error.errno == errno.ENOSPC and folder.is_dir():
        with contextlib.suppress(OSError):
            next_step = f"{free_nbytes(folder) >> 20} MiB are free; {next_step}"
    return StorageError(f"{path} cannot be written: {error.strerror or error}; next: {next_step}")


# --- modes and bytes ----------------------------------------------------------------------------


def _file_mode() -> int:
    return 0o666 if shares_files() else 0o600


def _make_folder(folder: Path) -> None:
    if shares_files():
        folder.mkdir()
        return
    folder.mkdir(0o700)
    if folder.stat().st_mode & 0o700 != 0o700:  # a umask that restricts the owner
        folder.chmod(0o700)


def _keep_to_owner(handle: int) -> None:
    """Restore the owner's permissions under an odd umask; `open` has set those of others."""
    if IS_POSIX and not shares_files() and os.fstat(handle).st_mode & 0o600 != 0o600:
        os.fchmod(handle, 0o600)


def _write_new(path: Path, *parts: bytes | memoryview) -> None:
    handle = os.open(path, NEW_FILE, _file_mode())
    try:
        _keep_to_owner(handle)
        for part in parts:
            _write_all(handle, part)
    finally:
        os.close(handle)


def _write_all(handle: int, data: bytes | memoryview) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def _append(handle: int, data: bytes) -> None:
    """Add bytes at the end; on failure the file is as long as before."""
    size = os.fstat(handle).st_size
    is_torn = size > 0 and read_at(handle, 1, size - 1) not in (b"\n", b"")
    try:
        _write_all(handle, b"\n" + data if is_torn else data)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(handle, size)
        raise
