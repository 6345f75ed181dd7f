"""Bisect a failure that kills or stops the process: every question runs in a child.

0. Custom operators that do not keep to their declaration are asked about first.
1. A child notes each pass before it runs, and each kernel before it is made and called: its last
   note is the first suspect.
2. If the case fails without it too, the guilty rewrite is found by fuel. A compile in this process
   with one rewrite less, which a child has survived, gives its name.
3. If it fails without any rewrite, the kernels are halved by running them in eager.

A timeout is a failure only when without the culprit alone the case passes in time. Only the kind of
the failure is compared: kernels are named after nodes, which rewrites change.
"""

from collections.abc import Callable
from dataclasses import replace

from ctk.toolkit.bisect.culprit import Culprit, FoundBy, Search
from ctk.toolkit.bisect.elimination import by_operator, the_decomposition, the_kernel
from ctk.toolkit.bisect.lowerings import find_below, with_excerpt
from ctk.toolkit.bisect.questions import NO_KERNELS, Questions
from ctk.toolkit.bisect.suspects import of_kernel, of_pass_id, of_rewrite
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.compile_log.recorder import CompileLog, Recorder, Veto
from ctk.toolkit.execution.execute import run_compiled
from ctk.toolkit.oracle.question import Oracle
from ctk.toolkit.oracle.questions.judge import judge
from ctk.toolkit.search.boundaries import verify_boundary
from ctk.toolkit.search.questions import run_search

MAX_REWRITES = 1 << 20


def find_deadly(
    case: Case, executor: Oracle, first: Judgement, say: Callable[[str], None]
) -> Search:
    """Find the rewrite or kernel that makes a compile crash or hang, and prove it."""
    anywhere = replace(first.signature, where=None) if first.signature else None
    questions = Questions(replace(case, signature=anywhere), executor, say, compiles=1)
    return _Deadly(questions, first).find()


class _Deadly:
    def __init__(self, questions: Questions, first: Judgement) -> None:
        self._questions, self._first = questions, first
        self._passes, self._fails = questions.passes, questions.fails

    def find(self) -> Search:
        is_failing = self._first.verdict is Verdict.REPRODUCES
        operators = by_operator(self._questions) if is_failing else None
        if operators is not None:
            culprit, *also = operators.culprits
            found = self._search(culprit, True, operators.found_by)
            return replace(found, also=tuple(also), relation=operators.relation)
        suspect = self._last_started()
        if suspect is not None and self._passes(suspect.veto, f"without {suspect}"):
            return self._search(self._within(suspect), True, "error")
        none = Veto(fuel=0)
        if self._fails(none, "without any rewrite"):
            return self._without_rewrites(suspect)
        answer = self._questions.answer(none)
        if answer.verdict is Verdict.INVALID:  # eager does it too: no compiler is to blame
            return Search(answer, compiles=self._questions.compiles, reason=answer.detail)
        number = run_search(
            verify_boundary(self._total()), lambda n: self._fails(Veto(fuel=n), f"with fuel {n}")
        )
        culprit = self._find_rewrite(number) if number is not None else None
        if culprit is None:
            reason = "the rewrite that kills the process could not be named"
            return Search(self._first, compiles=self._questions.compiles, reason=reason)
        confirmed = self._passes(culprit.veto, f"without {culprit}")
        return self._search(culprit, confirmed, "fuel")

    def _search(self, culprit: Culprit, confirmed: bool, found_by: FoundBy) -> Search:
        judgement = replace(self._first, verdict=Verdict.REPRODUCES) if confirmed else self._first
        return Search(
            judgement,
            culprit,
            confirmed,
            found_by,
            self._questions.compiles,
            excluded=tuple(self._questions.notes),
        )

    def _last_started(self) -> Culprit | None:
        where = self._first.signature.where if self._first.signature else None
        if where is None:
            return None
        is_kernel = where.startswith("lowered/") and ":" in where  # it is called codegen:name
        step = of_kernel(where) if is_kernel else of_pass_id(where)
        return replace(step, evidence=str(self._first.signature))

    def _total(self) -> int:
        """Return a failing fuel, by doubling: a crash does not report the number of rewrites."""
        fuel = 1
        while fuel < MAX_REWRITES and not self._fails(Veto(fuel=fuel), f"with fuel {fuel}"):
            fuel *= 2
        return fuel

    def _without_rewrites(self, suspect: Culprit | None) -> Search:
        if not self._passes(NO_KERNELS, "with every kernel in eager"):
            culprit = self._decomposition() if self._eager_raised is not None else None
            if culprit is None and suspect is not None:  # nothing after it has begun
                found = self._search(suspect, False, "error")
                return replace(found, reason="the case does not pass without it")
            dispatch = Culprit("captured", "autograd_dispatch", Veto())
            return self._search(culprit or dispatch, culprit is not None, "elimination")
        evidence = str(self._first.signature)
        kernel = the_kernel(self._questions, self._log_here(NO_KERNELS))
        culprit = Culprit("lowered", "kernels", NO_KERNELS, evidence=evidence)
        if kernel is not None:
            culprit = self._within(replace(kernel, evidence=evidence))
        return self._search(culprit, True, "elimination")

    def _within(self, culprit: Culprit) -> Culprit:
        """Return the lowering, fusion or option that makes a kernel deadly; else the kernel."""
        if not culprit.is_kernel:
            return culprit
        seen = self._first.signature
        is_called = seen is None or seen.kind != "runtime-error"
        log = self._log_here(culprit.veto) if is_called else self._log_uncalled()
        nodes = {str(kernel.id): kernel.nodes for kernel in log.kernels()}
        kernel = replace(culprit, nodes=nodes.get(min(culprit.veto.kernels), ()))
        found = find_below(culprit, log, self._questions)
        return found or with_excerpt(kernel, log)

    def _decomposition(self) -> Culprit | None:
        """Return the decomposition of the stage `dispatch` that drops an assertion of eager."""
        return the_decomposition(self._questions, self._log_here(NO_KERNELS), Veto())

    @property
    def _eager_raised(self) -> str | None:
        """The exception that only eager raises; None if the compiled program is the deadly one."""
        seen = self._first.signature
        return seen.message if seen is not None and seen.kind == "missing-error" else None

    def _find_rewrite(self, number: int) -> Culprit | None:
        """Return the rewrite with a number; None if one rewrite less is deadly in another way."""
        without = Veto(fuel=number - 1)
        seen = self._questions.answer(without).signature
        if seen is not None and seen.is_deadly:
            return None
        for record in self._log_here(without).passes():
            for rewrite in record.rewrites:
                if rewrite.id.number == number:
                    return of_rewrite(rewrite, len(record.rewrites), str(self._first.signature))
        return None

    def _log_uncalled(self) -> CompileLog:
        self._questions.compiles += 1
        recorder = Recorder(Veto())
        run_compiled(self._questions.case, observer=recorder, is_called=False)
        return recorder.log

    def _log_here(self, veto: Veto) -> CompileLog:
        """Compile in this process without the deadly part; skip eager if eager raises."""
        self._questions.compiles += 1
        recorder = Recorder(veto)
        judge(self._questions.case, observer=recorder, eager_raised=self._eager_raised)
        return recorder.log
