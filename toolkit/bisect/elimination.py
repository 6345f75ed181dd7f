"""Strategies that leave parts out and compile again; the result may be several culprits.

A search runs every kernel in eager if the case fails then too: no code is generated. Its result is
proved by a full compile with nothing else left out. Several culprits are a set that is sufficient,
without unneeded members:

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

from collections.abc import Collection, Sequence
from dataclasses import replace

from torch.fx import Node

from ctk.compiler.errors import count_of
from ctk.toolkit.bisect.culprit import Culprit
from ctk.toolkit.bisect.questions import (
    MOST_ALTERNATIVES,
    NO_KERNELS,
    CulpritSet,
    ObservedCompile,
    Questions,
    join_vetoes,
    veto_of,
)
from ctk.toolkit.bisect.suspects import (
    from_check,
    from_errors,
    list_names,
    of_kernel,
    of_operator,
    of_pass,
    of_pass_id,
    of_rewrite,
    whole_pass,
)
from ctk.toolkit.compile_log.meta_values import MetaMismatch, find_meta_mismatches
from ctk.toolkit.compile_log.operator_faults import OperatorFault, find_operator_faults
from ctk.toolkit.compile_log.recorder import EVERY_DECOMPOSITION, CompileLog, Veto
from ctk.toolkit.compile_log.steps import compile_steps
from ctk.toolkit.search.blocks import every_cause, likely_cause, single_cause, smallest_subset
from ctk.toolkit.search.boundaries import verify_boundary
from ctk.toolkit.search.questions import run_search

PARTITION, FUNCTIONALIZE = "joint/partition", "dispatch/functionalize"
MAX_ROUNDS = 8


def by_operator(ask: Questions, _: ObservedCompile | None = None) -> CulpritSet | None:
    """Return the custom operators that do not keep to their declaration, if that matters.

    `find_operator_faults` finds them. A guilty operator runs as it is declared, in eager and
    compiled, or its trace is left out, and the case passes.
    """
    faults = find_operator_faults(ask.case)

    def passes_without(some: Sequence[OperatorFault]) -> bool:
        what = list_names([f"{each.operator} {each.remedy}" for each in some])
        return ask.passes(veto_of(map(of_operator, some)), f"with {what}")

    guilty = tuple(map(of_operator, run_search(smallest_subset(faults), passes_without) or ()))
    if not guilty:
        ask.notes += [f"{fault}; {fault.remedy}, it fails too" for fault in faults]
        return None
    return CulpritSet("check", guilty, "independent" if len(guilty) > 1 else None)


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
    names = [str(p.id) for p in seen.log.passes() if p.id.stage == "dispatch" and not p.vetoed]

    def passes_without(some: Sequence[str]) -> bool:
        return ask.passes(Veto(passes=frozenset(some)), f"without {list_names(some)}")

    others = [name for name in names if name != culprit.where]
    also = run_search(every_cause(others, MOST_ALTERNATIVES), passes_without)
    evidence = "the case passes when the operator is kept whole"
    return CulpritSet("elimination", (replace(culprit, evidence=evidence, alternatives=also),))


def the_decomposition(ask: Questions, log: CompileLog, base: Veto) -> Culprit | None:
    """Return the one decomposition that must be left out besides `base`, not yet proved alone."""
    records = {str(p.id): p for p in log.passes() if p.id.stage == "dispatch"}

    def passes_without(names: Sequence[str]) -> bool:
        what = f"without {list_names(names)}"
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
    functionalized either, it passes. The two differ in that step only, and in the decompositions of
    C++, which cannot be left out.
    """
    everything = everything_out(seen.log)
    if not ask.fails(everything, "with nothing but the trace"):
        return None
    reason = f"{EVERYTHING_FAILS}; not functionalized, it passes"
    culprit = of_pass_id(FUNCTIONALIZE, evidence=reason)
    if not ask.passes(join_vetoes(everything, culprit.veto), "with the captured graph as it is"):
        return None
    writes = tuple(node.name for node in ask.case.graph.graph.nodes if _writes(node))
    return CulpritSet("elimination", (replace(culprit, captured=writes),), reason=reason)


EVERYTHING_FAILS = "with every pass, kernel and decomposition in Python left out it fails"


def everything_out(log: CompileLog) -> Veto:
    """Return the veto of all that can be left out behind the trace, and of its decompositions."""
    every_pass = veto_of(_units(log, kernels=False))
    rest = Veto(passes=frozenset({PARTITION, EVERY_DECOMPOSITION}))
    return join_vetoes(every_pass, NO_KERNELS, rest)


def _writes(node: Node) -> bool:
    """Return whether a captured node is an in-place operator or a view with explicit strides."""
    if not node.op.startswith("call_"):
        return False
    name = str(getattr(node.target, "__name__", node.target))
    if name.endswith("_"):
        return not name.startswith("__")
    is_operator = getattr(node.target, "__module__", "") == "_operator"
    in_place = ("iadd", "imul", "isub", "itruediv") if is_operator else ()
    return name in ("setitem", "as_strided", *in_place)


_OF_NUMBERS = ("accuracy", "nan")


def by_meta_implementation(ask: Questions, seen: ObservedCompile) -> CulpritSet | None:
    """Return the operator whose meta implementation disagrees with its kernel, if that matters.

    One run in eager finds the nodes whose values differ from the meta values of the log
    (`find_meta_mismatches`). Without the meta implementation of a guilty operator (its kernel
    answers) the case passes.

    1. The failure is one of form (strides, type, shape), or an error: every such node is a suspect.
    2. Wrong numbers: strides are no suspects; they often differ harmlessly.
    """
    told = [
        mismatch
        for mismatch in find_meta_mismatches(ask.case, seen.log)
        if _may_matter(mismatch, seen)
    ]
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
    return wrong.mismatch.kind != "stride"


def several_suspects(ask: Questions, seen: ObservedCompile) -> CulpritSet | None:
    """Return all steps that are wrong or raise, if the case passes without all of them."""
    culprits: list[Culprit] = []
    for _ in range(MAX_ROUNDS):
        known = {culprit.veto for culprit in culprits}
        suspects = [*from_errors(seen.log), *from_check(ask.case, seen.log)]
        new = _one_a_pass([s for s in suspects if s.veto not in known and s.veto != Veto()])
        if not new:
            return None
        culprits += new
        seen = ask.observe(veto_of(culprits), f"without {' and '.join(map(str, culprits))}")
        if seen.judgement.is_no_failure:
            needed = _drop_unneeded(ask, culprits)
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
    items = list(_units(seen.log, kernels=not base.kernels))

    def passes_without(some: Sequence[Culprit]) -> bool:
        return ask.passes(
            join_vetoes(veto_of(some), base), f"without {count_of(len(some), 'step')}"
        )

    search = run_search(smallest_subset(items), passes_without)
    if not search or not ask.passes(
        veto_of(search), f"without {count_of(len(search), 'step')} alone"
    ):
        return None
    return CulpritSet("elimination", search, "independent" if len(search) > 1 else None)


def _units(log: CompileLog, *, kernels: bool) -> Sequence[Culprit]:
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
        and record.id.stage not in ("operator", "dispatch", "lowered")
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
