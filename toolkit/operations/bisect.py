"""bisect: the guilty pass, rewrite or kernel of a failing compile, and the proof.

OUT/diagnosis.json    the result
OUT/trace.json        the recorded compile
"""

from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.importers import Inputs, Subject
from ctk.toolkit.operations.keywords import takes_keywords
from ctk.toolkit.operations.options import BisectOptions
from ctk.toolkit.operations.report.diagnosis import Diagnosis
from ctk.toolkit.operations.session.case_reduction import ask_options
from ctk.toolkit.operations.session.compile_trace import bisect_traced
from ctk.toolkit.operations.session.operation_folder import open_operation
from ctk.toolkit.operations.session.whole_program import refine_program


@takes_keywords(BisectOptions)
def bisect(subject: Subject, inputs: Inputs | None, options: BisectOptions) -> Diagnosis:
    """Find the culprit of the first failing graph, prove it, and write `diagnosis.json`.

    The proof is a counterfactual: without the culprit alone, the case passes. Without a proof, the
    options of the target are also tried.

    >>> import ctk
    >>> found = ctk.bisect("examples/broken_pass.py", out="bisected")
    >>> found.search.culprit.where, found.search.confirmed
    ('joint/fold_scale_into_add', True)

    Args:
        subject: A program or case by name, a `Case`, a `GraphModule`, or a callable.
        inputs: Those of one call, for a graph or a callable.
        options: Keywords of `BisectOptions`.
    """
    with open_operation("bisect-pass", subject, inputs, options) as run:
        found = bisect_traced(run)
        if found.is_shown_by_no_graph:
            return refine_program(run)
        is_interrupted = False
        case, search = found.case, found.search
        fails = search.judgement.verdict is Verdict.REPRODUCES
        if case is not None and fails and not search.confirmed:
            is_interrupted = not ask_options(run, case)
        return run.finish(is_interrupted=is_interrupted)
