"""How long a question may take: as the user says, and less for the candidates of a reduction.

"No" is a safe answer about a candidate, and one that takes ten times as long as it should hangs
with near certainty. So a candidate that hangs costs seconds, not the whole `--timeout`:

1. What it should take follows from the last answers: the slowest of them, each in proportion to
   the size of its graph and what every compile costs. A graph that shrinks needs less time.
2. Only time counts in which the machine had a core for it (`ctk.toolkit.processes.waits`): on a
   busy machine everything is slow, and nothing hangs for that.
3. The first limits that run out are doubted: such a question is asked once more, with a multiple
   of the time. If it is answered then, limits are longer from now on, and doubted again.
4. "Yes" is no safe answer: where a hang is what is looked for, a short limit that runs out proves
   none, and the question is asked again with the whole limit.

    --timeout 60, the last answers 0.1 to 0.4 s: a candidate may take 4 s
    the last answers 0.5 s, of 800 nodes: one of 50 nodes may take 2 s, not 5

Limits follow from the answers that a search has taken, in its order, and travel with each question:
who asks ahead, on however many machines, changes none of them, and a search that is resumed has
those of the one that was ended.

What it does not do: shorten a question whose answer is a verdict (the case itself, the proof of a
culprit).
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, runtime_checkable

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.oracle.ahead import Ahead, TimedOracle

FACTOR = 10.0
FLOOR_SECONDS = 2.0
"""Below this nothing is called a hang: files are read and compilers start at their own pace."""

UNLIMITED_FLOOR_SECONDS = 20.0
"""The same where the user set no limit at all."""

UNLIMITED_SECONDS = 60.0
"""What stands for the whole limit where the user set none, and an answer must be waited for."""

DOUBT = 4.0
"""How much longer a question may take whose limit is doubted."""

DOUBTED = 2
"""How many limits that ran out in a row must prove right before one is believed at once."""

COMMON_NODES = 50
"""What a compile costs whatever its graph holds, in nodes."""

_REMEMBERED = 32

AskWithin = Callable[[float | None], Judgement]
"""Asks one question, which may take so many seconds; None: as long as it likes."""


@dataclass(slots=True)
class Patience:
    """The time limits of one search.

    Attributes:
        limit_seconds: What the user set; None for no limit.
        answers: Nodes and seconds of the last answers.
        factor: How many times what it should take a candidate may take.
        proved: How many limits that ran out in a row proved right.
    """

    limit_seconds: float | None
    answers: deque[tuple[int, float]] = field(
        default_factory=lambda: deque[tuple[int, float]](maxlen=_REMEMBERED)
    )
    factor: float = FACTOR
    proved: int = 0

    def seconds(self, nodes: int = 0) -> float | None:
        """Return the limit of a candidate with a graph of so many nodes (0: nobody counts)."""
        if not self.answers:
            return self.limit_seconds
        should = max(seconds * _share(nodes, of=theirs) for theirs, seconds in self.answers)
        floor = UNLIMITED_FLOOR_SECONDS if self.limit_seconds is None else FLOOR_SECONDS
        return self._bounded(max(floor, self.factor * should))

    @property
    def whole_seconds(self) -> float:
        """How long an answer is waited for that must not rest on a short limit."""
        return UNLIMITED_SECONDS if self.limit_seconds is None else self.limit_seconds

    def asked(self, ask: AskWithin, nodes: int = 0) -> Judgement:
        """Ask about a candidate: with its limit, once more where that is doubted or proves nothing.

        What is learned of the limits is noted with the last answer, so that nothing is where `ask`
        raises.

        Args:
            ask: Asks; the same limit may be asked for again by a search that is resumed.
            nodes: Of the candidate's graph.
        """
        limit = self.seconds(nodes)
        answer = ask(limit)
        if not answer.is_out_of_time or not self._is_short(limit):
            return self._noted(answer, nodes)
        if answer.verdict is Verdict.REPRODUCES:
            return self._noted(ask(self.whole_seconds), nodes)
        longer = self._doubted(limit)
        return answer if longer is None else self._learned(ask(longer), nodes)

    def is_open(self, answer: Judgement) -> bool:
        """Return whether an answer is that a short limit has run out."""
        return answer.is_out_of_time and not answer.holds(self.whole_seconds)

    def _is_short(self, limit: float | None) -> bool:
        return limit is not None and (self.limit_seconds is None or limit < self.limit_seconds)

    def _doubted(self, limit: float | None) -> float | None:
        """Return the time for which to ask once more where a limit ran out; None: it is believed.

        Args:
            limit: Of a candidate.
        """
        assert limit is not None, "what has no limit runs out of none"
        longer = self._bounded(DOUBT * limit)
        return longer if self.proved < DOUBTED and longer > limit else None

    def _learned(self, answer: Judgement, nodes: int) -> Judgement:
        """Learn from an answer to a doubted question whether the limits are too short."""
        if answer.is_out_of_time:
            self.proved += 1
        else:
            self.proved = 0
            self.factor *= 2
        return self._noted(answer, nodes)

    def _noted(self, answer: Judgement, nodes: int) -> Judgement:
        """Remember how long an answer took."""
        if answer.seconds is not None and not answer.is_out_of_time:
            self.answers.append((nodes, answer.seconds))
        return answer

    def _bounded(self, seconds: float) -> float:
        return seconds if self.limit_seconds is None else min(self.limit_seconds, seconds)


def _share(nodes: int, *, of: int) -> float:
    """Return which part of the time of one graph another needs: never more than all of it."""
    return min(1.0, (nodes + COMMON_NODES) / (of + COMMON_NODES))


@runtime_checkable
class Deciding(Protocol):
    """An oracle whose answers may rest on a short limit, and that can be asked with the whole."""

    def is_open(self, answer: Judgement) -> bool:
        """Return whether an answer is that a short limit has run out."""
        ...

    def decide(self, case: Case) -> Judgement:
        """Judge a case with the whole limit."""
        ...

    def recall_decided(self, case: Case) -> Judgement | None:
        """Return what `decide` would, if it is known of an earlier run."""
        ...


class _Unknown(Exception):
    """No earlier run has this answer."""


@dataclass(frozen=True, slots=True)
class Patient:
    """An oracle for the candidates of one search, each of them asked as long as it is worth.

    Attributes:
        oracle: Answers within a limit.
        patience: The limits.
        is_by_size: Whether what it takes follows from the size of the graph.
    """

    oracle: TimedOracle
    patience: Patience
    is_by_size: bool = True

    @property
    def jobs(self) -> int:
        """How many questions may be under way at once."""
        return self.oracle.jobs if isinstance(self.oracle, Ahead) else 1

    def __call__(self, case: Case) -> Judgement:
        """Judge a candidate."""
        return self.patience.asked(partial(self.oracle, case), self._nodes(case))

    def recall(self, case: Case) -> Judgement | None:
        """Return the answer of an earlier run, if it needs no further question."""
        try:
            return self.patience.asked(partial(self._recalled, case), self._nodes(case))
        except _Unknown:
            return None

    def _recalled(self, case: Case, within: float | None) -> Judgement:
        known = self.oracle.recall(case, within)
        if known is None:
            raise _Unknown
        return known

    def anticipate(self, cases: Sequence[Case]) -> None:
        """Ask about some cases ahead, with the limits that they have by now."""
        if isinstance(self.oracle, Ahead):
            limits = [self.patience.seconds(self._nodes(case)) for case in cases]
            self.oracle.anticipate(cases, limits)

    def is_open(self, answer: Judgement) -> bool:
        """Return whether an answer is that a short limit has run out."""
        return self.patience.is_open(answer)

    def decide(self, case: Case) -> Judgement:
        """Judge a case with the whole limit."""
        return self.oracle(case, self.patience.whole_seconds)

    def recall_decided(self, case: Case) -> Judgement | None:
        """Return what `decide` would, if it is known of an earlier run."""
        return self.oracle.recall(case, self.patience.whole_seconds)

    def _nodes(self, case: Case) -> int:
        return len(case.graph.graph.nodes) if self.is_by_size else 0
