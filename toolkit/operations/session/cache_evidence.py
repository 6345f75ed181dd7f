"""The entries of the persistent cache for a compile under diagnosis, and their removal.

1. A compile under diagnosis is observed, so it does not come from the cache. The report names the
   entry that the user's program gets.
2. A culprit that is confirmed by its veto was at work when the entry was made: the entry is
   removed, and the journal of the cache holds the reason (`ctk cache why`).
3. A present compile passes. If the program from the entry fails, the entry alone is wrong (stale,
   or made by a fault that is gone): it is removed, and the report names this reason.

Only entries of the present key count. An entry is never judged in a process that observes it.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

from ctk.compiler.cache.entry import Key
from ctk.compiler.cache.store import Store, open_store
from ctk.compiler.cache.whole_graph import variants
from ctk.compiler.errors import Uncacheable
from ctk.compiler.observe import first_line
from ctk.compiler.options.environment import cache_settings
from ctk.toolkit.bisect import Search
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.execution.cache_key import compute_key
from ctk.toolkit.operations.report.diagnosis import KeptEntry
from ctk.toolkit.oracle.answers.fingerprint import Digests, fingerprint
from ctk.toolkit.oracle.answers.journal import Journal
from ctk.toolkit.oracle.question import Oracle, Question
from ctk.toolkit.targets.ctk import TARGET, UNWATCHED

logger = logging.getLogger("ctk")


def of_failing(case: Case, search: Search, journal: Journal, digests: Digests) -> KeptEntry | None:
    """Return the cache entries of a failing case; they are removed if a culprit is confirmed."""
    name = fingerprint(case, digests)
    known = journal.recall(KeptEntry, name)
    if known is not None:
        return known
    entries = _find_entries(case)
    if entries is None:
        return None
    found, store, keys = entries
    if search.confirmed and search.culprit is not None:
        why = f"ctk has proved {search.culprit.where} guilty of it"
        found = _drop_entries(store, keys, found, why)
    journal.note(name, found)
    return found


def of_passing(
    cases: Sequence[Case], oracle: Oracle, journal: Journal, digests: Digests
) -> KeptEntry | None:
    """Return the cache entries of passing cases: the first that fails from there, else any."""
    all_found: list[KeptEntry] = []
    for case in cases:
        name = fingerprint(case, digests)
        found = journal.recall(KeptEntry, name) or _ask_cached(case, oracle)
        if found is None:
            continue
        journal.note(name, found)
        if found.alone_fails:
            return found
        all_found.append(found)
    return all_found[0] if all_found else None


def _ask_cached(case: Case, oracle: Oracle) -> KeptEntry | None:
    entries = _find_entries(case)
    if entries is None:
        return None
    found, store, keys = entries
    as_used = replace(case, target=UNWATCHED.name, signature=None)
    answer = oracle.ask(Question(as_used))
    found = replace(found, loaded=answer.verdict)
    if answer.verdict is not Verdict.REPRODUCES:
        return found
    recompiled = oracle.ask(Question(replace(as_used, config={**case.config, "cache": False})))
    if recompiled.verdict is not Verdict.PASSES:  # it draws: nothing is comparable
        return replace(found, loaded=Verdict.FLAKY)
    why = f"loaded from it {case.name} fails ({answer.signature}); compiled again it passes"
    return _drop_entries(store, keys, found, why)


def _drop_entries(store: Store, keys: Sequence[Key], found: KeptEntry, why: str) -> KeptEntry:
    for key in keys:
        store.drop(key, why)
    return replace(found, removed="" if any(store.has(key) for key in keys) else why)


def _find_entries(case: Case) -> tuple[KeptEntry, Store, list[Key]] | None:
    """Return a case's entries in the cache with their keys, without creating or loading any."""
    folder = cache_settings().folder
    if case.target != TARGET.name or folder is None or not folder.is_dir():
        return None
    store = open_store()
    if store is None:
        return None
    try:
        key = compute_key(case)
    except Uncacheable as error:
        logger.debug("%s is never cached: %s", case.name, first_line(error))
        return None
    keys = [each for each in (key, *variants(key)) if store.has(each)]
    return (
        (KeptEntry(case.name, tuple(each.digest for each in keys)), store, keys) if keys else None
    )
