"""`ctk cache verify`: reads every entry of the persistent cache. 0 all right, 1 some are not."""

from typing import Annotated

import typer

from ctk.toolkit.cli.commands.cache_ls import as_data, count_entries_in_words
from ctk.toolkit.cli.shell.answer import Answer, ExitCode
from ctk.toolkit.cli.shell.command_context import Command


def cache_verify(
    repair: Annotated[bool, typer.Option("--repair", help="Remove wrong entries.")] = False,
) -> Answer:
    """Check every entry of the persistent cache.

    A wrong entry is never loaded, whether it is found here or by a compile, which removes it.
    """
    from ctk.toolkit.operations.cache import cache_store

    store = cache_store()
    found = [] if store is None else store.verify()
    wrong = [entry for entry in found if entry.problem is not None]
    left = wrong
    if store is not None and repair:
        left = [entry for entry in wrong if not store.discard(entry, entry.problem or "")]
    every = count_entries_in_words(len(found))
    data = {
        "entries": len(found),
        "wrong": [as_data(entry) for entry in wrong],
        "removed": len(wrong) - len(left),
    }
    if not wrong:
        said = f"{every}, all as they were once written"
        return Answer(ExitCode.NO_FAILURE, said, data)
    lines = tuple(f"{entry.path}: {entry.problem}" for entry in wrong)
    if not left:
        said = f"{every}, {len(wrong)} wrong and removed"
        return Answer(ExitCode.NO_FAILURE, said, data, lines)
    cannot = ", and could not be removed; next: rm -r" if repair else ""
    advice = () if repair else ("to remove them: ctk cache verify --repair",)
    said = f"{every}, {len(left)} wrong{cannot}"
    return Answer(ExitCode.FAILURE, said, data, (*lines, *advice))


COMMAND = Command("cache verify", cache_verify)
