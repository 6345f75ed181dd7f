"""bisect: the guilty pass, rewrite or kernel of a failing compile, and the proof."""

from pathlib import Path
from typing import Unpack

from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.importers import Inputs, Subject
from ctk.toolkit.operations.report.diagnosis import Diagnosis
from ctk.toolkit.operations.session.opening import operation
from ctk.toolkit.operations.session.operation_keywords import Given
from ctk.toolkit.operations.session.relevant_options import ask_options
from ctk.toolkit.operations.session.whole_program import refined
from ctk.toolkit.oracle.progress import Say, silent
from ctk.toolkit.oracle.several import AskOptions


def bisect(
    subject: Subject,
    inputs: Inputs | None = None,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    say: Say = silent,
    **options: Unpack[AskOptions],
) -> Diagnosis:
    """Find what makes the first failing graph fail, prove it, and write `diagnosis.json`.

    The proof is a counterfactual: without the culprit alone, the case passes. Where nothing is
    proved, the options of the target are asked about, too.

    >>> import ctk
    >>> found = ctk.bisect("examples/broken_pass.py", out="bisected")
    >>> found.search.culprit.where, found.search.confirmed
    ('joint/fold_scale_into_add', True)

    Args:
        subject: A program or case by name, a `Case`, a `GraphModule`, or a callable.
        inputs: Those of one call, for a graph or a callable.
        out: Folder to write to; None makes `diagnosis_<name>` here.
        resume: Go on in the folder that an earlier, ended run has left, and ask nothing again.
        say: Told what happens.
        options: `target`, `config`, `backward`, `dynamic`, `graph`, `allow_imports`, `isolate`,
            `timeout_seconds`.
    """
    given = Given(options)
    with operation(
        "bisect-pass", subject, inputs, given, out=out, resume=resume, keep="full", say=say
    ) as run:
        found = run.bisected()
        if found.is_shown_by_no_graph:
            return refined(run)
        is_interrupted = False
        case, search = found.case, found.search
        fails = search.judgement.verdict is Verdict.REPRODUCES
        if case is not None and fails and not search.confirmed:
            is_interrupted = not ask_options(run, case)
        return run.finish(is_interrupted=is_interrupted)
