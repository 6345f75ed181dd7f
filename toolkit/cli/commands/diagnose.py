"""`ctk diagnose`: check, bisect, minify and emit a repro; one folder at the end."""

from typing import TYPE_CHECKING

from ctk.toolkit.cli.commands.report import WithReport, with_folder_report
from ctk.toolkit.cli.shell.answer import Answer, ExitCode
from ctk.toolkit.cli.shell.command_context import Command
from ctk.toolkit.cli.shell.exit_codes import apply_acceptance, document_data, exit_code_of
from ctk.toolkit.cli.shell.options import SubjectArgument
from ctk.toolkit.cli.shell.progress import progress
from ctk.toolkit.operations.options import DiagnoseOptions
from ctk.toolkit.options import keywords_of

if TYPE_CHECKING:
    from ctk.toolkit.operations.report.diagnosis import Diagnosis


def diagnose(
    subject: SubjectArgument, options: DiagnoseOptions, report: WithReport = False
) -> Answer:
    """Find the culprit, and the smallest repro.

    Checks, bisects and reduces the first graph that fails, and writes a folder with diagnosis.json,
    the case as captured, and the smallest case with a repro.py that was run in a clean process.
    """
    from ctk.toolkit.operations.diagnose import diagnose as diagnose_program

    with progress() as shown:
        diagnosis = diagnose_program(
            subject, say=shown, on_progress=shown.reduction, **keywords_of(options)
        )
    answer = apply_acceptance(answer_of_diagnosis(diagnosis), diagnosis.judgement, options)
    return with_folder_report(answer, diagnosis.folder, is_wanted=report)


def answer_of_diagnosis(diagnosis: "Diagnosis") -> Answer:
    """Return the answer for a diagnosis that was written."""
    from ctk.toolkit.operations.report.as_json import record_of
    from ctk.toolkit.operations.report.as_text import summary

    folder = diagnosis.folder
    assert folder is not None, "only a diagnosis that was written has an answer"
    record = record_of(diagnosis)
    headline, *lines = summary(record, folder)
    lines += [f"written    {folder}", *lines_to_go_on(diagnosis)]
    headline = f"{'interrupted: ' * diagnosis.is_interrupted}{headline}{stumbles(diagnosis)}"
    data = document_data(record) | {"folder": str(folder)}
    return Answer(code_of(diagnosis), headline, data, tuple(lines))


def code_of(diagnosis: "Diagnosis") -> ExitCode:
    """Return the exit code.

    A wrong entry of the cache is also 1. A run that Ctrl-C or an error ended, or whose results are
    not on disk, is 125.
    """
    if diagnosis.is_interrupted or stumbles(diagnosis) or not diagnosis.is_saved:
        return ExitCode.CANNOT_TELL
    if diagnosis.kept is not None and diagnosis.kept.alone_fails:
        return ExitCode.FAILURE
    return exit_code_of(diagnosis.judgement)


def stumbles(diagnosis: "Diagnosis") -> str:
    """Return the error that ended the reduction, for the end of a headline.

    A step that raised and was left out changes no answer; it is listed among the problems.
    """
    reduction = diagnosis.reduction
    is_ended = reduction is not None and reduction.reason == "error"
    return f"; {reduction.problems[-1]}" if reduction is not None and is_ended else ""


def lines_to_go_on(diagnosis: "Diagnosis") -> list[str]:
    """Return the command that resumes an unfinished search."""
    reduction, go_on = diagnosis.reduction, diagnosis.go_on
    if diagnosis.left and go_on.startswith("ctk "):
        return [f"to go on: {go_on} --thorough"]
    if diagnosis.left:
        return [f"to go on: {go_on.replace('resume=True', 'resume=True, thorough=True')}"]
    if reduction is None or (reduction.finished and not diagnosis.is_interrupted):
        return []
    return [f"to go on: {go_on}"]


COMMAND = Command("diagnose", diagnose)
