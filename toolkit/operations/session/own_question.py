"""The reduction of a case about which something else is asked than whether it compiles wrongly.

A command or function of the user, time, memory: nothing is bisected, for leaving out a pass says
nothing to a command, and little about time. The rest is as for a wrong compile: the same search,
folder, journal and script.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ctk.compiler.errors import CaptureError
from ctk.toolkit.bisect import Search
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.execution.recorded_choices import record_decisions
from ctk.toolkit.operations.report.diagnosis import Diagnosis
from ctk.toolkit.operations.session.asking import (
    Asking,
    asking_own,
    asking_same,
    each_run,
    steadied,
)
from ctk.toolkit.operations.session.history import OnProgress
from ctk.toolkit.operations.session.opening import discard
from ctk.toolkit.operations.session.reducing import Work, finished, work_on
from ctk.toolkit.operations.session.running_operation import Operation
from ctk.toolkit.operations.session.smallest_repro import Written, repro_for, repro_of
from ctk.toolkit.oracle.choice import Choice
from ctk.toolkit.oracle.command import CommandOracle
from ctk.toolkit.oracle.repeated import ASKED_PASSING_COMPILE
from ctk.toolkit.oracle.same_failure import SameFailure
from ctk.toolkit.oracle.several import first_failing
from ctk.toolkit.reduce.progress import Budget


def is_measured(run: Operation) -> bool:
    """Return whether a case records a failure that only measuring shows."""
    signatures = (case.signature for case in run.subject.cases)
    return any(signature is not None and signature.is_measured for signature in signatures)


def reduced_for_user(
    run: Operation, choice: Choice, budget: Budget, on_progress: OnProgress | None
) -> Diagnosis:
    """Reduce the first graph that fails as the user's question has it; finishes the operation.

    Raises:
        CaptureError: There is no graph.
        DoesNotReproduce: It fails at random, and too rarely.
    """
    cases, asking = _asking(run, choice)
    case, judgement = first_failing(cases, asking.oracle, lambda judgement: judgement)
    answers = _asked_again(asking, case, judgement)
    failing = next((each for each in answers if each.verdict is Verdict.REPRODUCES), None)
    words = choice.words if choice.is_own else ""
    if failing is None:
        discard(run)
        return Diagnosis(case, Search(answers[0]), 0.0, decided_by=words)
    if choice.is_own:
        reason = "a command or function of yours decides: nothing was bisected"
    else:
        case = record_decisions(replace(case, signature=failing.signature))
        reason = "what only measuring shows is not bisected"
    search = Search(failing, reason=reason)
    run.found = Diagnosis(case, search, 0.0, folder=run.folder, decided_by=words)
    run.write(state="bisected")
    asking = steadied(run, asking, case, answers)
    work = work_on(run, run.folder / "case", budget, on_progress)
    return finished(work, work.attempt(case, asking), partial(_repro, work, asking))


def _asking(run: Operation, choice: Choice) -> tuple[Sequence[Case], Asking]:
    """Return the cases as they are asked about, and the question."""
    cases = run.subject.cases
    if not cases:
        raise run.subject.uncaptured or CaptureError("there is no graph to reduce")
    if choice.is_own:
        return cases, asking_own(run, choice)
    cases = [replace(case, signature=choice.measured or case.signature) for case in cases]
    return cases, asking_same(run, SameFailure(cases[0], run.executor))


def _asked_again(asking: Asking, case: Case, first: Judgement) -> list[Judgement]:
    """Return the answers about the given case; one that does not fail may do so by chance."""
    answers = [first]
    if first.verdict in (Verdict.PASSES, Verdict.FLAKY):
        answers += asking.runs.until_failing(case, asking.passing_runs - 1)
    if isinstance(asking.own, CommandOracle) and answers[-1].verdict is Verdict.REPRODUCES:
        asking.own.remember(answers[-1])
    return answers


def _repro(work: Work, asking: Asking, smallest: Case, is_interrupted: bool) -> Written:
    run, folder = work.run, work.best.folder
    assert run.found is not None
    if asking.own is None:
        return repro_of(run, smallest, folder, None, is_interrupted=is_interrupted)
    words = run.found.decided_by
    return repro_for(run, smallest, folder, asking, words, is_interrupted=is_interrupted)


def seen_again(run: Operation) -> Diagnosis | None:
    """Ask a program that passed once or twice more: it may fail by chance.

    Where it fails, the operation knows the failure, and no culprit.
    """
    if run.found is None or run.found.case is None:
        return None

    def observed(case: Case, within: float | None) -> Judgement:
        return run.subject.executor.ask(case, case.signature, Veto(), within=within)

    for case in run.subject.cases:
        limit = run.executor.limit_seconds
        runs = each_run(run, observed, f"does it fail {case.signature}", limit)
        judgement = runs.until_failing(case, ASKED_PASSING_COMPILE - 1)[-1]
        if judgement.verdict is Verdict.REPRODUCES:
            failing = record_decisions(replace(case, signature=judgement.signature))
            search = replace(run.found.search, judgement=judgement, reason="it passed at first")
            run.found = Diagnosis(failing, search, 0.0, folder=run.folder)
            return run.write(state="bisected")
    return None
