"""The baseline of a project: known failures with their issues, and the accuracy of each test.

A known failure is accepted, and does not fail a job, once it has a link to its issue. The file is
written by `--write-baseline`, which keeps the links; people add them.

    {"failures": [{"identity": "ctk: accuracy: joint/cse: merge", "issue": "https://...", ...}],
     "accuracy": [{"test": "t.py::a", "target": "ctk", "worst_ulp": 2.5}], "schema": 1}
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from ctk.toolkit.case.formats.checked_types import Line
from ctk.toolkit.case.formats.files import write_text
from ctk.toolkit.case.formats.plain_text import quote_value
from ctk.toolkit.case.formats.schema import document, read_document, write_document
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.ci.outcome import Outcome

SCHEMA: Final = 1

_LINK = re.compile(r"https?://[\w.:-]+(/[\w.~:/?#@!$&'*+,;=%-]*)?", re.ASCII)


def is_link(text: str) -> bool:
    """Return whether a text is an address that a browser opens."""
    return _LINK.fullmatch(text) is not None


def _check_link(text: str) -> str:
    if not text or is_link(text):
        return text
    raise ValueError(f"{quote_value(text)} is not the link of an issue: https://HOST/PATH")


IssueLink = Annotated[str, AfterValidator(_check_link)]
"""A link, or empty while there is no issue."""


@document
@dataclass(frozen=True, slots=True)
class KnownFailure:
    """A failure that a project knows.

    Attributes:
        issue: Link of its issue; empty: known, but not accepted.
        kind: The kind of failure.
        culprit: Null if it was not found.
        tests: The tests that show it.
    """

    identity: Line
    issue: IssueLink
    headline: Line
    target: Line
    kind: Line
    culprit: Line | None
    tests: tuple[Line, ...]

    def resembles(self, outcome: Outcome) -> bool:
        """Return whether an outcome of another identity may be this failure.

        Without a culprit on one side (on a slow machine the time for a bisection may run out), a
        failure of the same kind in the same test is taken for it.
        """
        is_alike = (outcome.target, outcome.kind) == (self.target, self.kind)
        is_open = self.culprit is None or outcome.culprit is None
        return is_alike and is_open and outcome.test in self.tests

    def is_fixed(self, outcomes: Sequence[Outcome]) -> bool:
        """Return whether each of its tests ran with its target, and none shows any failure."""
        ran: dict[str, bool] = {}
        for each in outcomes:
            if each.target == self.target:
                ran[each.test] = ran.get(each.test, True) and each.verdict.is_no_failure
        return all(ran.get(test, False) for test in self.tests)


@document
@dataclass(frozen=True, slots=True)
class Accuracy:
    """The accuracy of one test, as `Outcome.worst_ulp`."""

    test: Line
    target: Line
    worst_ulp: Annotated[float, Field(ge=0)]


@document
@dataclass(frozen=True, slots=True)
class Baseline:
    """The state of a project that its jobs are compared with."""

    failures: tuple[KnownFailure, ...] = ()
    accuracy: tuple[Accuracy, ...] = ()
    schema: Literal[1] = SCHEMA

    def find(self, outcome: Outcome) -> KnownFailure | None:
        """Return the entry of a failure, by its identity, else by resemblance."""
        key = outcome.key
        same = (entry for entry in self.failures if entry.identity == key)
        alike = (entry for entry in self.failures if entry.resembles(outcome))
        return next(chain(same, alike), None)

    @property
    def by_test(self) -> dict[tuple[str, str], Accuracy]:
        """The accuracy of each test with each target."""
        return {(each.test, each.target): each for each in self.accuracy}


def read_baseline(path: Path) -> Baseline:
    """Read a baseline.

    Raises:
        CaseError: It is missing, damaged, or of another ctk.
    """
    next_step = "write one: ctk ci-summary DIR --write-baseline FILE"
    return read_document(Baseline, path, next_step=next_step, schema=SCHEMA)


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Write a baseline in one step."""
    write_text(path, write_document(baseline))


def renew_baseline(old: Baseline, outcomes: Sequence[Outcome]) -> Baseline:
    """Return the baseline of a run.

    Links of issues stay, and so do entries of tests that did not run; fixed ones go.
    """
    entries = {each.identity: each for each in old.failures if not each.is_fixed(outcomes)}
    for outcome in outcomes:
        if not outcome.fails or outcome.known:
            continue
        entry = old.find(outcome)
        if entry is not None and outcome.culprit is None:
            continue  # it holds more already
        if entry is not None and entry.identity != outcome.key:
            entries.pop(entry.identity, None)
        entries[outcome.key] = _entry_of(outcome, entries.get(outcome.key, entry))
    measured = old.by_test | {(each.test, each.target): each for each in _accuracies(outcomes)}
    return Baseline(
        tuple(entries[identity] for identity in sorted(entries)),
        tuple(measured[key] for key in sorted(measured)),
    )


def _entry_of(outcome: Outcome, entry: KnownFailure | None) -> KnownFailure:
    tests = {outcome.test, *(entry.tests if entry is not None else ())}
    return KnownFailure(
        identity=outcome.key,
        issue=entry.issue if entry is not None else "",
        headline=outcome.headline,
        target=outcome.target,
        kind=outcome.kind,
        culprit=outcome.culprit,
        tests=tuple(sorted(tests)),
    )


def _accuracies(outcomes: Sequence[Outcome]) -> Iterator[Accuracy]:
    """Yield the accuracy of each test that passes; the worst, if it ran several times."""
    for each in sorted(outcomes, key=lambda outcome: outcome.worst_ulp or 0.0):
        if each.verdict is Verdict.PASSES and each.worst_ulp is not None:
            yield Accuracy(each.test, each.target, each.worst_ulp)
