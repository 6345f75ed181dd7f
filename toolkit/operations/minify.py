"""minify: the smallest graph of a failing compile that fails for the same reason, with its repro.

The failure is bisected first: its culprit guides the reducer, and holds it to that failure.
`diagnose` reduces through here as well, so both ask the same questions.

OUT/case/         the smallest case so far, at the end with repro.py and certificate.json
OUT/neighbour/    the closest case that passes
OUT/history.svg   how small it was after each question
OUT/trace.json    the recorded compile of the given case; that of the smallest is in OUT/case/
OUT/others/       other failures that were met on the way; the rest: `session/`

Where the user asks another question (a command, a function, time, memory), nothing is bisected:
`session/user_question.py`.
"""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ctk.compiler.errors import DoesNotReproduce
from ctk.compiler.options.choices import SameRule
from ctk.toolkit.bisect import Search
from ctk.toolkit.bisect.questions import NO_KERNELS
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.importers import Inputs, Subject
from ctk.toolkit.operations.keywords import takes_keywords
from ctk.toolkit.operations.options import DiagnoseOptions, MinifyOptions, ReduceOptions
from ctk.toolkit.operations.report.diagnosis import Diagnosis
from ctk.toolkit.operations.session.case_reduction import (
    Work,
    ask_options,
    finish_reduction,
    start_work,
)
from ctk.toolkit.operations.session.compile_trace import bisect_traced, trace_compile
from ctk.toolkit.operations.session.history import OnProgress
from ctk.toolkit.operations.session.operation_folder import discard, open_operation
from ctk.toolkit.operations.session.oracle_stack import OracleStack, stack_for, with_repeats
from ctk.toolkit.operations.session.running_operation import Operation
from ctk.toolkit.operations.session.smallest_repro import (
    Written,
    guilty_pass,
    write_first_repro,
    write_graph_repro,
)
from ctk.toolkit.operations.session.torch_silence import quiet
from ctk.toolkit.operations.session.user_question import ask_again, is_measured, reduce_for_user
from ctk.toolkit.operations.session.whole_program import explain_failing_program
from ctk.toolkit.oracle.executors.base import make_jobs
from ctk.toolkit.oracle.question import Question
from ctk.toolkit.oracle.questions.choice import Choice, choice_of
from ctk.toolkit.oracle.questions.same_failure import SameFailure, is_other
from ctk.toolkit.reduce.driver import Reduction
from ctk.toolkit.reduce.progress import Budget, budget_of
from ctk.toolkit.targets import target_of


