"""The progress of a reduction: its budget, and the cost and gain of each step."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from ctk.compiler.errors import ConfigError
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Verdict

Limit = Literal["questions", "seconds", "time"]


class OutOfBudget(Exception):
    """The budget is exhausted."""

    def __init__(self, name: Limit) -> None:
        super().__init__(name)
        self.name: Limit = name


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a reduction may use; None is without limit.

    Attributes:
        graph_end: When the search for the fewest nodes ends (`time.monotonic`).
        detail_end: When the search for simpler details ends, of a graph with the fewest nodes.
        detail_seconds: Least time of that search.
    """

    questions: int | None = None
    seconds: float | None = None
    graph_end: float | None = None
    detail_end: float | None = None
    detail_seconds: float = 0.0


def budget_of(max_questions: object, max_seconds: object) -> Budget:
    """Check and return the budget of a caller.

    Raises:
        ConfigError: `max_questions` is not a count, or `max_seconds` not a positive number.
    """
    if max_questions is not None and (
        isinstance(max_questions, bool) or not isinstance(max_questions, int) or max_questions < 1
    ):
        raise ConfigError(f"max_questions is {max_questions!r}; it must be a count, from 1")
    if max_seconds is not None and (
        isinstance(max_seconds, bool)
        or not isinstance(max_seconds, int | float)
        or not max_seconds > 0
    ):
        raise ConfigError(f"max_seconds is {max_seconds!r}; it must be a number above 0")
    return Budget(max_questions, max_seconds)


@dataclass(slots=True)
class StepStatistics:
    """The cost and gain of one step.

    Attributes:
        useful: Number of answers that gave a smaller case.
        cached: Number of answers of this run that were used again.
        remembered: Number of answers from an earlier run.
        not_applicable: Edits that do not apply to the case for which they were made.
        not_smaller: Edits whose result is not smaller by the order (`size.py`). If a step has only
            such edits, the order misses its idea.
    """

    questions: int = 0
    useful: int = 0
    cached: int = 0
    remembered: int = 0
    not_applicable: int = 0
    not_smaller: int = 0
    nodes: int = 0
    elements: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """The argument of `on_progress`; `ahead` questions are anticipated and may already run."""

    questions: int
    cached: int
    seconds: float
    call_nodes: int
    call_nodes_before: int
    step: str
    verdict: Verdict
    budget: Budget
    best: Case
    statistics: Mapping[str, StepStatistics] = field(default_factory=dict[str, StepStatistics])
    ahead: int = 0


@dataclass(slots=True)
class Ledger:
    """Counts of one search; a second search of the same reduction starts with those of the first.

    Attributes:
        started: Start time (`time.monotonic`).
        minimal_at: When the search for the fewest nodes ended; None while it goes on.
    """

    budget: Budget = field(default_factory=Budget)
    step: str = "start"
    questions: int = 0
    remembered: int = 0
    cached: int = 0
    statistics: dict[str, StepStatistics] = field(default_factory=dict[str, StepStatistics])
    started: float = field(default_factory=time.monotonic)
    minimal_at: float | None = None

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return time.monotonic() - self.started

    @property
    def is_graph_minimal(self) -> bool:
        """Whether the search for the fewest nodes has ended."""
        return self.minimal_at is not None

    @property
    def counts(self) -> StepStatistics:
        """The counts of the step at work."""
        return self.statistics.setdefault(self.step, StepStatistics())

    @property
    def acceptance(self) -> float:
        """Estimated probability that the next edit of the step at work is accepted."""
        counts = self.counts
        return (counts.useful + 1) / (counts.questions + counts.remembered + 3)

    def charge(self) -> None:
        """Count a question.

        Raises:
            OutOfBudget: It is one too many, or too late.
        """
        budget = self.budget
        if budget.questions is not None and self.questions >= budget.questions:
            raise OutOfBudget("questions")
        if budget.seconds is not None and self.seconds >= budget.seconds:
            raise OutOfBudget("seconds")
        end = budget.graph_end
        if self.minimal_at is not None and budget.detail_end is not None:
            end = max(budget.detail_end, self.minimal_at + budget.detail_seconds)
        if end is not None and time.monotonic() >= end:
            raise OutOfBudget("time")
        self.questions += 1
        self.counts.questions += 1

    def count_remembered(self) -> None:
        """Count an answer that was looked up."""
        self.remembered += 1
        self.counts.remembered += 1

    def count_cached(self) -> None:
        """Count an answer of this search that is used again."""
        self.cached += 1
        self.counts.cached += 1

    def snapshot(self) -> dict[str, StepStatistics]:
        """Return a copy of the statistics."""
        return {name: replace(counts) for name, counts in self.statistics.items()}

    def idle_steps(self) -> tuple[str, ...]:
        """Return the steps that made cases, none of them smaller: the order misses their idea."""
        return tuple(
            name
            for name, counts in self.statistics.items()
            if counts.not_smaller and not counts.questions + counts.cached + counts.remembered
        )
