"""`ctk repro`: does it still fail? With `--out`, also write the case and a verified repro.py."""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import RenderableType

from ctk.toolkit.cli.answer import Answer, ExitCode, table
from ctk.toolkit.cli.executors import executor_for
from ctk.toolkit.cli.exit_codes import exit_code_of, judgement_data, line_of, worst
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
    OutFolder,
    Subject,
    TargetSpec,
    Timeout,
)
from ctk.toolkit.cli.progress import progress
from ctk.toolkit.cli.shell import Command
from ctk.toolkit.cli.subjects import Request, load_cases

if TYPE_CHECKING:
    from ctk.toolkit.case.case import Case
    from ctk.toolkit.oracle.judgement import Judgement

Judged = list[tuple["Case", "Judgement"]]


def repro(
    subject: Subject,
    target: TargetSpec = None,
    config: ConfigPairs = None,
    backward: Backward = False,
    dynamic: Dynamic = False,
    graph: GraphNumber = None,
    allow_import: AllowImport = None,
    out: OutFolder = None,
    inputs: Inputs = InputsPolicy.FULL,
    isolate: Isolate = None,
    timeout: Timeout = None,
    json_output: JsonOutput = False,
) -> Answer:
    """Say whether a case still fails.

    Compiles and runs it and compares the results with eager. With --out, writes each failing graph
    as a case with a repro.py that was run in a clean process.
    """
    request = Request(subject, target, config, backward, dynamic, graph, allow_import)
    cases = load_cases(request)
    executor = executor_for(
        cases, isolate=isolate, timeout_seconds=timeout, allow_import=allow_import
    )
    judged: Judged = []
    with progress() as report, executor:
        for number, case in enumerate(cases):
            report(f"running {case.name} with {case.target}", number, len(cases))
            judged.append((case, executor.ask(case, case.signature)))
        written = write_failing(judged, out, inputs.value) if out else {}
    return answer_of_judged(judged, written)


def write_failing(judged: Judged, out: Path, inputs: str) -> dict[str, dict[str, object]]:
    """Write each failing case with a verified repro below `out`; return facts by case name."""
    import dataclasses

    from ctk.toolkit.case.store import save_case
    from ctk.toolkit.repro.run import write_verified_repro

    written: dict[str, dict[str, object]] = {}
    for case, judgement in judged:
        if exit_code_of(judgement) is not ExitCode.FAILURE:
            continue
        failing = dataclasses.replace(case, signature=judgement.signature)
        folder = save_case(failing, out / case.name, inputs=inputs)
        script, seen = write_verified_repro(failing, folder)
        written[case.name] = {"case": str(folder), "repro": str(script), "clean_run": seen.says}
    return written


def answer_of_judged(judged: Judged, written: dict[str, dict[str, object]]) -> Answer:
    """Return the answer for some judged cases; the most telling one makes the first line."""
    code = worst(exit_code_of(judgement) for _, judgement in judged)
    case, judgement = next(pair for pair in judged if exit_code_of(pair[1]) is code)
    rows = table("graph", "target", "verdict", "what")
    for each, seen in judged:
        rows.add_row(each.name, each.target, seen.verdict.value, line_of(seen))
    graphs = [
        {"graph": each.name, "target": each.target}
        | judgement_data(seen)
        | {"written": written.get(each.name)}
        for each, seen in judged
    ]
    lines = [
        f"{name}: python {facts['repro']}  # {facts['clean_run']}"
        for name, facts in written.items()
    ]
    body: tuple[RenderableType, ...] = ((rows,) if len(judged) > 1 else ()) + tuple(lines)
    return Answer(
        code, f"{line_of(judgement)} [{case.name}, {case.target}]", {"graphs": graphs}, body
    )


COMMAND = Command("repro", repro)
