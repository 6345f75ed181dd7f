"""The environments of releases on disk: built once, kept and reused.

    <root>/torch-2.14.0-py3.11-1f0c9a2b/         an environment of venv, built in its place
        ctk-environment.json                     the stamp, written last: the folder is whole
        triton-3.6.0/                            an overlay: that release of Triton alone
            ctk-environment.json
    <root>/torch-2.14.0-py3.11-1f0c9a2b.lock     held while it is built, asked or removed

An interrupted installation leaves a folder without a stamp, which the next one removes. A kept
environment whose torch or Triton differs from its RECORD is installed again. The digest in a name
stands for the interpreter, the place of the packages, and the further packages. The disk is checked
before each installation, with the reservations of other running installations.
"""

import contextlib
import hashlib
import os
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from filelock import FileLock, Timeout

from ctk.compiler.cache_folder.folder import private_folder
from ctk.compiler.errors import CaseError, InstallError, StorageError
from ctk.compiler.options.environment import environments_folder
from ctk.toolkit.case.formats.files import free_nbytes, make_folder, replace_file
from ctk.toolkit.case.formats.schema import document, encode, read_document
from ctk.toolkit.case.formats.strict_json import dump_json
from ctk.toolkit.processes.commands import run_command_group
from ctk.toolkit.processes.link import report_alive
from ctk.toolkit.processes.memory import format_size
from ctk.toolkit.processes.scratch import remove_folder
from ctk.toolkit.processes.signals import defer_interrupts
from ctk.toolkit.releases.installed_files import check_files
from ctk.toolkit.releases.interpreters import Interpreter, this_python
from ctk.toolkit.releases.pip_commands import PackageSource, Release, install

STAMP = "ctk-environment.json"
CUDA_NBYTES = 6 << 30
"""Size of an environment of a CUDA build: 5.9 GiB for torch 2.15.0 on Linux x86-64."""

CPU_NBYTES = 2 << 30
"""Size of an environment of a CPU build, with its dependencies: 1.1 GiB for torch 2.13.0."""

TRITON_NBYTES = 700 << 20
UNPACKING = 1.5
"""Space of an installation as a multiple of the result: pip keeps the wheels until it is done."""

_LOCK_SECONDS = 0.5
_NEXT_STEP = "next: ctk bisect-version --clean"


@document
@dataclass(frozen=True, slots=True)
class Stamp:
    """The stamp of a whole environment or overlay.

    Attributes:
        source: The place of its packages (`PackageSource.index`).
        nbytes: Its size on disk.
    """

    requirements: tuple[str, ...]
    source: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class Removal:
    """The result of removing environments.

    Attributes:
        busy: Folders that another process builds or asks, which stay.
    """

    count: int = 0
    nbytes: int = 0
    busy: tuple[Path, ...] = ()

    def with_more(self, other: Self) -> Self:
        """Return both results together."""
        busy = (*self.busy, *other.busy)
        return replace(
            self, count=self.count + other.count, nbytes=self.nbytes + other.nbytes, busy=busy
        )


