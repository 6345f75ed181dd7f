"""Read suspects off one observed compile: from the exception, or from the first wrong step."""

from collections.abc import Iterator

from compiler.observe import ErrorRecord, RewriteRecord, first_line
from toolkit.bisect.culprit import Culprit
from toolkit.case import Case
from toolkit.check import Checker, Finding, guilty_rewrite
from toolkit.log import CompileLog, Veto
from toolkit.transitions import transitions


def from_errors(log: CompileLog) -> Iterator[Culprit]:
    """Yield who raised, the last exception first: earlier ones were caught and fallen back from."""
    for record in reversed(log.errors()):
        culprit = _from_error(record)
        if culprit is not None:
            yield culprit


def _from_error(record: ErrorRecord) -> Culprit | None:
    evidence = f"{type(record.error).__name__}: {first_line(record.error)}"
    nodes = (record.node,) if record.node else ()
    if record.pass_id is not None:
        name = str(record.pass_id).partition("/")[2]
        number = record.rewrite.number if record.rewrite else None
        veto = Veto(rewrites=frozenset({number})) if number else _pass_veto(str(record.pass_id))
        rule = record.rewrite.rule if record.rewrite else ""
        count = record.rewrite.index if record.rewrite else 0
        return Culprit(record.stage, name, veto, number, rule, count, nodes, evidence)
    if record.kernel is not None:
        veto = Veto(kernels=frozenset({str(record.kernel)}))
        name = f"{record.kernel.codegen}:{record.kernel.name}"
        return Culprit("lowered", name, veto, nodes=nodes, evidence=evidence)
    return None


def from_check(case: Case, log: CompileLog) -> Iterator[Culprit]:
    """Yield what made a value wrong, in the order of the pipeline."""
    checker = Checker(case, log)
    for transition in transitions(log):
        finding = checker.check(transition)
        if finding.status == "wrong":
            yield _from_finding(checker, finding)


def _from_finding(checker: Checker, finding: Finding) -> Culprit:
    transition = finding.transition
    evidence = str(finding.mismatch.detail) if finding.mismatch else ""
    node = (finding.node,) if finding.node else ()
    if transition.kind == "kernel":
        veto = Veto(kernels=frozenset({transition.where}))
        name = transition.where.partition("/")[2]
        return Culprit("lowered", name, veto, nodes=node, evidence=evidence)
    name = transition.where.partition("/")[2]
    if transition.record is None:
        return Culprit("joint", name, Veto(), nodes=node, evidence=evidence)
    made = [r for r in transition.record.rewrites if not r.vetoed]
    rewrite = guilty_rewrite(checker, finding)
    if rewrite is None:
        veto = _pass_veto(transition.where)
        return Culprit(transition.stage, name, veto, None, "", len(made), node, evidence)
    return of_rewrite(rewrite, len(made), evidence)


def of_rewrite(rewrite: RewriteRecord, rewrites_in_pass: int, evidence: str = "") -> Culprit:
    """Return the culprit that a rewrite is."""
    return Culprit(
        rewrite.id.pass_id.stage,
        str(rewrite.id.pass_id).partition("/")[2],
        Veto(rewrites=frozenset({rewrite.id.number})),
        rewrite.id.number,
        rewrite.id.rule,
        rewrites_in_pass,
        rewrite.nodes,
        evidence,
    )


def whole_pass(culprit: Culprit) -> Culprit:
    """Return the culprit with its whole pass under suspicion instead of one rewrite."""
    return Culprit(
        culprit.stage,
        culprit.name,
        _pass_veto(culprit.where),
        None,
        culprit.rule,
        culprit.rewrites_in_pass,
        culprit.nodes,
        culprit.evidence,
    )


def _pass_veto(where: str) -> Veto:
    return Veto(passes=frozenset({where}))
