"""The operation `cache`: find an entry, and explain a miss of the persistent cache.

A miss is explained by the notes of the store, which hold the parts of each missing key. The graphs
of a program are explained without a compile; the guards of an entry on sizes are not evaluated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ctk.compiler.cache.entry import Key, KeyDifference, differences
from ctk.compiler.cache.store import EntrySummary, Store
from ctk.compiler.cache.whole_graph import variants
from ctk.compiler.cache_folder.folder import private_folder
from ctk.compiler.cache_folder.notes import Event
from ctk.compiler.errors import ConfigError, NoSuchCase, Uncacheable
from ctk.compiler.observe import first_line
from ctk.compiler.options.environment import cache_settings
from ctk.toolkit.execution.cache_key import compute_key
from ctk.toolkit.importers import load_subject
from ctk.toolkit.options import CaseOptions

VARIANT = "variant"
"""The part by which several entries of one compile differ, each with guards of its own on sizes."""

_ASKED = ("miss", "bypassed", "dropped")
_GONE = ("dropped", "evicted")


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why the cache misses a compile, or that it would hit.

    Attributes:
        digest: The digest of its key; empty where it had none.
        event: Its last event; None if none was recorded.
        is_kept: Whether it is in the cache now.
        nearest: The entry with the nearest other key, if there is one.
        differences: The parts in which that one differs from the key.
        refusal: Why such a compile is never kept; empty if it may be.
        removed: Why there is no entry any more, though there was one; empty if there was none.
    """

    digest: str
    event: Event | None
    is_kept: bool
    nearest: EntrySummary | None = None
    differences: tuple[KeyDifference, ...] = ()
    refusal: str = ""
    removed: str = ""


def cache_store() -> Store | None:
    """Return the cache that the variables name, whether it is on or off; None if there is none yet.

    Raises:
        StorageError: Its folder cannot be used.
        ConfigError: A variable has a value that is not allowed, or there is no folder for it.
    """
    settings = cache_settings()
    if settings.folder is None:
        raise ConfigError("this user has no home; next: set CTK_CACHE_DIR to a folder")
    if not settings.folder.exists():
        return None
    return Store(private_folder(settings.folder), settings.limit_nbytes)


def find_entry(found: list[EntrySummary], prefix: str) -> EntrySummary:
    """Return the entry whose digest starts like this.

    Raises:
        CaseError: None does, or several do.
    """
    fitting = [entry for entry in found if prefix and entry.digest.startswith(prefix.lower())]
    if len(fitting) == 1:
        return fitting[0]
    what = f"{len(fitting)} entries start" if fitting else "no entry of the cache starts"
    raise NoSuchCase(f"{what} with {prefix!r}; next: ctk cache ls")


def explain(store: Store, prefix: str | None = None) -> Explanation | None:
    """Return why a compile was not found in the cache.

    Args:
        prefix: How the digest of its key, or of an entry, starts; the last miss when None.

    Returns:
        None if no miss is noted, and none was asked for.

    Raises:
        CaseError: No entry and no miss starts with `prefix`.
    """
    event = _last(store, prefix)
    if event is not None:
        if event.kind == "bypassed":
            return Explanation(event.entry, event, is_kept=False)
        return compare_with_nearest(store, Key(event.parts), event)
    if prefix is None:
        return None
    return compare_with_nearest(store, Key(find_entry(store.entries(), prefix).label.parts), None)


def explain_subject(store: Store, subject: Path, *, trust: bool) -> list[Explanation]:
    """Return for each graph of a case or program whether it is in the cache, and why not.

    Raises:
        CtkError: It cannot be loaded or captured, or is for another compiler than ctk.
    """
    loaded = load_subject(subject, None, CaseOptions(trust=trust))
    if loaded.uncaptured is not None:
        raise loaded.uncaptured
    explanations: list[Explanation] = []
    for case in loaded.cases:
        try:
            explanations.append(compare_with_nearest(store, compute_key(case), None))
        except Uncacheable as error:
            explanations.append(Explanation("", None, is_kept=False, refusal=first_line(error)))
    return explanations


def compare_with_nearest(store: Store, key: Key, event: Event | None) -> Explanation:
    """Compare a key with the nearest entry of another compile."""
    told = [(entry, differences(entry.label.parts, key.parts)) for entry in store.entries()]
    others = [each for each in told if not _is_same(each[1]) and each[0].problem is None]
    nearest, differing = min(others, key=lambda each: len(each[1]), default=(None, []))
    is_kept = any(_is_same(differing) for _, differing in told)
    removed = "" if is_kept else _removal(store, key)
    return Explanation(key.digest, event, is_kept, nearest, tuple(differing), removed=removed)


def _removal(store: Store, key: Key) -> str:
    """Return why the last entry of a compile has gone; empty if it had none that is noted."""
    digests = {each.digest for each in (key, *variants(key))}
    events = (event for event in store.notes.events() if event.entry in digests)
    last = next((event for event in events if event.kind in (*_GONE, "stored")), None)
    return f"{last.kind}: {last.why}" if last is not None and last.kind in _GONE else ""


def _is_same(differing: Sequence[KeyDifference]) -> bool:
    """Return whether two keys are of one compile: for other sizes it may have several entries."""
    return all(each.part == VARIANT for each in differing)


def _last(store: Store, prefix: str | None) -> Event | None:
    """Return the last miss, bypass or removal, among those whose digest starts with `prefix`."""
    told = (event for event in store.notes.events() if event.kind in _ASKED)
    if prefix is not None:
        told = (event for event in told if event.entry.startswith(prefix.lower()) and prefix)
    return next(told, None)