@dataclass(slots=True)
class Environments:
    """The environments of one place of packages.

    Attributes:
        packages: Requirements besides torch, as pip takes them.
        made: The folders of environments that this object has built, by version of torch.
        removed: The environments that this object has removed.
    """

    root: Path
    source: PackageSource
    packages: tuple[str, ...]
    say: Callable[[str], None]
    made: dict[str, Path] = field(default_factory=dict[str, Path])
    removed: Removal = Removal()
    _reserved: list[int] = field(default_factory=list[int])
    _compared: set[Path] = field(default_factory=set[Path])
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def folder_of(self, torch: str) -> Path:
        """Return the folder of an environment, built or not."""
        parts = (os.path.realpath(sys.executable), sys.version, self.source.index, *self.packages)
        digest = hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()
        return self.root / f"torch-{torch}-{this_python()}-{digest[:8]}"

    @contextmanager
    def hold(self, torch: Release, triton: str = "") -> Generator[Interpreter]:
        """Yield the interpreter of an environment, which is built if it is missing.

        Args:
            triton: A release of Triton (`triton==3.6.0`) to use in place of its own; empty for
                its own.

        Raises:
            InstallError: pip does not install it.
            StorageError: The disk has too little space.
        """
        folder = self.folder_of(torch.version)
        with self._lock(folder):
            if not is_whole(folder) or self._is_changed(folder):
                self._build(folder, torch)
            overlay = folder / triton.replace("==", "-") if triton else None
            if overlay is not None and (not is_whole(overlay) or self._is_changed(overlay)):
                self._build_overlay(overlay, triton)
            yield Interpreter(python_of(folder), overlay)

    def _is_changed(self, folder: Path) -> bool:
        """Return whether a kept environment or overlay differs from its RECORD; looked at once."""
        if folder in self._compared:
            return False
        self._compared.add(folder)
        packages = next(folder.glob("lib/python*/site-packages"), folder)  # an overlay has neither
        found = [check_files(name, packages) for name in ("torch", "triton")]
        problem = next((str(each) for each in found if each and each.problems), "")
        if packages != folder and found[0] is None:
            problem = "it has no torch"
        elif packages != folder and not os.access(python_of(folder), os.X_OK):
            problem = "its interpreter is gone"
        if problem:
            self.say(f"install {folder.name} again: {problem}")
        return bool(problem)

    @contextmanager
    def _lock(self, folder: Path) -> Generator[None]:
        """Hold the lock of an environment; another process may have it for minutes."""
        lock, is_first = FileLock(lock_of(folder)), True
        while not lock.is_locked:
            try:
                lock.acquire(timeout=_LOCK_SECONDS)
            except Timeout:
                report_alive()
                if is_first:
                    self.say(f"wait for another process that uses {folder.name}")
                is_first = False
            except OSError as error:
                raise StorageError(
                    f"{self.root} cannot be written to ({error.strerror}); next: let "
                    "CTK_ENVIRONMENTS name another folder"
                ) from error
        try:
            yield
        finally:
            lock.release()

    def _build(self, folder: Path, torch: Release) -> None:
        requirements = (f"torch=={torch.version}", *self.packages)
        size = CUDA_NBYTES if sys.platform == "linux" and not torch.is_for_cpu else CPU_NBYTES
        known = [stamp.nbytes for stamp in self._stamps() if stamp.source == self.source.index]
        with self._installing(folder, requirements, max(known, default=size)) as temporary:
            words = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
            done = run_command_group(words, environ=self.source.environ)
            if done.code:
                raise InstallError(f"no environment can be made in {folder}: {done.output.strip()}")
            self.say(f"install {', '.join(requirements)}")
            install(python_of(folder), requirements, self.source, temporary)
        self.made[torch.version] = folder
        self._compared.add(folder)

    def _build_overlay(self, folder: Path, triton: str) -> None:
        with self._installing(folder, (triton,), TRITON_NBYTES) as temporary:
            self.say(f"install {triton} beside {folder.parent.name}")
            words = ("--no-deps", "--target", str(folder), triton)
            install(python_of(folder.parent), words, self.source, temporary)
        self._compared.add(folder)

    @contextmanager
    def _installing(
        self, folder: Path, requirements: Sequence[str], nbytes: int
    ) -> Generator[Path]:
        """Yield a folder for temporary files, then write the stamp; remove all if it fails."""
        remove_folder(folder)
        needed = int(UNPACKING * nbytes)
        with self._reserve(needed, requirements[0]):
            temporary = make_folder(folder) / "tmp"
            try:
                make_folder(temporary)
                yield temporary
                remove_folder(temporary)
                stamp = Stamp(tuple(requirements), self.source.index, size_of(folder))
                replace_file(folder / STAMP, dump_json(encode(stamp)).encode())
            except BaseException:
                with defer_interrupts():  # a terminal that closes sends two signals
                    remove_folder(folder)
                raise

    @contextmanager
    def _reserve(self, nbytes: int, requirement: str) -> Generator[None]:
        """Reserve space of the disk for an installation.

        Raises:
            StorageError: There is too little, less that of installations that run now.
        """
        with self._guard:
            free = free_nbytes(self.root) - sum(self._reserved)
            if free < nbytes:
                raise StorageError(
                    f"{self.root} has too little space for {requirement}: it takes about "
                    f"{format_size(nbytes)} while it is installed, and {format_size(max(free, 0))} "
                    "are free; next: remove environments that are kept (ctk bisect-version "
                    "--clean), or let CTK_ENVIRONMENTS name a folder on another disk"
                )
            self._reserved.append(nbytes)
        try:
            yield
        finally:
            with self._guard:
                self._reserved.remove(nbytes)

    def _stamps(self) -> Iterator[Stamp]:
        for folder in environment_folders(self.root):
            with contextlib.suppress(CaseError):
                yield read_stamp(folder)

    def remove_made(self, *, spare: Sequence[str] = ()) -> None:
        """Remove the environments that this object has built, but for some versions of torch."""
        gone = {torch: folder for torch, folder in self.made.items() if torch not in spare}
        for torch in gone:
            del self.made[torch]
        self.removed = self.removed.with_more(remove_environments(gone.values(), self.say))


def open_root() -> Path:
    """Return the folder of all environments, which only this user can change.

    Raises:
        StorageError: It cannot be used, or this user has no home.
    """
    folder = environments_folder()
    if folder is None:
        raise StorageError(
            "this user has no home for environments; next: let CTK_ENVIRONMENTS name a folder"
        )
    return private_folder(folder)


def environment_folders(root: Path) -> list[Path]:
    """Return the folders of all environments, whole or not."""
    return sorted(path for path in root.glob("torch-*") if path.is_dir() and not path.is_symlink())


def remove_environments(folders: Iterable[Path], say: Callable[[str], None]) -> Removal:
    """Remove environments with their locks; environments in use stay."""
    count, nbytes, busy = 0, 0, list[Path]()
    for folder in folders:
        say(f"remove {folder.name}")
        try:
            with FileLock(lock_of(folder), timeout=0):
                size = size_of(folder)
                remove_folder(folder)
                lock_of(folder).unlink(missing_ok=True)
        except Timeout:
            busy.append(folder)
        else:
            count, nbytes = count + 1, nbytes + size
    return Removal(count, nbytes, tuple(busy))


def read_stamp(folder: Path) -> Stamp:
    """Return the stamp of a folder.

    Raises:
        CaseError: It has none, because its installation did not end.
    """
    return read_document(Stamp, folder / STAMP, next_step=_NEXT_STEP)


def is_whole(folder: Path) -> bool:
    """Return whether the installation of an environment or overlay came to its end."""
    return (folder / STAMP).is_file()


def python_of(folder: Path) -> Path:
    """Return the interpreter of an environment."""
    return folder / "bin" / "python"


def lock_of(folder: Path) -> Path:
    """Return the lock file of an environment."""
    return folder.with_name(f"{folder.name}.lock")


def size_of(folder: Path) -> int:
    """Return the bytes that a folder takes on disk; links are not followed."""
    nbytes = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                nbytes += os.lstat(f"{place}/{name}").st_blocks * 512
    return nbytes
