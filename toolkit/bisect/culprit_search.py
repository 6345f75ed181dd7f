"""Find the pass, rewrite or kernel that causes a failure, and prove it.

One observed compile; then `STRATEGIES`, cheapest first. Proof: without the culprit alone the case
passes. Of a passing case, steps are found whose wrong values a later step masks.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

from ctk.compiler.errors import LostAccelerator
from ctk.toolkit.bisect.crashes import find_deadly
from ctk.toolkit.bisect.culprit import Culprit, FoundBy, Search
from ctk.toolkit.bisect.elimination import (
    EVERYTHING_FAILS,
    by_decomposition,
    by_fuel,
    by_functionalization,
    by_kernel,
    by_meta_implementation,
    by_operator,
    by_partition,
    everything_out,
    partners,
    several_suspects,
    smallest_set,
    the_kernel,
)
from ctk.toolkit.bisect.lowerings import find_below, with_excerpt
from ctk.toolkit.bisect.memory_reads import find_foreign_reads
from ctk.toolkit.bisect.questions import (
    CulpritSet,
    ObservedCompile,
    Progress,
    Questions,
    list_exclusions,
)
from ctk.toolkit.bisect.slow_steps import find_slow_step
from ctk.toolkit.bisect.suspects import from_check, from_errors, trace_to_captured, whole_pass
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.compile_log.operator_faults import find_operator_faults
from ctk.toolkit.compile_log.recorder import Veto
from ctk.toolkit.oracle.executors.in_process import InProcess
from ctk.toolkit.oracle.question import ExecutorOracle, Question
from ctk.toolkit.oracle.questions.judge import NEXT_ISOLATE, conclude, raises_alike
from ctk.toolkit.processes.accelerator import has_lost_cuda
from ctk.toolkit.targets import record_decisions, target_of

MAX_SUSPECTS = 4


def find_culprit(
    case: Case,
    *,
    executor: ExecutorOracle | None = None,
    on_progress: Progress | None = None,
    on_failing: Callable[[Judgement], None] | None = None,
    on_observed: Callable[[ObservedCompile], None] | None = None,
) -> Search:
    """Find the cause of a case's failure and prove it.

    Args:
        executor: Judges all questions but the observed compile, which runs in this process because
            its graphs are needed. An executor that survives crashes judges the case first: a case
            that kills or stops the process is then bisected there.
        on_failing: Called once with the judgement, as soon as the case fails.
        on_observed: Called once with the observed compile, whose findings are still to come; not
            for a case that kills or stops the process.

    Returns:
        The search; without a culprit when the case does not fail.
    """
    say = on_progress or (lambda _: None)
    tell = on_failing or (lambda _: None)
    executor = executor or InProcess()
    if executor.isolates:
        say(f"compile with {case.target}, in a child process")
        first = executor.ask(Question(case, case.signature, Veto()))
        if first.signature is not None and first.signature.is_deadly:
            if first.verdict is Verdict.REPRODUCES:
                tell(first)
            if first.verdict in (Verdict.REPRODUCES, Verdict.TIMEOUT):
                return find_deadly(case, executor, first, say)
            return Search(first, compiles=1, reason=first.detail)
        if raises_alike(first):  # no values to compare, and eager may break CUDA here
            return Search(conclude(first), compiles=1, reason=first.detail)
    ask = Questions(case, executor, say)
    seen = ask.observe(Veto(), f"compile with {case.target}, observed")
    if on_observed is not None:
        on_observed(seen)
    return _find(ask, seen, tell)


def _find(ask: Questions, seen: ObservedCompile, tell: Callable[[Judgement], None]) -> Search:
    judgement = seen.judgement
    if has_lost_cuda():  # before anything is written: this process cannot go on
        raise LostAccelerator(f"{judgement.signature or judgement.detail}\n{NEXT_ISOLATE}")
    if judgement.verdict is Verdict.FLAKY:
        told = (judgement.detail, *map(str, find_operator_faults(ask.case)))
        judgement = replace(judgement, detail="; ".join(filter(None, told)))
    if judgement.verdict is not Verdict.REPRODUCES:
        passes = judgement.verdict is Verdict.PASSES
        hidden = find_masked_failures(ask, seen) if passes else ()
        found = conclude(judgement)
        return Search(found, compiles=ask.compiles, reason=found.detail, hidden=hidden)
    tell(judgement)
    ask.case = record_decisions(replace(ask.case, signature=judgement.signature))
    if judgement.signature is not None and judgement.signature.kind == "slow-compile":
        return find_slow_step(ask, seen)
    for strategy in STRATEGIES:
        found = strategy(ask, seen)
        if found is not None:
            return _report_culprit(ask, seen, found)
    return _report_no_proof(ask, seen)


def one_suspect(ask: Questions, seen: ObservedCompile) -> CulpritSet | None:
    """Return a suspect of the observed compile without which alone the case passes.

    1. Of a kernel of Inductor: a lowering, fusion or option of it.
    2. The rewrite or kernel; of the kernels of a graph, one of them.
    3. The pass, with all of its rewrites that are needed.
    """
    for found_by, suspect in _suspects(ask, seen):
        if suspect.veto == Veto():
            continue
        below = find_below(suspect, seen.log, ask) if suspect.is_kernel else None
        if below is not None:
            return CulpritSet(found_by, (below,))
        if ask.passes(suspect.veto, f"without {suspect}"):
            narrowed = _narrow_to_kernel(ask, seen, suspect)
            return CulpritSet(found_by, (with_excerpt(narrowed, seen.log),))
        if suspect.rewrite is None:
            continue
        pass_ = whole_pass(suspect)
        if ask.passes(pass_.veto, f"without pass {pass_.where}"):
            rewrites = several_suspects(ask, seen)
            if rewrites is not None and all(c.where == pass_.where for c in rewrites.culprits):
                return replace(rewrites, found_by=found_by)
            return CulpritSet(found_by, (pass_,))
    return None


Strategy = Callable[[Questions, ObservedCompile], CulpritSet | None]

STRATEGIES: tuple[Strategy, ...] = (
    by_operator,
    by_meta_implementation,
    one_suspect,
    several_suspects,
    by_fuel,
    by_kernel,
    by_decomposition,
    by_partition,
    smallest_set,
    by_functionalization,
)
"""In the order of the search; the first that finds a culprit ends it."""


def _suspects(ask: Questions, seen: ObservedCompile) -> Iterator[tuple[FoundBy, Culprit]]:
    """Yield the suspects of the observed compile: the raising steps, then the first wrong ones."""
    for culprit in from_errors(seen.log):
        yield "error", culprit
    seen.findings.clear()
    for culprit in islice(from_check(ask.case, seen.log, seen.findings.append), MAX_SUSPECTS):
        yield "check", culprit


def _narrow_to_kernel(ask: Questions, seen: ObservedCompile, culprit: Culprit) -> Culprit:
    among = culprit.veto.kernels
    one = the_kernel(ask, seen.log, among) if len(among) > 1 else None
    return replace(one, evidence=culprit.evidence) if one is not None else culprit


def _report_culprit(ask: Questions, seen: ObservedCompile, found: CulpritSet) -> Search:
    first, *also = (
        trace_to_captured(culprit, seen.log, ask.case.graph) for culprit in found.culprits
    )
    if first.stage == "lowered" and ask.case.signature and ask.case.signature.is_numeric:
        read = find_foreign_reads(ask.case)
        first = replace(first, evidence="; ".join(filter(None, (read, first.evidence))))
    relation = found.relation
    is_above = first.is_kernel or first.stage not in ("operator", "dispatch", "lowered")
    if not also and is_above and target_of(ask.case.target).is_quick:
        also = [
            trace_to_captured(c, seen.log, ask.case.graph) for c in partners(ask, first, seen.log)
        ]
        relation = "together" if also else None
    return Search(
        seen.judgement,
        first,
        confirmed=True,
        found_by=found.found_by,
        compiles=ask.compiles,
        also=tuple(also),
        reason=found.reason,
        relation=relation,
        excluded=list_exclusions(ask, seen, (first, *also)),
    )


def _report_no_proof(ask: Questions, seen: ObservedCompile) -> Search:
    found_by, suspect = next(_suspects(ask, seen), (None, None))
    if not seen.log.stages():
        reason = f"target {ask.case.target} announces no passes: only the graph can be reduced"
    elif suspect is not None:
        known = ask.answers.get(suspect.veto)
        said = f"without it alone: {known[1].verdict.value}" if known else "it cannot be left out"
        reason = f"no counterfactual passes; {said}"
    elif ask.fails(everything_out(seen.log), "with nothing but the trace"):
        found_by, suspect = "elimination", Culprit("captured", "autograd_dispatch", Veto())
        reason = EVERYTHING_FAILS
    else:
        reason = "no part of the compile makes the case pass when it is left out alone"
    return Search(
        seen.judgement,
        suspect,
        found_by=found_by,
        compiles=ask.compiles,
        reason=reason,
        excluded=list_exclusions(ask, seen),
    )


MAX_MASKED = 4


def find_masked_failures(ask: Questions, seen: ObservedCompile) -> tuple[Culprit, ...]:
    """Return the steps whose wrong values a later step masks, each proved by a compile without."""
    checked = from_check(ask.case, seen.log, seen.findings.append)
    suspects = [suspect for suspect in checked if suspect.veto != Veto()][:MAX_MASKED]
    others = {suspect.where for suspect in suspects}
    culprits: list[Culprit] = []
    for suspect in suspects:
        without = ask.observe(suspect.veto, f"the results agree; without {suspect}")
        if not without.judgement.is_no_failure:
            continue
        wrong = {step.where for step in from_check(ask.case, without.log)}
        if suspect.where not in wrong and wrong <= others:
            culprits.append(trace_to_captured(suspect, seen.log, ask.case.graph))
    return tuple(culprits)
