"""`ctk cache why`: what made a compile miss the persistent cache."""

import dataclasses
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ctk.toolkit.cli.answer import Answer, ExitCode, table
from ctk.toolkit.cli.cache_ls import as_data
from ctk.toolkit.cli.ls import spoken_age
from ctk.toolkit.cli.shell import Command

if TYPE_CHECKING:
    from ctk.toolkit.cache import Explanation

_LONGEST = 60


def cache_why(
    entry: Annotated[
        str | None,
        typer.Argument(
            metavar="ENTRY",
            help="How the digest of an entry or of a miss starts (default: the last miss).",
            show_default=False,
        ),
    ] = None,
) -> Answer:
    """Say why the persistent cache had no entry for a compile.

    Names the parts of its key (graph, config, versions, machine, ...) in which the nearest entry
    differs.
    """
    from ctk.toolkit.cache import SHOWN_DIGITS, cache_store, explain

    store = cache_store()
    found = None if store is None else explain(store, entry)
    if found is None:
        said = "no miss is noted" if entry is None else f"no entry starts with {entry!r}"
        code = ExitCode.NO_FAILURE if entry is None else ExitCode.USAGE
        return Answer(code, said, {"miss": None})
    rows = table("part", "nearest entry", "this one")
    for each in found.differences:
        rows.add_row(each.part, shortened(each.theirs), shortened(each.ours))
    place = ()
    if found.nearest is not None:
        about = " ".join(f"{k}={v}" for k, v in found.nearest.label.about.items())
        place = (f"nearest entry: {found.nearest.digest[:SHOWN_DIGITS]} {about}".rstrip(), rows)
    return Answer(ExitCode.NO_FAILURE, headline(found), data_of(found), place)


def headline(found: "Explanation") -> str:
    """Return the answer: what happened, and the parts that differ."""
    event = found.event
    age = f" {spoken_age(max(0.0, time.time() - event.seconds))} ago" if event is not None else ""
    name = found.digest[:12]
    if event is not None and event.kind == "bypassed":
        return f"bypassed{age}: {event.why}"
    state = f"{name} is in the cache" if found.is_kept else f"{name} is not in the cache"
    happened = f"missed{age}; {state} now" if event is not None else state
    if event is not None and event.why:
        return f"{happened}: {event.why}"
    if found.nearest is None:
        return f"{happened}; there is no other entry to compare it with"
    parts = ", ".join(each.part for each in found.differences)
    return f"{happened}; the nearest entry differs in: {parts}"


def data_of(found: "Explanation") -> dict[str, object]:
    """Return the JSON form of an explanation."""
    return {
        "miss": None if found.event is None else dataclasses.asdict(found.event),
        "entry": found.digest,
        "is_kept": found.is_kept,
        "nearest": None if found.nearest is None else as_data(found.nearest),
        "differences": [dataclasses.asdict(each) for each in found.differences],
    }


def shortened(text: str | None) -> str:
    """Return the start of a text; a part that a key does not have is shown as such."""
    if text is None:
        return "(none)"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


COMMAND = Command("cache why", cache_why)
