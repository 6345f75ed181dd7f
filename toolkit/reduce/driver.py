"""The one engine of the reducer: sweep over the steps until no single edit of any helps.

Three efforts, each tried only when the cheaper one has nothing left:

1. `_search_coarse`, once: `Monotone` by bisection, `Subset` only as a whole;
2. `_search_all`, until a sweep brings nothing: `Monotone` galloping, `Subset` by halving;
3. `_try_each`: every edit of every step alone. Its end is the definition of the result: 1-minimal.

Whatever happens, the best case so far is returned: a used-up budget, Ctrl-C and an error of the
oracle (it answers with a verdict; an exception of it is a bug) only end the search. A step that
raises is left out, and the others go on. Only the first question, about the given case, may raise.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch.fx import GraphModule

from ctk.toolkit.case.case import Case
from ctk.toolkit.reduce.problem import Ended, OutOfBudget, Problem, StepStatistics
from ctk.toolkit.reduce.proposal import Monotone, Proposal, Step, Subset, single_edits
from ctk.toolkit.reduce.search import find_integer, largest_subset, largest_true
from ctk.toolkit.reduce.size import call_nodes
from ctk.toolkit.reduce.steps import STEPS

logger = logging.getLogger("ctk")

Reason = Literal["minimal", "incomplete", "interrupted", "questions", "seconds", "error"]
"""`incomplete`: all steps but those that raised; `error`: the oracle or a callback raised."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """The result of a reduction.

    Attributes:
        best: The smallest case found; it was judged to reproduce (the given case if nothing smaller
            did).
        finished: Whether no single edit of any step can make it smaller.
        reason: Why the search ended: `minimal`, `interrupted` (Ctrl-C), the budget that was used
            up, `incomplete` (some steps raised), or `error`.
        questions: How often the oracle was asked.
        cached: How often an answer of this run was used again.
        seconds: Time used.
        statistics: Questions per step: useful, useless, cached, not applicable, not smaller.
        nodes_before: Call nodes of the given case, sub-graphs included.
        nodes_after: Call nodes of `best`.
        remembered: How many answers an earlier run had got.
        problems: What went wrong, one sentence each.
        errors: The exceptions behind them.
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
    remembered: int = 0
    problems: tuple[str, ...] = ()
    errors: tuple[Exception, ...] = ()

    @property
    def graph(self) -> GraphModule:
        """The smallest graph."""
        return self.best.graph

    @property
    def inputs(self) -> tuple[object, ...]:
        """One value per placeholder of the smallest graph."""
        return self.best.inputs


def minimize(problem: Problem, steps: Sequence[Step] = STEPS) -> Reduction:
    """Return the smallest case that still fails in the same way.

    Args:
        problem: The failing case, its oracle and what may be used. Holds the best case at any time.
        steps: The ideas to try, in order.

    Raises:
        DoesNotReproduce: The given case does not fail, as the oracle sees it.
    """
    reason: Reason = "minimal"
    problems: list[str] = []
    try:
        problem.check_start()
        _search(problem, steps)
        reason = "incomplete" if problem.left_out else "minimal"
    except OutOfBudget as out:
        reason = "questions" if str(out) == "questions" else "seconds"
    except KeyboardInterrupt:
        reason = "interrupted"
    except Ended as ended:
        if problem.step == "start":
            raise ended.error from ended.error.__cause__
        reason = "error"
        problems.append(str(ended))
        problem.errors.append(ended.error)
    for name in problem.never_smaller():
        logger.warning(
            "ctk: step %s changed cases, but never to a smaller one, so that nothing was asked; if "
            "it simplifies something, toolkit/reduce/size.py needs a key that sees it",
            name,
        )
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
        remembered=problem.remembered,
        problems=(*problem.left_out.values(), *problems),
        errors=tuple(problem.errors),
    )


def _search(problem: Problem, steps: Sequence[Step]) -> None:
    _sweep(problem, steps, _search_coarse)
    while True:
        while _sweep(problem, steps, _search_all):
            pass
        if not _sweep(problem, steps, _try_each):
            return


Search = Callable[[Problem, Proposal], None]


def _sweep(problem: Problem, steps: Sequence[Step], search: Search) -> bool:
    """Run each step once; return whether the best case has changed."""
    start = problem.best
    for step in steps:
        if step.name in problem.left_out:
            continue
        try:
            _run(problem, step, search)
        except (OutOfBudget, Ended):
            raise
        except Exception as error:
            problem.leave_out(step.name, error)
            logger.warning("ctk: %s; please report it", problem.left_out[step.name])
    return problem.best is not start


def _run(problem: Problem, step: Step, search: Search) -> None:
    problem.step = step.name
    index = 0
    while index < len(proposals := step.propose(problem.best, problem.facts)):
        search(problem, proposals[index])
        index += 1


def _search_coarse(problem: Problem, proposal: Proposal) -> None:
    if isinstance(proposal, Monotone):
        largest_true(proposal.count, _nth(problem, proposal))
    elif proposal.atoms:
        _chosen(problem, proposal)(proposal.atoms)


def _search_all(problem: Problem, proposal: Proposal) -> None:
    if isinstance(proposal, Monotone):
        find_integer(proposal.count, _nth(problem, proposal))
    else:
        largest_subset(proposal.atoms, _chosen(problem, proposal))


def _try_each(problem: Problem, proposal: Proposal) -> None:
    base, facts = problem.best, problem.facts
    for edit in single_edits(proposal):
        if problem.consider(edit.apply(base, facts)):
            return


def _nth(problem: Problem, proposal: Monotone) -> Callable[[int], bool | None]:
    """Return the question whether the n-th edit (from 1) reproduces."""
    base, facts = problem.best, problem.facts
    return lambda n: problem.consider(proposal.make(n).apply(base, facts))


def _chosen(problem: Problem, proposal: Subset[Any]) -> Callable[[tuple[Any, ...]], bool | None]:
    """Return the question whether the edit of some atoms reproduces."""
    base, facts = problem.best, problem.facts
    return lambda atoms: problem.consider(proposal.make(atoms).apply(base, facts))
