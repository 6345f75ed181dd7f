"""`ctk bisect-pass`: the guilty pass, then its rewrite, then the proof by counterfactual."""

from contextlib import nullcontext
from typing import TYPE_CHECKING

from ctk.toolkit.cli.answer import Answer
from ctk.toolkit.cli.diagnose import answer_of_diagnosis
from ctk.toolkit.cli.executors import child_for
from ctk.toolkit.cli.exit_codes import exit_code_of, most_telling
from ctk.toolkit.cli.folders import output_folder
from ctk.toolkit.cli.options import (
    AllowImport,
    Backward,
    ConfigPairs,
    Dynamic,
    GraphNumber,
    Isolate,
    JsonOutput,
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


def bisect_pass(
    subject: Subject,
    target: TargetSpec = None,
    config: ConfigPairs = None,
    backward: Backward = False,
    dynamic: Dynamic = False,
    graph: GraphNumber = None,
    allow_import: AllowImport = None,
    out: OutFolder = None,
    isolate: Isolate = None,
    timeout: Timeout = None,
    json_output: JsonOutput = False,
) -> Answer:
    """Find the guilty pass, rewrite and node.

    Proves it by compiling without that rewrite alone, and writes diagnosis.json. The case is not
    made smaller.
    """
    from ctk.toolkit.cli.answer import ExitCode
    from ctk.toolkit.diagnose import bisect_case
    from ctk.toolkit.report.as_json import write_json

    cases = load_cases(Request(subject, target, config, backward, dynamic, graph, allow_import))
    folder = output_folder(out, "diagnosis", subject)
    found: list[Diagnosis] = []
    child = child_for(cases, isolate=isolate, timeout_seconds=timeout, allow_import=allow_import)
    with progress() as report, child or nullcontext():
        for case in cases:
            report(f"bisecting {case.name}")
            found.append(bisect_case(case, folder, executor=child, say=report))
            if exit_code_of(found[-1].judgement) is ExitCode.FAILURE:
                break
    chosen = most_telling(found, lambda diagnosis: exit_code_of(diagnosis.judgement))
    write_json(chosen, folder)
    return answer_of_diagnosis(chosen, folder)


COMMAND = Command("bisect-pass", bisect_pass)
