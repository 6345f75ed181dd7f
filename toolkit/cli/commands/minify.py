"""`ctk minify`: the smallest graph that still fails in the same way, with its repro."""

import dataclasses
from shlex import quote
from typing import TYPE_CHECKING

from ctk.compiler.errors import count_of
from ctk.toolkit.case.formats.plain_text import REASON_LENGTH, one_line
from ctk.toolkit.cli.commands.diagnose import (
    answer_of_diagnosis,
    code_of,
    lines_to_go_on,
    stumbles,
)
from ctk.toolkit.cli.commands.report import WithReport, with_folder_report
from ctk.toolkit.cli.shell.answer import Answer, table
from ctk.toolkit.cli.shell.command_context import Command
from ctk.toolkit.cli.shell.exit_codes import apply_acceptance, document_data, line_of
from ctk.toolkit.cli.shell.options import SubjectArgument
from ctk.toolkit.cli.shell.progress import progress
from ctk.toolkit.operations.options import MinifyOptions
from ctk.toolkit.options import keywords_of

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table

    from ctk.toolkit.operations.report.diagnosis import Diagnosis
    from ctk.toolkit.reduce.driver import Reduction


def minify(subject: SubjectArgument, options: MinifyOptions, report: WithReport = False) -> Answer:
    """Make a failing case as small as possible.

    Writes the smallest graph that fails in the same way, with its repro.py. Ctrl-C keeps the best
    so far and prints the command that resumes. A program, a function, time or memory may decide
    instead of eager's results.
    """
    from ctk.toolkit.operations.minify import minify as minify_program

    with progress() as shown:
        found = minify_program(
            subject, say=shown, on_progress=shown.reduction, **keywords_of(options)
        )
    answer = apply_acceptance(answer_of(found), found.judgement, options)
    return with_folder_report(answer, found.folder, is_wanted=report)


def answer_of(found: "Diagnosis") -> Answer:
    """Return the answer: how small it became, where it is, and how to go on if it can."""
    from ctk.toolkit.operations.report.phrases import ending, with_log

    reduction = found.reduction
    if found.is_shown_by_no_graph and found.folder is not None:
        return answer_of_diagnosis(found)
    if reduction is None or found.folder is None:
        data = {"graph": found.name} | document_data(found.judgement)
        headline = f"{_first_line(found)} [{found.name}]"
        told = () if found.kept is None else (f"cache: {found.kept.line}",)
        return Answer(code_of(found), headline, data | {"kept": document_data(found.kept)}, told)
    state = ending(reduction.reason, reduction.unfinished)
    headline = (
        f"{'interrupted' if found.is_interrupted else 'failure'}: {reduction.nodes_before} -> "
        f"{count_of(reduction.nodes_after, 'call node')} ({state}): {failure_of(found, reduction)}"
        f"{stumbles(found)}"
    )
    run = found.repro_run
    lines = [f"given: {found.judgement.signature}"] if found.other_failure else []
    lines += [f"case: {found.minimal}"] if found.minimal else []
    lines += why_lines(found.minimal)
    if found.repro:
        lines.append(
            f"repro: python {quote(str(found.repro))}  # {run.outcome if run else 'not run'}"
        )
    lines += [f"cache: {found.kept.line}"] if found.kept else []
    lines += [f"problem: {with_log(problem, found.folder)}" for problem in found.problems]
    lines += flaky_and_others(found)
    lines += lines_to_go_on(found)
    data = reduction_data(reduction) | {
        "failure": document_data(reduction.best.signature),
        "given_failure": document_data(found.judgement.signature),
        "is_other_failure": found.other_failure is not None,
        "case": str(found.minimal) if found.minimal else None,
        "folder": str(found.folder),
        "problems": list(found.problems),
        "kept": document_data(found.kept),
        "decided_by": found.decided_by or None,
        "others": [
            {"failure": str(other.signature), "case": str(other.folder)} for other in found.others
        ],
        "repro": {
            "path": str(found.repro) if found.repro else None,
            "clean_run": run.outcome if run else None,
            "exit_code": run.exit_code if run else None,
        },
    }
    return Answer(code_of(found), headline, data, (*lines, statistics_table(reduction)))


def why_lines(minimal: "Path | None") -> list[str]:
    """Return the commands that tell why a case is not smaller, if it has a certificate."""
    from ctk.toolkit.operations.report.certificate_file import CERTIFICATE, NEIGHBOUR

    if minimal is None or not (minimal / CERTIFICATE).is_file():
        return []
    neighbour = minimal.parent / NEIGHBOUR
    pair = f"{quote(str(minimal))} {quote(str(neighbour))}"
    compared = [f"passes: {neighbour}  # ctk diff {pair}"] if neighbour.is_dir() else []
    return [f"why: ctk show {quote(str(minimal))} --why", *compared]


def _first_line(found: "Diagnosis") -> str:
    """Return the first line when nothing fails; it quotes a command's own output."""
    judgement = found.judgement
    if not found.decided_by or judgement.fails:
        return line_of(judgement)
    answer = "no failure" if judgement.is_no_failure else "cannot tell"
    said = judgement.detail.partition("\n")[0]
    return f"{answer}: {found.decided_by} says {judgement.verdict.value}{said and f': {said}'}"


def failure_of(found: "Diagnosis", reduction: "Reduction") -> str:
    """Return the failure: as ctk names it, or who decides."""
    signature = found.search.judgement.signature
    if found.decided_by:
        seen = f" ({signature.message})" if signature is not None and signature.message else ""
        return f"{found.decided_by} decides{seen}"
    if found.other_failure is not None:
        return f"{one_line(str(found.other_failure))}; another failure than the given case's"
    seen = reduction.best.signature  # without its numbers, which were those of the case before
    return str(dataclasses.replace(seen, output=None, message="")) if seen else ""


def flaky_and_others(found: "Diagnosis") -> list[str]:
    """Return lines about a failure at random, and about other failures on the way."""
    from ctk.toolkit.case.admission import trust_option

    reduction = found.reduction
    flakiness = reduction.flakiness if reduction is not None else None
    lines = [f"flaky: {flakiness}"] if flakiness is not None else []
    return lines + [
        f"also seen: {one_line(str(other.signature), REASON_LENGTH)}; "
        f"ctk repro {quote(str(other.folder))}{trust_option(other.folder)}"
        for other in found.others
    ]


def reduction_data(reduction: "Reduction") -> dict[str, object]:
    """Return the JSON form of a reduction."""
    return {
        "finished": reduction.finished,
        "stopped_by": reduction.reason,
        "unfinished": list(reduction.unfinished),
        "questions": reduction.questions,
        "cached": reduction.cached,
        "remembered": reduction.remembered,
        "seconds": round(reduction.seconds, 2),
        "flakiness": document_data(reduction.flakiness),
        "call_nodes": {"before": reduction.nodes_before, "after": reduction.nodes_after},
        "certificate": [document_data(refusal) for refusal in reduction.certificate],
        "steps": {
            name: dataclasses.asdict(counts) for name, counts in reduction.statistics.items()
        },
    }


def statistics_table(reduction: "Reduction") -> "Table":
    """Return one row per step of the reducer: its questions and its gains."""
    rows = (
        (name, each.questions, each.useful, each.cached, each.remembered)
        for name, each in reduction.statistics.items()
        if each.questions or each.cached or each.remembered
    )
    return table("step", "questions", "useful", "cached", "remembered", rows=rows)


COMMAND = Command("minify", minify)
