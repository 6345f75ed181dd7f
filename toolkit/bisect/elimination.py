"""Strategies that leave parts out and compile again, for failures that no observed value shows.

A search runs every kernel in eager if the case fails then too: no code is generated. Its result is
proved by a full compile with nothing else left out.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from ctk.toolkit.bisect.culprit import Culprit
from ctk.toolkit.bisect.culprit_sets import units
from ctk.toolkit.bisect.questions import (
    NO_KERNELS,
    CulpritSet,
    ObservedCompile,
    Questions,
    join_vetoes,
    veto_of,
)
from ctk.toolkit.bisect.suspects import (
    list_names,
    of_kernel,
    of_pass,
    of_pass_id,
    of_rewrite,
    whole_pass,
)
from ctk.toolkit.compile_log.meta_values import MetaMismatch, find_meta_mismatches
from ctk.toolkit.compile_log.recorder import CompileLog, Veto
from ctk.toolkit.compile_log.steps import compile_steps
from ctk.toolkit.search.blocks import likely_cause, single_cause
from ctk.toolkit.search.boundaries import verify_boundary
from ctk.toolkit.search.questions import run_search

PARTITION, FUNCTIONALIZE = "joint/partition", "dispatch/functionalize"


def by_fuel(ask: Questions, seen: ObservedCompile) -> CulpritSet | None:
    """Return the first rewrite with which it fails, or its pass."""
    records = {r.id.number: (r, p) for p in seen.log.passes() for r in p.rewrites}
    if not records:
        return None
    base = ask.cheapest()

    def fails(fuel: int) -> bool:
        return ask.fails(join_vetoes(Veto(fuel=fuel), base), f"with fuel {fuel}")

    number = run_search(verify_boundary(max(records)), fails)
    if number is None or number not in records:
        return None
    rewrite, record = records[number]
    evidence = "the case fails from this rewrite on"
    culprit = of_rewrite(rewrite, len(record.rewrites), evidence)
    for suspect in (culprit, whole_pass(culprit)):
        if ask.passes(suspect.veto, f"without {suspect}"):
            return CulpritSet("fuel", (suspect,))
    return None


def by_kernel(ask: Questions, seen: ObservedCompile) -> CulpritSet | None:
    """Return the one kernel that must be left out."""
    culprit = the_kernel(ask, seen.log)
    return CulpritSet("elimination", (culprit,)) if culprit is not None else None


def the_kernel(ask: Questions, log: CompileLog, among: Collection[str] = ()) -> Culprit | None:
    """Return the one kernel that must be left out, of some (`among`) or of all."""
    nodes = {str(kernel.id): kernel.nodes for kernel in log.kernels()}
    nodes = {kernel: nodes[kernel] for kernel in nodes if not among or kernel in among}

    def passes_without(names: Sequence[str]) -> bool:
        what = f"with {list_names(names, 'more kernels')} in eager"
        return ask.passes(Veto(kernels=frozenset(names)), what)

    kernel = run_search(single_cause(list(nodes)), passes_without)
    return of_kernel(kernel, nodes[kernel]) if kernel is not None else None


def by_decomposition(ask: Questions, seen: ObservedCompile) -> CulpritSet | None:
    """Return the one decomposition that must be left out."""
    culprit = the_decomposition(ask, seen.log, ask.cheapest())
    if culprit is None or not ask.passes(culprit.veto, f"without {culprit.where}"):
        return None
    evidence = "the case passes when the operator is kept whole"
    return CulpritSet("elimination", (replace(culprit, evidence=evidence),))


def the_decomposition(ask: Questions, log: CompileLog, base: Veto) -> Culprit | None:
    """Return the one decomposition that must be left out besides `base`, not yet proved alone."""
    records = {str(p.id): p for p in log.passes() if p.id.stage == "dispatch"}

    def passes_without(names: Sequence[str]) -> bool:
        what = f"without {len(names)} decompositions"
        return ask.passes(join_vetoes(Veto(passes=frozenset(names)), base), what)

    name = run_search(single_cause(list(records)), passes_without)
    return of_pass(records[name]) if name is not None else None


def by_partition(ask: Questions, seen: ObservedCompile) -> CulpritSet | None:
    """Return the partition, if the case passes with torch's `default_partition`."""
    stages = {stage.stage for stage in seen.log.stages()}
    is_split = any(step.kind == "partition" for step in compile_steps(seen.log))
    if "joint" not in stages or ("forward" in stages and not is_split):
        return None  # an inference graph goes on as it is
    evidence = "the case passes when the graph is split by default_partition"
    culprit = of_pass_id(PARTITION, evidence=evidence)
    if not ask.passes(culprit.veto, f"without {PARTITION}"):
        return None
    return CulpritSet("elimination", (culprit,))


