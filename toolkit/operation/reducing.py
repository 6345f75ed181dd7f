"""One reduction of an operation: its problem, with everything that is kept on the way."""

from dataclasses import dataclass, replace

from ctk.toolkit.case.case import Case
from ctk.toolkit.operation.asking import Asking, asked, watched
from ctk.toolkit.operation.at_work import Operation
from ctk.toolkit.operation.best_case import BestCase
from ctk.toolkit.operation.history import History, OnProgress
from ctk.toolkit.operation.others import Others
from ctk.toolkit.reduce.driver import Reduction, minimize
from ctk.toolkit.reduce.hint import hint_step
from ctk.toolkit.reduce.problem import Budget, Problem
from ctk.toolkit.reduce.steps import STEPS
from ctk.toolkit.reduce.steps.leave_out_passes import only_these


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
        """Reduce a case.

        Args:
            given: The case.
            asking: The question.
            hints: Nodes that are tried first.
            guilty: Passes that may be all that is needed.
        """
        history = History(self.run, given, self.on_progress)
        with asked(self.run, asking) as asker:
            oracle = watched(asker, self.others.note)
            problem = Problem(
                given,
                oracle,
                recall=oracle.recall,
                budget=self.budget,
                on_progress=history,
                on_improvement=self.best.improved,
                digests=self.run.digests,
            )
            reduction = minimize(problem, (only_these(guilty), hint_step(hints), *STEPS))
        self.best.certify(reduction)
        history.draw()
        repeated = asking.repeated
        return replace(reduction, flakiness=repeated.flakiness if repeated else None)
