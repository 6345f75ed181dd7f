"""`ctk cache why`: explain why a compile missed the persistent cache."""

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType

from ctk.toolkit.cli.commands.cache_ls import SHOWN_DIGITS, as_data
from ctk.toolkit.cli.commands.ls import spoken_age
from ctk.toolkit.cli.shell.answer import Answer, ExitCode, table
from ctk.toolkit.cli.shell.command_context import Command
from ctk.toolkit.cli.shell.options import argument

if TYPE_CHECKING:
    from ctk.compiler.cache.store import Store
    from ctk.toolkit.operations.cache import Explanation

_LONGEST = 60


def cache_why(
    what: Annotated[
        str | None,
        argument(
            "ENTRY|CASE",
            "How the digest of an entry or of a miss starts, or a case folder or program "
            "(default: the last miss).",
        ),
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Run the code that the case brings along.")
    ] = False,
) -> Answer:
    """Say why the persistent cache has no entry for a compile.

    Names the parts of its key (graph, config, versions, machine, ...) in which the nearest entry
    differs. Of a program each graph is looked up; nothing is compiled.
    """
    from ctk.toolkit.operations.cache import cache_store, explain

    store = cache_store()
    if what is not None and Path(what).exists():
        return answer_for_subject(store, Path(what), trust=trust)
    found = None if store is None else explain(store, what)
    if found is None and what is None:
        return Answer(ExitCode.NO_FAILURE, "no miss is noted", {"miss": None})
    if found is None:
        said = f"no entry starts with {what!r}, and no file or folder is called so"
        return Answer(ExitCode.USAGE, f"{said}; next: ctk cache ls", {"miss": None})
    return Answer(ExitCode.NO_FAILURE, headline(found), data_of(found), nearest_of(found))


def answer_for_subject(store: "Store | None", subject: Path, *, trust: bool) -> Answer:
    """Return the answer for a case or program: about its first graph that is not in the cache."""
    if store is None:
        return Answer(ExitCode.NO_FAILURE, "the persistent cache is empty", {"graphs": []})
    from ctk.toolkit.operations.cache import explain_subject

    found = explain_subject(store, subject, trust=trust)
    first = next((each for each in found if not each.is_kept), found[0])
    kept = sum(each.is_kept for each in found)
    said = f"{kept} of {len(found)} graphs are in the cache; {headline(first)}"
    said = said if len(found) > 1 else headline(first)
    data = {"graphs": [data_of(each) for each in found]}
    return Answer(ExitCode.NO_FAILURE, said, data, nearest_of(first))


def nearest_of(found: "Explanation") -> tuple[RenderableType, ...]:
    """Return the nearest entry and the parts in which it differs; nothing if there is none."""
    if found.nearest is None:
        return ()
    rows = table("part", "nearest entry", "this one")
    for difference in found.differences:
        rows.add_row(
            difference.part, shorten_part(difference.theirs), shorten_part(difference.ours)
        )
    about = " ".join(f"{name}={value}" for name, value in found.nearest.label.about.items())
    return (f"nearest entry: {found.nearest.digest[:SHOWN_DIGITS]} {about}".rstrip(), rows)


def headline(found: "Explanation") -> str:
    """Return the answer: the event, and the parts that differ."""
    if found.refusal:
        return f"such a compile is not kept in the cache: {found.refusal}"
    event = found.event
    age = f" {spoken_age(max(0.0, time.time() - event.seconds))} ago" if event is not None else ""
    name = found.digest[:SHOWN_DIGITS]
    if event is not None and event.kind == "bypassed":
        return f"bypassed{age}: {event.why}"
    state = f"{name} is in the cache" if found.is_kept else f"{name} is not in the cache"
    kind = "dropped" if event is not None and event.kind == "dropped" else "missed"
    happened = f"{kind}{age}; {state} now" if event is not None else state
    if event is not None and event.why:
        return f"{happened}: {event.why}"
    if found.removed:
        return f"{happened}; it was {found.removed}"
    if found.nearest is None:
        return f"{happened}; there is no other entry to compare it with"
    parts = ", ".join(difference.part for difference in found.differences)
    return f"{happened}; the nearest entry differs in: {parts}"


def data_of(found: "Explanation") -> dict[str, object]:
    """Return the JSON form of an explanation."""
    return {
        "miss": None if found.event is None else dataclasses.asdict(found.event),
        "entry": found.digest,
        "is_kept": found.is_kept,
        "refusal": found.refusal,
        "removed": found.removed,
        "nearest": None if found.nearest is None else as_data(found.nearest),
        "differences": [dataclasses.asdict(difference) for difference in found.differences],
    }


def shorten_part(text: str | None) -> str:
    """Return the start of a text; a part that a key does not have is shown as such."""
    if text is None:
        return "(none)"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


COMMAND = Command("cache why", cache_why)
