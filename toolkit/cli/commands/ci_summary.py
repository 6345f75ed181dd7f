"""`ctk ci-summary`: the outcomes of a run for a CI system; 1 for a failure that is not known."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ctk.toolkit.ci.options import BaselineOptions, ReportFiles
from ctk.toolkit.cli.shell.answer import Answer
from ctk.toolkit.cli.shell.ci_answer import data_of, exit_code_of_report, write_renewed
from ctk.toolkit.cli.shell.command_context import Command
from ctk.toolkit.cli.shell.completion import complete_folder
from ctk.toolkit.cli.shell.options import argument

if TYPE_CHECKING:
    from ctk.toolkit.ci.report import CiReport


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


def write(path: Path, text: str) -> Path:
    """Write a file in one step; return its path."""
    from ctk.toolkit.case.formats.files import write_text

    write_text(path.expanduser(), text)
    return path


COMMAND = Command("ci-summary", ci_summary)
