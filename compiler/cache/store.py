"""The store of the persistent cache: entries for later processes, and for others that run now.

    store = open_store()                       # None: off, or its folder cannot be used
    entry = store.get(key)
    if entry is None:
        with store.lock(key):                  # of several processes that need it one compiles
            entry = store.get(key) or make_and(store.put)

1. **Nothing wrong is loaded.** An entry is one sealed file (container.py) that holds the parts of
   its key. An entry that is damaged, half-written, renamed, owned by another user or of another key
   is dropped, with a line in the log and in the journal, and the caller compiles again.
2. **Nothing breaks.** If the cache cannot be read or written (a full disk, a read-only home, a
   lack of file numbers), one warning is logged, and the program runs on without it.
3. **Nothing grows.** After each new entry, the least recently used ones are removed until the rest
   fits (`CTK_CACHE_SIZE`); a hit counts as a use. Leftovers of killed processes are removed as
   well. A process keeps an entry that it has opened: a mapped file outlives its name.

Source: Inductor's FX graph cache, whose entries are pickles that are neither sealed nor bounded.
"""

import contextlib
import logging
import os
import re
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ctk.compiler.artifacts import locks
from ctk.compiler.artifacts import partial_files as partial
from ctk.compiler.artifacts.container import Bytes, Container
from ctk.compiler.cache.entry import (
    Key,
    KeyDifference,
    Label,
    Value,
    differences,
    read_entry,
    read_label,
    write_entry,
)
from ctk.compiler.cache_folder.folder import cache_folder, subfolder, warn_once
from ctk.compiler.cache_folder.notes import Notes
from ctk.compiler.errors import ContainerError, StorageError, UnreadableContainer
from ctk.compiler.options.environment import cache_settings

log = logging.getLogger("ctk.cache")

WAIT_SECONDS = 300.0
"""How long a process waits for another that makes the same entry, before it makes its own."""

_DIGEST = re.compile(r"[0-9a-f]{64}")

_KEPT = 0.9  # of the limit, once something must go: so that not each entry makes another one go


@dataclass(frozen=True, slots=True)
class EntrySummary:
    """A file among the entries.

    Attributes:
        path: The file; its name is the digest of its key.
        used: The time of its last use, in seconds since the epoch.
        hits: The number of uses, as far as they were noted.
        problem: Why it is not a valid entry; None if no reason is known.
    """

    path: Path
    nbytes: int
    used: float
    label: Label = field(default_factory=Label)
    hits: int = 0
    problem: str | None = None

    @property
    def digest(self) -> str:
        """The digest of its key."""
        return self.path.name


