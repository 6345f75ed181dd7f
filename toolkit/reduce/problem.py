"""The state of one reduction: the best case so far, every answer, counters and the budget.

`Problem` is the only mutable object of the reducer, and `Problem._ask` the only place where an
oracle is asked. An answer that an earlier, killed run got is recalled and costs no budget.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import chain

from ctk.compiler.errors import DoesNotReproduce
from ctk.compiler.torch_compat.fx import operators
from ctk.repro_templates.graph.verdict import said
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.content import ContentCache
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.oracle.ahead import Anticipating
from ctk.toolkit.oracle.cache import Cache, Digests, fingerprint
from ctk.toolkit.oracle.patience import Deciding
from ctk.toolkit.reduce.analysis import Facts, facts_of
from ctk.toolkit.reduce.certificate import Certificate
from ctk.toolkit.reduce.edits import Edit
from ctk.toolkit.reduce.progress import Budget, OutOfBudget, Progress, StepStatistics
from ctk.toolkit.reduce.size import Measured, call_nodes, counts_of

Oracle = Callable[[Case], Judgement]
Recall = Callable[[Case], Judgement | None]


class Ended(Exception):
    """What others were asked or told raised: nothing can be asked any more. `error` is theirs."""

    def __init__(self, who: str, error: Exception) -> None:
        super().__init__(f"{who} raised {said(error)}")
        self.error = error


class SameQuestion(Exception):
    """A step made a case that counts as smaller, but is the same question as one that was best."""


@dataclass(slots=True)
class Problem:
    """One reduction in progress.

    Attributes:
        best: The smallest case so far that reproduces.
        oracle: Judges a case; only `Verdict.REPRODUCES` counts as failing.
        recall: Returns the answer that is known of an earlier run, if there is one.
        budget: What may be used.
        on_progress: Called after each answer of the oracle.
        on_improvement: Called with each new best case, before the search goes on (a caller saves
            it).
        cache: Every answer so far.
        digests: Of the tensors of cases.
        contents: What these tensors hold.
        certificate: What came of each edit of the best case since it is the best.
        may_run: Whether candidates may run in this process (`Facts.may_run`).
        is_own: Whether a function or command of the user answers: it need not run what it is asked
            about, so that it is run in eager here before.
        left_out: What each step that raised has said; such a step is not tried again.
        errors: What it raised.
        is_deciding: Whether candidates that a short limit has ended are asked about with the whole.
        step: Name of the step at work.
    """

    best: Case
    oracle: Oracle
    recall: Recall = lambda case: None
    budget: Budget = field(default_factory=Budget)
    on_progress: Callable[[Progress], None] | None = None
    on_improvement: Callable[[Case], object] | None = None
    cache: Cache = field(default_factory=Cache)
    digests: Digests = field(default_factory=Digests)
    contents: ContentCache = field(default_factory=ContentCache)
    may_run: bool = True
    is_own: bool = False
    left_out: dict[str, str] = field(default_factory=dict[str, str])
    certificate: Certificate = field(default_factory=Certificate)
    errors: list[Exception] = field(default_factory=list[Exception])
    is_deciding: bool = False
    step: str = "start"
    questions: int = 0
    remembered: int = 0
    improvements: int = 0
    statistics: dict[str, StepStatistics] = field(default_factory=dict[str, StepStatistics])
    started: float = field(default_factory=time.monotonic)
    nodes_before: int = -1
    _facts: tuple[Case, Facts] | None = None
    _tried: tuple[Case, Facts] | None = None
    _measured: Measured | None = None
    _ahead: int = 0
    _asked_best: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        self.nodes_before = call_nodes(self.best)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

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
        """Make sure that there is something to reduce.

        Raises:
            DoesNotReproduce: The oracle says anything but `reproduces` of the given case.
        """
        self._asked_best.add(fingerprint(self.best, self.digests))
        judgement, is_new = self._judge(self.best)
        if is_new:
            self._tell(self.best, judgement.verdict)
        if judgement.verdict is not Verdict.REPRODUCES:
            seen = f" ({judgement.signature})" if judgement.signature else ""
            detail = f": {judgement.detail}" if judgement.detail else ""
            raise DoesNotReproduce(
                f"case {self.best.name} with target {self.best.target} does not show the failure "
                f"that is to be reduced: the oracle says {judgement.verdict.value}{seen}{detail}\n"
                "See what it does now with `ctk repro CASE`; one that comes and goes is `flaky`."
            )

    def see_given(self) -> None:
        """Run the given case in eager; each step says itself where that is not possible."""
        with contextlib.suppress(Exception):
            _ = self.facts

    @property
    def jobs(self) -> int:
        """How many questions may be under way at once."""
        return self.oracle.jobs if isinstance(self.oracle, Anticipating) else 1

    @property
    def accepted(self) -> float:
        """How likely it is that the next edit of the step at work is accepted."""
        counts = self._counts
        return (counts.useful + 1) / (counts.questions + counts.remembered + 3)

    def anticipate(self, candidate: Case, after: Iterable[Case]) -> None:
        """Tell the oracle what is asked now and what most likely comes after it.

        What is known already is left out; of the rest as many as may be under way.
        """
        assert isinstance(self.oracle, Anticipating)
        wanted: dict[str, Case] = {}
        for case in chain([candidate], after):
            key = fingerprint(case, self.digests)
            if key not in self.cache.judgements:
                wanted.setdefault(key, case)
            if len(wanted) == self.jobs:
                break
        self._ahead = max(len(wanted) - 1, 0)
        try:
            self.oracle.anticipate(list(wanted.values()))
        except Exception as error:
            raise Ended("the oracle", error) from error

    def is_askable(self, candidate: Case | None) -> bool:
        """Return whether a candidate exists, computes something and is smaller than the best."""
        return candidate is not None and not _is_empty(candidate) and self._is_smaller(candidate)

    def consider(self, candidate: Case | None, edit: Edit) -> bool | None:
        """Ask about a candidate and keep it if it fails in the same way.

        Args:
            candidate: What the edit makes of the best case; None where it makes no sense.
            edit: Only named, in the certificate.

        Returns:
            Whether it reproduces; None if it does not exist or is not smaller than the best
            (nothing was asked).

        Raises:
            SameQuestion: It is smaller, and has the fingerprint of a case that was the best.
        """
        if candidate is None or _is_empty(candidate):
            self._counts.not_applicable += 1
            self.certificate.skip(self.step, edit, "leaves no program that makes sense")
            return None
        if not self._is_smaller(candidate):
            self._counts.not_smaller += 1
            self.certificate.skip(self.step, edit, "is not smaller")
            return None
        self._check_is_other(candidate, edit)
        self._check_makes_sense(candidate)
        judgement, is_new = self._judge(candidate)
        is_kept = judgement.verdict is Verdict.REPRODUCES
        if is_kept:
            self._keep(candidate)
        else:
            measured = Measured(candidate, self.contents)
            self.certificate.refuse(self.step, edit, judgement, measured)
            self.certificate.has_open |= self.is_open(judgement)
        if is_new:
            self._tell(candidate, judgement.verdict)
        return is_kept

    def _check_makes_sense(self, candidate: Case) -> None:
        """Answer for an own oracle where a candidate does not run in eager, and the best does.

        It may hang there, or take what shows nothing. The facts of a candidate that it takes are
        needed next, as those of the best case.
        """
        key = fingerprint(candidate, self.digests)
        if not self.is_own or key in self.cache.judgements:
            return
        try:
            facts = facts_of(candidate, self.contents, may_run=self.may_run)
        except Exception:  # whatever an operator raises when it refuses its arguments
            facts = None
        if facts is None or (facts.raised and not self.facts.raised):
            self.cache.add(key, Judgement(Verdict.INVALID, detail="eager raises"))
        else:
            self._tried = (candidate, facts)

    def _is_smaller(self, candidate: Case) -> bool:
        if self._measured is None or self._measured.case is not self.best:
            self._measured = Measured(self.best, self.contents)
        return Measured(candidate, self.contents) < self._measured

    def _check_is_other(self, candidate: Case, edit: Edit) -> None:
        """Make sure that a smaller case does not get the remembered answer of a larger one."""
        if fingerprint(candidate, self.digests) in self._asked_best:
            raise SameQuestion(
                f"its edit {edit.says()!r} makes a smaller case that would get the remembered "
                "answer of a larger one: what toolkit/reduce/size.py counts there, the fingerprint "
                "(toolkit/oracle/cache.py) must tell, or nobody who is asked can see it"
            )

    def _keep(self, candidate: Case) -> None:
        self._asked_best.add(fingerprint(candidate, self.digests))
        self._count_won(candidate)
        self.best = candidate
        self.certificate = Certificate()
        self.improvements += 1
        self._counts.useful += 1
        if self.on_improvement:
            try:
                self.on_improvement(candidate)
            except Exception as error:
                raise Ended("on_improvement", error) from error

    def _count_won(self, candidate: Case) -> None:
        before, after = counts_of(self.best), counts_of(candidate)
        self._counts.nodes += before.call_nodes - after.call_nodes
        self._counts.elements += before.elements - after.elements

    def leave_out(self, step: str, error: Exception) -> None:
        """Take note that a step raised: the others go on without it."""
        self.left_out[step] = f"step {step} raised {said(error)}, and was left out"
        self.errors.append(error)

    def never_smaller(self) -> tuple[str, ...]:
        """Return the steps that made cases, none of them smaller: the order misses their idea."""
        return tuple(
            name
            for name, counts in self.statistics.items()
            if counts.not_smaller and not counts.questions + counts.cached + counts.remembered
        )

    @property
    def _counts(self) -> StepStatistics:
        return self.statistics.setdefault(self.step, StepStatistics())

    def _judge(self, case: Case) -> tuple[Judgement, bool]:
        """Return the answer, and whether the oracle was asked for it."""
        key = fingerprint(case, self.digests)
        known = self.cache.find(key)
        is_again = known is not None and self.is_deciding and self.is_open(known)
        if known is not None and not is_again:
            self._counts.cached += 1
            return known, False
        recall, ask = self._asking(is_again=is_again)
        known = self._recalled(case, recall)
        judgement = known or self._ask(case, ask)
        self.cache.add(key, judgement)
        return judgement, known is None

    def is_open(self, answer: Judgement) -> bool:
        """Return whether an answer is that a limit has run out which was not the whole one."""
        return isinstance(self.oracle, Deciding) and self.oracle.is_open(answer)

    def _asking(self, *, is_again: bool) -> tuple[Recall, Oracle]:
        if is_again and isinstance(self.oracle, Deciding):
            return self.oracle.recall_decided, self.oracle.decide
        return self.recall, self.oracle

    def _recalled(self, case: Case, recall: Recall) -> Judgement | None:
        try:
            known = recall(case)
        except Exception as error:
            raise Ended("the journal", error) from error
        self.remembered += known is not None
        self._counts.remembered += known is not None
        return known

    def _ask(self, case: Case, ask: Oracle) -> Judgement:
        if self.budget.questions is not None and self.questions >= self.budget.questions:
            raise OutOfBudget("questions")
        if self.budget.seconds is not None and self.seconds >= self.budget.seconds:
            raise OutOfBudget("seconds")
        self.questions += 1
        self._counts.questions += 1
        try:
            return ask(case)
        except Exception as error:
            raise Ended("the oracle", error) from error

    def _tell(self, case: Case, verdict: Verdict) -> None:
        """Tell how far the search is; the answer counts already, whatever is raised here."""
        if self.on_progress:
            try:
                self.on_progress(self._progress(case, verdict))
            except Exception as error:
                raise Ended("on_progress", error) from error

    def _progress(self, case: Case, verdict: Verdict) -> Progress:
        smallest = case if verdict is Verdict.REPRODUCES else self.best
        return Progress(
            questions=self.questions,
            cached=self.cache.hits,
            seconds=self.seconds,
            call_nodes=call_nodes(smallest),
            call_nodes_before=self.nodes_before,
            step=self.step,
            verdict=verdict,
            budget=self.budget,
            best=self.best,
            statistics={name: replace(each) for name, each in self.statistics.items()},
            ahead=self._ahead,
        )


def _is_empty(case: Case) -> bool:
    """Return whether nothing is left to compile: Dynamo calls no backend for such a graph."""
    calls = (node for node in case.graph.graph.nodes if node.op.startswith("call"))
    return all(operators.is_switch(node.target) for node in calls)
