"""find_culprit: from a failing case to the pass, rewrite or kernel that causes it, and its proof.

1. One observed compile. The exception, or the first wrong step, gives a suspect.
2. A compile without the suspect alone: when it passes, the suspect is confirmed.
3. When nothing was seen, or nothing confirmed: a binary search over rewrites by fuel, then over
   kernels.
4. What needs neither passes nor kernels is the autograd dispatch (decompositions,
   functionalization).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from ctk.toolkit.bisect.crashes import find_deadly
from ctk.toolkit.bisect.culprit import Culprit, FoundBy, Search
from ctk.toolkit.bisect.provenance import traced
from ctk.toolkit.bisect.search import guilty_kernel, smallest_failing
from ctk.toolkit.bisect.suspects import (
    from_check,
    from_errors,
    in_eager,
    of_kernel,
    of_rewrite,
    whole_pass,
)
from ctk.toolkit.case.case import Case
from ctk.toolkit.compile_log.recorder import CompileLog, Recorder, Veto
from ctk.toolkit.oracle.executors.base import Executor
from ctk.toolkit.oracle.executors.in_process import InProcess
from ctk.toolkit.oracle.judge import judge
from ctk.toolkit.oracle.judgement import Judgement, Verdict

MAX_SUSPECTS = 4
MAX_ROUNDS = 4

Progress = Callable[[str], None]


def find_culprit(
    case: Case,
    *,
    executor: Executor | None = None,
    on_progress: Progress | None = None,
    on_failing: Callable[[Judgement], None] | None = None,
) -> Search:
    """Find what causes a case's failure and prove it.

    Args:
        case: The case.
        executor: Asked everything that a judgement answers; the observed compile, whose graphs are
            needed, happens here. Asked first if it survives crashes: a case that kills or stops the
            process is then bisected there.
        on_progress: Called with a line per question.
        on_failing: Called with the failure, as soon as it was seen.

    Returns:
        The search; without a culprit when the case does not fail.
    """
    say = on_progress or (lambda _: None)
    tell = on_failing or (lambda _: None)
    executor = executor or InProcess()
    if executor.isolates:
        say(f"compile with {case.target}, in a child process")
        first = executor.ask(case, case.signature, Veto())
        if first.signature is not None and first.signature.is_deadly:
            if first.verdict is Verdict.REPRODUCES:
                tell(first)
            if first.verdict in (Verdict.REPRODUCES, Verdict.TIMEOUT):
                return find_deadly(case, executor, first, say)
            return Search(first, compiles=1, reason=first.detail)
    return _Finder(case, executor, say, tell).find()


class _Finder:
    """Asks questions about one case and counts the compiles."""

    def __init__(
        self,
        case: Case,
        executor: Executor,
        on_progress: Progress,
        on_failing: Callable[[Judgement], None],
    ) -> None:
        self._case, self._executor = case, executor
        self._say, self._tell = on_progress, on_failing
        self._compiles = 0
        self._answers: dict[Veto, Judgement] = {}

    def find(self) -> Search:
        self._say(f"compile with {self._case.target}, observed")
        judgement, log = self._observe(Veto())
        if judgement.verdict is not Verdict.REPRODUCES:
            return Search(judgement, compiles=self._compiles, reason=judgement.detail)
        self._tell(judgement)
        self._case = replace(self._case, signature=judgement.signature)
        for found_by, culprit in self._candidates(log):
            confirmed, also = self._confirm(culprit, log)
            if confirmed is not None:
                confirmed = traced(confirmed, log, self._case.graph)
                return Search(judgement, confirmed, True, found_by, self._compiles, also)
        return self._unconfirmed(judgement, log)

    def _candidates(self, log: CompileLog) -> Iterator[tuple[FoundBy, Culprit]]:
        yield from self._seen(log)
        by_fuel = self._by_fuel(log)
        if by_fuel is not None:
            yield ("fuel", by_fuel)
        by_kernel = self._by_kernel(log)
        if by_kernel is not None:
            yield ("elimination", by_kernel)

    def _confirm(
        self, culprit: Culprit, log: CompileLog
    ) -> tuple[Culprit | None, tuple[Culprit, ...]]:
        """Return the culprit if the case passes without it, and what else had to go; or None.

        1. Without the rewrite or kernel; of the kernels of a graph, without one of them.
        2. Without the pass.
        3. Without it and the next ones that then show, and so on.
        """
        if culprit.veto == Veto():
            return None, ()
        if self._passes(culprit.veto, f"without {culprit}"):
            return self._narrowed(culprit, log), ()
        if culprit.is_kernel:
            others = self._others(culprit)
            return (culprit, others) if others is not None else (None, ())
        if culprit.rewrite is not None:
            whole = whole_pass(culprit)
            if self._passes(whole.veto, f"without pass {whole.where}"):
                others = self._others(culprit)
                return (culprit, others) if others is not None else (whole, ())
        return None, ()

    def _narrowed(self, culprit: Culprit, log: CompileLog) -> Culprit:
        """Return the one kernel that is guilty, where a graph with many is."""
        among = culprit.veto.kernels
        one = self._by_kernel(log, among) if len(among) > 1 else None
        return replace(one, evidence=culprit.evidence) if one is not None else culprit

    def _others(self, culprit: Culprit) -> tuple[Culprit, ...] | None:
        """Return the further culprits that must go before the case passes, when a few rounds do.

        One rewrite a round, because it may explain all later ones. Kernels are compared by
        themselves: all that are wrong go at once.
        """
        found: list[Culprit] = [culprit]
        for _ in range(MAX_ROUNDS):
            judgement, log = self._observe(_together(found))
            if judgement.verdict is Verdict.PASSES:
                return tuple(found[1:])
            suspects = [*from_errors(log), *from_check(self._case, log)]
            alike = [c for c in suspects if c.is_kernel == culprit.is_kernel]
            if not culprit.is_kernel:
                alike = [c for c in alike if c.rewrite is not None][:1]
            known = {c.veto for c in found}
            following = [c for c in alike if c.veto not in known]
            if not following:
                return None
            found += following
        return None

    def _by_fuel(self, log: CompileLog) -> Culprit | None:
        records = {r.id.number: (r, p) for p in log.passes() for r in p.rewrites}
        if not records:
            return None
        total = max(records)
        number = smallest_failing(lambda fuel: self._fails(Veto(fuel=fuel)), total)
        if number is None or number not in records:
            return None
        rewrite, record = records[number]
        return of_rewrite(rewrite, len(record.rewrites), "the case fails from this rewrite on")

    def _by_kernel(self, log: CompileLog, among: Collection[str] = ()) -> Culprit | None:
        """Return the one kernel that must be left out; `among` some, or all of the compile."""
        nodes = {str(kernel.id): kernel.nodes for kernel in log.kernels()}
        nodes = {kernel: nodes[kernel] for kernel in nodes if not among or kernel in among}

        def passes_without(names: Sequence[str]) -> bool:
            return self._passes(Veto(kernels=frozenset(names)), in_eager(names))

        kernel = guilty_kernel(passes_without, list(nodes))
        return of_kernel(kernel, nodes[kernel]) if kernel is not None else None

    def _unconfirmed(self, judgement: Judgement, log: CompileLog) -> Search:
        """Nothing that can be left out makes the case pass."""
        everything = Veto(
            passes=frozenset(str(p.id) for p in log.passes()),
            kernels=frozenset(str(k.id) for k in log.kernels()),
        )
        found_by, suspect = next(self._seen(log), (None, None))
        if log.stages() and suspect is None and self._fails(everything):
            dispatch = Culprit("captured", "autograd_dispatch", Veto())
            reason = "it fails without any pass and with every kernel in eager"
            return Search(judgement, dispatch, False, "elimination", self._compiles, reason=reason)
        reason = "no pass, rewrite or kernel makes the case pass when left out alone"
        if suspect is None and not log.stages():
            reason = (
                f"target {self._case.target} announces no passes: only the graph can be reduced"
            )
        return Search(judgement, suspect, False, found_by, self._compiles, reason=reason)

    def _seen(self, log: CompileLog) -> Iterator[tuple[FoundBy, Culprit]]:
        """Yield what the observed compile itself shows."""
        for culprit in from_errors(log):
            yield "error", culprit
        for culprit in islice(from_check(self._case, log), MAX_SUSPECTS):
            yield "check", culprit

    def _observe(self, veto: Veto) -> tuple[Judgement, CompileLog]:
        self._compiles += 1
        recorder = Recorder(veto, keep_rewrites=True, keep_calls=True)
        return judge(self._case, expected=self._case.signature, observer=recorder), recorder.log

    def _ask(self, veto: Veto, what: str) -> Judgement:
        if veto not in self._answers:
            self._compiles += 1
            answer = self._executor.ask(self._case, self._case.signature, veto)
            self._answers[veto] = answer
            self._say(f"{what}: {answer.verdict.value}")
        return self._answers[veto]

    def _passes(self, veto: Veto, what: str) -> bool:
        return self._ask(veto, what).verdict is Verdict.PASSES

    def _fails(self, veto: Veto) -> bool:
        what = f"with fuel {veto.fuel}" if veto.fuel is not None else "without passes and kernels"
        return self._ask(veto, what).verdict is Verdict.REPRODUCES


def _together(culprits: Iterable[Culprit]) -> Veto:
    vetoes = [culprit.veto for culprit in culprits]
    rewrites = frozenset[int]().union(*(veto.rewrites for veto in vetoes))
    return Veto(rewrites=rewrites, kernels=frozenset[str]().union(*(v.kernels for v in vetoes)))