def by_functionalization(ask: Questions, seen: ObservedCompile) -> CulpritSet | None:
    """Return functionalization, if no other step is left that could be guilty.

    With every pass, kernel and decomposition left out the case fails; if the captured graph is not
    functionalized either, it passes. The two differ in that step only.
    """
    every_pass = veto_of(units(seen.log, kernels=False))
    everything = join_vetoes(every_pass, NO_KERNELS, Veto(passes=frozenset({PARTITION})))
    if not ask.fails(everything, "with nothing but the trace"):
        return None
    reason = "with every pass, kernel and decomposition out it fails; not functionalized, it passes"
    culprit = of_pass_id(FUNCTIONALIZE, evidence=reason)
    if not ask.passes(join_vetoes(everything, culprit.veto), "with the captured graph as it is"):
        return None
    writes = tuple(node.name for node in ask.case.graph.graph.nodes if _writes(node))
    return CulpritSet("elimination", (replace(culprit, captured=writes),), reason=reason)


def _writes(node: object) -> bool:
    """Return whether a captured node is an in-place operator or a view with explicit strides."""
    target = getattr(node, "target", None)
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    is_dunder = name.startswith("__")
    in_place = (name.endswith("_") and not is_dunder) or name in ("setitem", "as_strided")
    is_operator = name.startswith("i") and getattr(target, "__module__", "") == "_operator"
    return getattr(node, "op", "").startswith("call_") and (
        in_place or (is_operator and name in ("iadd", "imul", "isub", "itruediv"))
    )


_OF_NUMBERS = ("accuracy", "nan")


def by_meta_implementation(ask: Questions, seen: ObservedCompile) -> CulpritSet | None:
    """Return the operator whose meta implementation disagrees with its kernel, if that matters.

    One run in eager finds the nodes whose values differ from the meta values of the log
    (`find_meta_mismatches`). Without the meta implementation of a guilty operator (its kernel
    answers) the case passes.

    1. The failure is one of form (strides, type, shape), or an error: every such node is a suspect.
    2. Wrong numbers: strides of torch's own operators are no suspects; they often differ
       harmlessly.
    """
    told = [each for each in find_meta_mismatches(ask.case, seen.log) if _may_matter(each, seen)]
    wheres = list(dict.fromkeys(each.where for each in told))

    def passes_without(names: Sequence[str]) -> bool:
        return ask.passes(Veto(passes=frozenset(names)), f"without {list_names(names)}")

    guilty = run_search(likely_cause(wheres), passes_without)
    if guilty is None:
        return None
    wrong = [each for each in told if each.where == guilty]
    nodes = tuple(dict.fromkeys(each.node for each in wrong))
    evidence = str(wrong[0].mismatch.detail)
    return CulpritSet("check", (of_pass_id(guilty, nodes, evidence),))


def _may_matter(wrong: MetaMismatch, seen: ObservedCompile) -> bool:
    signature = seen.judgement.signature
    if signature is None or signature.kind not in _OF_NUMBERS:
        return True
    return wrong.mismatch.kind != "stride" or not wrong.is_of_torch
