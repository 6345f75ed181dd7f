"""The answer about a run for a CI system, and that of a check compared with a baseline."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ctk.toolkit.ci.options import BaselineOptions
from ctk.toolkit.cli.shell.answer import Answer, ExitCode

if TYPE_CHECKING:
    from ctk.toolkit.ci.outcome import Outcome
    from ctk.toolkit.ci.report import CiReport, Group


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
