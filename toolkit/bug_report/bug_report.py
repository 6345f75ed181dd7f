"""The report of one failure as an issue: its parts, made by running the smallest case.

    repro       a short script, run in a clean process with and without a compiler; else repro.py
    error       the output of that run
    verdicts    of ctk, and of torch's own comparison
    ablation    which backend, and which part of it
    test        in the style of torch's tests, run as well
    versions    torch.utils.collect_env

`issue_text` writes the parts as Markdown.
"""

import tempfile
import time
from dataclasses import replace
from pathlib import Path

from ctk.compiler.errors import CtkError
from ctk.compiler.installed_torch import warn_if_untested
from ctk.toolkit.bug_report.ablation import Ablations
from ctk.toolkit.bug_report.environment import collect_versions
from ctk.toolkit.bug_report.issue_text import BugReport, write_issue
from ctk.toolkit.bug_report.labels import guilty_first, name_issue
from ctk.toolkit.bug_report.ownership import find_other_owner
from ctk.toolkit.bug_report.regression_test import regression_test
from ctk.toolkit.bug_report.script_check import CheckedScript, check_script, readable
from ctk.toolkit.bug_report.short_script import (
    NoShortForm,
    ShortProgram,
    program_text,
    short_program,
    short_whole_program,
)
from ctk.toolkit.bug_report.similar import similar_queries
from ctk.toolkit.bug_report.subject import IssueSubject, attachments, read_subject
from ctk.toolkit.bug_report.torch_verdict import ask_torch
from ctk.toolkit.options import AskOptions
from ctk.toolkit.oracle.executors.base import Executor
from ctk.toolkit.oracle.open_subject import open_subject
from ctk.toolkit.oracle.progress import Say, silent
from ctk.toolkit.repro.run import REPRO, ReproRun, run_repro
from ctk.toolkit.repro.verified import write_verified_repro

ABLATION_SECONDS = 300.0

MOST_CHARACTERS = 20_000
"""Of a script in the text of an issue, which GitHub limits to 65,536; a longer one is attached."""


def bug_report(
    folder: str | Path,
    *,
    trust: bool = False,
    timeout_seconds: float | None = None,
    ablation_seconds: float = ABLATION_SECONDS,
    say: Say = silent,
) -> BugReport:
    """Write the issue for a failure: its smallest case runs again, in processes of its own.

    Args:
        folder: That of `diagnose` or `minify`, or a case with a failure.
        trust: Whether the user trusts the author of the folder: its code runs.
        timeout_seconds: Longest that one question may take; None for the default.
        ablation_seconds: Longest time of the questions about backends and their parts.

    Raises:
        CaseError: There is no failure in the folder.
        TrustError: It would run code, and is not trusted.
    """
    warn_if_untested()
    subject = read_subject(Path(folder).expanduser(), trust=trust)
    if subject.case is None:
        return _report(subject, None, ablation_seconds, say)
    options = AskOptions(trust=trust, timeout_seconds=timeout_seconds)
    with open_subject(str(subject.folder), None, options) as it:
        return _report(subject, it.executor, ablation_seconds, say)


def _report(
    subject: IssueSubject, executor: Executor | None, ablation_seconds: float, say: Say
) -> BugReport:
    """Make the parts in order; each runs the case or the script again."""
    say("run the repro in a clean process")
    program, repro = _find_repro(subject)
    ablation = torch = None
    if subject.case is not None and executor is not None:
        culprit = subject.culprit.where if subject.culprit is not None else ""
        end = time.monotonic() + ablation_seconds
        ablation = Ablations(subject.case, executor, say, end, culprit).run()
        say("ask torch's own comparison")
        torch = ask_torch(subject.case) if repro.shows else None
    other_owner = find_other_owner(subject)
    naming = name_issue(subject, ablation, other_owner)
    test = None
    if program is not None and not other_owner:
        say("run the regression test")
        test = regression_test(program, naming, tuple(guilty_first(subject)[:2]))
    say("collect the versions")
    report = BugReport(
        subject,
        naming,
        repro,
        collect_versions(),
        other_owner,
        torch,
        ablation,
        test,
        () if other_owner else similar_queries(subject, naming.component),
    )
    return replace(report, body=write_issue(report))


def _find_repro(subject: IssueSubject) -> tuple[ShortProgram | None, CheckedScript]:
    """Return the short script if it shows the failure; else the full one, to be attached."""
    why = ""
    try:
        for program in _short_forms(subject):
            run = check_script(program.script, subject.signature)
            if run.shows:
                return program, run
            why = f"a short script does not show the failure: {run.why}"
    except NoShortForm as reason:
        why = str(reason)
    return None, _full_repro(subject, why)


def _short_forms(subject: IssueSubject) -> list[ShortProgram]:
    """Return the short scripts to try."""
    if subject.case is None:
        assert subject.whole is not None, "a program without a case failed as a whole"
        return [short_whole_program(subject.program, subject.whole)]
    found = [short_program(subject.case)]
    if subject.case.modes.backward:
        found.append(short_program(subject.case, ones=False))
    if any(len(each.script) > MOST_CHARACTERS for each in found):
        raise NoShortForm("the graph is too long for the text of an issue; ctk minify reduces it")
    return found


def _full_repro(subject: IssueSubject, why: str) -> CheckedScript:
    """Run the full script; that of a case is written again, because a file may be changed."""
    case = subject.case
    files = tuple(attachments(subject.folder))
    if case is None:
        run = run_repro(subject.folder / REPRO)
        return _attached(subject.program, run, files, why)
    with tempfile.TemporaryDirectory() as folder:
        try:
            _, run = write_verified_repro(case, Path(folder))
        except CtkError as error:
            run = ReproRun(125, f"no script could be written: {error}", "cannot tell")
    return _attached(program_text(case), run, files, why)


def _attached(text: str, run: ReproRun, files: tuple[Path, ...], why: str) -> CheckedScript:
    cut = text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}\n# [...]"
    shows = run.outcome == "reproduced"
    return CheckedScript(cut, readable(run.output), shows, why, files)
