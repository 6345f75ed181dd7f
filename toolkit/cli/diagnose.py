"""`ctk diagnose`: check, bisect, minify and emit a repro; one folder at the end."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ctk.toolkit.cli.answer import Answer, ExitCode
from ctk.toolkit.cli.executors import child_for
from ctk.toolkit.cli.exit_codes import exit_code_of
from ctk.toolkit.cli.folders import output_folder
from ctk.toolkit.cli.options import (
    AllowImport,
    Backward,
    ConfigPairs,
    Dynamic,
    GraphNumber,
    Inputs,
    InputsPolicy,
    Isolate,
    JsonOutput,
    MaxQuestions,
    MaxSeconds,
    OutFolder,
    Subject,
    TargetSpec,
    Timeout,
)
from ctk.toolkit.cli.progress import progress
from ctk.toolkit.cli.shell import Command
from ctk.toolkit.cli.subjects import Request, load_cases

if TYPE_CHECKING:
    from ctk.toolkit.report.diagnosis import Diagnosis


def diagnose(
    subject: Subject,
    target: TargetSpec = None,
    config: ConfigPairs = None,
    backward: Backward = False,
    dynamic: Dynamic = False,
    graph: GraphNumber = None,
    allow_import: AllowImport = None,
    out: OutFolder = None,
    inputs: Inputs = InputsPolicy.FULL,
    max_questions: MaxQuestions = None,
    max_seconds: MaxSeconds = None,
    isolate: Isolate = None,
    timeout: Timeout = None,
    json_output: JsonOutput = False,
) -> Answer:
    """Find the culprit, and the smallest repro.

    Checks, bisects and reduces the first graph that fails, and writes a folder with diagnosis.json,
    the case as captured, and the smallest case with a repro.py that was run in a clean process.
    """
    from ctk.toolkit.diagnose import diagnose as run_diagnosis
    from ctk.toolkit.reduce.problem import Budget

    cases = load_cases(Request(subject, target, config, backward, dynamic, graph, allow_import))
    folder = output_folder(out, "diagnosis", subject)
    child = child_for(cases, isolate=isolate, timeout_seconds=timeout, allow_import=allow_import)
    with progress() as report, child or nullcontext():
        diagnosis = run_diagnosis(
            cases,
            folder,
            budget=Budget(max_questions, max_seconds),
            inputs=inputs.value,
            executor=child,
            say=report,
            on_progress=report.reduction,
        )
    return answer_of_diagnosis(diagnosis, folder)


def answer_of_diagnosis(diagnosis: "Diagnosis", folder: Path) -> Answer:
    """Return the answer for a diagnosis that was written into `folder`."""
    from ctk.toolkit.formats.schema import encode
    from ctk.toolkit.report.as_json import record_of
    from ctk.toolkit.report.as_text import summary

    record = record_of(replace(diagnosis, folder=folder))
    headline, *lines = summary(record, folder)
    code = exit_code_of(diagnosis.judgement)
    lines.append(f"written    {folder}")
    reduction = diagnosis.reduction
    if reduction is not None and reduction.reason == "interrupted":
        code = ExitCode.CANNOT_TELL
        lines.append(f"interrupted; to go on: ctk diagnose {folder / 'minimal'}")
    data = encode(record) | {"folder": str(folder)}
    return Answer(code, headline, data, tuple(lines))


COMMAND = Command("diagnose", diagnose)
