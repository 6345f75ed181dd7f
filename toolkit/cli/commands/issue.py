"""`ctk issue`: a failure as the text of an issue for PyTorch, with a short repro that was run."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

from ctk.toolkit.cli.shell.answer import Answer, ExitCode
from ctk.toolkit.cli.shell.command_context import Command
from ctk.toolkit.cli.shell.completion import complete_case
from ctk.toolkit.cli.shell.exit_codes import document_data
from ctk.toolkit.cli.shell.options import argument
from ctk.toolkit.cli.shell.progress import progress
from ctk.toolkit.options import Flag

if TYPE_CHECKING:
    from ctk.toolkit.bug_report.issue_text import BugReport

REPOSITORY = "pytorch/pytorch"
"""Where the issue belongs."""


def issue(
    folder: Annotated[
        Path, argument("FOLDER", "A folder of diagnose or minify, or a case.", complete_case)
    ],
    out: Annotated[
        Path | None,
        Flag(
            ("--out", "-o"),
            "File to write the text to (default: stdout).",
            metavar="FILE.md",
            section="output",
        ),
    ] = None,
    similar: Annotated[
        bool, Flag(("--similar",), "Also print searches for the same issue, the strictest first.")
    ] = False,
    timeout: Annotated[
        float | None,
        Flag(
            ("--timeout",),
            "Longest that one question (compile and run) may take.",
            metavar="SECONDS",
            minimum=0.1,
            section="limits",
        ),
    ] = None,
    trust: Annotated[
        bool, Flag(("--trust",), "Run the code that the folder brings along (see ctk show FOLDER).")
    ] = False,
) -> Answer:
    """Write a failure as an issue for PyTorch.

    Runs its smallest case again: a short repro, an ablation of backends and passes, torch's own
    comparison, a regression test. Writes Markdown for the form for bugs of torch.compile. Nothing
    is sent.
    """
    from ctk.toolkit.bug_report.bug_report import bug_report
    from ctk.toolkit.case.formats.files import write_text

    with progress() as say:
        report = bug_report(folder, trust=trust, timeout_seconds=timeout, say=say)
    if out is not None:
        write_text(out, report.body)
    return answer_of(report, out, similar=similar)


def answer_of(report: "BugReport", out: Path | None, *, similar: bool = False) -> Answer:
    """Return the answer; exit code 125 if the failure did not show again."""
    repro, labels = report.repro, report.naming.labels
    state = "" if repro.shows else "cannot tell: it did not fail again: "
    place = f"; not a bug of PyTorch: {report.other_owner}" if report.other_owner else ""
    lines = [f"labels     {', '.join(labels)}"] * bool(labels)
    lines += [f"repro      {'short, needs torch only' if not repro.why else repro.why}"]
    lines += [f"attach     {path}" for path in repro.attached]
    if report.test is not None and report.test.why:
        lines.append(f"test       {report.test.why}")
    if similar:
        lines += [f"similar    {query.command}" for query in report.queries]
        lines += [f"           {query.github}" for query in report.queries]
    lines += [f"written    {out}"] * (out is not None)
    lines += [f"next       {step}" for step in steps_of(report, out, similar=similar)]
    lines += ["", report.body] if out is None else []
    data = {
        "title": report.naming.title,
        "labels": list(labels),
        "body": report.body,
        "is_pytorch": not report.other_owner,
        "other_owner": report.other_owner or None,
        "is_short": not repro.why,
        "shows": repro.shows,
        "script": repro.text,
        "attach": [str(path) for path in repro.attached],
        "test": report.test and {"text": report.test.text, "problem": report.test.why},
        "torch_same": report.torch and report.torch.is_same,
        "ablation": report.ablation
        and {
            "rows": [document_data(row) for row in report.ablation.rows],
            "backend": report.ablation.backend,
            "subsystem": report.ablation.subsystem,
        },
        "similar": [{"words": q.words, "command": q.command} for q in report.queries],
        "file": str(out) if out is not None else None,
    }
    code = ExitCode.FAILURE if repro.shows else ExitCode.CANNOT_TELL
    return Answer(code, f"{state}{report.naming.title}{place}", data, ("\n".join(lines),))


def steps_of(report: "BugReport", out: Path | None, *, similar: bool) -> list[str]:
    """Return what to do next."""
    if report.other_owner or not report.repro.shows:
        return []
    search = report.queries[-1].command if report.queries else ""
    steps = [f"{search}  # is it known?"] * (not similar and bool(search))
    if out is None:
        return steps
    told = f"--title {quote(report.naming.title)} --body-file {quote(str(out))}"
    return [*steps, f"gh issue create --repo {REPOSITORY} {told}  # once you have read it"]


COMMAND = Command("issue", issue)
