"""`ctk minify`: the smallest graph that still fails in the same way, with its repro."""

import dataclasses
import shlex
from typing import TYPE_CHECKING

from ctk.toolkit.cli.answer import Answer, ExitCode, table
from ctk.toolkit.cli.exit_codes import exit_code_of, judgement_data, line_of
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
    from rich.table import Table

    from ctk.toolkit.case.case import Case
    from ctk.toolkit.minify import Minified
    from ctk.toolkit.reduce.driver import Reduction


def minify(
    subject: SubjectOptions,
    out: OutOption,
    kept: KeptInputs,
    budget: BudgetOptions,
    isolation: IsolationOptions,
) -> Answer:
    """Make a failing case as small as possible.

    Writes the smallest graph that fails in the same way, with its repro.py. Ctrl-C keeps the best
    so far and says how to go on.
    """
    from ctk.toolkit.minify import minify as minify_program

    with progress() as report:
        found = minify_program(
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
    return answer_of(found)


def answer_of(found: "Minified") -> Answer:
    """Return the answer: how small it became, where it is, and how to go on if it can."""
    from ctk.toolkit.case.trust import trust_option

    reduction = found.reduction
    if reduction is None or found.folder is None or found.repro_run is None:
        data = {"graph": found.case.name} | judgement_data(found.judgement)
        headline = f"{line_of(found.judgement)} [{found.case.name}]"
        return Answer(exit_code_of(found.judgement), headline, data)
    is_interrupted = reduction.reason == "interrupted"
    code = ExitCode.CANNOT_TELL if is_interrupted else ExitCode.FAILURE
    state = "minimal" if reduction.finished else f"stopped by {reduction.reason}"
    headline = (
        f"{'interrupted' if is_interrupted else 'failure'}: {reduction.nodes_before} -> "
        f"{reduction.nodes_after} call nodes ({state}): {kind_of(reduction.best)}"
    )
    lines = [f"case: {found.folder}", f"repro: python {found.repro}  # {found.repro_run.says}"]
    if not reduction.finished:
        trust = trust_option(reduction.best)
        lines.append(f"to go on: ctk minify {shlex.quote(str(found.folder))}{trust}")
    data = reduction_data(reduction) | {
        "case": str(found.folder),
        "repro": {
            "path": str(found.repro),
            "clean_run": found.repro_run.says,
            "exit_code": found.repro_run.exit_code,
        },
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
