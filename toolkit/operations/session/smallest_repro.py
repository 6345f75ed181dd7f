"""The script of the smallest case: written, and run in a clean process unless interrupted."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ctk.compiler.errors import StorageError, count_of
from ctk.toolkit.bisect import Search
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.case.store import load_case
from ctk.toolkit.operations.report.phrases import INTERRUPTED
from ctk.toolkit.operations.session.oracle_stack import OracleStack
from ctk.toolkit.operations.session.running_operation import Operation
from ctk.toolkit.oracle.answers.fingerprint import fingerprint
from ctk.toolkit.oracle.questions.user_command import CommandOracle
from ctk.toolkit.reduce.size import call_nodes
from ctk.toolkit.repro.run import REPRO, Outcome, ReproRun, write_repro
from ctk.toolkit.repro.script import limits_of
from ctk.toolkit.repro.verified import write_verified_repro

logger = logging.getLogger("ctk")

Write = Callable[[Case, bool], tuple[Path, ReproRun | None]]
"""Writes the script of a case, and runs it if the flag is set."""

Written = tuple[Path | None, ReproRun | None, bool]
"""The script, its run, and whether Ctrl-C was pressed."""


def write_graph_repro(
    run: Operation, smallest: Case, folder: Path, culprit: str | None, *, is_interrupted: bool
) -> Written:
    """Write the script of the smallest case and run it; after Ctrl-C it is not run."""
    subject = run.subject
    limits = limits_of(smallest.signature, subject.timeout_seconds, subject.memory_nbytes)

    def write(shown: Case, is_run: bool) -> tuple[Path, ReproRun | None]:
        if not is_run:
            return write_repro(shown, folder, culprit, limits), None
        run.say("run the repro in a clean process")
        return write_verified_repro(shown, folder, culprit, limits)

    return _write_once(run, smallest, folder, write, is_interrupted)


def write_first_repro(run: Operation, smallest: Case, folder: Path, culprit: str | None) -> None:
    """Write the script of the smallest graph while its details are still to be simplified.

    It is not run. A resumed run has a later script there, or writes one.
    """
    if run.journal.is_replay:
        return
    subject = run.subject
    limits = limits_of(smallest.signature, subject.timeout_seconds, subject.memory_nbytes)
    try:
        shown = smallest if run.keep == "full" else _as_saved(smallest, folder)
        script = write_repro(shown, folder, culprit, limits)
    except Exception as error:  # the last script is written in the same way, and reports it
        logger.debug("ctk: the first repro raised", exc_info=error)
        return
    run.say(f"the graph is minimal: {count_of(call_nodes(smallest), 'call node')}, {script}")


def write_decided_repro(
    run: Operation,
    smallest: Case,
    folder: Path,
    stack: OracleStack,
    words: str,
    *,
    is_interrupted: bool,
) -> Written:
    """Write the script of a case about which a command or function of the user decides.

    The command judges the files that the user gets; the header of the script names it.
    """

    def write(shown: Case, is_run: bool) -> tuple[Path, ReproRun | None]:
        headline = f"{words} calls it a failure; this script compares with eager"
        script = write_repro(shown, folder, failure=headline)
        if not is_run or not isinstance(stack.judge, CommandOracle):
            return script, None
        run.say("ask about the smallest case as it is written")
        seen = stack.judge.judge_saved(folder, script)
        says: dict[Verdict, Outcome] = {
            Verdict.REPRODUCES: "reproduced",
            Verdict.DIFFERENT: "not reproduced",
            **{each: "not reproduced" for each in Verdict if each.is_no_failure},
        }
        first = seen.detail.partition("\n")[0]
        return script, ReproRun(0, seen.detail, says.get(seen.verdict, "cannot tell"), first)

    return _write_once(run, smallest, folder, write, is_interrupted)


def _write_once(
    run: Operation, smallest: Case, folder: Path, write: Write, is_interrupted: bool
) -> Written:
    """Write a script, unless the journal has its run; errors are recorded and end nothing."""
    key = fingerprint(smallest, run.digests)
    script = folder / REPRO
    known = run.journal.recall(ReproRun, key)
    if known is not None and script.is_file():
        return script, known, is_interrupted
    try:
        shown = smallest if run.keep == "full" else _as_saved(smallest, folder)
        if not is_interrupted:
            try:
                script, seen = write(shown, True)
            except KeyboardInterrupt:
                is_interrupted = True
            else:
                if seen is not None:
                    run.journal.note(key, replace(seen, output=seen.output[-2000:]))
                return script, seen, False
        run.record_problems(INTERRUPTED)
        return (*write(shown, False), True)
    except (StorageError, OSError) as error:
        run.record_unsaved(REPRO, error)
        return None, None, is_interrupted
    except Exception as error:
        run.record_errors("writing the repro", error)
        return None, None, is_interrupted


def _as_saved(case: Case, folder: Path) -> Case:
    """Return the case with the values of its folder: a repro must not reveal more."""
    saved = load_case(folder, trust=True)
    return replace(case, inputs=saved.inputs, synthetic=saved.synthetic)


def guilty_pass(*searches: Search | None) -> str | None:
    """Return the guilty pass as `CTK_DISABLE` takes it; None for a kernel."""
    for search in searches:
        culprit = search.culprit if search else None
        if search and culprit is not None and not culprit.is_kernel and search.confirmed:
            return culprit.where
    return None
