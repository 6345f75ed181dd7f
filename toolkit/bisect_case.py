"""bisect: the guilty pass, rewrite or kernel of a failing compile, and the proof."""

import time
from pathlib import Path
from typing import Unpack

from ctk.toolkit.bisect import Search, find_culprit
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.folders import output_folder
from ctk.toolkit.importers import Inputs, Subject, name_of
from ctk.toolkit.oracle.executors.base import Executor
from ctk.toolkit.oracle.progress import Say, silent
from ctk.toolkit.oracle.several import AskOptions, first_failing, opened
from ctk.toolkit.report.as_json import write_json
from ctk.toolkit.report.diagnosis import Diagnosis


def bisect(
    subject: Subject,
    inputs: Inputs | None = None,
    *,
    out: str | Path | None = None,
    say: Say = silent,
    **options: Unpack[AskOptions],
) -> Diagnosis:
    """Find what makes the first failing graph fail, prove it, and write `diagnosis.json`.

    The proof is a counterfactual: without the culprit alone, the case passes.

    >>> import ctk
    >>> found = ctk.bisect("examples/broken_pass.py", out="bisected")
    >>> found.search.culprit.where, found.search.confirmed
    ('joint/fold_scale_into_add', True)

    Args:
        subject: A program or case by name, a `Case`, a `GraphModule`, or a callable.
        inputs: Those of one call, for a graph or a callable.
        out: Folder to write to; None makes `diagnosis_<name>` here.
        say: Told what happens.
        options: `target`, `config`, `backward`, `dynamic`, `graph`, `allow_imports`, `isolate`,
            `timeout_seconds`.
    """
    started = time.monotonic()
    with opened(subject, inputs, options) as (cases, executor):
        folder = output_folder(out, f"diagnosis_{name_of(subject)}")
        case, search = bisect_first_failing(cases, executor, say)
    diagnosis = Diagnosis(case, search, time.monotonic() - started, folder=folder)
    write_json(diagnosis, folder)
    return diagnosis


def bisect_first_failing(cases: list[Case], executor: Executor, say: Say) -> tuple[Case, Search]:
    """Bisect each case until one shows its failure; return it, else the one that tells most."""

    def ask(case: Case) -> Search:
        say(f"bisect {case.name}")
        return find_culprit(case, executor=executor, on_progress=say)

    return first_failing(cases, ask, lambda search: search.judgement)
