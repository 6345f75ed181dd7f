"""The report of a run: its outcomes, grouped by failure and compared with a baseline.

    new          a failure that the baseline does not know, or knows without the link of an issue
    known        a failure with the link of an issue: it does not fail the job
    fixed        an entry of the baseline each of whose tests passes now
    losses       a test that passes, less accurately than in the baseline
    undecided    a test that cannot be judged: flaky, out of time, or nothing to compare

An undecided test is reported and does not fail a job, unless no test at all was judged.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ctk.compiler.errors import count_of
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.ci.accuracy import is_worse
from ctk.toolkit.ci.baseline import Baseline, KnownFailure
from ctk.toolkit.ci.collect import Collection
from ctk.toolkit.ci.outcome import Outcome
from ctk.toolkit.ci.places import Place, find_place, find_repository


@dataclass(frozen=True, slots=True)
class Group:
    """The outcomes that show one failure; a confirmed one is first.

    Attributes:
        entry: Its entry in the baseline.
        place: In the user's program; None if unknown.
    """

    outcomes: tuple[Outcome, ...]
    entry: KnownFailure | None
    place: Place | None

    @property
    def first(self) -> Outcome:
        return self.outcomes[0]

    @property
    def issue(self) -> str:
        """The link of its issue, or why each of its tests expects it; empty if not accepted."""
        known = self.first.known if all(each.known for each in self.outcomes) else ""
        return (self.entry.issue if self.entry is not None else "") or known

    @property
    def rule(self) -> str:
        """The pass, with the guilty rule of it; the kind of failure if there is no culprit."""
        first = self.first
        culprit = first.culprit.partition("#")[0] if first.culprit else first.kind
        return f"{culprit}/{first.rule}" if first.rule else culprit

    @property
    def tests(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(outcome.test for outcome in self.outcomes))


@dataclass(frozen=True, slots=True)
class Loss:
    """A test that passes, less accurately than before."""

    outcome: Outcome
    before: float
    place: Place | None

    @property
    def sentence(self) -> str:
        """The growth of the error in words."""
        now = self.outcome.worst_ulp or 0.0
        return f"the largest error of a result grew from {self.before:.3g} to {now:.3g} ULP"


@dataclass(frozen=True, slots=True)
class CiReport:
    """The report of a run. As a string: the answer in one line, without any text of a test.

    Attributes:
        problems: Documents that cannot be read; they may hide a failure.
        other_tests: Tests that failed for another reason than a wrong compile.
    """

    outcomes: tuple[Outcome, ...]
    groups: tuple[Group, ...]
    fixed: tuple[KnownFailure, ...] = ()
    losses: tuple[Loss, ...] = ()
    problems: tuple[str, ...] = ()
    other_tests: tuple[str, ...] = ()

    @property
    def new(self) -> tuple[Group, ...]:
        return tuple(each for each in self.groups if each.first.fails and not each.issue)

    @property
    def known(self) -> tuple[Group, ...]:
        return tuple(each for each in self.groups if each.issue)

    @property
    def undecided(self) -> tuple[Group, ...]:
        return tuple(each for each in self.groups if not each.first.fails and not each.issue)

    @property
    def fails(self) -> bool:
        """Whether the job fails."""
        return bool(self.new or self.losses or self.other_tests)

    @property
    def is_undecided(self) -> bool:
        """Whether no failure is seen, and nothing was judged, or a document is unreadable."""
        is_judged = any(not outcome.is_undecided for outcome in self.outcomes)
        return not self.fails and (bool(self.problems) or not is_judged)

    def __str__(self) -> str:
        counts = (
            (self.new, "new failure"),
            (self.losses, "less accurate test"),
            (self.other_tests, "test with an error of its own"),
            (self.undecided, "undecided test"),
            (self.problems, "unreadable document"),
            (self.known, "known failure"),
            (self.fixed, "fixed failure"),
        )
        found = [count_of(len(items), words) for items, words in counts if items]
        tests = count_of(len({outcome.test for outcome in self.outcomes}), "judged test")
        verdict = "failure" if self.fails else "no failure"
        verdict = "cannot tell" if self.is_undecided else verdict
        return f"{verdict}: {', '.join(found)}{' in ' * bool(found)}{tests}"


def make_report(
    collection: Collection,
    baseline: Baseline | None = None,
    *,
    other_tests: Sequence[str] = (),
) -> CiReport:
    """Group the outcomes of a run, and compare them with a baseline."""
    known, root = baseline or Baseline(), find_repository()
    outcomes = collection.outcomes
    by_key: dict[str, list[Outcome]] = {}
    for outcome in sorted(outcomes, key=lambda each: not each.confirmed):
        if not outcome.verdict.is_no_failure:
            entry = known.find(outcome) if outcome.fails else None
            by_key.setdefault(entry.identity if entry else outcome.key, []).append(outcome)
    groups = (_group(tuple(by_key[key]), known, root) for key in sorted(by_key))
    return CiReport(
        outcomes,
        tuple(groups),
        tuple(entry for entry in known.failures if entry.is_fixed(outcomes)),
        tuple(_losses(outcomes, known, root)),
        collection.problems,
        tuple(other_tests),
    )


def _group(outcomes: tuple[Outcome, ...], known: Baseline, root: Path) -> Group:
    places = (find_place(outcome, root) for outcome in outcomes)
    entry = known.find(outcomes[0]) if outcomes[0].fails else None
    return Group(outcomes, entry, next(filter(None, places), None))


def _losses(outcomes: Sequence[Outcome], known: Baseline, root: Path) -> Iterator[Loss]:
    recorded = known.by_test
    for outcome in outcomes:
        before, now = recorded.get((outcome.test, outcome.target)), outcome.worst_ulp
        if outcome.verdict is not Verdict.PASSES or before is None or now is None:
            continue
        if is_worse(now, before.worst_ulp):
            yield Loss(outcome, before.worst_ulp, find_place(outcome, root))
