"""The driver of the reducer: sweep over the steps until no single edit of any of them helps.

Two phases: the steps that take nodes away, until the graph is minimal; then those of details
(sizes, values, settings), at the end with all steps. A budget may end the second phase earlier.

Three levels (`proposal_search.py`): one sweep `coarse`, one `thorough`, then `single` (every edit
alone) until a sweep improves nothing. A `single` sweep with more than MANY improvements goes back
to `thorough`. The `coarse` sweep of details comes before the single edits of the first phase. At
the end, edits that a short time limit ended are asked with the whole limit.

The best case so far is always returned; only the first question, about the given case, may raise.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from torch.fx import GraphModule

from ctk.toolkit.case.case import Case
from ctk.toolkit.execution.limited_rounds import Rounds
from ctk.toolkit.oracle.repeated_runs import Flakiness
from ctk.toolkit.reduce.answers import SearchAborted
from ctk.toolkit.reduce.certificate import Certificate, Refusal
from ctk.toolkit.reduce.lookahead import SearchState, SweepPlan, upcoming
from ctk.toolkit.reduce.problem import Problem
from ctk.toolkit.reduce.progress import OutOfBudget, StepStatistics
from ctk.toolkit.reduce.proposal import GaveUp, Proposal, Step
from ctk.toolkit.reduce.proposal_search import Level, coarse, single, thorough
from ctk.toolkit.reduce.size import call_nodes
from ctk.toolkit.reduce.steps import STEPS

logger = logging.getLogger("ctk")

MANY = 4
"""Improvements in a sweep of single edits above which a thorough sweep is worthwhile."""

Reason = Literal["minimal", "incomplete", "interrupted", "questions", "seconds", "time", "error"]
"""`incomplete`: some steps raised and were left out; `error`: the oracle or a callback raised.

`time`: the time of a phase was over (`Budget.graph_end`, `Budget.detail_end`).
"""


@dataclass(frozen=True, slots=True)
class Reduction:
    """The result of a reduction.

    Attributes:
        best: The smallest case that reproduces (at worst the given one).
        finished: No single edit of any step can make it smaller: the search has ended, and every
            step has tried each of its edits on `best`.
        reason: Why the search ended: `minimal`, `interrupted` (Ctrl-C), the exhausted budget,
            `incomplete` (some steps raised), or `error`.
        cached: Number of answers of this run that were used again.
        left: The parts of the case for which the time was too short: `nodes`, `sizes`, `values`.
        is_graph_minimal: No single edit of a step that takes nodes away has helped, before the
            search for simpler details.
        nodes_before: Call nodes of the given case, sub-graphs included.
        remembered: Number of answers from an earlier run.
        certificate: The refusals of edits that would make `best` smaller, as far as tried.
        neighbour: The closest case to `best` that passes; None if none did.
        unfinished: Steps that have not tried each of their edits on `best`: `STEP`, or `STEP: why`
            if it gave up, or if edits are undecided (`not decided: …`).
        problems: Errors on the way, one sentence each.
        flakiness: How often the given case fails, and how likely an answer is wrong; None for a
            deterministic oracle.
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
    certificate: tuple[Refusal, ...] = ()
    neighbour: Case | None = None
    neighbour_edit: Refusal | None = None
    unfinished: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    errors: tuple[Exception, ...] = ()
    flakiness: Flakiness | None = None
    is_graph_minimal: bool = False
    left: tuple[str, ...] = ()

    def _repr_html_(self) -> str:
        """Return the page of the reduction, framed, for a notebook."""
        from ctk.toolkit.page.rendering import frame
        from ctk.toolkit.reduce.reduction_page import page_of_reduction

        return frame(page_of_reduction(self))

    @property
    def graph(self) -> GraphModule:
        return self.best.graph

    @property
    def inputs(self) -> tuple[object, ...]:
        """One value per placeholder of the smallest graph."""
        return self.best.inputs


