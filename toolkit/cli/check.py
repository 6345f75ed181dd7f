"""`ctk check`: compare every value that survives each step of the compile with eager."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from ctk.toolkit.cli.answer import Answer, ExitCode, table
from ctk.toolkit.cli.exit_codes import exit_code_of, judgement_data, worst
from ctk.toolkit.cli.options import (
    AllowImport,
    Backward,
    ConfigPairs,
    Dynamic,
    GraphNumber,
    JsonOutput,
    Subject,
    TargetSpec,
)
from ctk.toolkit.cli.progress import progress
from ctk.toolkit.cli.shell import Command
from ctk.toolkit.cli.subjects import Request, load_cases

if TYPE_CHECKING:
    from rich.table import Table

    from ctk.toolkit.case.case import Case
    from ctk.toolkit.check_case import CheckReport
    from ctk.toolkit.compile_log.check import Finding


def check(
    subject: Subject,
    target: TargetSpec = None,
    config: ConfigPairs = None,
    backward: Backward = False,
    dynamic: Dynamic = False,
    graph: GraphNumber = None,
    allow_import: AllowImport = None,
    json_output: JsonOutput = False,
) -> Answer:
    """Compare every step of the compile with eager.

    One compile: each pass, the partition and each kernel, every value that survives it.
    """
    from ctk.toolkit.check_case import check_case

    request = Request(subject, target, config, backward, dynamic, graph, allow_import)
    cases = load_cases(request)
    reports: list[tuple[Case, CheckReport]] = []
    with progress() as report:
        for number, case in enumerate(cases):
            report(f"checking {case.name}", number, len(cases))
            reports.append((case, check_case(case)))
    return answer_of_reports(reports)


def answer_of_reports(reports: "list[tuple[Case, CheckReport]]") -> Answer:
    """Return the answer: a failure if a step or a result is wrong, in any graph."""
    wrong = [(case, finding) for case, found in reports for finding in found.wrong]
    code = worst([exit_code_of(found.judgement) for _, found in reports])
    if wrong and code is not ExitCode.CANNOT_TELL:
        code = ExitCode.FAILURE
    data = {"graphs": [report_data(case, found) for case, found in reports]}
    return Answer(code, headline(reports, wrong), data, (findings_table(reports),))


def headline(reports: "list[tuple[Case, CheckReport]]", wrong: "list[tuple[Case, Finding]]") -> str:
    """Return the first line: the first wrong step, else the first failing result, else none."""
    if wrong:
        case, finding = wrong[0]
        more = f" (and {len(wrong) - 1} more wrong steps)" if len(wrong) > 1 else ""
        return f"wrong: {case.name}: {finding.where} at {what_of(finding)}{more}"
    failing = [(case, found.judgement) for case, found in reports if exit_code_of(found.judgement)]
    if failing:
        case, judgement = failing[0]
        what = judgement.signature or judgement.detail
        is_error = judgement.signature is not None and judgement.signature.exception is not None
        why = "" if is_error else "; no single step is wrong"
        return f"{judgement.verdict.value}: {case.name}: {what}{why}"
    steps = sum(len(found.findings) for _, found in reports)
    values = sum(finding.compared for _, found in reports for finding in found.findings)
    return f"no failure: {len(reports)} graph(s), {steps} steps, {values} values compared"


def findings_table(reports: "list[tuple[Case, CheckReport]]") -> "Table":
    """Return one row per step."""
    rows = table("graph", "step", "status", "values", "what")
    for case, found in reports:
        for finding in found.findings:
            cells = (finding.where, finding.status, str(finding.compared), what_of(finding))
            rows.add_row(case.name, *cells)
    return rows


def what_of(finding: "Finding") -> str:
    """Return the wrong node and what is wrong with it, or why a step is unknown."""
    mismatch = finding.mismatch
    return f"{finding.node}: {mismatch.kind}: {mismatch.detail}" if mismatch else finding.reason


def report_data(case: "Case", found: "CheckReport") -> dict[str, object]:
    """Return the JSON form of one graph's report."""
    findings = [
        {
            "step": finding.where,
            "kind": finding.step.kind,
            "status": finding.status,
            "node": finding.node,
            "compared": finding.compared,
            "mismatch": asdict(finding.mismatch) if finding.mismatch else None,
            "reason": finding.reason,
        }
        for finding in found.findings
    ]
    return {"graph": case.name, "judgement": judgement_data(found.judgement), "findings": findings}


COMMAND = Command("check", check)
