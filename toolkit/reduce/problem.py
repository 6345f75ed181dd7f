"""One reduction in progress: the best case so far, its answers, its ledger and its certificate."""

import contextlib
import dataclasses
import time
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field

from ctk.compiler.errors import DoesNotReproduce
from ctk.compiler.torch_compat.fx import operators
from ctk.repro_templates.graph.verdict import error_line
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.tensor_content import ContentCache
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.oracle.answers.fingerprint import Digests
from ctk.toolkit.oracle.question import DirectOracle, Oracle
from ctk.toolkit.reduce.analysis import Facts, facts_of
from ctk.toolkit.reduce.answers import Answers, OnAnswer, aborting
from ctk.toolkit.reduce.certificate import Certificate
from ctk.toolkit.reduce.edits import Edit
from ctk.toolkit.reduce.progress import Budget, Ledger, Progress
from ctk.toolkit.reduce.size import Measured, call_nodes, counts_of


class SameQuestion(Exception):
    """A step made a case that counts as smaller, with the fingerprint of an earlier best case."""


@dataclass(slots=True)
class Problem:
    """One reduction in progress, the only mutable object of the reducer.

    Attributes:
        best: The smallest case so far that reproduces.
        oracle: The top of the oracle stack, or a function that judges a case; only
            `Verdict.REPRODUCES` counts as failing.
        on_answer: Called with each answer of the oracle, new or remembered.
        on_improvement: Called with each new best case before the search goes on (to save it).
        on_graph_minimal: Called with the best case once no step takes more nodes away.
        certificate: The outcome of each edit of the best case, since it is the best.
        is_own: Whether a function or command of the user answers: it need not run the candidate,
            so a candidate runs in eager here first.
        left_out: The message of each step that raised; such a step is not tried again.
        nodes_before: Call nodes of the given case.
    """

    best: Case
    oracle: InitVar[Oracle | Callable[[Case], Judgement]]
    budget: InitVar[Budget | None] = None
    digests: InitVar[Digests | None] = None
    on_answer: InitVar[OnAnswer | None] = None
    on_progress: Callable[[Progress], None] | None = None
    on_improvement: Callable[[Case], object] | None = None
    on_graph_minimal: Callable[[Case], object] | None = None
    contents: ContentCache = field(default_factory=ContentCache)
    certificate: Certificate = field(default_factory=Certificate)
    may_run: bool = True
    is_own: bool = False
    left_out: dict[str, str] = field(default_factory=dict[str, str])
    errors: list[Exception] = field(default_factory=list[Exception])
    improvements: int = 0
    answers: Answers = field(init=False)
    ledger: Ledger = field(init=False)
    nodes_before: int = field(init=False)
    _facts: tuple[Case, Facts] | None = None
    _tried: tuple[Case, Facts] | None = None
    _measured: Measured | None = None
    _best_keys: set[str] = field(default_factory=set[str])

    def __post_init__(
        self,
        oracle: Oracle | Callable[[Case], Judgement],
        budget: Budget | None,
        digests: Digests | None,
        on_answer: OnAnswer | None,
    ) -> None:
        top = oracle if isinstance(oracle, Oracle) else DirectOracle(oracle)
        self.ledger = Ledger(budget or Budget())
        self.answers = Answers(top, self.ledger, digests or Digests(), on_answer)
        self.nodes_before = call_nodes(self.best)

    @property
    def facts(self) -> Facts:
        """The facts of the best case, computed once for each."""
        if self._facts is None or self._facts[0] is not self.best:
            handed_on = self._facts[1].handed_on if self._facts else {}
            if self._tried is not None and self._tried[0] is self.best:
                facts = self._tried[1]
            else:
                facts = facts_of(self.best, self.contents, may_run=self.may_run)
            self._facts = (self.best, dataclasses.replace(facts, handed_on=handed_on))
        return self._facts[1]

    def check_start(self) -> None:
        """Check that the given case fails.

        Raises:
            DoesNotReproduce: The verdict of the oracle is not `reproduces`.
        """
        self._best_keys.add(self.answers.key_of(self.best))
        judgement, is_new = self.answers.ask(self.best)
        if is_new:
            self._report(self.best, judgement.verdict)
        if judgement.verdict is not Verdict.REPRODUCES:
            seen = f" ({judgement.signature})" if judgement.signature else ""
            detail = f": {judgement.detail}" if judgement.detail else ""
            raise DoesNotReproduce(
                f"case {self.best.name} with target {self.best.target} does not show the failure "
                f"to reduce: the verdict is {judgement.verdict.value}{seen}{detail}\n"
                "next: `ctk repro CASE` shows its present failure; a failure by chance is `flaky`"
            )

    def run_given(self) -> None:
        """Run the given case in eager; where that is not possible, each step reports it."""
        with contextlib.suppress(Exception):
            _ = self.facts

    def is_askable(self, candidate: Case | None) -> bool:
        """Return whether a candidate exists, computes something and is smaller than the best."""
        return candidate is not None and not _is_empty(candidate) and self._is_smaller(candidate)

    def consider(self, candidate: Case | None, edit: Edit) -> bool | None:
        """Ask about a candidate and keep it if it fails in the same way.

        Args:
            candidate: The best case after the edit; None where the edit does not apply.

        Returns:
            Whether it reproduces; None if it does not exist or is not smaller than the best
            (nothing was asked).

        Raises:
            SameQuestion: It is smaller, and has the fingerprint of a case that was the best.
        """
        step = self.ledger.step
        if candidate is None or _is_empty(candidate):
            self.ledger.counts.not_applicable += 1
            self.certificate.skip(step, edit, "leaves no program that makes sense")
            return None
        if not self._is_smaller(candidate):
            self.ledger.counts.not_smaller += 1
            self.certificate.skip(step, edit, "is not smaller")
            return None
        self._check_is_other(candidate, edit)
        self._check_runs(candidate)
        judgement, is_new = self.answers.ask(candidate)
        is_kept = judgement.verdict is Verdict.REPRODUCES
        if is_kept:
            self._keep(candidate)
        else:
            measured = Measured(candidate, self.contents)
            self.certificate.refuse(step, edit, judgement, measured)
            self.certificate.has_open |= self.answers.is_open(judgement)
        if is_new:
            self._report(candidate, judgement.verdict)
        return is_kept

    def _check_runs(self, candidate: Case) -> None:
        """Answer `invalid` for an own oracle if only the best case runs in eager.

        The oracle could hang on such a candidate, or accept it without evidence.
        """
        key = self.answers.key_of(candidate)
        if not self.is_own or key in self.answers.judgements:
            return
        try:
            facts = facts_of(candidate, self.contents, may_run=self.may_run)
        except Exception:  # any exception of an operator that refuses its arguments
            facts = None
        if facts is None or (facts.raised and not self.facts.raised):
            self.answers.judgements[key] = Judgement(Verdict.INVALID, detail="eager raises")
        else:
            self._tried = (candidate, facts)

    def _is_smaller(self, candidate: Case) -> bool:
        if self._measured is None or self._measured.case is not self.best:
            self._measured = Measured(self.best, self.contents)
        return Measured(candidate, self.contents) < self._measured

    def _check_is_other(self, candidate: Case, edit: Edit) -> None:
        """Check that a smaller case does not get the remembered answer of a larger one."""
        if self.answers.key_of(candidate) in self._best_keys:
            raise SameQuestion(
                f"its edit {edit.says()!r} makes a smaller case that would get the remembered "
                "answer of a larger one: the fingerprint (toolkit/oracle/answers/fingerprint.py) "
                "must cover all that toolkit/reduce/size.py counts, or no oracle can see it"
            )

    def _keep(self, candidate: Case) -> None:
        self._best_keys.add(self.answers.key_of(candidate))
        counts, before, after = self.ledger.counts, counts_of(self.best), counts_of(candidate)
        counts.nodes += before.call_nodes - after.call_nodes
        counts.elements += before.elements - after.elements
        counts.useful += 1
        self.best = candidate
        self.certificate = Certificate()
        self.improvements += 1
        if self.on_improvement:
            with aborting("on_improvement"):
                self.on_improvement(candidate)

    def finish_graph(self) -> None:
        """Note that no step takes more nodes away, and report it."""
        self.ledger.minimal_at = time.monotonic()
        if self.on_graph_minimal:
            with aborting("on_graph_minimal"):
                self.on_graph_minimal(self.best)

    def leave_out(self, step: str, error: Exception) -> None:
        """Record that a step raised: the search goes on without it."""
        self.left_out[step] = f"step {step} raised {error_line(error)}, and was left out"
        self.errors.append(error)

    def _report(self, case: Case, verdict: Verdict) -> None:
        """Report progress; the answer counts already, even if the callback raises."""
        if self.on_progress is None:
            return
        ledger = self.ledger
        progress = Progress(
            questions=ledger.questions,
            cached=ledger.cached,
            seconds=ledger.seconds,
            call_nodes=call_nodes(case if verdict is Verdict.REPRODUCES else self.best),
            call_nodes_before=self.nodes_before,
            step=ledger.step,
            verdict=verdict,
            budget=ledger.budget,
            best=self.best,
            statistics=ledger.snapshot(),
            ahead=self.answers.ahead,
        )
        with aborting("on_progress"):
            self.on_progress(progress)


def _is_empty(case: Case) -> bool:
    """Return whether nothing is left to compile: Dynamo calls no backend for such a graph."""
    calls = (node for node in case.graph.graph.nodes if node.op.startswith("call"))
    return all(operators.is_switch(node.target) for node in calls)
