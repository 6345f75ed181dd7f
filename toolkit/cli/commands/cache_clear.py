"""`ctk cache clear`: empty the persistent cache."""

from typing import Annotated

from ctk.toolkit.cli.commands.cache_ls import count_entries_in_words
from ctk.toolkit.cli.shell.answer import Answer, ExitCode
from ctk.toolkit.cli.shell.command_context import Command
from ctk.toolkit.cli.shell.options import argument


def cache_clear(
    entry: Annotated[
        str | None,
        argument(
            "ENTRY", "How its digest starts, as `ctk cache ls` shows it (default: everything)."
        ),
    ] = None,
) -> Answer:
    """Empty the persistent cache.

    Removes all entries, tuning choices and notes, or one entry. Running programs keep their opened
    entries.
    """
    from ctk.toolkit.operations.cache import cache_store, find_entry

    store = cache_store()
    if entry is not None:
        one = find_entry([] if store is None else store.entries(), entry)
        is_gone = store is not None and store.discard(one, "it was removed by hand")
        code = ExitCode.NO_FAILURE if is_gone else ExitCode.CANNOT_TELL
        said = f"{'removed' if is_gone else 'cannot remove'} {one.path}"
        return Answer(code, said, {"removed": int(is_gone)})
    removed = 0 if store is None else store.clear()
    left = [] if store is None else store.entries()
    if left:
        entries = count_entries_in_words(len(left))
        said = f"cannot remove {entries}; next: rm -r {left[0].path.parent}"
        return Answer(ExitCode.CANNOT_TELL, said, {"removed": removed})
    where = "" if store is None else f" from {store.root}"
    said = f"removed {count_entries_in_words(removed)}{where}"
    return Answer(ExitCode.NO_FAILURE, said, {"removed": removed})


COMMAND = Command("cache clear", cache_clear)
