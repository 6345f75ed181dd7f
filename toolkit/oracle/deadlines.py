"""How long a candidate of a reduction may take: less than `--timeout`, as the last answers show.

"No" is a safe answer about a candidate, and after ten times the expected time a candidate almost
certainly hangs. So a hanging candidate costs seconds, not the whole `--timeout`:

1. The expected time follows from the last answers: the slowest of them, scaled by the size of the
   graph and the fixed cost of a compile. A smaller graph gets less time.
2. A short limit excludes the time in which the child waits for a core (`CoreWaits` in
   processes/tree.py): on a loaded machine, a slow candidate does not hang.
3. The first limits that run out are doubted: the question is asked once more with a multiple of
   the time. If it is answered then, limits are longer from now on, and doubted again.
4. "Yes" is not a safe answer: where the failure is a hang, a short limit that runs out proves none,
   and the question is asked again with the whole limit.

    --timeout 60, the last answers 0.1 to 0.4 s: a candidate may take 4 s
    the last answers 0.5 s, of 800 nodes: 50 nodes may take 2 s, not 5

Limits follow from the answers that a search has used, in its order, and travel with each question.
So speculation, on however many machines, changes none of them, and a resumed search has those of
the killed one. A question with a deadline of its own (the given case, the proof of a culprit) is
passed on as it is.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.oracle.question import Oracle, ParallelOracle, Question

FACTOR = 10.0
FLOOR_SECONDS = 2.0
"""Below this nothing counts as a hang: reading files and starting compilers take as long."""

UNLIMITED_FLOOR_SECONDS = 20.0
"""The same where the user set no limit."""

UNLIMITED_SECONDS = 60.0
"""Stands for the whole limit where the user set none."""

DOUBT = 4.0
"""How many times longer a question may take whose limit is doubted."""

DOUBTED = 2
"""Number of limits in a row that must prove right before one is believed at once."""

COMMON_NODES = 50
"""Fixed cost of a compile, in nodes."""

_REMEMBERED = 32

AskWithin = Callable[[float | None], Judgement]
"""Asks one question with a limit in seconds; None: unlimited."""


@dataclass(slots=True)
class TimeLimits:
    """The time limits of one search.

    Attributes:
        factor: How many times the expected time a candidate may take.
        proved: Number of limits in a row that ran out and proved right.
    """

    limit_seconds: float | None
    answers: deque[tuple[int, float]] = field(
        default_factory=lambda: deque[tuple[int, float]](maxlen=_REMEMBERED)
    )
    factor: float = FACTOR
    proved: int = 0

    def seconds(self, nodes: int = 0) -> float | None:
        """Return the limit of a candidate; `nodes` is 0 where its size costs nothing."""
        if not self.answers:
            return self.limit_seconds
        expected = max(seconds * _share(nodes, of=theirs) for theirs, seconds in self.answers)
        floor = UNLIMITED_FLOOR_SECONDS if self.limit_seconds is None else FLOOR_SECONDS
        return self._bound(max(floor, self.factor * expected))

    @property
    def whole_seconds(self) -> float:
        """The limit of an answer that must not rest on a short one."""
        return UNLIMITED_SECONDS if self.limit_seconds is None else self.limit_seconds

    def ask_within(self, ask: AskWithin, nodes: int = 0) -> Judgement:
        """Ask about a candidate with its limit, and again where that is doubted or proves nothing.

        The limits learn from the last answer only, so nothing changes if `ask` raises.

        Args:
            ask: Asks; a resumed search may ask with the same limit again.
        """
        limit = self.seconds(nodes)
        answer = ask(limit)
        if limit is None or limit == self.limit_seconds or not answer.is_out_of_time:
            return self._learn_time(answer, nodes)
        if answer.verdict is Verdict.REPRODUCES:
            return self._learn_time(ask(self.whole_seconds), nodes)
        longer = self._bound(DOUBT * limit)
        if self.proved >= DOUBTED or longer <= limit:
            return answer
        return self._learn_factor(ask(longer), nodes)

    def is_open(self, answer: Judgement) -> bool:
        """Return whether a short limit has cut an answer off."""
        return answer.is_out_of_time and not answer.holds(self.whole_seconds)

    def _learn_factor(self, answer: Judgement, nodes: int) -> Judgement:
        """Learn from the answer to a doubted question whether the limits are too short."""
        if answer.is_out_of_time:
            self.proved += 1
        else:
            self.proved = 0
            self.factor *= 2
        return self._learn_time(answer, nodes)

    def _learn_time(self, answer: Judgement, nodes: int) -> Judgement:
        if answer.seconds is not None and not answer.is_out_of_time:
            self.answers.append((nodes, answer.seconds))
        return answer

    def _bound(self, seconds: float) -> float:
        return seconds if self.limit_seconds is None else min(self.limit_seconds, seconds)


def _share(nodes: int, *, of: int) -> float:
    """Return the part of the time of one graph that another needs, at most 1."""
    return min(1.0, (nodes + COMMON_NODES) / (of + COMMON_NODES))


@dataclass(frozen=True, slots=True)
class Deadlines:
    """The layer that gives each candidate of a search a deadline.

    Attributes:
        is_by_size: Whether the time of an answer depends on the size of the graph.
    """

    inner: Oracle
    limits: TimeLimits
    is_by_size: bool = True

    @property
    def jobs(self) -> int:
        """Number of questions at the same time."""
        return self.inner.jobs if isinstance(self.inner, ParallelOracle) else 1

    def ask(self, question: Question, *, known_only: bool = False) -> Judgement:
        """Ask within the question's own deadline, or within the limit of its case.

        With `known_only` an answer that needs a further question is not known.
        """
        if question.deadline_seconds is not None:
            return self.inner.ask(question, known_only=known_only)

        def ask_within(seconds: float | None) -> Judgement:
            limited = replace(question, deadline_seconds=seconds)
            return self.inner.ask(limited, known_only=known_only)

        return self.limits.ask_within(ask_within, self._nodes(question.case))

    def anticipate(self, questions: Sequence[Question]) -> None:
        """Pass questions on with the limits that hold by now."""
        if isinstance(self.inner, ParallelOracle):
            limits = [self.limits.seconds(self._nodes(question.case)) for question in questions]
            pairs = zip(questions, limits, strict=True)
            self.inner.anticipate([replace(each, deadline_seconds=limit) for each, limit in pairs])

    def _nodes(self, case: Case) -> int:
        return len(case.graph.graph.nodes) if self.is_by_size else 0
