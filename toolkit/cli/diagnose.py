"""`ctk diagnose`: check, bisect, minify and emit a repro; one folder at the end."""

import shlex
from typing import TYPE_CHECKING

from ctk.toolkit.cli.answer import Answer, ExitCode
from ctk.toolkit.cli.exit_codes import exit_code_of
from ctk.toolkit.cli.options import (
    BudgetOptions,
    IsolationOptions,
    KeptInputs,
    OutOption,
    SubjectOptions,
)
from ctk.toolkit.cli.progress import progress
from ctk.toolkit.cli.shell import Command

if TYPE_CHECKING:
    from ctk.toolkit.report.diagnosis import Diagnosis


def diagnose(
    subject: SubjectOptions,
    out: OutOption,
    kept: KeptInputs,
    budget: BudgetOptions,
    isolation: IsolationOptions,
) -> Answer:
    """Find the culprit, and the smallest repro.

    Checks, bisects and reduces the first graph that fails, and writes a folder with diagnosis.json,
    the case as captured, and the smallest case with a repro.py that was run in a clean process.
    """
    from ctk.toolkit.diagnose import diagnose as diagnose_program

    with progress() as report:
        diagnosis = diagnose_program(
            subject.subject,
            out=out.out,
            keep=kept.inputs,
            max_questions=budget.max_questions,
            max_seconds=budget.max_seconds,
            say=report,
            on_progress=report.reduction,
            **subject.keywords(),
            **isolation.keywords(),
        )
    return answer_of_diagnosis(diagnosis)


def answer_of_diagnosis(diagnosis: "Diagnosis") -> Answer:
    """Return the answer for a diagnosis that was written."""
    from ctk.toolkit.case.trust import trust_option
    from ctk.toolkit.formats.schema import encode
    from ctk.toolkit.report.as_json import record_of
    from ctk.toolkit.report.as_text import summary

    folder = diagnosis.folder
    assert folder is not None, "only a diagnosis that was written has an answer"
    record = record_of(diagnosis)
    headline, *lines = summary(record, folder)
    code = exit_code_of(diagnosis.judgement)
    lines.append(f"written    {folder}")
    reduction = diagnosis.reduction
    if reduction is not None and reduction.reason == "interrupted":
        code = ExitCode.CANNOT_TELL
        place = shlex.quote(str(folder / "minimal"))
        go_on = f"ctk diagnose {place}{trust_option(reduction.best)}"
        lines.append(f"interrupted; to go on: {go_on}")
    data = encode(record) | {"folder": str(folder)}
    return Answer(code, headline, data, tuple(lines))


COMMAND = Command("diagnose", diagnose)
