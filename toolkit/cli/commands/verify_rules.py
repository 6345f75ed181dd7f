"""`ctk verify-rules`: try rewrite rules on drawn graphs; 0 all hold, 1 one is refuted."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import RenderableType

from ctk.toolkit.cli.shell.answer import Answer, ExitCode, highlight_code, table
from ctk.toolkit.cli.shell.command_context import Command
from ctk.toolkit.cli.shell.options import argument
from ctk.toolkit.cli.shell.progress import progress
from ctk.toolkit.options import Flag

if TYPE_CHECKING:
    from rich.table import Table

    from ctk.toolkit.verify_rules.verify import RuleFinding, VerifyReport


def verify_rules(
    modules: Annotated[
        list[str] | None,
        argument(
            "MODULE",
            "Modules or FILE.py with rule tables or passes (default: all passes of ctk).",
        ),
    ] = None,
    rules: Annotated[
        list[str] | None,
        Flag(("--rule",), "Only the rules, or passes, of this name (repeatable).", metavar="NAME"),
    ] = None,
    draws: Annotated[
        int,
        Flag(("--draws",), "How many draws each rule has to accept.", metavar="N", minimum=1),
    ] = 300,
    seed: Annotated[int, Flag(("--seed",), "Decides every draw.", metavar="N")] = 0,
    out: Annotated[
        Path | None,
        Flag(
            ("--out", "-o"), "Keep each counter-example here: a script, and a case.", metavar="DIR"
        ),
    ] = None,
) -> Answer:
    """Try rewrite rules on drawn graphs and operands.

    A rule is refuted by a graph that gives another value, type, layout, alias or write after it;
    the smallest one found is shown. A rule that never fires is not verified (exit code 125).
    """
    from ctk.toolkit.verify_rules.counter_examples import keep_counter_examples
    from ctk.toolkit.verify_rules.verify import verify_rules as verify

    with progress() as say:
        report = verify(modules or (), draws=draws, seed=seed, rules=rules or (), say=say)
    kept = keep_counter_examples(report.findings, out) if out is not None else []
    return answer_of_report(report, kept)


def answer_of_report(report: "VerifyReport", kept: "list[Path]") -> Answer:
    """Return the answer: a failure if a rule is refuted; cannot tell if one never fired."""
    from ctk.toolkit.verify_rules.counter_examples import render_counter_example

    code = ExitCode.NO_FAILURE if report.ok else ExitCode.CANNOT_TELL
    code = ExitCode.FAILURE if report.of("refuted") else code
    data = {
        "rules": [finding_data(finding) for finding in report.findings],
        "seed": report.seed,
        "kept": [str(path) for path in kept],
    }
    body: list[RenderableType] = [findings_table(report)]
    for each in report.of("refuted"):
        body += ["", highlight_code(render_counter_example(each), "python")]
    body += [f"kept: {path}" for path in kept]
    return Answer(code, str(report), data, tuple(body))


def findings_table(report: "VerifyReport") -> "Table":
    """Return one row per rule."""
    rows = (
        (
            finding.subject.name,
            finding.subject.pass_name,
            f"{finding.accepted} / {finding.drawn}",
            finding.verdict,
        )
        for finding in report.findings
    )
    return table("rule", "pass", "accepted / drawn", "verdict", rows=rows)


def finding_data(finding: "RuleFinding") -> dict[str, object]:
    """Return the JSON form of the findings about a rule."""
    from ctk.toolkit.verify_rules.counter_examples import render_counter_example

    subject, counter = finding.subject, finding.counter
    kind = counter.trial.difference.kind if counter and counter.trial.difference else None
    return {
        "rule": subject.name,
        "pass": subject.pass_name,
        "numerics": subject.numerics,
        "accepted": finding.accepted,
        "drawn": finding.drawn,
        "verdict": finding.verdict,
        "kind": kind,
        "difference": counter.summary if counter else None,
        "counter_example": render_counter_example(finding) if counter else None,
    }


COMMAND = Command("verify-rules", verify_rules)
