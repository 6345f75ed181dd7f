"""diagnose: bisect, minimize and emit a repro; one folder at the end.

OUT/diagnosis.json    what is known so far: written with the proof, and after each step since
OUT/case/             the failing case as captured
OUT/minimal/          the smallest case so far, at the end with its repro.py
"""

import time
from dataclasses import replace
from pathlib import Path
from typing import Unpack

from ctk.compiler.choices import InputsMode
from ctk.toolkit.bisect import Search
from ctk.toolkit.bisect_case import bisect_first_failing
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.folders import output_folder
from ctk.toolkit.case.store import save_case
from ctk.toolkit.case.trust import trust_option
from ctk.toolkit.importers import Inputs, Subject, name_of
from ctk.toolkit.minify import OnProgress, reduce_case, uninterrupted, write_result
from ctk.toolkit.oracle.executors.base import Executor
from ctk.toolkit.oracle.judgement import Verdict
from ctk.toolkit.oracle.progress import Say, silent
from ctk.toolkit.oracle.several import AskOptions, opened
from ctk.toolkit.reduce.best_case import BestCase
from ctk.toolkit.reduce.probe import first_wrong_node
from ctk.toolkit.reduce.problem import Budget
from ctk.toolkit.report.as_json import write_json
from ctk.toolkit.report.diagnosis import Diagnosis


def diagnose(
    subject: Subject,
    inputs: Inputs | None = None,
    *,
    out: str | Path | None = None,
    keep: InputsMode = "full",
    max_questions: int | None = None,
    max_seconds: float | None = None,
    say: Say = silent,
    on_progress: OnProgress | None = None,
    **options: Unpack[AskOptions],
) -> Diagnosis:
    """Find the culprit of the first failing graph and the smallest repro, and write a folder.

    >>> import ctk
    >>> found = ctk.diagnose("examples/broken_pass.py", out="broken")
    >>> found.search.culprit.where, found.reduction.nodes_after
    ('joint/fold_scale_into_add', 2)

    Args:
        subject: A program or case by name, a `Case`, a `GraphModule`, or a callable.
        inputs: Those of one call, for a graph or a callable.
        out: Folder to write to; None makes `diagnosis_<name>` here.
        keep: What written cases keep of their inputs: values, a recipe for similar ones, nothing.
        max_questions: Stop reducing after so many questions.
        max_seconds: Stop reducing after so long.
        say: Told what happens.
        on_progress: Called after each question of the reduction.
        options: `target`, `config`, `backward`, `dynamic`, `graph`, `allow_imports`, `isolate`,
            `timeout_seconds`.

    Returns:
        The diagnosis; of the graph that tells most when none fails. Ctrl-C ends the reduction
        early and keeps the best so far.
    """
    started = time.monotonic()
    with opened(subject, inputs, options) as (cases, executor):
        folder = output_folder(out, f"diagnosis_{name_of(subject)}")
        case, search = bisect_first_failing(cases, executor, say)
        if search.judgement.verdict is not Verdict.REPRODUCES:
            found = Diagnosis(case, search, time.monotonic() - started, folder=folder)
            write_json(found, folder)
            return found
        proof = _Proof(case, search, folder, keep, started)
        return proof.reduced(
            executor, Budget(max_questions, max_seconds), say=say, on_progress=on_progress
        )


class _Proof:
    """A failure with its culprit, on disk from the start; each further step is written as well."""

    def __init__(
        self, case: Case, search: Search, folder: Path, keep: InputsMode, started: float
    ) -> None:
        self._started, self._folder = started, folder
        self._case = replace(case, signature=search.judgement.signature)
        self._found = Diagnosis(self._case, search, 0.0, folder=folder, state="bisected")
        self._write(search=search)
        save_case(self._case, folder / "case", inputs=keep)
        self._best = BestCase(folder / "minimal", keep, self._improved)

    def reduced(
        self, executor: Executor, budget: Budget, *, say: Say, on_progress: OnProgress | None
    ) -> Diagnosis:
        """Make the case smaller, emit its repro, and return the whole diagnosis."""
        trust = trust_option(self._case)
        with self._best.kept(f"ctk diagnose {self._folder / 'minimal'}{trust}"):
            search = with_wrong_node(self._case, self._found.search, say)
            self._write(search=search)
            reduction, minimal = reduce_case(
                self._case,
                search,
                executor,
                best=self._best,
                budget=budget,
                say=say,
                on_progress=on_progress,
            )
            with uninterrupted():
                say("run the repro in a clean process")
                repro, run = write_result(reduction, self._best, minimal, search)
                return self._write(
                    state="finished",
                    reduction=reduction,
                    minimal_search=minimal,
                    repro=repro,
                    repro_run=run,
                )

    def _improved(self, best: Case) -> None:
        self._write(state="reducing", best=best)

    def _write(self, **changes: object) -> Diagnosis:
        seconds = time.monotonic() - self._started
        self._found = replace(self._found, seconds=seconds, **changes)
        write_json(self._found, self._folder)
        return self._found


def with_wrong_node(case: Case, search: Search, say: Say) -> Search:
    """A guilty kernel names no node by itself: look which value it gets wrong first."""
    culprit, signature = search.culprit, search.judgement.signature
    if culprit is None or not culprit.is_kernel or culprit.captured or signature is None:
        return search
    if not signature.is_numeric:
        return search
    say("compile with every value as an output, to see which one the kernel gets wrong first")
    names = first_wrong_node(case)
    found = replace(culprit, captured=names)
    return replace(search, culprit=found, compiles=search.compiles + 1)
