"""minimize: the smallest graph for which a predicate of the user holds.

The predicate can check anything: a pass that crashes, a verifier that complains, a number that is
off. This module does not compile or compare anything itself (`minify` does).

The predicate is asked three times about the given graph, five times where that takes no time; at
the end as often about the smallest one. A predicate whose answer varies is asked more
often, and then several times about each candidate (oracle/repeated_runs.py); a predicate that
rarely holds is refused.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch.fx import GraphModule

from ctk.compiler.errors import CtkError, DoesNotReproduce, PredicateError, ProgramError, count_of
from ctk.compiler.observe import first_line
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.graphs.graph_lines import graph_lines
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.execution.private_copy import private_copy
from ctk.toolkit.importers.in_memory import case_of_graph
from ctk.toolkit.options import CaseOptions
from ctk.toolkit.oracle.executors.base import make_jobs
from ctk.toolkit.oracle.executors.pool import count_cores
from ctk.toolkit.oracle.executors.predicate_forks import ask_in_forks
from ctk.toolkit.oracle.question import NotKnown, Question
from ctk.toolkit.oracle.questions.user_function import NoAnswer, judgement_of, shorten_listing
from ctk.toolkit.oracle.repeated_runs import FailureRate, RepeatedRuns, check_workable, rate_of
from ctk.toolkit.reduce.analysis import facts_of
from ctk.toolkit.reduce.driver import Reduction, continue_from, join_reductions, mark_unfinished
from ctk.toolkit.reduce.driver import minimize as minimize_problem
from ctk.toolkit.reduce.problem import Problem
from ctk.toolkit.reduce.progress import Budget, Progress, budget_of
from ctk.toolkit.reduce.size import call_nodes

Predicate = Callable[[GraphModule, tuple[object, ...]], object]
"""Returns a bool or a `Verdict`."""

_FAILS = Judgement(Verdict.REPRODUCES)
_NEXT = "Seed its random numbers, or let it try several times and answer for all of them."


def minimize(
    gm: GraphModule,
    inputs: Sequence[object],
    fails: Predicate,
    *,
    max_questions: int | None = None,
    max_seconds: float | None = None,
    jobs: int = 1,
    on_progress: Callable[[Progress], None] | None = None,
) -> Reduction:
    """Return the smallest graph, with inputs, for which `fails` holds.

    >>> import ctk, torch
    >>> def program(x):
    ...     return torch.relu(torch.sin(x) * 2 + 1)
    >>> def has_sin(gm, inputs):
    ...     return any(node.target is torch.sin for node in gm.graph.nodes)
    >>> found = ctk.minimize(torch.fx.symbolic_trace(program), [torch.randn(3)], has_sin)
    >>> found.finished, [node.name for node in found.graph.graph.nodes]
    (True, ['x', 'sin', 'output'])

    Args:
        gm: Only read, as the inputs are.
        inputs: One value per placeholder.
        fails: Called with a graph and inputs of its own, which it may change. True, or the verdict
            `reproduces`, keeps a candidate that runs in eager (if the given graph does), which is
            tried here.
        max_questions: Stop after so many calls of `fails`.
        max_seconds: Stop after so long.
        jobs: How many candidates are asked about at the same time, each in a fork of this process,
            with the same result; 0: one per core. Changes by `fails` stay in its fork, which runs
            torch on one thread, and CUDA must not be in use
            (toolkit/oracle/executors/predicate_forks.py).
        on_progress: Called after each call of `fails`.

    Returns:
        `graph`, `inputs`, `finished`, `reason`, the cost of each step; for a predicate that answers
        by chance `flakiness`. Ctrl-C, and `on_progress` if it raises, keep the smallest so far.

    Raises:
        ConfigError: A limit or `jobs` is not a number in range, or jobs cannot be forked.
        DoesNotReproduce: `fails` does not hold for the given graph, or too rarely.
        PredicateError: `fails` raised, or its answer is none; it names the candidate and holds the
            smallest graph so far.
        ProgramError: `gm` is not a `GraphModule`, takes other inputs, or fails in eager where fake
            tensors do not give its results.
    """
    budget = budget_of(max_questions, max_seconds)
    at_once = make_jobs(jobs, "local", None).count or count_cores()
    _require_graph(gm)
    start = case_of_graph(gm, inputs, CaseOptions(target="predicate"))
    rate = _rate(oracle := _Oracle(fails), start)
    _check_runs(start)
    searches = _Searches(oracle, at_once, budget, on_progress)
    found = searches.run(start, rate)
    return found if found.flakiness is not None else searches.settle(found)


def _require_graph(given: object) -> None:
    """Raise `ProgramError` for anything but a graph: many scripts are never type-checked."""
    if not isinstance(given, GraphModule):
        raise ProgramError(
            f"minimize takes a GraphModule, not a {type(given).__name__}; "
            "torch.fx.symbolic_trace and torch.export make one"
        )


@dataclass(frozen=True, slots=True)
class _Searches:
    """The searches of one call: a second one where the first shows that chance answers.

    Attributes:
        oracle: Asks the predicate.
        jobs: How many candidates at the same time.
        budget: Of all searches together.
        on_progress: Called after each call of the predicate.
    """

    oracle: "_Oracle"
    jobs: int
    budget: Budget
    on_progress: Callable[[Progress], None] | None

    def run(self, start: Case, rate: FailureRate, before: Reduction | None = None) -> Reduction:
        """Search from a case that fails at a rate, after an earlier search if there was one.

        Raises:
            PredicateError: The predicate raised.
        """
        repeated = None if rate.is_steady else RepeatedRuns(self.oracle, rate)
        oracle, count = (repeated, repeated.count) if repeated else (self.oracle, _forget)

        def ask(case: Case) -> Judgement:
            return oracle.ask(Question(case))

        problem = Problem(
            start,
            oracle,
            budget=self.budget,
            on_progress=self.on_progress,
            may_run=self.jobs == 1,
            is_own=True,
        )
        answers = problem.answers
        answers.judgements[answers.key_of(start)] = _FAILS
        if before is not None:
            continue_from(problem, before)
        try:
            with ask_in_forks(ask, self.jobs, answers.digests, count) as answers.oracle:
                found = minimize_problem(problem)
        except _Raised as raised:
            raise raised.describe_to_user(problem.best) from raised.error
        for raised in found.errors:
            if isinstance(raised, _Raised):
                raise raised.describe_to_user(found.best) from raised.error
        found = replace(found, flakiness=repeated.flakiness if repeated else None)
        return join_reductions(before, found) if before is not None else found

    def settle(self, found: Reduction) -> Reduction:
        """Ask again about the smallest graph; where answers differ, search on from it.

        Raises:
            PredicateError: The predicate raised.
        """
        if found.reason not in ("minimal", "incomplete"):
            return found
        try:
            rate = rate_of([_FAILS], lambda number: self.oracle.judge(found.best))
            check_workable(rate, "the smallest graph", _NEXT)
        except _Raised as raised:
            raise raised.describe_to_user(found.best) from raised.error
        except KeyboardInterrupt:
            return mark_unfinished(found, "interrupted")
        except DoesNotReproduce as error:
            return mark_unfinished(found, "incomplete", error)
        return found if rate.is_steady else self.run(found.best, rate, found)


def _forget(judgement: Judgement) -> None:
    """Count nothing: a steady predicate is asked once about each candidate."""


class _Oracle:
    """Asks the predicate, each time with a graph and inputs that it may change."""

    def __init__(self, fails: Predicate) -> None:
        self._fails = fails
        self._asked = 0

    def ask(self, question: Question, *, known_only: bool = False) -> Judgement:
        """Call the predicate, whichever run of the question this is."""
        if known_only:
            raise NotKnown
        return self.judge(question.case)

    def judge(self, candidate: Case) -> Judgement:
        """Call the predicate."""
        self._asked += 1
        gm, inputs = private_copy(candidate.graph, candidate.inputs, lazy=False)
        try:
            return judgement_of(self._fails(gm, inputs))
        except (Exception, SystemExit) as error:
            raise _Raised(error, candidate, self._asked) from error


def _rate(oracle: _Oracle, start: Case) -> FailureRate:
    """Ask about the given graph several times, more often where the answers differ.

    Raises:
        DoesNotReproduce: The answers are no, or nearly all of them.
    """
    try:
        rate = rate_of((), lambda number: oracle.judge(start))
    except _Raised as raised:
        raise raised.describe_to_user(start) from raised.error
    if not rate.failed:
        raise DoesNotReproduce(
            "the predicate does not say yes of the given graph: there is nothing to reduce"
        )
    check_workable(rate, "the predicate", _NEXT)
    return rate


def _check_runs(start: Case) -> None:
    """Run the given graph in eager: the reducer's edits follow from its values.

    Raises:
        ProgramError: It does not run.
    """
    try:
        facts_of(start)
    except Exception as error:
        raise ProgramError(
            "the graph does not run in eager with these inputs: "
            f"{type(error).__name__}: {first_line(error)}"
        ) from error


class _Raised(Exception):
    """The predicate raised, or gave no answer."""

    def __init__(self, error: BaseException, candidate: Case, number: int) -> None:
        super().__init__(str(error))
        self.error, self._candidate, self._number = error, candidate, number

    def describe_to_user(self, best: Case) -> CtkError:
        """Return the error for the user: the candidate, and the smallest graph so far."""
        shown = shorten_listing(graph_lines(self._candidate.graph))
        what = f"the predicate raised {type(self.error).__name__}: {first_line(self.error)}"
        return PredicateError(
            f"{self.error if isinstance(self.error, NoAnswer) else what}\n"
            f"on candidate {self._number}:\n"
            + "".join(f"  {line}\n" for line in shown)
            + f"The smallest graph so far ({count_of(call_nodes(best), 'call node')}) is in "
            "`graph` and `inputs` of this error. If such a candidate is not a failure, return "
            "False for it.",
            best.graph,
            best.inputs,
        )
