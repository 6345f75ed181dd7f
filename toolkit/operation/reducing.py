"""One reduction of an operation: its problem, with everything that is kept on the way."""

from dataclasses import dataclass, field, replace

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.operation.asking import Asking, Watched, asked
from ctk.toolkit.operation.at_work import Operation
from ctk.toolkit.operation.best_case import BestCase
from ctk.toolkit.operation.history import History, OnProgress
from ctk.toolkit.operation.others import Others
from ctk.toolkit.oracle.cache import Digests, fingerprint
from ctk.toolkit.oracle.command import CommandOracle
from ctk.toolkit.reduce.driver import Reduction, minimize
from ctk.toolkit.reduce.hint import hint_step
from ctk.toolkit.reduce.problem import Budget, Problem
from ctk.toolkit.reduce.steps import STEPS
from ctk.toolkit.reduce.steps.leave_out_passes import only_these


@dataclass(slots=True)
class Shown:
    """What the candidates show that count as failing: with a wide rule not all the same.

    Attributes:
        digests: Of the tensors of cases.
        signatures: By the fingerprint of the candidate.
    """

    digests: Digests
    signatures: dict[str, Signature] = field(default_factory=dict[str, Signature])

    def note(self, case: Case, judgement: Judgement | None) -> None:
        """Take note of an answer."""
        if judgement is None or judgement.verdict is not Verdict.REPRODUCES:
            return
        if judgement.signature is not None:
            self.signatures[fingerprint(case, self.digests)] = judgement.signature

    def recorded(self, case: Case) -> Case:
        """Return a candidate with the failure that it shows itself."""
        found = self.signatures.get(fingerprint(case, self.digests))
        return case if found is None else replace(case, signature=found)


@dataclass(frozen=True, slots=True)
class Work:
    """What a reduction works with.

    Attributes:
        run: The operation.
        best: Keeps the smallest case so far.
        others: Keeps the other failures.
        budget: What may be used.
        on_progress: Called after each question.
    """

    run: Operation
    best: BestCase
    others: Others
    budget: Budget
    on_progress: OnProgress | None

    def attempt(
        self,
        given: Case,
        asking: Asking,
        hints: tuple[str, ...] = (),
        guilty: frozenset[str] = frozenset(),
    ) -> Reduction:
        """Reduce a case; the result records the failure that it shows itself.

        Args:
            given: The case.
            asking: The question.
            hints: Nodes that are tried first.
            guilty: Passes that may be all that is needed.
        """
        history = History(self.run, given, self.on_progress)
        shown = Shown(self.run.digests)

        def note(case: Case, judgement: Judgement | None) -> None:
            self.others.note(case, judgement)
            if asking.takes_others:
                shown.note(case, judgement)

        with asked(self.run, asking) as asker:
            oracle = Watched(asker, note)
            problem = Problem(
                given,
                oracle,
                recall=oracle.recall,
                budget=self.budget,
                on_progress=history,
                on_improvement=lambda case: self.best.improved(shown.recorded(case)),
                digests=self.run.digests,
                may_run=not (self.run.executor.isolates or isinstance(asking.own, CommandOracle)),
            )
            reduction = minimize(problem, (only_these(guilty), hint_step(hints), *STEPS))
        if reduction.best is not given:
            reduction = replace(reduction, best=shown.recorded(reduction.best))
        self.best.certify(reduction)
        history.draw()
        repeated = asking.repeated
        return replace(reduction, flakiness=repeated.flakiness if repeated else None)
