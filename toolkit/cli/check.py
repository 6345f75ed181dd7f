"""`ctk check`: compare every value that survives each step of the compile with eager."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from ctk.toolkit.cli.answer import Answer, table
from ctk.toolkit.cli.exit_codes import exit_code_of, judgement_data
from ctk.toolkit.cli.options import IsolationOptions, SubjectOptions
from ctk.toolkit.cli.progress import progress
from ctk.toolkit.cli.shell import Command

if TYPE_CHECKING:
    from rich.table import Table

    from ctk.toolkit.check_case import CheckReport, GraphCheck


def check(subject: SubjectOptions, isolation: IsolationOptions) -> Answer:
    """Compare every step of the compile with eager.

    One compile: each pass, the partition and each kernel, every value that survives it. The results
    decide: a wrong value that they do not show is told, and is no failure.
    """
    from ctk.toolkit.check_case import check as check_program

    with progress() as say:
        report = check_program(
            subject.subject, say=say, **subject.keywords(), **isolation.keywords()
        )
    return answer_of_report(report)


def answer_of_report(report: "CheckReport") -> Answer:
    """Return the answer: a failure if the results of any graph are one."""
    data = {"graphs": [graph_data(graph) for graph in report.graphs]}
    return Answer(exit_code_of(report.judgement), str(report), data, (findings_table(report),))


def findings_table(report: "CheckReport") -> "Table":
    """Return one row per step."""
    rows = table("graph", "step", "status", "values", "what")
    for graph in report.graphs:
        for finding in graph.findings:
            status = "wrong, hidden" if graph.hidden and finding.mismatch else finding.status
            cells = (finding.where, status, str(finding.compared), finding.what)
            rows.add_row(graph.case.name, *cells)
    return rows


def graph_data(graph: "GraphCheck") -> dict[str, object]:
    """Return the JSON form of one graph's findings."""
    findings = [
        {
            "step": finding.where,
            "kind": finding.step.kind,
            "status": finding.status,
            "hidden": bool(graph.hidden and finding.mismatch),
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
