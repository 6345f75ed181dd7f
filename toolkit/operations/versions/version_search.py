"""Search for the release at which a script changes its answer.

1. The newest release, then the oldest that has an answer: if they agree, nothing has changed.
2. A binary search between them; releases without an answer are skipped. With several jobs, the
   questions that are likely to follow are asked at the same time, with the same result.
3. If the two neighbours bring different releases of Triton: the bad torch with the Triton of the
   good one. If that passes, Triton is the culprit.

       torch    2.11.0  2.12.0  2.13.0  2.14.0  2.15.0
       answer   good      -     good    bad     bad         first bad: 2.14.0 (good: 2.13.0)
       triton   3.6.0           3.7.1   3.8.0   3.9.0       2.14.0 with triton 3.7.1: good, so
                                                            Triton is the culprit
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ctk.toolkit.operations.versions.questions import VersionAnswer, VersionQuestion
from ctk.toolkit.releases.environments import Removal
from ctk.toolkit.releases.pip_commands import Release
from ctk.toolkit.search.boundaries import find_change
from ctk.toolkit.search.questions import Answer, Search, foresee, run_search

AskMany = Callable[[Sequence[VersionQuestion]], Mapping[VersionQuestion, VersionAnswer]]


@dataclass(frozen=True, slots=True)
class AskedRelease:
    """A release of the range; without an answer if it was not asked.

    Attributes:
        python: The installed interpreter that was asked; empty for an environment.
    """

    release: Release
    answer: VersionAnswer | None = None
    python: str = ""

    @property
    def is_bad(self) -> bool | None:
        return None if self.answer is None else self.answer.is_bad


@dataclass(frozen=True, slots=True)
class TritonCheck:
    """The bad torch with the Triton of the good one.

    Attributes:
        own: The release of Triton that the bad torch brings.
        given: The release of Triton that the good torch brings.
    """

    own: str
    given: str
    answer: VersionAnswer


@dataclass(frozen=True, slots=True)
class VersionReport:
    """The result of a search over releases.

    Attributes:
        package: `torch` or `triton`.
        releases: The range, the oldest first; installed interpreters in the order of the user.
        before: Index of the last release before the change; None without a change.
        after: Index of the first release after it, and of the first bad one if all are bad.
        is_reversed: Whether the search is for the first good release.
        torch: The release of torch in which releases of Triton were asked.
        triton: The check of Triton alone; None if it could not differ.
        questions: Number of questions that this run has asked; the others were remembered.
        seconds: Time of this run.
    """

    package: str
    releases: tuple[AskedRelease, ...]
    before: int | None
    after: int | None
    is_reversed: bool
    torch: str = ""
    triton: TritonCheck | None = None
    folder: Path | None = None
    script: Path | None = None
    root: Path | None = None
    removed: Removal | None = None
    questions: int = 0
    seconds: float = 0.0

    @property
    def change(self) -> tuple[AskedRelease, AskedRelease] | None:
        """The releases before and after the change; None without a change."""
        if self.before is None or self.after is None:
            return None
        return self.releases[self.before], self.releases[self.after]

    @property
    def unanswered(self) -> tuple[AskedRelease, ...]:
        """The releases between those of the change, none of which has an answer."""
        if self.before is None or self.after is None:
            return ()
        return self.releases[self.before + 1 : self.after]

    @property
    def undecided(self) -> tuple[AskedRelease, ...]:
        """The releases without an answer in which a change may lie, if none is known.

        These are the ones beyond the last answer in the direction of the search; of installed
        interpreters, all of them.
        """
        answered = [n for n, each in enumerate(self.releases) if each.is_bad is not None]
        if self.change is not None or not answered:
            return ()
        if self.releases[0].python:
            beyond = self.releases
        elif self.after is None:
            beyond = self.releases[answered[-1] + 1 :]
        else:
            beyond = self.releases[: answered[0]]
        return tuple(each for each in beyond if each.answer is not None and each.is_bad is None)

    @property
    def is_undecided(self) -> bool:
        """Whether the first release of the search can be neither named nor excluded."""
        if not self.having("bad"):
            return bool(self.undecided) or not self.having("good")
        if self.releases[0].python:
            return False
        return bool(self.undecided) or (bool(self.unanswered) and self.is_monotone)

    @property
    def is_monotone(self) -> bool:
        """Whether the answers change at most once, and in the direction of the search."""
        seen = [
            each.is_bad != self.is_reversed for each in self.releases if each.is_bad is not None
        ]
        return seen == sorted(seen)

    def having(self, outcome: str) -> list[AskedRelease]:
        """Return the releases with an outcome."""
        return [each for each in self.releases if each.answer and each.answer.outcome == outcome]


def search_releases(
    questions: Sequence[VersionQuestion],
    ask: AskMany,
    *,
    is_reversed: bool,
    every: bool = False,
    jobs: int = 1,
) -> tuple[dict[VersionQuestion, VersionAnswer], int | None, int | None]:
    """Return the answers, and the indices before and after the change.

    Args:
        questions: One for each release, the oldest first.
        ask: Answers questions at the same time.
        every: Ask each of them.
        jobs: How many are asked at the same time.
    """
    answers: dict[VersionQuestion, VersionAnswer] = {}
    order = {question: index for index, question in enumerate(questions)}

    def known() -> dict[int, Answer]:
        found: dict[int, Answer] = {}
        for question, answer in answers.items():
            bad = answer.is_bad
            found[order[question]] = None if bad is None else bad != is_reversed
        return found

    def make() -> Search[int, tuple[int | None, int | None]]:
        return find_change(len(questions))

    if every:
        for start in range(0, len(questions), jobs):
            answers |= ask(questions[start : start + jobs])
    while batch := foresee(make, known(), jobs):
        answers |= ask([questions[index] for index in batch])
    before, after = run_search(make(), known().__getitem__)
    return answers, before, after


def check_triton(report: VersionReport, ask: AskMany) -> VersionReport:
    """Return the report with the check whether Triton alone is the culprit.

    There is none for installed interpreters, and where the two releases bring the same Triton or
    one of them brings none.
    """
    change = report.change
    if change is None or change[0].python or report.package != "torch":
        return report
    good, bad = change if change[1].is_bad else change[::-1]
    assert good.answer is not None and bad.answer is not None, "both were asked"
    own, given = bad.answer.versions, good.answer.versions
    if own is None or given is None or not own.triton or not given.triton:
        return report
    if own.triton == given.triton:
        return report
    question = VersionQuestion(bad.release, f"{given.triton_package}=={given.triton}")
    answer = ask([question])[question]
    return replace(report, triton=TritonCheck(own.triton, given.triton, answer))