def minimize(
    problem: Problem, steps: Sequence[Step] = STEPS, *, blocks: Level = thorough
) -> Reduction:
    """Return the smallest case that still fails in the same way.

    Args:
        problem: The failing case, its oracle and budget. Holds the best case at any time.
        steps: The steps, in order.
        blocks: The level that searches blocks of edits (compared in `benchmarks/reduce_search.py`).

    Raises:
        DoesNotReproduce: The oracle does not reproduce the failure of the given case.
    """
    reason: Reason = "minimal"
    problems: list[str] = []
    rounds = Rounds()
    try:
        with rounds.count_calls():
            problem.check_start()
            problem.run_given()
            rounds.set_limit()
            _search(problem, steps, blocks)
        reason = "incomplete" if problem.left_out else "minimal"
    except OutOfBudget as out:
        reason = out.name
    except KeyboardInterrupt:
        reason = "interrupted"
    except SearchAborted as aborted:
        if problem.ledger.step == "start":
            raise aborted.error from aborted.error.__cause__
        reason = "error"
        problems.append(str(aborted))
        problem.errors.append(aborted.error)
    for name in problem.ledger.idle_steps():
        logger.debug(  # for authors of steps: users cannot mend it
            "ctk: step %s changed cases, but never to a smaller one, so that nothing was asked; if "
            "it simplifies something, toolkit/reduce/size.py needs a key that sees it",
            name,
        )
    unfinished = problem.certificate.unfinished(step.name for step in steps)
    return Reduction(
        best=problem.best,
        finished=reason == "minimal" and not unfinished,
        reason=reason,
        questions=problem.ledger.questions,
        cached=problem.ledger.cached,
        seconds=problem.ledger.seconds,
        statistics=dict(problem.ledger.statistics),
        nodes_before=problem.nodes_before,
        nodes_after=call_nodes(problem.best),
        remembered=problem.ledger.remembered,
        certificate=tuple(problem.certificate.refusals.values()),
        neighbour=problem.certificate.neighbour and problem.certificate.neighbour.case,
        neighbour_edit=problem.certificate.neighbour_edit,
        unfinished=unfinished,
        problems=(*problem.left_out.values(), *problems),
        errors=tuple(problem.errors),
        is_graph_minimal=problem.ledger.is_graph_minimal,
        left=_left(problem, steps) if reason == "time" else (),
    )


def _left(problem: Problem, steps: Sequence[Step]) -> tuple[str, ...]:
    """Return the parts of the case whose steps are not finished; nodes only if some may go."""
    parts = ["nodes"] * (not problem.ledger.is_graph_minimal)
    parts += [step.detail for step in steps if step.name not in problem.certificate.steps]
    return tuple(dict.fromkeys(part for part in parts if part))


def _search(problem: Problem, steps: Sequence[Step], blocks: Level) -> None:
    graph = [step for step in steps if not step.detail]
    details = [step for step in steps if step.detail]
    _sweep(problem, graph, coarse)
    _sweep_blocks(problem, graph, blocks)
    _sweep(problem, details, coarse)  # a change after the single edits makes all of them new
    while _polish(problem, graph):
        _sweep_blocks(problem, graph, blocks)
    problem.finish_graph()
    _sweep_blocks(problem, details, blocks)
    while _polish(problem, steps):
        _sweep_blocks(problem, steps, blocks)


def _sweep_blocks(problem: Problem, steps: Sequence[Step], blocks: Level) -> None:
    _sweep(problem, [step for step in steps if step.is_thorough], blocks)


def _polish(problem: Problem, steps: Sequence[Step]) -> bool:
    """Try single edits; False: nothing improves any more, True: so much that blocks pay again."""
    while True:
        before = problem.improvements
        problem.certificate = Certificate()
        if not _sweep(problem, steps, single) and not _ask_undecided(problem, steps):
            return False
        if problem.improvements - before > MANY:
            return True


