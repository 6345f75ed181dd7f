"""Write a repro after a run of it: the header holds the result, and the modules that it needed."""

import datetime
from pathlib import Path

from ctk.toolkit.case.case import Case
from ctk.toolkit.repro.bare import BareRun, run_bare
from ctk.toolkit.repro.header import CleanRun, shorten_paths
from ctk.toolkit.repro.run import ReproRun, write_repro
from ctk.toolkit.repro.script import ScriptLimits
from ctk.toolkit.targets import target_of


def write_verified_repro(
    case: Case,
    folder: Path,
    culprit_pass: str | None = None,
    limits: ScriptLimits | None = None,
) -> tuple[Path, ReproRun]:
    """Write a repro, run it in a clean process, and record the result in its header.

    Dynamo captures the graph of the script again, and may get another one, or refuse it (an int of
    a loop, a view that is written). If that hides the failure, the graph is handed to the target.
    """
    needs = target_modules(case.target)

    def write(*, hands_over: bool, clean_run: CleanRun | None = None) -> Path:
        return write_repro(
            case, folder, culprit_pass, limits, clean_run=clean_run, hands_over=hands_over
        )

    bare, hands_over = run_bare(write(hands_over=False), needs), False
    if bare.run.outcome != "reproduced":
        handed = run_bare(write(hands_over=True), needs)
        hands_over = handed.run.outcome == "reproduced"
        bare = handed if hands_over else bare
    status = "inputs synthetic: " if case.synthetic else ""
    return write(hands_over=hands_over, clean_run=clean_run_of(bare, status)), bare.run


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