@dataclass(frozen=True, slots=True)
class Store:
    """The cache in one folder, which `cache_folder()` has checked."""

    root: Path
    limit_nbytes: int

    @property
    def folder(self) -> Path:
        """The folder of the entries."""
        return self.root / "entries"

    @property
    def notes(self) -> Notes:
        """The journal and the counts of hits."""
        return Notes(self.root)

    # --- one entry ------------------------------------------------------------------------------

    def get(self, key: Key) -> Container | None:
        """Return the entry of a key, checked; None if there is no valid one."""
        path = self._path(key.digest)
        try:
            label, found = read_entry(path)
            if dict(label.parts) != dict(key.parts):
                raise ContainerError(f"{path} is not used: it has another key with this digest")
        except FileNotFoundError:
            why = ""
        except (UnreadableContainer, OSError) as error:
            why = _first_line(error)
        except ContainerError as error:
            why = _first_line(error)
            log.warning("dropped an entry of the cache: %s", why)
            self.drop(key, why)
        else:
            with contextlib.suppress(OSError):  # a read-only folder: the use is not recorded
                os.utime(path)
            self.notes.tell("hit", key.digest)
            return found
        self.notes.tell("miss", key.digest, why, key.parts)
        return None

    def put(
        self, key: Key, members: Mapping[str, Bytes], about: Mapping[str, Value] | None = None
    ) -> bool:
        """Store an entry in place of an older one, and make room; return whether it is stored.

        Args:
            about: Facts that `ctk cache ls` shows: `nodes`, `stages`, `device`, `ctk`, `torch`.
        """
        nbytes = sum(memoryview(data).nbytes for data in members.values())
        if nbytes > self.limit_nbytes * _KEPT:
            why = f"it has {nbytes:,} bytes, and the cache may have {self.limit_nbytes:,}"
            self.notes.tell("bypassed", key.digest, f"it is too large: {why}")
            return False
        try:
            subfolder(self.root, "entries")
            write_entry(self._path(key.digest), key, members, about or {})
        except StorageError as error:
            cause = getattr(error.__cause__, "strerror", None) or _first_line(error)
            warn_once(self.root, f"nothing is kept in the cache in {self.root}: {cause}")
            self.notes.tell("bypassed", key.digest, f"it could not be written: {cause}")
            return False
        self.notes.tell("stored", key.digest)
        self._make_room(key.digest)
        return True

    def has(self, key: Key) -> bool:
        """Return whether there is an entry of a key; its content is not checked."""
        return self._path(key.digest).exists()

    def read(self, key: Key) -> bytes | None:
        """Return the file of an entry, unchecked; None if there is none, or it cannot be read."""
        try:
            return self._path(key.digest).read_bytes()
        except OSError:
            return None

    def drop(self, key: Key, reason: str) -> None:
        """Remove the entry of a key, and note the reason."""
        self._unlink(self._path(key.digest))
        self.notes.tell("dropped", key.digest, reason, key.parts)

    @contextlib.contextmanager
    def lock(self, key: Key, seconds: float = WAIT_SECONDS) -> Generator[bool]:
        """Hold a key while its entry is made; look for the entry again once it is held.

        The lock of a holder that dies is free. A stuck one is waited for some seconds: then
        both make the entry, and the later one stays.

        Yields:
            Whether it is held; if not, another process may do the same work.
        """
        with contextlib.ExitStack() as stack:
            try:
                path = subfolder(self.root, "locks") / key.digest
                is_held = stack.enter_context(locks.hold(path, seconds))
            except (OSError, StorageError) as error:
                warn_once(self.root, f"no locks in the cache in {self.root}: {_first_line(error)}")
                is_held = False
            else:
                if not is_held:
                    log.warning("another process makes this graph for over %.0f s now", seconds)
            yield is_held

    # --- all entries ----------------------------------------------------------------------------

    def entries(self) -> list[EntrySummary]:
        """Return the entries with their labels, last used first, unchecked."""
        entry_summaries: list[EntrySummary] = []
        hits = self.notes.hits()
        for entry in self._entry_files():
            label = read_label(entry.path)
            problem = None if label is not None else "it has no label"
            count = hits.get(entry.digest, 0)
            entry_summaries.append(
                replace(entry, label=label or Label(), hits=count, problem=problem)
            )
        return sorted(entry_summaries, key=lambda entry: entry.used, reverse=True)

    def verify(self) -> list[EntrySummary]:
        """Read and check all files among the entries; return them by name, with their problems."""
        entry_summaries: list[EntrySummary] = []
        for entry in sorted(self._files(), key=lambda entry: entry.path.name):
            if _DIGEST.fullmatch(entry.path.name) is None:
                if not entry.path.name.startswith(partial.PREFIX):
                    entry_summaries.append(replace(entry, problem="it is not an entry"))
                continue
            try:
                label, _ = read_entry(entry.path)
            except FileNotFoundError:  # another process has dropped it
                continue
            except (ContainerError, OSError) as error:
                entry_summaries.append(replace(entry, problem=_first_line(error)))
            else:
                entry_summaries.append(replace(entry, label=label))
        return entry_summaries

    def nearest(self, key: Key) -> tuple[EntrySummary, list[KeyDifference]] | None:
        """Return the entry whose key differs in the fewest parts, with these; the last used first.

        None if there is no entry. The entry of the key itself differs in none.
        """
        found = [(entry, differences(entry.label.parts, key.parts)) for entry in self.entries()]
        sound = [each for each in found if each[0].problem is None]
        return min(sound, key=lambda each: len(each[1]), default=None)

    def discard(self, entry: EntrySummary, reason: str) -> bool:
        """Remove an entry; return whether it is gone."""
        is_gone = self._unlink(entry.path)
        self.notes.tell("dropped", entry.digest, reason, entry.label.parts)
        return is_gone

    def clear(self) -> int:
        """Remove entries, notes and leftovers of killed processes; return the number of entries.

        Tuning choices are notes, so they are removed as well.
        """
        removed = sum(self._unlink(entry.path) for entry in self._entry_files())
        self._sweep()
        self.notes.clear()
        return removed

    def _entry_files(self) -> Iterator[EntrySummary]:
        """Yield each entry with its size and age, without opening it."""
        return (file for file in self._files() if _DIGEST.fullmatch(file.path.name))

    def _files(self) -> Iterator[EntrySummary]:
        """Yield every file among the entries; none if they cannot be listed.

        There is no index, which could differ from the folder.
        """
        with contextlib.suppress(OSError):
            if self.folder.is_symlink():  # it leads out of the cache
                return
            for path in list(self.folder.iterdir()):
                with contextlib.suppress(FileNotFoundError):
                    status = path.lstat()
                    yield EntrySummary(path, status.st_size, status.st_mtime)

    def _path(self, digest: str) -> Path:
        return self.folder / digest

    def _make_room(self, newest: str) -> None:
        """Remove the least recently used entries, but never the newest, until the rest fits."""
        self._sweep()
        found = sorted(self._entry_files(), key=lambda entry: entry.used)
        total = sum(entry.nbytes for entry in found)
        if total <= self.limit_nbytes:
            return
        for entry in found:
            if total <= self.limit_nbytes * _KEPT:
                return
            if entry.digest != newest and self._unlink(entry.path):
                total -= entry.nbytes
                self.notes.tell("evicted", entry.digest, "it was not used for longest")

    def _sweep(self) -> None:
        if not self.folder.is_symlink():
            partial.sweep(self.folder)
        locks.sweep(self.root / "locks")

    def _unlink(self, path: Path) -> bool:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            cause = error.strerror or str(error)
            warn_once(self.root, f"the cache in {self.root} cannot be cleared: {cause}")
            return False
        return True


def open_store() -> Store | None:
    """Return the cache of the `CTK_CACHE*` variables; None if it is off or cannot be used.

    Raises:
        ConfigError: A variable has a value that is not allowed.
    """
    root = cache_folder()
    return None if root is None else Store(root, cache_settings().limit_nbytes)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