def _ask_undecided(problem: Problem, steps: Sequence[Step]) -> bool:
    """Ask again, with the whole limit, each edit that a short limit ended; does one reproduce?"""
    if not problem.certificate.has_open:
        return False
    problem.certificate, problem.answers.is_deciding = Certificate(), True
    try:
        return _sweep(problem, steps, single)
    finally:
        problem.answers.is_deciding = False


def _sweep(problem: Problem, steps: Sequence[Step], effort: Level) -> bool:
    """Run each step once; return whether the best case has changed."""
    start = problem.best
    for place, step in enumerate(steps):
        if step.name in problem.left_out:
            continue
        try:
            for level in _levels_of(problem, step, effort):
                later = [s for s in steps[place + 1 :] if _levels_of(problem, s, effort)]
                _run(problem, step, level, later)
        except (OutOfBudget, SearchAborted):
            raise
        except Exception as error:
            problem.leave_out(step.name, error)
            trace = error if logger.isEnabledFor(logging.DEBUG) else None
            logger.warning("ctk: %s; please report it", problem.left_out[step.name], exc_info=trace)
    return problem.best is not start


def _levels_of(problem: Problem, step: Step, effort: Level) -> tuple[Level, ...]:
    """Return the levels of a step in a sweep; a late step has all its turns in the last one."""
    if not step.is_late(problem.best, problem.facts):
        return (effort,)
    return (coarse, single) if effort is single else ()


def _run(problem: Problem, step: Step, effort: Level, later: Sequence[Step]) -> None:
    problem.ledger.step = step.name
    start, index = problem.best, 0
    while index < len(proposals := step.propose(problem.best, problem.facts)):
        before = problem.best
        gave_up = proposals[index]
        if isinstance(gave_up, GaveUp):
            problem.certificate.leave_open(step.name, gave_up.why)
        coming = SweepPlan(problem.best, problem.facts, (step, *later), index)
        _drive(problem, coming, proposals[index], effort)
        if not step.repeats or problem.best is before:
            index += 1
    if problem.best is start:
        problem.certificate.steps.add(step.name)


def _drive(problem: Problem, coming: SweepPlan, proposal: Proposal, effort: Level) -> None:
    place = SearchState(coming)
    search = effort(proposal)
    try:
        edit = next(search)
        while True:
            candidate = coming.take(edit)
            is_parallel = problem.answers.jobs > 1
            if is_parallel and candidate is not None and problem.is_askable(candidate):
                likelihood = problem.ledger.acceptance
                coming_cases = upcoming(place, edit, effort, likelihood, problem.is_askable)
                problem.answers.anticipate(candidate, coming_cases)
            answer = problem.consider(candidate, edit)
            place = place.after(edit, answer)
            edit = search.send(answer)
    except StopIteration:
        return


def continue_from(problem: Problem, before: Reduction) -> None:
    """Continue the counters and budget of a search that has ended.

        first     24 of 40 questions; then the smallest case passes in some runs
        second    the rest, from the smallest case, each question repeated: 16 questions
        result    40 questions, statistics of both

    Args:
        problem: The second search, before its first question.
        before: The result of the first search, of the same given case.
    """
    ledger = problem.ledger
    ledger.questions, ledger.remembered = before.questions, before.remembered
    ledger.cached = before.cached
    ledger.statistics = {name: replace(each) for name, each in before.statistics.items()}
    ledger.started -= before.seconds
    problem.nodes_before = before.nodes_before


def join_reductions(before: Reduction, after: Reduction) -> Reduction:
    """Return the result of the second search, with the problems of both."""
    problems = dict.fromkeys((*before.problems, *after.problems))
    return replace(after, problems=tuple(problems), errors=(*before.errors, *after.errors))


def mark_unfinished(found: Reduction, reason: Reason, *errors: Exception) -> Reduction:
    """Return a result as not minimal, because its smallest case could not be asked again."""
    said = tuple(f"asked again about the smallest case: {error}" for error in errors)
    return replace(
        found,
        finished=False,
        reason=reason,
        problems=(*found.problems, *said),
        errors=(*found.errors, *errors),
    )
