"""The commands to run after a diagnosis, ready to paste.

Commands are built from single words, never copied: a folder may be from another user.
"""

from collections.abc import Mapping
from pathlib import Path
from shlex import quote

from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.case.next_step import NextStep
from ctk.toolkit.operations.report.as_json import Record
from ctk.toolkit.operations.report.phrases import INTERRUPTED
from ctk.toolkit.oracle.answers.resume_command import command_about, other_command
from ctk.toolkit.repro.run import Outcome
from ctk.toolkit.targets import target_of


def next_steps(record: Record, folder: Path) -> list[NextStep]:
    """Return the next steps, the most useful first."""
    if record.verdict is Verdict.REPRODUCES and record.signature is not None:
        return [*_see_it(record, folder, record.signature), *_go_round(record)]
    return _advice(record.verdict, is_program=True)


def after_a_look(
    judgement: Judgement, subject: str, options: Mapping[str, object], *, is_program: bool
) -> list[NextStep]:
    """Return the next steps after a command that only detects a failure.

    Args:
        subject: Its subject, as the user names it.
        options: The keywords of its options.
        is_program: Whether that is a program: more of it may be looked at.
    """
    if not judgement.fails:
        return _advice(judgement.verdict, is_program=is_program)
    is_deadly = judgement.signature is not None and judgement.signature.is_deadly
    isolate = {"isolate": True} if is_deadly and options.get("isolate") is None else {}
    command = command_about(subject, "diagnose", {**options, **isolate})
    return [NextStep(command, "the culprit with its proof, and the smallest repro")]


def _advice(verdict: Verdict, *, is_program: bool) -> list[NextStep]:
    is_told = verdict in _ADVICE and (is_program or verdict is not Verdict.PASSES)
    return [NextStep("", _ADVICE[verdict])] if is_told else []


_ADVICE = {
    Verdict.PASSES: "--backward, --dynamic, --aliases and --calls N look at more of a program",
    Verdict.FLAKY: "seed the program, or torch.use_deterministic_algorithms(True); "
    "a race shows with --isolate",
    Verdict.TIMEOUT: "--timeout SECONDS gives it more time",
    Verdict.ILL_CONDITIONED: "compare the program with inputs that determine its results",
    Verdict.UNINITIALIZED: "write the memory before it is read, or leave it out of the results",
}


_ONLY_THERE = (
    "if that passes too, the failure depends on state outside of the graph, such as a patch of "
    "torch, an option of the compiler or a pass that counts its calls: a case does not hold it, so "
    "keep the program itself as the repro"
)

_REMARKS: Mapping[Outcome | None, str] = {
    "not reproduced": "its repro.py did not show the failure",
    "cannot tell": "its repro.py cannot tell",
    None: "its repro.py was not run",
}
"""Why a repro script is not the next step."""


def _see_it(record: Record, folder: Path, signature: Signature) -> list[NextStep]:
    """Return how to see the failure again, or how to get the smallest program that shows it."""
    repro = record.repro
    if repro.path is not None and repro.clean_run == "reproduced":
        return [NextStep(f"python {quote(str(folder / repro.path))}", "shows it again")]
    if repro.path is not None:
        again = folder / repro.path
        is_cut = repro.clean_run is None and INTERRUPTED in record.problems
        remark = INTERRUPTED if is_cut else _REMARKS[repro.clean_run]
        step = NextStep(f"ctk repro {quote(str(again.parent))}", remark)
        is_elsewhere = repro.clean_run == "not reproduced"
        return [step, NextStep("", _ONLY_THERE)] if is_elsewhere else [step]
    if record.state != "finished":
        return []  # a command resumes it
    smaller = other_command(folder, "diagnose" if record.culprit is None else "minify")
    if smaller is None:
        return []
    isolate = "" if "--isolate" in smaller or not signature.is_deadly else " --isolate"
    return [NextStep(f"{smaller}{isolate}", "the smallest program that shows it, as a script")]


def _go_round(record: Record) -> list[NextStep]:
    """Return how to run the program without the culprits."""
    culprits = [each for each in (record.culprit, *record.also) if each is not None]
    whole = record.end_to_end
    if whole is not None and whole.judgement.fails:
        is_dynamo = whole.layer == "dynamo" and whole.line
        said = f"torch.compiler.disable on the function around {whole.line} keeps it in eager"
        return [NextStep("", said)] if is_dynamo else []
    names = list(dict.fromkeys(culprit.where for culprit in culprits))
    setting = target_of(record.target).spell_disable(names) if record.confirmed else ""
    plural = "those passes" if len(names) > 1 else "that pass"
    said = f"with {setting} in its environment a program does without {plural}"
    return [NextStep("", said)] if setting else []
