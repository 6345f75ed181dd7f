"""The cost of one reduction: its questions and statistics, held to the budget."""

import time
from dataclasses import dataclass, field, replace

from ctk.toolkit.reduce.progress import Budget, OutOfBudget, StepStatistics


@dataclass(slots=True)
class Ledger:
    """Counts of one search; a second search of the same reduction starts with those of the first.

    Attributes:
        started: Start time (`time.monotonic`).
    """

    budget: Budget = field(default_factory=Budget)
    step: str = "start"
    questions: int = 0
    remembered: int = 0
    cached: int = 0
    statistics: dict[str, StepStatistics] = field(default_factory=dict[str, StepStatistics])
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return time.monotonic() - self.started

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
