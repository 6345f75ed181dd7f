"""The one engine of the reducer: sweep over the steps until no single edit of any helps.

Three efforts, each tried only when the cheaper one has nothing left:

1. coarse, once: ladders by bisection, choices only as a whole;
2. thorough, until a sweep brings nothing: ladders galloping, choices by halving;
3. singly: every edit of every step alone. Its end is the definition of the result: 1-minimal.

Whatever happens, the best case so far is returned: a used-up budget and Ctrl-C only end the search.
Errors of the oracle are the caller's (an oracle answers with a verdict; an exception of it is a
bug).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.problem import OutOfBudget, Problem, StepStatistics
from ctk.toolkit.reduce.proposal import Choice, Ladder, Proposal, Step
from ctk.toolkit.reduce.search import find_integer, largest_subset, largest_true
from ctk.toolkit.reduce.size import call_nodes
from ctk.toolkit.reduce.steps import STEPS

Reason = Literal["minimal", "interrupted", "questions", "seconds"]


@dataclass(frozen=True, slots=True)
class Reduction:
    """The result of a reduction.

    Attributes:
        best: The smallest case found; it was judged to reproduce (the given case if nothing smaller
            did).
        finished: Whether no single edit of any step can make it smaller.
        reason: Why the search ended: `minimal`, `interrupted` (Ctrl-C), or the budget that was used
            up.
        questions: How often the oracle was asked.
        cached: How often an answer was remembered instead.
        seconds: Time used.
        statistics: Questions per step: useful, useless, cached, not applicable.
        nodes_before: Call nodes of the given case, sub-graphs included.
        nodes_after: Call nodes of `best`.
    """

    best: Case
    finished: bool
    reason: Reason
    questions: int
    cached: int
    seconds: float
    statistics: Mapping[str, StepStatistics]
    nodes_before: int
    nodes_after: int


def minimize(problem: Problem, steps: Sequence[Step] = STEPS) -> Reduction:
    """Return the smallest case that still fails in the same way.

    Args:
        problem: The failing case, its oracle and what may be used. Holds the best case at any time.
        steps: The ideas to try, in order.

    Raises:
        DoesNotReproduce: The given case does not fail, as the oracle sees it.
    """
    reason: Reason = "minimal"
    try:
        problem.check_start()
        _search(problem, steps)
    except OutOfBudget as out:
        reason = "questions" if str(out) == "questions" else "seconds"
    except KeyboardInterrupt:
        reason = "interrupted"
    return Reduction(
        best=problem.best,
        finished=reason == "minimal",
        reason=reason,
        questions=problem.questions,
        cached=problem.cache.hits,
        seconds=problem.seconds,
        statistics=dict(problem.statistics),
        nodes_before=problem.nodes_before,
        nodes_after=call_nodes(problem.best),
    )


def _search(problem: Problem, steps: Sequence[Step]) -> None:
    _sweep(problem, steps, _coarsely)
    while True:
        while _sweep(problem, steps, _thoroughly):
            pass
        if not _sweep(problem, steps, _singly):
            return


Search = Callable[[Problem, Proposal], None]


def _sweep(problem: Problem, steps: Sequence[Step], search: Search) -> bool:
    """Run each step once; return whether the best case has changed."""
    start = problem.best
    for step in steps:
        problem.step = step.name
        index = 0
        while index < len(proposals := step.propose(problem.best, problem.facts)):
            search(problem, proposals[index])
            index += 1
    return problem.best is not start


def _coarsely(problem: Problem, proposal: Proposal) -> None:
    if isinstance(proposal, Ladder):
        largest_true(len(proposal.edits), _rung(problem, proposal))
    elif proposal.atoms:
        _chosen(problem, proposal)(proposal.atoms)


def _thoroughly(problem: Problem, proposal: Proposal) -> None:
    if isinstance(proposal, Ladder):
        find_integer(len(proposal.edits), _rung(problem, proposal))
    else:
        largest_subset(proposal.atoms, _chosen(problem, proposal))


def _singly(problem: Problem, proposal: Proposal) -> None:
    base, facts = problem.best, problem.facts
    if isinstance(proposal, Ladder):
        edits = proposal.edits
    else:
        edits = tuple(proposal.make((atom,)) for atom in proposal.atoms)
    for edit in edits:
        if problem.consider(edit.apply(base, facts)):
            return


def _rung(problem: Problem, ladder: Ladder) -> Callable[[int], bool | None]:
    """Return the question whether the n-th edit (from 1) of a ladder reproduces."""
    base, facts = problem.best, problem.facts
    return lambda n: problem.consider(ladder.edits[n - 1].apply(base, facts))


def _chosen(problem: Problem, choice: Choice[Any]) -> Callable[[tuple[Any, ...]], bool | None]:
    """Return the question whether the edit of some atoms reproduces."""
    base, facts = problem.best, problem.facts
    return lambda atoms: problem.consider(choice.make(atoms).apply(base, facts))
