"""`ctk check`: compare every value that survives each step of the compile with eager."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from ctk.toolkit.cli.answer import Answer, ExitCode, table
from ctk.toolkit.cli.exit_codes import exit_code_of, judgement_data
from ctk.toolkit.cli.options import SubjectOptions
from ctk.toolkit.cli.progress import progress
from ctk.toolkit.cli.shell import Command

if TYPE_CHECKING:
    from rich.table import Table

    from ctk.toolkit.check_case import CheckReport, GraphCheck


def check(subject: SubjectOptions) -> Answer:
    """Compare every step of the compile with eager.

    One compile: each pass, the partition and each kernel, every value that survives it.
    """
    from ctk.toolkit.check_case import check as check_program

    with progress() as say:
        report = check_program(subject.subject, say=say, **subject.keywords())
    return answer_of_report(report)


def answer_of_report(report: "CheckReport") -> Answer:
    """Return the answer: a failure if a step or a result is wrong, in any graph."""
    code = exit_code_of(report.judgement)
    if report.wrong and code is not ExitCode.CANNOT_TELL:
        code = ExitCode.FAILURE
    data = {"graphs": [graph_data(graph) for graph in report.graphs]}
    return Answer(code, str(report), data, (findings_table(report),))


def findings_table(report: "CheckReport") -> "Table":
    """Return one row per step."""
    rows = table("graph", "step", "status", "values", "what")
    for graph in report.graphs:
        for finding in graph.findings:
            cells = (finding.where, finding.status, str(finding.compared), finding.what)
            rows.add_row(graph.case.name, *cells)
    return rows


def graph_data(graph: "GraphCheck") -> dict[str, object]:
    """Return the JSON form of one graph's findings."""
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
        for finding in graph.findings
    ]
    judgement = judgement_data(graph.judgement)
    return {"graph": graph.case.name, "judgement": judgement, "findings": findings}


COMMAND = Command("check", check)
