"""The persistent cache: what was compiled, for later processes and for others that run now.

    store = open_store()                       # None: off, or its folder cannot be used
    found = store.get(key)
    if found is None:
        with store.locked(key):                # of several processes that need it one compiles
            found = store.get(key) or make_and(store.put)

1. **Nothing wrong is loaded.** An entry is one sealed file (container.py) that holds the parts of
   its key. One that is damaged, half-written, renamed, somebody else's or made under another key
   is dropped, with a line in the log and in the journal, and the caller compiles anew.
2. **Nothing breaks.** Where the cache cannot be read or written (a full disk, a read-only home, too
   many open files) there is one warning in the log, and the program runs on without it.
3. **Nothing grows.** After each entry that is written, the least recently used ones go until the
   rest fits (`CTK_CACHE_SIZE`); a hit counts as a use. What killed processes left goes as well.
   Who has opened an entry keeps it: a file that is mapped outlives its name.

Source: Inductor's FX graph cache, whose entries are pickles that are neither sealed nor bounded.

What it does not do: know what an entry means, or protect from who may write the user's own files.
"""

import contextlib
import logging
import os
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ctk.compiler.artifacts import locks
from ctk.compiler.artifacts import partial_files as partial
from ctk.compiler.artifacts.container import Bytes, Container
from ctk.compiler.cache import listing
from ctk.compiler.cache.entry import (
    Key,
    KeyDifference,
    Value,
    differences,
    read_entry,
    write_entry,
)
from ctk.compiler.cache.listing import EntrySummary
from ctk.compiler.cache_folder.folder import cache_folder, subfolder, warn_once
from ctk.compiler.cache_folder.notes import Notes
from ctk.compiler.errors import ContainerError, StorageError, UnreadableContainer
from ctk.compiler.options.environment import cache_settings

log = logging.getLogger("ctk.cache")

WAIT_SECONDS = 300.0
"""How long a process waits for another that makes the same entry, before it makes it for itself."""

_KEPT = 0.9  # of the limit, once something must go: so that not each entry makes another one go


@dataclass(frozen=True, slots=True)
class Store:
    """The cache in one folder, which `cache_folder()` has checked.

    Attributes:
        root: The folder.
        limit_nbytes: How large the entries may become together.
    """

    root: Path
    limit_nbytes: int

    @property
    def folder(self) -> Path:
        """Where the entries are."""
        return self.root / "entries"

    @property
    def notes(self) -> Notes:
        """The journal and the counts of hits."""
        return Notes(self.root)

    # --- one entry ------------------------------------------------------------------------------

    def get(self, key: Key) -> Container | None:
        """Return what is kept under a key, checked; None if nothing is, or it is wrong."""
        path = self._path(key.digest)
        try:
            label, found = read_entry(path)
            if dict(label.parts) != dict(key.parts):
                raise ContainerError(f"{path} is not used: it has another key with this digest")
        except FileNotFoundError:
            self.notes.tell("miss", key.digest, "", key.parts)
            return None
        except (UnreadableContainer, OSError) as error:
            self.notes.tell("miss", key.digest, _first_line(error), key.parts)
            return None
        except ContainerError as error:
            why = _first_line(error)
            log.warning("dropped an entry of the cache: %s", why)
            self.drop(key, why)
            self.notes.tell("miss", key.digest, why, key.parts)
            return None
        with contextlib.suppress(OSError):  # a read-only folder: it is not told that it was used
            os.utime(path)
        self.notes.tell("hit", key.digest)
        return found

    def put(
        self, key: Key, members: Mapping[str, Bytes], about: Mapping[str, Value] | None = None
    ) -> bool:
        """Keep something under a key, in place of what was there; then make room.

        Args:
            key: What it depends on.
            members: Its parts by name.
            about: What `ctk cache ls` shows: `nodes`, `stages`, `device`, `ctk`, `torch`.

        Returns:
            Whether it is kept.
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
        """Return whether something is kept under a key; what that is is not looked at."""
        return self._path(key.digest).exists()

    def drop(self, key: Key, reason: str) -> None:
        """Remove what is kept under a key, and note why."""
        self._unlink(self._path(key.digest))
        self.notes.tell("dropped", key.digest, reason, key.parts)

    @contextlib.contextmanager
    def locked(self, key: Key, seconds: float = WAIT_SECONDS) -> Generator[bool]:
        """Hold a key while its entry is made; look for the entry again once it is held.

        A holder that dies lets go of it. One that is stuck is not waited for longer than some
        seconds: then both make the entry, and the later one stays.

        Yields:
            Whether it is held; False changes nothing but that others may do the same work.
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
        """Return the entries, last used first, with what they say of themselves: not checked."""
        return listing.entries(self.folder, self.notes.hits())

    def verify(self) -> list[EntrySummary]:
        """Return all that stands among the entries, with what is wrong with it; all is checked."""
        return listing.check_entry(self.folder)

    def nearest(self, key: Key) -> tuple[EntrySummary, list[KeyDifference]] | None:
        """Return the entry whose key differs in the fewest parts, and those; the last used first.

        None if there is no entry. That of the key itself differs in none.
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
        """Remove every entry, every note, and what killed processes left; return how many entries.

        Tuning choices are notes, so they go as well.
        """
        removed = sum(self._unlink(entry.path) for entry in listing.files(self.folder))
        self._sweep()
        self.notes.clear()
        return removed

    def _path(self, digest: str) -> Path:
        return self.folder / digest

    def _make_room(self, newest: str) -> None:
        """Remove the least recently used entries, but never the newest, while all is too large."""
        self._sweep()
        found = sorted(listing.files(self.folder), key=lambda entry: entry.used)
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
        """Remove what killed processes left."""
        if not self.folder.is_symlink():
            partial.sweep(self.folder)
        locks.sweep(self.root / "locks")

    def _unlink(self, path: Path) -> bool:
        """Remove a file; return whether it is gone."""
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            cause = error.strerror or str(error)
            warn_once(self.root, f"the cache in {self.root} cannot be cleared: {cause}")
            return False
        return True


def open_store() -> Store | None:
    """Return the cache that the variables name; None where it is off or cannot be used.

    Raises:
        ConfigError: A variable has a value that is not allowed.
    """
    root = cache_folder()
    return None if root is None else Store(root, cache_settings().limit_nbytes)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
