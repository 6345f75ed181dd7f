"""The commands with which to go on after a diagnosis, to be pasted.

They are put together from single words, never copied: a folder may be somebody else's.
"""

from pathlib import Path
from shlex import quote

from ctk.toolkit.case.failure import Signature
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.oracle.go_on import other_command
from ctk.toolkit.report.as_json import CulpritRecord, Record
from ctk.toolkit.report.words import label_of
from ctk.toolkit.targets import traits_of


def next_steps(record: Record, folder: Path) -> list[str]:
    """Return what to do next, the most useful first; each is a command with a remark, or advice."""
    if record.verdict is Verdict.REPRODUCES and record.signature is not None:
        return [*_see_it(record, folder, record.signature), *_go_round(record)]
    return [_ADVICE[record.verdict]] if record.verdict in _ADVICE else []


_ADVICE = {
    Verdict.PASSES: "--backward, --dynamic and --calls N look at more of a program",
    Verdict.FLAKY: "seed the program, or torch.use_deterministic_algorithms(True); "
    "a race shows with --isolate",
    Verdict.TIMEOUT: "--timeout SECONDS gives it more time",
}


def _see_it(record: Record, folder: Path, signature: Signature) -> list[str]:
    """Return how to see the failure again, or how to get the smallest program that shows it."""
    repro = record.repro
    if repro.path is not None and repro.clean_run == "reproduced":
        return [f"python {quote(str(folder / repro.path))}  # shows it again"]
    if repro.path is not None:
        again = folder / repro.path
        return [f"ctk repro {quote(str(again.parent))}  # its repro.py did not show the failure"]
    if record.state != "finished":
        return []  # there is a command to go on with it
    smaller = other_command(folder, "diagnose" if record.culprit is None else "minify")
    if smaller is None:
        return []
    isolate = "" if "--isolate" in smaller or not signature.is_deadly else " --isolate"
    return [f"{smaller}{isolate}  # the smallest program that shows it, as a script"]


def _go_round(record: Record) -> list[str]:
    """Return how to run the program without the culprits."""
    culprits = [each for each in (record.culprit, *record.also) if each is not None]
    whole, variable = record.end_to_end, traits_of(record.target).disable_variable
    if whole is not None and whole.judgement.fails:
        is_dynamo = whole.layer == "dynamo" and whole.line
        said = f"torch.compiler.disable on the function around {whole.line} keeps it in eager"
        return [said] if is_dynamo else []
    if not variable or not record.confirmed or not culprits or not all(map(_is_pass, culprits)):
        return []
    names = ",".join(each.where for each in culprits)
    plural = "those passes" if len(culprits) > 1 else "that pass"
    return [f"{variable}={quote(names)} python YOUR_PROGRAM.py  # does without {plural}"]


def _is_pass(culprit: CulpritRecord) -> bool:
    """Return whether it is a pass of a pipeline; what is below and above them is left out else."""
    is_step = label_of(culprit.where, is_kernel=culprit.kind == "kernel") != "pass"
    return not is_step and culprit.stage != "captured"