@takes_keywords(MinifyOptions)
def minify(subject: Subject, inputs: Inputs | None, options: MinifyOptions) -> Diagnosis:
    """Make the first failing graph of a program as small as possible, and write it with its repro.

    >>> import ctk, torch
    >>> found = ctk.minify("examples/broken_pass.py", out="small")
    >>> [node.name for node in found.reduction.graph.graph.nodes if node.op == "call_function"]
    ['mul_5', 'input_12']

    Args:
        subject: A program or case by name, a `Case`, a `GraphModule`, or a callable.
        inputs: Those of one call, for a graph or a callable.
        options: Keywords of `MinifyOptions`.

    Returns:
        The result; without a reduction when nothing fails. Ctrl-C, and an internal error, end
        the reduction early and keep the best so far.

    Raises:
        ConfigError: There is no such program or function, or a limit or choice is none.
        DoesNotReproduce: It fails at random, and too rarely to be reduced.
    """
    with open_reduction("minify", subject, inputs, options) as (run, terms):
        return _minify_first(run, terms)


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a reduction, as its options state them.

    Attributes:
        budget: Of all searches together.
        on_progress: Called after each question.
        is_brief: Whether details end after the time of a few first compiles.
    """

    choice: Choice
    budget: Budget
    on_progress: OnProgress | None
    is_brief: bool = False

    def budget_of(self, run: Operation) -> Budget:
        """Return the budget of a run, which begins with its first failing answer."""
        return run.allowance.start_budget() if self.is_brief else self.budget


@contextmanager
def open_reduction(
    name: Literal["minify", "diagnose"],
    subject: Subject,
    inputs: Inputs | None,
    options: ReduceOptions,
) -> Generator[tuple[Operation, Terms]]:
    """Check the options of a reduction, and open its operation; closed at the end.

    Raises:
        ConfigError: A limit or a choice makes no sense, or there is no such program or function.
    """
    budget = budget_of(options.max_questions, options.max_seconds)
    jobs = make_jobs(options.jobs, options.executor, options.resources)
    is_brief = isinstance(options, DiagnoseOptions) and not options.thorough and budget == Budget()
    terms = Terms(_choice_of(options), budget, options.on_progress, is_brief)
    with open_operation(
        name, subject, inputs, options, keep=options.keep, jobs=jobs, choice=terms.choice
    ) as run:
        yield run, terms


def _choice_of(options: ReduceOptions) -> Choice:
    if not isinstance(options, MinifyOptions):
        return choice_of(same_failure=options.same_failure)
    return choice_of(
        oracle=options.oracle,
        command=options.command,
        match=options.match,
        slower_than=options.slower_than,
        memory_above=options.memory_above,
        same_failure=options.same_failure,
    )


def _minify_first(run: Operation, terms: Terms) -> Diagnosis:
    """Ask the chosen question, and reduce the first failing case."""
    choice = terms.choice
    if choice.is_own:  # output of the user's own function is not suppressed
        return reduce_for_user(run, choice, terms.budget, terms.on_progress)
    if choice.measured or is_measured(run):
        with quiet():
            return reduce_for_user(run, choice, terms.budget, terms.on_progress)
    diagnosis = bisect_traced(run)
    if diagnosis.is_shown_by_no_graph:
        return explain_failing_program(run, run.folder / "case", terms.budget_of(run))
    if not diagnosis.judgement.fails and ask_again(run) is None:
        discard(run)
        return replace(diagnosis, folder=None, state="finished")
    return reduce_failing(run, run.folder / "case", terms)


@quiet()
def reduce_failing(
    run: Operation, folder: Path, terms: Terms, *, with_options: bool = False
) -> Diagnosis:
    """Reduce the failing case, which was bisected, and write the result; finishes the operation.

    Args:
        run: The operation, which has recorded the failing case.
        folder: For the smallest case.
        terms: Budget, progress callback, and the rule for equal failures.
        with_options: Also ask which options of the target matter.
    """
    allowance = run.allowance if terms.is_brief else None
    budget = terms.budget_of(run)
    case, search = run.failing

    def write_first(smallest: Case) -> None:
        write_first_repro(run, smallest, folder, guilty_pass(search))

    work = start_work(run, folder, budget, terms.on_progress, write_first)
    reduction, minimal, is_interrupted = _reduce_by_culprit(work, terms.choice.same)
    is_over = reduction.reason in ("questions", "seconds")

    def write(smallest: Case, is_interrupted: bool) -> Written:
        culprit = guilty_pass(minimal, None if is_other(case, smallest) else search)
        script, seen, is_interrupted = write_graph_repro(
            run, smallest, folder, culprit, is_interrupted=is_interrupted
        )
        if not is_interrupted:
            trace_compile(run, smallest, folder)
        if with_options and not is_interrupted and not is_over:
            is_interrupted = not ask_options(run, smallest, allowance and allowance.end)
        return script, seen, is_interrupted

    return finish_reduction(work, reduction, write, minimal, is_interrupted=is_interrupted)


def _reduce_by_culprit(work: Work, rule: SameRule | None) -> tuple[Reduction, Search | None, bool]:
    """Reduce the failing case; the culprit's nodes are tried first.

    Returns:
        The reduction, the bisection of the smallest case if there is one, and whether Ctrl-C has
        ended it. A case that fails at random loses its culprit.
    """
    run = work.run
    case, search = run.failing
    base = _without_code(run, case, search)
    stack = _stack(run, search.judgement, SameFailure(case, run.oracle, None, base, rule))
    culprit = search.culprit if stack.repeated is None else None
    hints = culprit.captured if culprit else ()
    guilty = {_base(culprit.where)} if culprit and not culprit.is_kernel else set[str]()
    reduction = work.attempt(case, stack, hints, frozenset(guilty))
    if reduction.flakiness is not None:
        run.write(search=Search(search.judgement, reason=_BY_CHANCE, compiles=search.compiles))
        return reduction, None, reduction.reason == "interrupted"
    minimal = None
    try:
        if reduction.reason != "interrupted":
            minimal = _bisect_again(run, reduction)
        is_held = search.culprit is not None and rule not in ("type", "any")
        if minimal is not None and is_held and _has_slipped(search, minimal):
            reduction, minimal = _hold_to_culprit(work, reduction, minimal, rule)
    except DoesNotReproduce as error:
        run.record_problems(f"the smallest case may fail for another reason: {error}")
    except KeyboardInterrupt:
        return reduction, None, True
    return reduction, minimal, reduction.reason == "interrupted"


def _hold_to_culprit(
    work: Work, slipped: Reduction, minimal: Search, rule: SameRule | None
) -> tuple[Reduction, Search | None]:
    """Reduce the case again, held to its culprit, within the rest of the budget.

    Raises:
        DoesNotReproduce: The case passes without its culprit, or does not fail with it.
    """
    run = work.run
    case, search = run.failing
    assert search.culprit is not None
    where = search.culprit.where
    if slipped.reason in ("questions", "seconds"):
        run.record_problems(f"the smallest case fails for another reason than {where}")
        return slipped, minimal
    run.say("the smallest case fails for another reason: reduce again, holding the culprit")
    work.best.start_again()
    same = SameFailure(case, run.oracle, Veto(passes=frozenset({where})), None, rule)
    reduction = work.attempt(case, stack_for(run, same), before=slipped)
    is_bisected = reduction.reason != "interrupted" and reduction.flakiness is None
    return reduction, _bisect_again(run, reduction) if is_bisected else None


_BY_CHANCE = "it fails in some runs only: a pass that is left out proves nothing"


def _stack(run: Operation, first: Judgement, same: SameFailure) -> OracleStack:
    """Return the oracle, repeated as often as needed; the bisection's answer counts as the first.

    For a failure that kills, the bisection only has the answer of a child, which is remembered.
    """
    stack = stack_for(run, same)
    answer = stack.oracle.ask(Question(same.case))
    is_one = answer == first and first.signature is not None and first.signature.is_deadly
    answers = [answer] if is_one else [first, answer]
    return with_repeats(stack, same.case, answers)


def _without_code(run: Operation, case: Case, search: Search) -> Veto | None:
    """Return the veto of all kernels, if a pass is guilty and the case also fails without them.

    Questions then generate no code, which is most of their cost; the smallest case is compiled as
    a whole when it is bisected.
    """
    culprit, signature = search.culprit, search.judgement.signature
    if culprit is None or not search.confirmed or culprit.stage == "lowered":
        return None
    if signature is None or not signature.is_numeric or target_of(case.target).is_quick:
        return None
    answer = run.oracle.ask(Question(case, signature, NO_KERNELS))
    run.say(f"with every kernel in eager: {answer.verdict.value}")
    return NO_KERNELS if answer.verdict is Verdict.REPRODUCES else None


def _bisect_again(run: Operation, reduction: Reduction) -> Search | None:
    try:
        return run.search(reduction.best)
    except Exception as error:
        run.record_errors("the bisection of the smallest case", error)
        return None


def _has_slipped(search: Search, minimal: Search) -> bool:
    """Return whether the smallest case has another culprit than the whole, whose is proved."""
    before, after = search.culprit, minimal.culprit
    if not search.confirmed or before is None or before.is_kernel:
        return False
    return after is None or _base(after.where) != _base(before.where)


def _base(where: str) -> str:
    return where.partition("#")[0]
