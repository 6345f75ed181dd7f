"""`ctk minify`: the smallest graph that still fails in the same way, with its repro."""

import dataclasses
import shlex
import signal
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ctk.toolkit.cli.answer import Answer, ExitCode, table
from ctk.toolkit.cli.executors import executor_for
from ctk.toolkit.cli.exit_codes import exit_code_of, judgement_data, line_of, most_telling
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
    from rich.table import Table

    from ctk.toolkit.case.case import Case
    from ctk.toolkit.oracle.executors import Executor
    from ctk.toolkit.oracle.judgement import Judgement
    from ctk.toolkit.reduce.driver import Reduction
    from ctk.toolkit.repro.run import ReproRun

SAVE_SECONDS = 10.0
"""Save the best case so far at most this often, for the day the machine is switched off."""


def minify(
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
    """Make a failing case as small as possible.

    Writes the smallest graph that fails in the same way, with its repro.py. Ctrl-C keeps the best
    so far and says how to go on.
    """
    from ctk.toolkit.reduce.driver import minimize
    from ctk.toolkit.reduce.problem import Budget, Problem

    cases = load_cases(Request(subject, target, config, backward, dynamic, graph, allow_import))
    executor = executor_for(
        cases, isolate=isolate, timeout_seconds=timeout, allow_import=allow_import
    )
    with progress() as report, executor:
        case, judgement = first_failing(cases, executor, report)
        if exit_code_of(judgement) is not ExitCode.FAILURE:
            return nothing_to_reduce(case, judgement)
        case = dataclasses.replace(case, signature=judgement.signature)
        folder = output_folder(out, "minimal", subject)
        problem = Problem(
            case,
            lambda candidate: executor.ask(candidate, case.signature),
            budget=Budget(max_questions, max_seconds),
            on_progress=report.reduction,
            on_improvement=saver(folder, inputs.value),
        )
        reduction = minimize(problem)
        report("running the repro in a clean process")
        with uninterrupted():
            script, seen = write_result(reduction, folder, inputs.value)
    return answer_of_reduction(reduction, folder, script, seen)


def first_failing(
    cases: "list[Case]", executor: "Executor", report: Callable[[str], None]
) -> "tuple[Case, Judgement]":
    """Return the first case that fails, else the one that comes nearest, with its judgement."""
    judged: list[tuple[Case, Judgement]] = []
    for case in cases:
        report(f"running {case.name} with {case.target}")
        judged.append((case, executor.ask(case, case.signature)))
        if exit_code_of(judged[-1][1]) is ExitCode.FAILURE:
            break
    return most_telling(judged, lambda pair: exit_code_of(pair[1]))


def nothing_to_reduce(case: "Case", judgement: "Judgement") -> Answer:
    """Return the answer for a case that does not fail."""
    data = {"graph": case.name} | judgement_data(judgement)
    return Answer(exit_code_of(judgement), f"{line_of(judgement)} [{case.name}]", data)


def saver(folder: Path, inputs: str) -> "Callable[[Case], None]":
    """Return a function that saves the best case so far into `folder/case`, now and then."""
    from ctk.toolkit.case.store import save_case

    last = time.monotonic()

    def save(best: "Case") -> None:
        nonlocal last
        if time.monotonic() - last >= SAVE_SECONDS:
            save_case(best, folder / "case", inputs=inputs, overwrite=True)
            last = time.monotonic()

    return save


def write_result(reduction: "Reduction", folder: Path, inputs: str) -> "tuple[Path, ReproRun]":
    """Write the smallest case with its verified repro into `folder/case`."""
    from ctk.toolkit.case.store import save_case
    from ctk.toolkit.repro.run import write_verified_repro

    case_folder = save_case(reduction.best, folder / "case", inputs=inputs, overwrite=True)
    return write_verified_repro(reduction.best, case_folder)


@contextmanager
def uninterrupted() -> Generator[None]:
    """Put off Ctrl-C while the result is written."""
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def answer_of_reduction(
    reduction: "Reduction", folder: Path, script: Path, seen: "ReproRun"
) -> Answer:
    """Return the answer: how small it became, where it is, and how to go on if it can."""
    is_interrupted = reduction.reason == "interrupted"
    code = ExitCode.CANNOT_TELL if is_interrupted else ExitCode.FAILURE
    state = "minimal" if reduction.finished else f"stopped by {reduction.reason}"
    headline = (
        f"{'interrupted' if is_interrupted else 'failure'}: {reduction.nodes_before} -> "
        f"{reduction.nodes_after} call nodes ({state}): {kind_of(reduction.best)}"
    )
    lines = [f"case: {folder / 'case'}", f"repro: python {script}  # {seen.says}"]
    if not reduction.finished:
        lines.append(f"to go on: ctk minify {shlex.quote(str(folder / 'case'))}")
    data = reduction_data(reduction) | {
        "case": str(folder / "case"),
        "repro": {"path": str(script), "clean_run": seen.says, "exit_code": seen.exit_code},
    }
    return Answer(code, headline, data, (*lines, statistics_table(reduction)))


def kind_of(case: "Case") -> str:
    """Return the failure without its numbers, which were those of the case before."""
    signature = case.signature
    return str(dataclasses.replace(signature, output=None, message="")) if signature else ""


def reduction_data(reduction: "Reduction") -> dict[str, object]:
    """Return the JSON form of a reduction."""
    return {
        "finished": reduction.finished,
        "stopped_by": reduction.reason,
        "questions": reduction.questions,
        "cached": reduction.cached,
        "seconds": round(reduction.seconds, 2),
        "call_nodes": {"before": reduction.nodes_before, "after": reduction.nodes_after},
        "steps": {
            name: dataclasses.asdict(counts) for name, counts in reduction.statistics.items()
        },
    }


def statistics_table(reduction: "Reduction") -> "Table":
    """Return one row per step of the reducer: what it cost and what it brought."""
    rows = table("step", "questions", "useful", "cached")
    for name, counts in reduction.statistics.items():
        if counts.questions or counts.cached:
            cells = (counts.questions, counts.useful, counts.cached)
            rows.add_row(name, *(str(cell) for cell in cells))
    return rows


COMMAND = Command("minify", minify)
