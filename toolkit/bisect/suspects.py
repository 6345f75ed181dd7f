"""Read suspects off one observed compile: from the exception, or from the first wrong step."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ctk.compiler.observe import ErrorRecord, PassRecord, RewriteRecord, first_line
from ctk.toolkit.bisect.culprit import Culprit
from ctk.toolkit.case.case import Case
from ctk.toolkit.compile_log.check import Checker, Finding
from ctk.toolkit.compile_log.recorder import CompileLog, Veto
from ctk.toolkit.compile_log.steps import compile_steps
from ctk.toolkit.search.boundaries import smallest_true
from ctk.toolkit.search.questions import run_search


def from_errors(log: CompileLog) -> Iterator[Culprit]:
    """Yield the steps that raised, the last exception first: earlier ones were caught."""
    for record in reversed(log.errors()):
        culprit = _from_error(record)
        if culprit is not None:
            yield culprit
        if record.kernel is not None:
            evidence = f"{type(record.error).__name__}: {first_line(record.error)}"
            nodes = (record.node,) if record.node else ()
            yield of_kernel(str(record.kernel), nodes, evidence)


def _from_error(record: ErrorRecord) -> Culprit | None:
    """Return the pass that raised, also if it is a lowering on the way to a kernel."""
    evidence = f"{type(record.error).__name__}: {first_line(record.error)}"
    nodes = (record.node,) if record.node else ()
    if record.pass_id is None:
        return None
    name = str(record.pass_id).partition("/")[2]
    veto = _pass_veto(str(record.pass_id))
    culprit = Culprit(record.stage, name, veto, nodes=nodes, evidence=evidence)
    if record.rewrite is None:
        return culprit
    return replace(
        culprit,
        veto=Veto(rewrites=frozenset({record.rewrite.number})),
        rewrite=record.rewrite.number,
        index=record.rewrite.index,
        rule=record.rewrite.rule,
        rewrites_in_pass=record.rewrite.index,
    )


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
            culprit = _from_pass(record, str(finding.mismatch and finding.mismatch.detail))
            yield replace(culprit, captured=(str(finding.node),))


def _from_pass(record: PassRecord, evidence: str, nodes: tuple[str, ...] = ()) -> Culprit:
    name = str(record.id).partition("/")[2]
    veto = _pass_veto(str(record.id))
    return Culprit(record.id.stage, name, veto, nodes=nodes, evidence=evidence)


def _from_finding(checker: Checker, finding: Finding) -> Culprit:
    step = finding.step
    evidence = str(finding.mismatch.detail) if finding.mismatch else ""
    node = (finding.node,) if finding.node else ()
    if step.kind == "kernel":
        veto = Veto(kernels=frozenset(str(kernel) for kernel in step.kernels))
        name = step.where.partition("/")[2]
        is_part = step.inputs is not None  # a kernel that is the whole graph hides its nodes
        return Culprit("lowered", name, veto, nodes=node if is_part else (), evidence=evidence)
    name = step.where.partition("/")[2]
    if step.kind == "decomposition" and step.record is not None:
        culprit = _from_pass(step.record, evidence, node)
        return replace(culprit, captured=step.record.nodes)
    if step.kind == "functionalize":
        return Culprit("dispatch", name, Veto(), captured=node, evidence=evidence)
    if step.record is None:  # the partition
        return Culprit("joint", name, _pass_veto(step.where), nodes=node, evidence=evidence)
    made = step.record.rewrites
    rewrite = guilty_rewrite(checker, finding)
    if rewrite is None:
        return Culprit(
            stage=step.stage,
            name=name,
            veto=_pass_veto(step.where),
            rewrites_in_pass=len(made),
            nodes=node,
            evidence=evidence,
        )
    return of_rewrite(rewrite, len(made), evidence)


def of_pass(record: PassRecord) -> Culprit:
    """Return a whole pass as a culprit."""
    culprit = _from_pass(record, "")
    return replace(culprit, rewrites_in_pass=len(record.rewrites), captured=record.nodes)


def of_kernel(kernel: str, nodes: tuple[str, ...] = (), evidence: str = "") -> Culprit:
    """Return a kernel as a culprit, from the `str` of its id."""
    veto = Veto(kernels=frozenset({kernel}))
    name = kernel.partition("/")[2]
    return Culprit("lowered", name, veto, nodes=nodes, evidence=evidence)


def in_eager(kernels: Sequence[str]) -> str:
    """Return a line for people: the kernels that a question runs in eager."""
    more = f" and {len(kernels) - 3} more kernels" if len(kernels) > 3 else ""
    return f"with {', '.join(kernels[:3])}{more} in eager"


def list_names(names: Sequence[str]) -> str:
    """Return names for a line of progress: the first three, and the number of the others."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"


def of_rewrite(rewrite: RewriteRecord, rewrites_in_pass: int, evidence: str = "") -> Culprit:
    """Return a rewrite as a culprit."""
    return Culprit(
        stage=rewrite.id.pass_id.stage,
        name=str(rewrite.id.pass_id).partition("/")[2],
        veto=Veto(rewrites=frozenset({rewrite.id.number})),
        rewrite=rewrite.id.number,
        index=rewrite.id.index,
        rule=rewrite.id.rule,
        rewrites_in_pass=rewrites_in_pass,
        nodes=rewrite.nodes,
        evidence=evidence,
    )


def whole_pass(culprit: Culprit) -> Culprit:
    """Return the whole pass of a rewrite as a culprit."""
    if culprit.is_kernel:
        return culprit
    return replace(culprit, veto=_pass_veto(culprit.where), rewrite=None, index=None)


def _pass_veto(where: str) -> Veto:
    return Veto(passes=frozenset({where}))


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
