"""`ctk ci-summary`: the outcomes of a run for a CI system; 1 for a failure that is not known."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ctk.toolkit.ci.options import BaselineOptions, ReportFiles
from ctk.toolkit.cli.shell.answer import Answer, ExitCode
from ctk.toolkit.cli.shell.command_context import Command
from ctk.toolkit.cli.shell.completion import complete_folder
from ctk.toolkit.cli.shell.options import argument

if TYPE_CHECKING:
    from ctk.toolkit.ci.outcome import Outcome
    from ctk.toolkit.ci.report import CiReport, Group


def ci_summary(
    folder: Annotated[
        Path,
        argument("DIR", "The folder of a run: --ctk-out of pytest, or --out.", complete_folder),
    ],
    files: ReportFiles,
    baseline: BaselineOptions,
) -> Answer:
    """Sum up a run for a CI system.

    Reads each outcome.json below a folder, and diagnoses and failing cases without one. A failure
    that the baseline does not know gives exit code 1; a folder without any outcome gives 125.
    """
    from ctk.toolkit.ci.annotations import render_annotations, render_code_quality
    from ctk.toolkit.ci.baseline import read_baseline
    from ctk.toolkit.ci.collect import collect_outcomes
    from ctk.toolkit.ci.junit import find_other_failures, render_junit
    from ctk.toolkit.ci.markdown import render_markdown
    from ctk.toolkit.ci.report import make_report
    from ctk.toolkit.ci.sarif import render_sarif

    known = read_baseline(baseline.baseline) if baseline.baseline is not None else None
    found = collect_outcomes(folder)
    others = find_other_failures(files.tests, found.outcomes) if files.tests is not None else ()
    report = make_report(found, known, other_tests=tuple(others))
    formats: list[tuple[Path | None, Callable[[CiReport], str]]] = [
        (files.out, render_markdown),
        (files.annotations, render_annotations),
        (files.junit, render_junit),
        (files.sarif, render_sarif),
        (files.code_quality, render_code_quality),
    ]
    written = [write(path, render(report)) for path, render in formats if path is not None]
    written += write_renewed(baseline, report.outcomes)
    body = [] if files.out is not None else [render_markdown(report)]
    lines = (*body, *(f"written: {path}" for path in written))
    return Answer(exit_code_of_report(report), str(report), data_of(report, written), lines)


def answer_of_comparison(
    answer: Answer, outcomes: "tuple[Outcome, ...]", options: BaselineOptions
) -> Answer:
    """Return the answer of a check, compared with a baseline: known failures are none."""
    from ctk.toolkit.ci.baseline import read_baseline
    from ctk.toolkit.ci.collect import Collection
    from ctk.toolkit.ci.report import make_report

    known = read_baseline(options.baseline) if options.baseline is not None else None
    report = make_report(Collection(outcomes), known)
    written = write_renewed(options, outcomes)
    lines = [f"new        {each.first.key}" for each in report.new]
    lines += [f"known      {each.first.key}: {each.issue}" for each in report.known]
    lines += [f"fixed      {each.identity}: remove it from the baseline" for each in report.fixed]
    lines += [f"accuracy   {each.outcome.test}: {each.sentence}" for each in report.losses]
    lines += [f"written    {path}" for path in written]
    data = {**answer.data, "baseline": data_of(report, written)}
    if known is None:
        return replace(answer, data=data, body=(*lines, *answer.body))
    code = exit_code_of_report(report)
    if code is ExitCode.NO_FAILURE and not report.known:
        code = answer.exit_code  # a refused documented difference, or an undecided graph
    return Answer(code, str(report), data, (answer.headline, *lines, *answer.body))


def write(path: Path, text: str) -> Path:
    """Write a file in one step; return its path."""
    from ctk.toolkit.case.formats.files import write_text

    write_text(path.expanduser(), text)
    return path


def write_renewed(options: BaselineOptions, outcomes: "tuple[Outcome, ...]") -> list[Path]:
    """Write the baseline of a run if it is wanted; the links of issues in an old file stay."""
    from ctk.toolkit.ci.baseline import Baseline, read_baseline, renew_baseline, write_baseline

    path = options.write_baseline
    if path is None:
        return []
    old = options.baseline if not path.exists() else path
    write_baseline(path, renew_baseline(read_baseline(old) if old else Baseline(), outcomes))
    return [path]


def exit_code_of_report(report: "CiReport") -> ExitCode:
    """Return the exit code: a failure that is not known, or nothing that could be judged."""
    if report.fails:
        return ExitCode.FAILURE
    return ExitCode.CANNOT_TELL if report.is_undecided else ExitCode.NO_FAILURE


def data_of(report: "CiReport", written: list[Path]) -> dict[str, object]:
    """Return the JSON form of a report."""
    return {
        "new": [_group_data(each) for each in report.new],
        "known": [_group_data(each) for each in report.known],
        "undecided": [_group_data(each) for each in report.undecided],
        "fixed": [{"identity": each.identity, "issue": each.issue} for each in report.fixed],
        "less_accurate": [
            {"test": each.outcome.test, "before": each.before, "now": each.outcome.worst_ulp}
            for each in report.losses
        ],
        "other_tests": list(report.other_tests),
        "problems": list(report.problems),
        "judged": len(report.outcomes),
        "written": [str(path) for path in written],
    }


def _group_data(group: "Group") -> dict[str, object]:
    first, place = group.first, group.place
    return {
        "identity": first.key,
        "kind": first.kind,
        "culprit": first.culprit,
        "rule": first.rule,
        "confirmed": first.confirmed,
        "tests": list(group.tests),
        "place": None if place is None else {"path": place.path, "line": place.line},
        "issue": group.issue,
        "command": first.command,
        "folder": first.folder,
    }


COMMAND = Command("ci-summary", ci_summary)
