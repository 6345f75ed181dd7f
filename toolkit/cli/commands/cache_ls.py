"""`ctk cache ls`: list the entries of the persistent cache."""

import time
from typing import TYPE_CHECKING

from ctk.toolkit.cli.commands.ls import spoken_age
from ctk.toolkit.cli.shell.answer import Answer, ExitCode, table
from ctk.toolkit.cli.shell.command_context import Command

if TYPE_CHECKING:
    from ctk.compiler.cache.store import EntrySummary

SHOWN_DIGITS = 12
"""How many digits of a digest are shown."""

COLUMNS = ("nodes", "stages", "device", "ctk", "torch")
"""The facts of an entry's label, as far as it has them."""


def cache_ls() -> Answer:
    """List the entries of the persistent cache.

    The last used comes first. `ctk cache verify` also reads all of them.
    """
    from ctk.toolkit.operations.cache import cache_store

    store = cache_store()
    found = [] if store is None else store.entries()
    if store is None or not found:
        said = "the persistent cache is empty" + (f": {store.root}" if store is not None else "")
        folder = None if store is None else str(store.root)
        return Answer(ExitCode.NO_FAILURE, said, {"folder": folder, "entries": []})
    rows = table("entry", *COLUMNS, "size", "used", "hits", "problem")
    for entry in found:
        said, parts = entry.label.about, entry.label.parts
        versions = {name: parts.get(f"version.{name}", "") for name in COLUMNS}
        about = (
            str(said.get(name) or (text[:SHOWN_DIGITS] if len(text) == 64 else text))  # a digest
            for name, text in versions.items()
        )
        age = spoken_age(max(0.0, time.time() - entry.used))
        size = spoken_size(entry.nbytes)
        shown = (entry.digest[:SHOWN_DIGITS], *about, size, age, str(entry.hits))
        rows.add_row(*shown, entry.problem or "")
    nbytes = sum(entry.nbytes for entry in found)
    room = f"{spoken_size(nbytes)} of at most {spoken_size(store.limit_nbytes)}"
    data = {
        "folder": str(store.root),
        "nbytes": nbytes,
        "limit_nbytes": store.limit_nbytes,
        "entries": [as_data(entry) for entry in found],
    }
    said = f"{count_entries_in_words(len(found))} in {store.root}, {room}"
    return Answer(ExitCode.NO_FAILURE, said, data, (rows,))


def count_entries_in_words(count: int) -> str:
    """Return how many entries there are, in words."""
    return f"{count} {'entry' if count == 1 else 'entries'}"


def spoken_size(nbytes: int) -> str:
    """Return a size as `CTK_CACHE_SIZE` takes it: `1.5G`, `300M`, `12K`."""
    for unit, name in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if nbytes >= unit:
            return f"{nbytes / unit:.1f}".removesuffix(".0") + name
    return str(nbytes)


def as_data(entry: "EntrySummary") -> dict[str, object]:
    """Return the JSON form of an entry."""
    return {
        "entry": entry.digest,
        "path": str(entry.path),
        "nbytes": entry.nbytes,
        "age_seconds": round(max(0.0, time.time() - entry.used)),
        "hits": entry.hits,
        "about": dict(entry.label.about),
        "key": dict(entry.label.parts),
        "problem": entry.problem,
    }


COMMAND = Command("cache ls", cache_ls)
