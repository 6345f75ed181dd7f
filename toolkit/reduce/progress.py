"""How far a reduction is: what it may use, what each step has cost and brought."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ctk.compiler.errors import ConfigError
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Verdict


class OutOfBudget(Exception):
    """No question is left; the message says of what: `questions` or `seconds`."""


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a reduction may use; None is without limit."""

    questions: int | None = None
    seconds: float | None = None


def budget_of(max_questions: object, max_seconds: object) -> Budget:
    """Return the budget that a caller's words make.

    Raises:
        ConfigError: One of them is no count, or no time.
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
    """What one step has cost and brought.

    Attributes:
        questions: How often the oracle was asked.
        useful: How many answers gave a smaller case.
        cached: How often an answer of this run was used again.
        remembered: How many answers an earlier run had got.
        not_applicable: Edits that make no sense for the case that they were made for.
        not_smaller: Edits whose result the order (`size.py`) does not call smaller. A step that has
            nothing but these sees something that the order does not.
        nodes: How many call nodes fewer the smaller cases have.
        elements: How many elements of inputs fewer.
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
    """What `on_progress` sees after each answer.

    Attributes:
        questions: How often the oracle was asked.
        cached: How often an answer of this run was used again.
        seconds: Time used.
        call_nodes: Of the smallest case.
        call_nodes_before: Of the given one.
        step: Whose question it was.
        verdict: The answer.
        budget: What may be used.
        best: The smallest case.
        statistics: What each step has cost and brought.
        ahead: How many more questions the oracle was told of, and may work on already.
    """

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
