"""A second search of one reduction: it has what is left of the budget, and counts on.

first     24 of 40 questions; then the smallest case passes in some runs
second    the rest, from the smallest case, each question asked several times: 16 questions
result    40 questions, statistics of both
"""

from dataclasses import replace

from ctk.toolkit.reduce.driver import Reason, Reduction
from ctk.toolkit.reduce.problem import Problem


def go_on_after(problem: Problem, before: Reduction) -> None:
    """Let a new search count on from one that has ended.

    Args:
        problem: Nothing was asked yet.
        before: The result of the search before, of the same given case.
    """
    problem.questions, problem.remembered = before.questions, before.remembered
    problem.cache.hits = before.cached
    problem.statistics = {name: replace(each) for name, each in before.statistics.items()}
    problem.started -= before.seconds
    problem.nodes_before = before.nodes_before


def joined(before: Reduction, after: Reduction) -> Reduction:
    """Return the result of the second search, with what went wrong in both."""
    problems = dict.fromkeys((*before.problems, *after.problems))
    return replace(after, problems=tuple(problems), errors=(*before.errors, *after.errors))


def doubted(found: Reduction, reason: Reason, *errors: Exception) -> Reduction:
    """Return a result that is not called minimal, for why it could not be asked about again."""
    said = tuple(f"asked again about the smallest case: {error}" for error in errors)
    return replace(
        found,
        finished=False,
        reason=reason,
        problems=(*found.problems, *said),
        errors=(*found.errors, *errors),
    )
