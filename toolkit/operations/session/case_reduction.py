"""One reduction of an operation: its searches, its files, and its end.

After a search the smallest case must fail as often as the given one. If it passes in some runs, the
answers were chance, and a second search continues from it with several runs for each question. All
searches of a reduction share one budget.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from ctk.compiler.errors import DoesNotReproduce
from ctk.toolkit.bisect import Search, confirm_options, options_that_matter
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.operations.report.diagnosis import Diagnosis
from ctk.toolkit.operations.session.best_case import BestCase
from ctk.toolkit.operations.session.history import History, OnProgress
from ctk.toolkit.operations.session.oracle_stack import OracleStack, searching, with_repeats
from ctk.toolkit.operations.session.other_failures import Others
from ctk.toolkit.operations.session.running_operation import Operation
from ctk.toolkit.operations.session.smallest_repro import Written
from ctk.toolkit.oracle.answers.fingerprint import Digests, fingerprint
from ctk.toolkit.oracle.question import Question, look_up
from ctk.toolkit.oracle.questions.same_failure import is_alike
from ctk.toolkit.oracle.questions.user_command import CommandOracle
from ctk.toolkit.reduce.driver import (
    Reduction,
    continue_from,
    join_reductions,
    mark_unfinished,
    minimize,
)
from ctk.toolkit.reduce.problem import Problem
from ctk.toolkit.reduce.progress import Budget
from ctk.toolkit.reduce.proposal import Step
from ctk.toolkit.reduce.steps import STEPS
from ctk.toolkit.reduce.steps.leave_out_passes import only_these
from ctk.toolkit.reduce.suspected_nodes import suspects_step


@dataclass(slots=True)
class Shown:
    """The failures of candidates that reproduce: other numbers, with a wide rule other messages."""

    given: Signature | None
    takes_others: bool
    digests: Digests
    signatures: dict[str, Signature] = field(default_factory=dict[str, Signature])

    def note(self, case: Case, judgement: Judgement | None) -> None:
        """Record the failure of a candidate that reproduces."""
        if judgement is None or judgement.verdict is not Verdict.REPRODUCES:
            return
        seen = judgement.signature
        if self.given is None or seen is None:
            return
        if self.takes_others or is_alike(self.given, seen, "strict"):
            self.signatures[fingerprint(case, self.digests)] = seen

    def with_seen_failure(self, case: Case) -> Case:
        """Return a candidate with its own failure as its signature."""
        found = self.signatures.get(fingerprint(case, self.digests))
        return case if found is None else replace(case, signature=found)


@dataclass(frozen=True, slots=True)
class Work:
    """A reduction and the files that it writes."""

    run: Operation
    best: BestCase
    others: Others
    budget: Budget
    history: History

    def attempt(
        self,
        given: Case,
        stack: OracleStack,
        hints: tuple[str, ...] = (),
        guilty: frozenset[str] = frozenset(),
        before: Reduction | None = None,
    ) -> Reduction:
        """Reduce a case, and ask again about the smallest, whose signature is its own failure.

        Args:
            before: An earlier search of this reduction, whose counts are continued.
        """
        steps = (only_these(guilty), suspects_step(hints), *STEPS)
        found = self._search(given, stack, steps, before)
        if stack.repeated is not None or found.reason not in ("minimal", "incomplete"):
            return found
        try:
            known = look_up(stack.oracle, Question(found.best))
            if known is None:
                return found  # it hangs, and has had the whole limit already
            if known.signature is not None and known.signature.is_measured:
                return found  # its rounds decide, and the least slow case is at the limit
            steadier = with_repeats(stack, found.best, [known])
        except KeyboardInterrupt:
            return mark_unfinished(found, "interrupted")
        except DoesNotReproduce as error:
            return mark_unfinished(found, "incomplete", error)
        except Exception as error:
            return mark_unfinished(found, "error", error)
        if steadier.repeated is None:
            return found
        return self._search(found.best, steadier, steps, found)

    def _search(
        self, given: Case, stack: OracleStack, steps: tuple[Step, ...], before: Reduction | None
    ) -> Reduction:
        shown = Shown(given.signature, stack.accepts_other_failures, self.run.digests)

        def note(case: Case, judgement: Judgement) -> None:
            self.others.note(case, judgement)
            if stack.own is None:
                shown.note(case, judgement)

        with searching(stack) as oracle:
            problem = Problem(
                given,
                oracle,
                budget=self.budget,
                digests=self.run.digests,
                on_answer=note,
                on_progress=self.history,
                on_improvement=lambda case: self.best.save_smaller(shown.with_seen_failure(case)),
                is_own=stack.own is not None,
                may_run=not (self.run.oracle.isolates or isinstance(stack.own, CommandOracle)),
            )
            if before is not None:
                continue_from(problem, before)
            found = minimize(problem, steps)
        if found.best is not given:
            found = replace(found, best=shown.with_seen_failure(found.best))
        self.best.certify(found)
        self.history.draw()
        repeated = stack.repeated
        found = replace(found, flakiness=repeated.flakiness if repeated else None)
        return join_reductions(before, found) if before is not None else found


def start_work(
    run: Operation, folder: Path, budget: Budget, on_progress: OnProgress | None
) -> Work:
    """Return the reduction of the failing case of an operation."""
    assert run.found is not None and run.found.case is not None
    history = History(run, run.found.case, on_progress)
    return Work(run, BestCase(run, folder), Others(run), budget, history)


class WriteScript(Protocol):
    """Writes the script of the smallest case, and runs it unless interrupted."""

    def __call__(self, smallest: Case, is_interrupted: bool) -> Written: ...


def finish_reduction(
    work: Work,
    reduction: Reduction,
    write: WriteScript,
    minimal_search: Search | None = None,
    *,
    is_interrupted: bool | None = None,
) -> Diagnosis:
    """Write the result of a reduction, and finish the operation."""
    run = work.run
    is_over = reduction.reason == "interrupted" if is_interrupted is None else is_interrupted
    others = work.others.finish()
    run.record_problems(*reduction.problems)
    run.keep_tracebacks(reduction.errors)
    if not work.best.save_smaller(reduction.best):
        return run.finish(is_done=False, reduction=reduction, is_interrupted=is_over, others=others)
    script, seen, is_over = write(reduction.best, is_over)
    return run.finish(
        is_done=reduction.finished,
        reduction=reduction,
        minimal_search=minimal_search,
        minimal=work.best.folder,
        repro=script,
        repro_run=seen,
        is_interrupted=is_over,
        others=others,
    )


def ask_options(run: Operation, smallest: Case) -> bool:
    """Record the options that matter to the smallest case and to the whole; False after Ctrl-C."""
    assert run.found is not None
    search, case = run.found.search, run.found.case
    try:
        culprit = search.culprit if search.confirmed else None
        found = options_that_matter(smallest, run.oracle, run.say, culprit=culprit)
        if case is not None and found.effects:
            found = confirm_options(case, found, run.oracle, run.say)
    except KeyboardInterrupt:
        return False
    except Exception as error:
        run.record_errors("the search for options that matter", error)
        return True
    if found.left:
        said = f"{found.left} options were not asked about: {found.questions} compiles is the limit"
        run.record_problems(said)
    run.write(search=replace(search, options=found.effects, option_compiles=found.questions))
    return True
