"""The reduction of a case with another question than whether it compiles wrongly.

The question is a command or function of the user, time or memory. Nothing is bisected, because a
pass that is left out means nothing to a command, and little for time.
"""

from collections.abc import Sequence
from dataclasses import replace

from ctk.compiler.errors import CaptureError
from ctk.toolkit.bisect import Search
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.operations.report.diagnosis import Diagnosis
from ctk.toolkit.operations.session.case_reduction import finish_reduction, start_work
from ctk.toolkit.operations.session.history import OnProgress
from ctk.toolkit.operations.session.operation_folder import discard
from ctk.toolkit.operations.session.oracle_stack import (
    OracleStack,
    own_oracle,
    stack_for,
    with_repeats,
)
from ctk.toolkit.operations.session.running_operation import Operation
from ctk.toolkit.operations.session.smallest_repro import (
    Written,
    write_decided_repro,
    write_graph_repro,
)
from ctk.toolkit.oracle.answers.journaled import Journaled, Memo
from ctk.toolkit.oracle.open_subject import first_failing
from ctk.toolkit.oracle.question import Question
from ctk.toolkit.oracle.questions.choice import Choice
from ctk.toolkit.oracle.questions.same_failure import SameFailure
from ctk.toolkit.oracle.repeated_runs import ASKED_PASSING_COMPILE, ask_until_failing
from ctk.toolkit.reduce.progress import Budget
from ctk.toolkit.targets import record_decisions


def is_measured(run: Operation) -> bool:
    """Return whether a case records a failure of its call's time or memory."""
    signatures = (case.signature for case in run.subject.cases)
    return any(signature is not None and signature.is_of_call for signature in signatures)


def reduce_for_user(
    run: Operation, choice: Choice, budget: Budget, on_progress: OnProgress | None
) -> Diagnosis:
    """Reduce the first graph that fails by the question of the user, and finish the operation.

    Raises:
        CaptureError: There is no graph.
        DoesNotReproduce: It fails at random, and too rarely.
    """
    cases, stack = _stack(run, choice)
    case, judgement = first_failing(
        cases, lambda case: stack.oracle.ask(Question(case)), lambda judgement: judgement
    )
    answers = _ask_again(stack, case, judgement)
    failing = next((answer for answer in answers if answer.verdict is Verdict.REPRODUCES), None)
    words = choice.words if choice.is_own else ""
    if failing is None:
        discard(run)
        return Diagnosis(case, Search(answers[0]), 0.0, decided_by=words)
    if choice.is_own:
        reason = "a command or function of yours decides: nothing was bisected"
    else:
        case = record_decisions(replace(case, signature=failing.signature))
        reason = "a measured failure is not bisected"
    search = Search(failing, reason=reason)
    run.found = Diagnosis(case, search, 0.0, folder=run.folder, decided_by=words)
    run.write(state="bisected")
    stack = with_repeats(stack, case, answers)
    work = start_work(run, run.folder / "case", budget, on_progress)
    folder = work.best.folder

    def write(smallest: Case, is_interrupted: bool) -> Written:
        if stack.own is None:
            return write_graph_repro(run, smallest, folder, None, is_interrupted=is_interrupted)
        return write_decided_repro(
            run, smallest, folder, stack, words, is_interrupted=is_interrupted
        )

    return finish_reduction(work, work.attempt(case, stack), write)


def _stack(run: Operation, choice: Choice) -> tuple[Sequence[Case], OracleStack]:
    cases = run.subject.cases
    if not cases:
        raise run.subject.uncaptured or CaptureError("there is no graph to reduce")
    if choice.is_own:
        return cases, stack_for(run, own_oracle(run, choice))
    cases = [replace(case, signature=choice.measured or case.signature) for case in cases]
    return cases, stack_for(run, SameFailure(cases[0], run.oracle))


def _ask_again(stack: OracleStack, case: Case, first: Judgement) -> list[Judgement]:
    """Return the answers about the given case: if it passes, those of several runs."""
    answers = [first]
    if first.verdict is Verdict.FLAKY or first.is_no_failure:
        answers += ask_until_failing(stack.runs, Question(case), stack.passing_runs - 1)
    return answers


def ask_again(run: Operation) -> Diagnosis | None:
    """Ask a program that passed once or twice more: it may fail by chance.

    Where it fails, the operation knows the failure, and no culprit.
    """
    if run.found is None or run.found.case is None:
        return None
    executor = run.subject.executor
    memo = Memo(run.journal, executor.limit_seconds, executor.memory)
    for case in run.subject.cases:
        runs = Journaled(executor, memo, run.digests, f"does it fail {case.signature}")
        question = Question(case, case.signature, Veto())
        judgement = ask_until_failing(runs, question, ASKED_PASSING_COMPILE - 1)[-1]
        if judgement.verdict is Verdict.REPRODUCES:
            failing = record_decisions(replace(case, signature=judgement.signature))
            search = replace(run.found.search, judgement=judgement, reason="it passed at first")
            run.found = Diagnosis(failing, search, 0.0, folder=run.folder)
            return run.write(state="bisected")
    return None
