"""Questions about several cases: who answers them, and which answer tells most."""

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import TypedDict, TypeVar

from ctk.compiler.environment import read_environment
from ctk.toolkit.case.case import Case
from ctk.toolkit.importers import Inputs, Subject, are_strangers, load_cases
from ctk.toolkit.importers.base import CaseOptions, request_of
from ctk.toolkit.oracle.executors import executor_for
from ctk.toolkit.oracle.executors.base import Executor
from ctk.toolkit.oracle.judgement import Judgement, Verdict
from ctk.toolkit.processes.link import Watch, watched
from ctk.toolkit.processes.memory import default_limit_nbytes

SILENT_SECONDS = 120.0
"""Longest that a command waits for one answer of a stranger's case in its own process."""

T = TypeVar("T")


class IsolationKeywords(TypedDict, total=False):
    """The keywords that choose who answers; see `executor_for`."""

    isolate: bool | None
    timeout_seconds: float | None
    memory_nbytes: int | None


class AskOptions(CaseOptions, IsolationKeywords, total=False):
    """The keywords of every operation that asks an oracle."""


@contextmanager
def opened(
    subject: Subject, inputs: Inputs | None, options: AskOptions
) -> Generator[tuple[list[Case], Executor]]:
    """Load the cases of a subject, and start who answers questions about them.

    Raises:
        TypeError: An option is unknown. CtkError: As `load_cases` and `executor_for` raise it.
    """
    request = request_of(options, AskOptions)
    cases = load_cases(subject, inputs, request)
    executor = executor_for(
        cases,
        isolate=options.get("isolate"),
        timeout_seconds=options.get("timeout_seconds"),
        memory_nbytes=options.get("memory_nbytes"),
    )
    is_watched = (
        options.get("isolate") is None
        and not executor.isolates
        and are_strangers(cases, subject, request)
    )
    with executor, watched(_limits() if is_watched else None):
        yield cases, executor


def _limits() -> Watch:
    return Watch(SILENT_SECONDS, read_environment().memory_nbytes or default_limit_nbytes())


def first_failing(
    cases: Iterable[Case], ask: Callable[[Case], T], judgement_of: Callable[[T], Judgement]
) -> tuple[Case, T]:
    """Ask about each case until one shows its failure; there is at least one case.

    Args:
        cases: The graphs of one program, in order.
        ask: Asks about one of them.
        judgement_of: Reads the judgement off an answer.

    Returns:
        The first case that fails as it should, with its answer; else the one that tells most.
    """
    asked: list[tuple[Case, T]] = []
    for case in cases:
        asked.append((case, ask(case)))
        if judgement_of(asked[-1][1]).verdict is Verdict.REPRODUCES:
            break
    return max(asked, key=lambda pair: judgement_of(pair[1]).telling)


def most_telling(judgements: Iterable[Judgement]) -> Judgement:
    """Return the first judgement that tells most of a program; there is at least one."""
    return max(judgements, key=lambda judgement: judgement.telling)
