"""The packages of an operator: a list in JSON beside them, in the persistent cache.

    <cache>/aoti_eager/<ns>/<device>/<op>.json       [{"meta_info": [...], "kernel_path": ...}, ...]
    <cache>/aoti_eager/<ns>/<device>/lib/<name>.ctk  the packages

A record also has the SHA-256 of its package, and everything that it `depends_on` besides its
arguments. The list is replaced under a lock, in one atomic step; a reader needs no lock. A record
that cannot be read is dropped with a line in the log, and its package is compiled again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ctk.compiler.artifacts import locks
from ctk.compiler.artifacts import partial_files as partial
from ctk.compiler.artifacts.container import open_container
from ctk.compiler.cache.entry import differences
from ctk.compiler.cache.store import WAIT_SECONDS
from ctk.compiler.cache_folder.folder import cache_folder, subfolder
from ctk.compiler.errors import (
    ArtifactError,
    ConfigError,
    ContainerError,
    InputError,
    StorageError,
    UnreadableContainer,
)
from ctk.compiler.packages.operators.metadata import text_of
from ctk.compiler.packages.package import manifest_of
from ctk.compiler.posix import NEW_FILE
from ctk.compiler.records import OBJECT, TEXT, Codec, Json, Malformed, mapping, sequence, shown
from ctk.compiler.records import record as declare

log = logging.getLogger("ctk.cache")

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPERATOR = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)?")
_PACKAGE = re.compile(r"lib/[A-Za-z0-9_.-]+\.ctk")


@dataclass(frozen=True, slots=True)
class Record:
    """A package of an operator.

    Attributes:
        kernel_path: Of the package, relative to the folder of the list.
    """

    meta_info: Sequence[Json]
    kernel_path: str
    sha256: str
    depends_on: Mapping[str, str]


def _read_place(data: Json) -> str:
    place = TEXT.read(data)
    if not _PACKAGE.fullmatch(place):
        raise Malformed(f"{shown(place)} leads out of the folder")
    return place


_RECORD = declare(
    Record,
    meta_info=sequence(OBJECT),
    kernel_path=Codec(str, _read_place),
    sha256=TEXT,
    depends_on=mapping(TEXT),
)


@dataclass(frozen=True, slots=True)
class PackageIndex:
    """The list of an operator on a kind of device."""

    root: Path
    folder: Path
    operator: str

    @property
    def path(self) -> Path:
        """The list."""
        return self.folder / f"{self.operator}.json"

    def records(self) -> list[Record]:
        """Return the records of the list; malformed ones are skipped, with a warning."""
        try:
            data = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return []
        except (OSError, ValueError, RecursionError) as error:
            log.warning("the list %s cannot be read, and is not used: %s", self.path, error)
            return []
        found = [_record(each) for each in data] if isinstance(data, list) else [None]
        if None in found:
            log.warning("the list %s is malformed in part: that part is not used", self.path)
        return [each for each in found if each is not None]

    def checked(self, record: Record) -> Path | None:
        """Return the package of a record; None if missing or, then removed, of another digest."""
        path = self.folder / record.kernel_path
        try:
            container = open_container(path)
            manifest_of(container)
            if container.digest != record.sha256:
                raise ContainerError(f"{path} is not the package that was noted")
        except UnreadableContainer as error:
            log.log(logging.WARNING if path.exists() else logging.DEBUG, "%s", error)
            return None
        except ContainerError as error:
            log.warning("dropped a package of %s: %s", self.operator, str(error).partition("\n")[0])
            _remove(path)
            return None
        except ArtifactError as error:  # for another machine, torch or ctk
            log.debug("%s", error)
            return None
        return path

    def package(self, name: str) -> Path:
        """Return the path of a package, which may not exist yet."""
        return self.folder / _place(name)

    def add(self, name: str, meta_info: Sequence[Json], depends_on: Mapping[str, str]) -> None:
        """Add a package to the list, in place of one for the same arguments; drop missing packages.

        A package that an older text of ctk made for the same arguments is removed.

        Raises:
            StorageError: The list cannot be written.
        """
        digest = open_container(self.package(name)).digest
        record = Record(meta_info, _place(name), digest, depends_on)
        with self.lock("list") as is_held:
            if not is_held:
                log.warning("the list %s is held by another process: nothing is noted", self.path)
                return
            kept: list[Record] = []
            for each in self.records():
                package = self.folder / each.kernel_path
                if not _is_replaced(each, record):
                    kept += [each] * package.exists()
                elif each.kernel_path != record.kernel_path:
                    _remove(package)
            self._write([_RECORD.write(each) for each in (*kept, record)])
            partial.sweep(self.folder)

    @contextlib.contextmanager
    def lock(self, what: str) -> Generator[bool]:
        """Hold the list, or a package while it is made; False if another process keeps it."""
        text = f"aoti_eager {self.folder.relative_to(self.root)} {self.operator} {what}"
        digest = hashlib.sha256(text.encode()).hexdigest()
        with contextlib.ExitStack() as stack:
            try:
                path = subfolder(self.root, "locks") / digest
                is_held = stack.enter_context(locks.hold(path, WAIT_SECONDS))
            except OSError as error:
                raise StorageError(f"no locks in {self.root}: {error}") from error
            yield is_held

    def _write(self, data: Json) -> None:
        temporary = partial.partial_path(self.path)
        try:
            with os.fdopen(os.open(temporary, NEW_FILE, 0o600), "w", encoding="utf-8") as file:
                json.dump(data, file, indent=1, allow_nan=False)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
        except OSError as error:
            raise StorageError(f"cannot write {self.path}: {error.strerror or error}") from error
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()


def index_of(ns: str, operator: str, device_type: str) -> PackageIndex:
    """Return the list of an operator; its folders are made.

    Raises:
        InputError: A name is malformed.
        ConfigError: The persistent cache is off.
        StorageError: A folder cannot be used.
    """
    for name, what, pattern in (
        (ns, "namespace", _WORD),
        (operator, "operator with its overload", _OPERATOR),
        (device_type, "type of a device", _WORD),
    ):
        if type(name) is not str or not pattern.fullmatch(name):
            raise InputError(f"{name!r} is no {what}: e.g. 'aten', 'add.Tensor', 'cpu'")
    root = cache_folder()
    if root is None:
        raise ConfigError(
            "packages of operators are kept in the persistent cache, which is off or cannot be "
            "used here\nnext: unset CTK_CACHE=0, or set CTK_CACHE_DIR to a folder of your own"
        )
    folder = root
    for name in ("aoti_eager", ns, device_type):
        folder = subfolder(folder, name)
    subfolder(folder, "lib")
    return PackageIndex(root, folder, operator)


def same(left: Mapping[str, str], right: Mapping[str, str], without: Sequence[str] = ()) -> bool:
    """Return whether two packages depend on the same parts, apart from some."""
    return all(difference.part in without for difference in differences(left, right))


def _place(name: str) -> str:
    return f"lib/{name}.ctk"


def _is_replaced(old: Record, new: Record) -> bool:
    is_for_the_same = text_of(old.meta_info) == text_of(new.meta_info)
    return is_for_the_same and same(old.depends_on, new.depends_on, without=("version.ctk",))


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _record(data: Any) -> Record | None:
    """Return a record of the list; None if it is malformed, or leads out of the folder."""
    try:
        return _RECORD.read(data)
    except Malformed:
        return None
