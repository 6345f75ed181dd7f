"""Several culprits: a set that is sufficient, without unneeded members, and how they interact.

1. `several_suspects`: independent culprits. Each round leaves out all suspects so far, observes,
   and adds the steps that are wrong then, until the case passes. Then each is put back alone: if
   the case still passes, it was not needed.
2. `smallest_set`: no value is wrong. The smallest set of passes, decompositions and kernels without
   which the case passes, by halves.
3. `partners`: one culprit was found, but the case also passes without another pass. They fail only
   together: the culprit alone, with every other pass left out, does no harm.

    culprits      without   without   with only   with only
                  A         B         A           B
    independent   fails     fails     fails       fails
    together      passes    passes    passes      passes

Source: Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002). Here the
items are the steps of a compile, and a set must be proved by the full compile.
"""

from collections.abc import Sequence
from dataclasses import replace

from ctk.toolkit.bisect.culprit import Culprit
from ctk.toolkit.bisect.questions import (
    NO_KERNELS,
    CulpritSet,
    ObservedCompile,
    Questions,
    join_vetoes,
    veto_of,
)
from ctk.toolkit.bisect.suspects import from_check, from_errors, of_kernel, of_pass, whole_pass
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.compile_log.recorder import CompileLog, Veto
from ctk.toolkit.search.blocks import smallest_subset
from ctk.toolkit.search.questions import run_search

MAX_ROUNDS = 8


def several_suspects(ask: Questions, seen: ObservedCompile) -> CulpritSet | None:
    """Return all steps that are wrong or raise, if the case passes without all of them."""
    found: list[Culprit] = []
    for _ in range(MAX_ROUNDS):
        known = {culprit.veto for culprit in found}
        suspects = [*from_errors(seen.log), *from_check(ask.case, seen.log)]
        new = _one_a_pass([s for s in suspects if s.veto not in known and s.veto != Veto()])
        if not new:
            return None
        found += new
        seen = ask.observe(veto_of(found), f"without {' and '.join(map(str, found))}")
        if seen.judgement.verdict is Verdict.PASSES:
            needed = _drop_unneeded(ask, found)
            relation = "independent" if len(needed) > 1 else None
            return CulpritSet("check", needed, relation)
    return None


def _one_a_pass(suspects: list[Culprit]) -> list[Culprit]:
    """Return the first suspect of each pass: it may explain the later ones."""
    first: dict[str, Culprit] = {}
    for suspect in suspects:
        first.setdefault(suspect.where, suspect)
    return list(first.values())


def _drop_unneeded(ask: Questions, found: list[Culprit]) -> tuple[Culprit, ...]:
    """Drop each culprit that may stay: with all others left out the case passes.

    Rewrites of other passes are left out as whole passes: without one, later rewrites may get other
    numbers.
    """
    for culprit in list(found):
        others = [
            c if c.where == culprit.where else whole_pass(c) for c in found if c is not culprit
        ]
        if others and ask.passes(veto_of(others), f"without all suspects but {culprit}"):
            found = [c for c in found if c is not culprit]
    return tuple(found)


def smallest_set(ask: Questions, seen: ObservedCompile) -> CulpritSet | None:
    """Return the smallest set of passes, decompositions and kernels that must be left out."""
    base = ask.cheapest()
    items = list(units(seen.log, kernels=not base.kernels))

    def passes_without(some: Sequence[Culprit]) -> bool:
        return ask.passes(join_vetoes(veto_of(some), base), f"without {len(some)} steps")

    found = run_search(smallest_subset(items), passes_without)
    if not found or not ask.passes(veto_of(found), f"without {len(found)} steps alone"):
        return None
    return CulpritSet("elimination", found, "independent" if len(found) > 1 else None)


def units(log: CompileLog, *, kernels: bool) -> Sequence[Culprit]:
    """Return everything that a compile can leave out, as whole passes."""
    passes = [
        of_pass(record)
        for record in log.passes()
        if not record.vetoed and (kernels or record.id.stage != "lowered")
    ]
    made = [of_kernel(str(kernel.id), kernel.nodes) for kernel in log.kernels()] if kernels else []
    return [*passes, *made]


def partners(ask: Questions, culprit: Culprit, log: CompileLog) -> tuple[Culprit, ...]:
    """Return the passes without which the culprit does no harm, each proved by a full compile."""
    own, base = whole_pass(culprit), NO_KERNELS
    if culprit.is_kernel:
        own, base = culprit, Veto()
    others = [
        of_pass(record)
        for record in log.passes()
        if str(record.id) != own.where
        and not record.vetoed
        and record.id.stage not in ("dispatch", "lowered")
    ]
    if not others:
        return ()
    if base != Veto() and not ask.fails(base, "with every kernel in eager"):
        return ()
    if ask.fails(join_vetoes(veto_of(others), base), f"with no pass but {own.where}"):
        return ()

    def fails_with(some: Sequence[Culprit]) -> bool:
        out = [other for other in others if other not in some]
        what = f"with no pass but {own.where} and {len(some)} more"
        return ask.fails(join_vetoes(veto_of(out), base), what)

    needed = run_search(smallest_subset(others), fails_with)
    return tuple(
        replace(other, evidence="without it the case passes too")
        for other in needed or ()
        if ask.passes(other.veto, f"without {other.where}")
    )
