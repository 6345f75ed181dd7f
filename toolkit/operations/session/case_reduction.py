"""One reduction of an operation: its searches, its files, and its end.

After a search the smallest case must fail as often as the given one. If it passes in some runs, the
answers were chance, and a second search continues from it with several runs for each question. All
searches of a reduction share one budget.

The smallest case so far is on disk before the search goes on:

    FOLDER/certificate.json    the outcome of each edit that would make it smaller
    FOLDER/../neighbour/       the closest case that passes
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from ctk.compiler.errors import DoesNotReproduce, count_of
from ctk.toolkit.bisect import Search, confirm_options, options_that_matter
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.case_listing import describe
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.case.store import save_case
from ctk.toolkit.compile_log.trace.document import FILE as TRACE
from ctk.toolkit.operations.report.certificate_file import CERTIFICATE, NEIGHBOUR, write_certificate
from ctk.toolkit.operations.report.diagnosis import Diagnosis
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
from ctk.toolkit.reduce.size import call_nodes
from ctk.toolkit.reduce.steps import STEPS
from ctk.toolkit.reduce.steps.leave_out_passes import only_these
from ctk.toolkit.reduce.suspected_nodes import suspects_step


@document
@dataclass(frozen=True, slots=True)
class Best:
    """A smaller case that is on disk."""

    fingerprint: str
    nodes: int


class BestCase:
    """Keeps the smallest case so far in a folder, and notes it in the journal.

    A resumed search visits the same cases again. Cases in the journal are skipped, so that the
    folder never returns to a larger one.
    """

    def __init__(self, run: Operation, folder: Path) -> None:
        self.folder = folder
        self._run = run
        self._attempt = 0

    def start_again(self) -> None:
        """Begin another reduction of the same case; its journal keys are new."""
        self._attempt += 1

    def save_smaller(self, case: Case) -> bool:
        """Write a smaller case now; return whether it is on disk."""
        run, known = self._run, fingerprint(case, self._run.digests)
        key = f"{self._attempt} {known}"
        if run.journal.recall(Best, key) and not self._is_lost(key):
            return True

        def save() -> None:
            for name in (CERTIFICATE, TRACE):  # they belong to the old case
                (self.folder / name).unlink(missing_ok=True)
            save_case(case, self.folder, inputs=run.keep, overwrite=True)
            run.journal.note(key, Best(known, call_nodes(case)))

        is_saved = run.save("the smallest case", save)
        if is_saved:
            run.write(state="reducing", best=case, minimal=self.folder)
        return is_saved

    def certify(self, reduction: Reduction) -> None:
        """Write the outcome of each edit of the smallest case, and the closest case that passes."""
        if not self.save_smaller(reduction.best):
            return
        self._run.save(CERTIFICATE, lambda: write_certificate(reduction, self.folder))
        passing = reduction.neighbour
        if passing is None:
            return
        passing = replace(passing, signature=None, name=f"{passing.name}_{NEIGHBOUR}")
        folder = self.folder.parent / NEIGHBOUR
        keep = self._run.keep
        self._run.save(NEIGHBOUR, lambda: save_case(passing, folder, inputs=keep, overwrite=True))

    def _is_lost(self, key: str) -> bool:
        """Return whether the last written case is damaged."""
        is_last = key == self._run.journal.last(Best)
        return is_last and (not self.folder.is_dir() or describe(self.folder).problem is not None)


@dataclass(slots=True)
class Shown:
    """The failures of candidates that reproduce: other numbers, with a wide rule other messages."""

    given: Signature | None
    takes_others: bool
    digests: Digests
    signatures: dict[str, Signature] = field(default_factory=dict[str, Signature])

    def note(self, case: Case, judgement: Judgement) -> None:
        """Record the failure of a candidate that reproduces."""
        seen = judgement.signature
        if judgement.verdict is not Verdict.REPRODUCES or self.given is None or seen is None:
            return
        if self.takes_others or is_alike(self.given, seen, "strict"):
            self.signatures[fingerprint(case, self.digests)] = seen

    def with_seen_failure(self, case: Case) -> Case:
        """Return a candidate with its own failure as its signature."""
        found = self.signatures.get(fingerprint(case, self.digests))
        return case if found is None else replace(case, signature=found)


@dataclass(frozen=True, slots=True)
class Work:
    """A reduction and the files that it writes.

    Attributes:
        write_first: Writes the script of the smallest graph, before its details are simplified.
    """

    run: Operation
    best: BestCase
    others: Others
    budget: Budget
    history: History
    write_first: Callable[[Case], None] | None = None

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
        if stack.repeated is not None or found.reason not in ("minimal", "incomplete", "time"):
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

        def finish_graph(case: Case) -> None:
            smallest = shown.with_seen_failure(case)
            if self.best.save_smaller(smallest) and self.write_first is not None:
                self.write_first(smallest)

        with searching(stack) as oracle:
            problem = Problem(
                given,
                oracle,
                budget=self.budget,
                digests=self.run.digests,
                on_answer=note,
                on_progress=self.history,
                on_improvement=lambda case: self.best.save_smaller(shown.with_seen_failure(case)),
                on_graph_minimal=finish_graph,
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
    run: Operation,
    folder: Path,
    budget: Budget,
    on_progress: OnProgress | None,
    write_first: Callable[[Case], None] | None = None,
) -> Work:
    """Return the reduction of the failing case of an operation."""
    history = History(run, run.failing[0], on_progress)
    return Work(run, BestCase(run, folder), Others(run), budget, history, write_first)


WriteScript = Callable[[Case, bool], Written]
"""Writes the script of the smallest case, and runs it unless the reduction was interrupted."""


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
        is_done=reduction.finished and not run.left_options,
        reduction=reduction,
        minimal_search=minimal_search,
        minimal=work.best.folder,
        repro=script,
        repro_run=seen,
        is_interrupted=is_over,
        others=others,
    )


def ask_options(run: Operation, smallest: Case, end: float | None = None) -> bool:
    """Record the options that matter to the smallest case and to the whole; False after Ctrl-C.

    Args:
        end: When the search ends, with the options it has (`time.monotonic`).
    """
    case, search = run.failing
    try:
        culprit = search.culprit if search.confirmed else None
        found = options_that_matter(smallest, run.oracle, run.say, culprit=culprit, end=end)
        if found.effects:
            found = confirm_options(case, found, run.oracle, run.say)
    except KeyboardInterrupt:
        return False
    except Exception as error:
        run.record_errors("the search for options that matter", error)
        return True
    if found.is_late:
        run.left_options = True
    elif found.left:
        left = count_of(found.left, "option")
        said = f"{left} not asked about: the limit is {count_of(found.questions, 'compile')}"
        run.record_problems(said)
    run.write(search=replace(search, options=found.effects, option_compiles=found.questions))
    return True
