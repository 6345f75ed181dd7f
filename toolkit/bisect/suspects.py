"""Read suspects off one observed compile: from the exception, or from the first wrong step."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ctk.compiler.observe import ErrorRecord, RewriteRecord, first_line
from ctk.toolkit.bisect.culprit import Culprit
from ctk.toolkit.case.case import Case
from ctk.toolkit.compile_log.check import Checker, Finding, guilty_rewrite
from ctk.toolkit.compile_log.recorder import CompileLog, Veto
from ctk.toolkit.compile_log.steps import compile_steps


def from_errors(log: CompileLog) -> Iterator[Culprit]:
    """Yield who raised, the last exception first: earlier ones were caught and fallen back from."""
    for record in reversed(log.errors()):
        culprit = _from_error(record)
        if culprit is not None:
            yield culprit


def _from_error(record: ErrorRecord) -> Culprit | None:
    evidence = f"{type(record.error).__name__}: {first_line(record.error)}"
    nodes = (record.node,) if record.node else ()
    if record.kernel is not None:
        return of_kernel(str(record.kernel), nodes, evidence)
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


def from_check(case: Case, log: CompileLog) -> Iterator[Culprit]:
    """Yield what made a value wrong, in the order of the pipeline."""
    checker = Checker(case, log)
    for step in compile_steps(log):
        finding = checker.check(step)
        if finding.status == "wrong":
            yield _from_finding(checker, finding)


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
    if step.record is None:
        return Culprit("joint", name, Veto(), nodes=node, evidence=evidence)
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


def of_kernel(kernel: str, nodes: tuple[str, ...] = (), evidence: str = "") -> Culprit:
    """Return the culprit that a kernel is, from the `str` of its id."""
    veto = Veto(kernels=frozenset({kernel}))
    name = kernel.partition("/")[2]
    return Culprit("lowered", name, veto, nodes=nodes, evidence=evidence)


def in_eager(kernels: Sequence[str]) -> str:
    """Return a line for people: which kernels a question leaves out."""
    more = f" and {len(kernels) - 3} more kernels" if len(kernels) > 3 else ""
    return f"with {', '.join(kernels[:3])}{more} in eager"


def of_rewrite(rewrite: RewriteRecord, rewrites_in_pass: int, evidence: str = "") -> Culprit:
    """Return the culprit that a rewrite is."""
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
    """Return the culprit with its whole pass under suspicion instead of one rewrite."""
    return replace(culprit, veto=_pass_veto(culprit.where), rewrite=None, index=None)


def _pass_veto(where: str) -> Veto:
    return Veto(passes=frozenset({where}))
