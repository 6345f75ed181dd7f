"""diagnose: bisect, minimize and emit a repro; one folder at the end.

OUT/case/       the failing case as captured
OUT/minimal/    the smallest case so far, at the end with repro.py and certificate.json
OUT/neighbour/  the closest case that passes
OUT/trace.json  the recorded compile of the failing case; that of the smallest is in OUT/minimal/

The rest: `session/`
"""

from dataclasses import dataclass, replace

from ctk.toolkit.bisect import Search
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.case.judgement import Verdict
from ctk.toolkit.importers import Inputs, Subject
from ctk.toolkit.operations.keywords import takes_keywords
from ctk.toolkit.operations.minify import open_reduction, reduce_failing
from ctk.toolkit.operations.options import DiagnoseOptions
from ctk.toolkit.operations.report.diagnosis import Diagnosis
from ctk.toolkit.operations.session.compile_trace import bisect_traced
from ctk.toolkit.operations.session.running_operation import Operation
from ctk.toolkit.operations.session.whole_program import explain_failing_program
from ctk.toolkit.oracle.answers.fingerprint import fingerprint
from ctk.toolkit.reduce.suspected_nodes import first_wrong_node


@takes_keywords(DiagnoseOptions)
def diagnose(subject: Subject, inputs: Inputs | None, options: DiagnoseOptions) -> Diagnosis:
    """Find the culprit of the first failing graph and the smallest repro, and write a folder.

    >>> import ctk
    >>> found = ctk.diagnose("examples/broken_pass.py", out="broken")
    >>> found.search.culprit.where, found.reduction.nodes_after
    ('joint/fold_scale_into_add', 2)

    Args:
        subject: A program or case by name, a `Case`, a `GraphModule`, or a callable.
        inputs: Those of one call, for a graph or a callable.
        options: Keywords of `DiagnoseOptions`.

    Returns:
        The diagnosis; of the graph with the most severe judgement when none fails. Ctrl-C, and an
        internal error, end the reduction early and keep the best so far.
    """
    with open_reduction("diagnose", subject, inputs, options) as (run, terms):
        found = bisect_traced(run, captured=run.folder / "case")
        if found.is_shown_by_no_graph:
            return explain_failing_program(run, run.folder / "minimal", terms.budget_of(run))
        if found.case is None or found.search.judgement.verdict is not Verdict.REPRODUCES:
            return run.finish()
        run.write(search=with_wrong_node(run, found.case, found.search))
        return reduce_failing(run, run.folder / "minimal", terms, with_options=True)


@document
@dataclass(frozen=True, slots=True)
class WrongNode:
    """The first captured node that a compile with every value as an output gets wrong."""

    names: tuple[str, ...]


def with_wrong_node(run: Operation, case: Case, search: Search) -> Search:
    """A guilty kernel names no node by itself: look which value it gets wrong first."""
    culprit, signature = search.culprit, search.judgement.signature
    if culprit is None or not culprit.is_kernel or culprit.captured or signature is None:
        return search
    if not signature.is_numeric:
        return search
    key = fingerprint(case, run.digests)
    known = run.journal.recall(WrongNode, key)
    if known is None:
        run.say("compile with every value as an output, to see which one the kernel gets wrong")
        try:
            known = WrongNode(first_wrong_node(case))
        except Exception as error:
            run.record_errors("the search for the wrong node", error)
            return search
        run.journal.note(key, known)
    found = replace(culprit, captured=known.names)
    return replace(search, culprit=found, compiles=search.compiles + 1)
