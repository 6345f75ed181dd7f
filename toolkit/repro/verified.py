"""Write a repro after a run of it: the header holds the result, and the modules that it needed."""

import datetime
from pathlib import Path

from ctk.toolkit.case.case import Case
from ctk.toolkit.repro.bare import BareRun, run_bare
from ctk.toolkit.repro.header import CleanRun, shorten_paths
from ctk.toolkit.repro.run import ReproRun, write_repro
from ctk.toolkit.repro.script import PLAIN, ScriptForm, ScriptLimits
from ctk.toolkit.targets import target_of


def write_verified_repro(
    case: Case,
    folder: Path,
    culprit_pass: str | None = None,
    limits: ScriptLimits | None = None,
) -> tuple[Path, ReproRun]:
    """Write a repro, run it in a clean process, and record the result in its header.

    Two other forms of the script are tried if the plain one hides the failure:

    1. The graph is handed to the target: Dynamo captures that of the script again, and may get
       another one, or refuse it (an int of a loop, a view that is written).
    2. Memory is guarded: a kernel that reads outside of its operands is right by chance.
    """
    needs = target_modules(case.target)

    def write(form: ScriptForm, clean_run: CleanRun | None = None) -> Path:
        return write_repro(case, folder, culprit_pass, limits, clean_run=clean_run, form=form)

    is_numeric = case.signature is not None and case.signature.is_numeric
    others = [ScriptForm(hands_over=True), *([ScriptForm(is_guarded=True)] if is_numeric else [])]
    form, bare = PLAIN, run_bare(write(PLAIN), needs)
    for other in others if bare.run.outcome != "reproduced" else ():
        ran = run_bare(write(other), needs)
        if ran.run.outcome == "reproduced":
            form, bare = other, ran
            break
    status = "inputs synthetic: " if case.synthetic else ""
    return write(form, clean_run_of(bare, status)), bare.run


def target_modules(spec: str) -> tuple[str, ...]:
    """Return the modules that a repro of a target needs besides torch's."""
    needs = target_of(spec).needs
    return (needs,) if needs else ()


def clean_run_of(bare: BareRun, status: str = "") -> CleanRun:
    """Return the result of a run, for the header."""
    run, today = bare.run, datetime.datetime.now(datetime.UTC).date().isoformat()
    verdict = run.verdict or f"no verdict, exit code {run.exit_code}"
    text = f"{status}{run.outcome} on {today} ({shorten_paths(verdict)})"
    return CleanRun(text, bare.needs, shows=run.outcome == "reproduced")
