"""Read suspects off one observed compile, from the exception or the first wrong step; trace them.

A suspect is traced to the nodes of the captured graph, which are the operators of the user.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from torch.fx import GraphModule, Node

from ctk.compiler.observe import PassRecord, RewriteId, RewriteRecord, Stage, first_line
from ctk.toolkit.bisect.culprit import Culprit
from ctk.toolkit.case.case import Case
from ctk.toolkit.compile_log.check import Checker, Finding
from ctk.toolkit.compile_log.operator_faults import OperatorFault
from ctk.toolkit.compile_log.recorder import CompileLog, Veto
from ctk.toolkit.compile_log.steps import compile_steps
from ctk.toolkit.search.boundaries import smallest_true
from ctk.toolkit.search.questions import run_search


def from_errors(log: CompileLog) -> Iterator[Culprit]:
    """Yield the steps that raised, the last exception first: earlier ones were caught.

    A pass is one also if it is a lowering on the way to a kernel.
    """
    for record in reversed(log.errors()):
        evidence = f"{type(record.error).__name__}: {first_line(record.error)}"
        nodes = (record.node,) if record.node else ()
        if record.rewrite is not None:
            yield _of_rewrite(record.rewrite, record.rewrite.index, nodes, evidence)
        elif record.pass_id is not None:
            yield of_pass_id(str(record.pass_id), nodes, evidence)
        if record.kernel is not None:
            yield of_kernel(str(record.kernel), nodes, evidence)


def from_check(
    case: Case, log: CompileLog, note: Callable[[Finding], object] = lambda _: None
) -> Iterator[Culprit]:
    """Yield the steps that made a value wrong, in pipeline order; `note` gets every finding."""
    checker = Checker(case, log)
    for step in compile_steps(log):
        finding = checker.check(step)
        note(finding)
        if finding.status == "wrong":
            yield from _decompositions_of(log, finding)
            yield _from_finding(checker, finding)


def _decompositions_of(log: CompileLog, finding: Finding) -> Iterator[Culprit]:
    """Yield the decompositions that were applied while a captured node was traced wrongly."""
    if finding.step.kind != "functionalize":
        return
    for record in log.passes():
        if record.id.stage == "dispatch" and finding.node in record.nodes:
            evidence = str(finding.mismatch and finding.mismatch.detail)
            culprit = of_pass_id(str(record.id), evidence=evidence)
            yield replace(culprit, captured=(str(finding.node),))


def _from_finding(checker: Checker, finding: Finding) -> Culprit:
    step = finding.step
    evidence = str(finding.mismatch.detail) if finding.mismatch else ""
    node = (finding.node,) if finding.node else ()
    if step.kind == "kernel":
        is_part = step.inputs is not None  # a kernel that is the whole graph hides its nodes
        culprit = of_kernel(step.where, node if is_part else (), evidence)
        return replace(culprit, veto=Veto(kernels=frozenset(map(str, step.kernels))))
    culprit = of_pass_id(step.where, node, evidence)
    if step.kind == "functionalize":
        return replace(culprit, veto=Veto(), nodes=(), captured=node)
    if step.record is None:  # the partition
        return culprit
    if step.kind == "decomposition":
        return replace(culprit, captured=step.record.nodes)
    made = step.record.rewrites
    rewrite = guilty_rewrite(checker, finding)
    if rewrite is None:
        return replace(culprit, rewrites_in_pass=len(made))
    return of_rewrite(rewrite, len(made), evidence)


def of_pass_id(where: str, nodes: tuple[str, ...] = (), evidence: str = "") -> Culprit:
    """Return a pass as a culprit, from the `str` of its id."""
    stage, _, name = where.partition("/")
    veto = Veto(passes=frozenset({where}))
    return Culprit(cast("Stage", stage), name, veto, nodes=nodes, evidence=evidence)


def of_pass(record: PassRecord) -> Culprit:
    """Return a whole pass as a culprit."""
    culprit = of_pass_id(str(record.id))
    return replace(culprit, rewrites_in_pass=len(record.rewrites), captured=record.nodes)


def of_kernel(kernel: str, nodes: tuple[str, ...] = (), evidence: str = "") -> Culprit:
    """Return a kernel as a culprit, from the `str` of its id."""
    veto = Veto(kernels=frozenset({kernel}))
    name = kernel.partition("/")[2]
    return Culprit("lowered", name, veto, nodes=nodes, evidence=evidence)


def of_operator(fault: OperatorFault) -> Culprit:
    """Return a custom operator as a culprit."""
    return replace(of_pass_id(fault.where, evidence=fault.predicate), captured=fault.nodes)


def of_rewrite(rewrite: RewriteRecord, rewrites_in_pass: int, evidence: str = "") -> Culprit:
    """Return a rewrite as a culprit."""
    return _of_rewrite(rewrite.id, rewrites_in_pass, rewrite.nodes, evidence)


def _of_rewrite(
    rewrite: RewriteId, rewrites_in_pass: int, nodes: tuple[str, ...], evidence: str
) -> Culprit:
    return replace(
        of_pass_id(str(rewrite.pass_id), nodes, evidence),
        veto=Veto(rewrites=frozenset({rewrite.number})),
        rewrite=rewrite.number,
        index=rewrite.index,
        rule=rewrite.rule,
        rewrites_in_pass=rewrites_in_pass,
    )


def whole_pass(culprit: Culprit) -> Culprit:
    """Return the whole pass of a rewrite as a culprit."""
    if culprit.is_kernel:
        return culprit
    veto = Veto(passes=frozenset({culprit.where}))
    return replace(culprit, veto=veto, rewrite=None, index=None)


def list_names(names: Sequence[str], more: str = "more", *, most: int = 3) -> str:
    """Return names for one line: the first few, and the number of the others."""
    rest = f" and {len(names) - most} {more}" if len(names) > most else ""
    return f"{', '.join(names[:most])}{rest}"


def guilty_rewrite(checker: Checker, finding: Finding) -> RewriteRecord | None:
    """Return the first rewrite of a wrong pass after which a surviving value is wrong.

    A binary search over the graphs after each rewrite, without a compile. None without those graphs
    (`Recorder(keep_rewrites=True)`).
    """
    record = finding.step.record
    if record is None:
        return None
    kept = [rewrite for rewrite in record.rewrites if rewrite.after is not None]

    def is_wrong(count: int) -> bool:
        build = kept[count - 1].after
        assert build is not None
        return checker.check(replace(finding.step, after=build())).status == "wrong"

    if not kept or not is_wrong(len(kept)):
        return None
    return kept[run_search(smallest_true(len(kept)), is_wrong) - 1]


def trace_to_captured(culprit: Culprit, log: CompileLog, captured: GraphModule) -> Culprit:
    """Return a culprit with the captured nodes from which its nodes came: the user's operators.

    Forward nodes carry the captured node from which they came; backward nodes share the sequence
    number of the forward node whose gradient they compute. Both are torch's own bookkeeping, so the
    result is a hint: the reducer tries it first and believes only its oracle.
    """
    for graph in _graphs_of(culprit, log):
        names = _names_in_captured(culprit.nodes, graph, captured)
        if names:
            return replace(culprit, captured=names)
    return culprit


def _graphs_of(culprit: Culprit, log: CompileLog) -> Iterator[GraphModule]:
    yield from (p.before for p in log.passes() if str(p.id) == culprit.where)
    yield from (e.graph for e in log.errors() if e.graph is not None)
    yield from (k.graph for k in log.kernels() if str(k.id) in culprit.veto.kernels)


def _names_in_captured(
    names: Iterable[str], graph: GraphModule, captured: GraphModule
) -> tuple[str, ...]:
    """Return the nodes of `captured` from which the named nodes (unknown ones are skipped) came."""
    nodes = {node.name: node for node in graph.graph.nodes}
    own = {n.name for n in captured.graph.nodes if n.op not in ("placeholder", "output")}
    by_number: dict[object, set[str]] = {}
    for node in nodes.values():
        if (number := node.meta.get("seq_nr")) is not None:
            by_number.setdefault(number, set()).update(_origins(node, own))
    found: set[str] = set()
    for name in names:
        node = nodes.get(name)
        if node is None:
            continue
        origins = _origins(node, own) or by_number.get(node.meta.get("seq_nr"), set[str]())
        found |= origins or ({name} & own)
    return tuple(n.name for n in captured.graph.nodes if n.name in found)


def _origins(node: Node, own: set[str]) -> set[str]:
    """Return the captured names in the history of a node; the history nests."""
    queue = list(cast("list[Any]", node.meta.get("from_node") or []))
    origins: set[str] = set()
    while queue:
        source = queue.pop()
        if getattr(source, "name", None) in own:
            origins.add(str(source.name))
        queue.extend(getattr(source, "from_node", None) or [])
    return origins
