"""trace.json: the compile of the given case, and of the smallest, for a report.

Bisection has the compile at hand; it is not repeated. A resumed operation keeps the file, or
compiles once more where it was killed before the file was written, and then measures no errors. A
case that kills or stops the process has a trace without steps, and the reason in it.
"""

import time
from dataclasses import replace
from pathlib import Path

from ctk.compiler.observe import StageRecord
from ctk.toolkit.bisect.questions import ObservedCompile
from ctk.toolkit.case.case import Case
from ctk.toolkit.compile_log.recorder import CompileLog, Recorder
from ctk.toolkit.compile_log.trace.document import FILE, Trace
from ctk.toolkit.compile_log.trace.writing import end_of_errors, make_trace, write_trace
from ctk.toolkit.operations.report.diagnosis import Diagnosis
from ctk.toolkit.operations.session.running_operation import Operation
from ctk.toolkit.oracle.questions.judge import judge


def bisect_traced(run: Operation, *, captured: Path | None = None) -> Diagnosis:
    """Bisect the cases of an operation, as its method does, and trace the compile that fails."""
    found = run.bisect_cases(captured=captured)
    if found.case is not None and (found.search.judgement.fails or found.search.hidden):
        trace_compile(run, found.case, run.folder)
    run.observed = None
    return found


def trace_compile(run: Operation, case: Case, folder: Path) -> None:
    """Write the trace of a case's compile; a failure is one of the operation's problems.

    Args:
        case: With its failure as its signature.
        folder: With the trace of an earlier run of the operation, nothing is done.
    """
    known, run.observed = run.observed, None
    seen = known[1] if known is not None and known[0].graph is case.graph else None
    if seen is None and (folder / FILE).exists():
        return
    run.say(f"record the compile of {case.name}")
    try:
        trace = _make(case, seen, time.monotonic() - run.started)
    except Exception as error:
        run.record_errors(f"the trace of the compile of {case.name}", error)
        return
    name = FILE if folder == run.folder else f"{folder.name}/{FILE}"
    run.save(name, lambda: write_trace(trace, folder))


def _make(case: Case, seen: ObservedCompile | None, seconds: float) -> Trace:
    signature = case.signature
    if seen is not None:
        is_measured = signature is not None and signature.is_measured
        end = None if is_measured else end_of_errors(seconds)
        return make_trace(case, seen.log, seen.findings, end=end)
    if signature is not None and signature.is_deadly:
        return _without_steps(case, f"it was observed from outside, because it ends: {signature}")
    recorder = Recorder(keep_calls=True)
    judge(case, expected=signature, observer=recorder)
    return make_trace(case, recorder.log)


def _without_steps(case: Case, why: str) -> Trace:
    """Return a trace with the captured graph only."""
    trace = make_trace(case, CompileLog([StageRecord("captured", case.graph)]))
    return replace(trace, cut=(*trace.cut, f"the steps of the compile are not known: {why}"))
