"""The operation `cache` on a program: whether its graphs are in the cache, and why not.

Nothing is compiled. What it does not do: ask the guards on sizes that an entry may have.
"""

from pathlib import Path

from ctk.compiler.cache.store import Store
from ctk.compiler.errors import Uncacheable
from ctk.compiler.observe import first_line
from ctk.toolkit.execution.cache_key import key_of
from ctk.toolkit.importers import load_subject
from ctk.toolkit.importers.base import CaseOptions, request_of
from ctk.toolkit.operations.cache import Explanation, compared


def explain_subject(store: Store, subject: Path, *, trust: bool) -> list[Explanation]:
    """Return for each graph of a case or program whether it is in the cache, and why not.

    Raises:
        CtkError: It cannot be loaded or captured, or is for another compiler than ctk.
    """
    loaded = load_subject(subject, None, request_of({"trust": trust}, CaseOptions))
    if loaded.uncaptured is not None:
        raise loaded.uncaptured
    found: list[Explanation] = []
    for case in loaded.cases:
        try:
            found.append(compared(store, key_of(case), None))
        except Uncacheable as error:
            found.append(Explanation("", None, is_kept=False, refusal=first_line(error)))
    return found
