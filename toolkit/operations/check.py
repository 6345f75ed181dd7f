"""check: judge the results of each graph, and compare every value that survives a step with eager.

The results decide whether there is a failure, by the judgement that `repro`, `bisect` and
`diagnose` give as well. The steps locate it: a step that makes a value wrong behind correct results
is reported as hidden, and does not make the check fail.

Nothing is vetoed, so nothing is proved; `bisect` and `diagnose` prove.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from torch.fx import GraphModule

from ctk.compiler.errors import LostAccelerator, count_of
from ctk.compiler.fx.properties import is_random
from ctk.compiler.fx.walk import CALLS
from ctk.compiler.torch_compat.fx.custom_kernels import is_custom
from ctk.repro_templates.graph.verdict import error_line
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.failure import FailureKind
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.case.store import save_case
from ctk.toolkit.compile_log.check import Finding, check_log
from ctk.toolkit.compile_log.error_history import (
    ErrorChange,
    measure_error_history,
    sort_by_growth,
)
from ctk.toolkit.compile_log.meta_values import find_meta_findings
from ctk.toolkit.compile_log.operator_faults import (
    find_declaration_faults,
    find_operator_findings,
)
from ctk.toolkit.compile_log.recorder import CompileLog, Recorder, Veto
from ctk.toolkit.compile_log.trace.document import FILE as TRACE
from ctk.toolkit.compile_log.trace.document import Trace
from ctk.toolkit.compile_log.trace.writing import end_of_errors, make_trace, write_trace
from ctk.toolkit.end_to_end.answer import EndToEnd
from ctk.toolkit.importers import Inputs, Subject
from ctk.toolkit.operations.keywords import takes_keywords
from ctk.toolkit.operations.options import CheckOptions
from ctk.toolkit.operations.report.phrases import VERDICTS
from ctk.toolkit.oracle.executors.base import Executor
from ctk.toolkit.oracle.open_subject import judge_program, open_subject
from ctk.toolkit.oracle.question import Question
from ctk.toolkit.oracle.questions.judge import conclude, judge
from ctk.toolkit.oracle.slow_prefix import find_slow_prefix
from ctk.toolkit.targets import target_of

SLOW_SECONDS = 20.0
SLOW_SECONDS_OF_A_CALL = 0.5
"""Time of a check, and its share for each call of the graph, from which on it is noted."""


@dataclass(frozen=True, slots=True)
class GraphCheck:
    """One graph of a program.

    Attributes:
        judgement: The judgement of its results, which decides whether it fails.
        findings: The effect of each step of its compile on the values.
        history: The change of each step to the error of each value, worst first; empty by default.
        folder: Where it was written as a case; None if it was not.
        seconds: The time of its runs and of the comparison.
        notes: Why it was not compiled; or a slow compile, random numbers that are not compared, and
            faults of custom operators that no result shows.
    """

    case: Case
    judgement: Judgement
    findings: tuple[Finding, ...]
    log: CompileLog
    history: tuple[ErrorChange, ...] = ()
    folder: Path | None = None
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def wrong(self) -> tuple[Finding, ...]:
        """The steps that make a value wrong, whether the results show it or not."""
        return tuple(finding for finding in self.findings if finding.status == "wrong")

    @property
    def failing_case(self) -> Case:
        """The case, with its failure as its signature if it fails."""
        signature = self.judgement.signature if self.judgement.fails else None
        return replace(self.case, signature=signature)

    def make_trace(self) -> Trace:
        """Return its compile as a document, with errors as far as a tenth of its time allows."""
        end = end_of_errors(self.seconds)
        return make_trace(self.failing_case, self.log, self.findings, end=end)

    @property
    def idle(self) -> tuple[str, ...]:
        """The configured passes that ran and changed nothing."""
        names = target_of(self.case.target).configured_passes(self.case.config)
        ran = [record for record in self.log.passes() if record.id.name in names]
        busy = {str(record.id) for record in ran if record.changed or record.rewrites}
        return tuple(dict.fromkeys(str(each.id) for each in ran if str(each.id) not in busy))

    @property
    def hidden(self) -> tuple[Finding, ...]:
        """The wrong steps of a graph whose results agree with eager all the same."""
        return self.wrong if self.judgement.verdict is Verdict.PASSES else ()


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of a check. As a string: the answer in one line.

    Attributes:
        graphs: The graphs of the program, in order; none where Dynamo gives none.
        end_to_end: The comparison of its compiled and eager calls; None for cases and graphs, and
            if a graph fails already.
    """

    graphs: tuple[GraphCheck, ...]
    end_to_end: EndToEnd | None = None

    @property
    def ok(self) -> bool:
        """Whether no result fails: each agrees with eager, or its difference is excused."""
        return self.judgement.is_no_failure

    @property
    def judgement(self) -> Judgement:
        """The most severe judgement of the program."""
        whole = self.end_to_end.judgement if self.end_to_end is not None else None
        return judge_program([graph.judgement for graph in self.graphs], whole)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every step of every graph, in the order of the compiles."""
        return tuple(finding for graph in self.graphs for finding in graph.findings)

    @property
    def wrong(self) -> tuple[Finding, ...]:
        """The steps that make a value wrong, whether the results show it or not."""
        return tuple(finding for graph in self.graphs for finding in graph.wrong)

    @property
    def history(self) -> tuple[ErrorChange, ...]:
        """The change of each step to the error of each value, of all graphs, worst first."""
        return sort_by_growth(change for graph in self.graphs for change in graph.history)

    @property
    def hidden(self) -> tuple[Finding, ...]:
        """The steps that make a value wrong which the results of their graph do not show."""
        return tuple(finding for graph in self.graphs for finding in graph.hidden)

    @property
    def agreements(self) -> tuple[str, ...]:
        """How the results of each passing graph agree with eager, one line per graph."""
        passing = (graph for graph in self.graphs if graph.judgement.verdict is Verdict.PASSES)
        details = (f"{graph.case.name}: {graph.judgement.detail}" for graph in passing)
        return tuple(detail for detail in details if not detail.endswith(": "))

    def _repr_html_(self) -> str:
        """Return the page of the check, framed, for a notebook."""
        from ctk.toolkit.operations.pages.check_page import page_of_check
        from ctk.toolkit.page.rendering import frame

        names = [graph.case.name for graph in self.graphs]
        whole = self.end_to_end.program if self.end_to_end is not None else ""
        return frame(page_of_check(self, whole or ", ".join(names) or "check"))

    def __str__(self) -> str:
        seen = self.judgement
        if self.end_to_end is not None and seen is self.end_to_end.judgement and seen.fails:
            return f"wrong: {self.end_to_end}; {self._describe_graphs()}"
        if seen.is_excused:
            return self._excuse()
        if not self.graphs or all(each.judgement is not seen for each in self.graphs):
            return f"{'no failure' if self.ok else 'cannot tell'}: {seen.detail}"
        graph = next(graph for graph in self.graphs if graph.judgement is seen)
        if seen.verdict is Verdict.PASSES:
            return f"no failure: {self._agreement()}"
        if not seen.fails:
            is_cut_off = seen.signature is not None and seen.signature.is_cut_off
            why = f"{seen.verdict.value}: {seen.detail or seen.signature or ''}"
            why = str(seen.signature) if is_cut_off else why
            return f"cannot tell: {graph.case.name}: {why}".splitlines()[0]
        if graph.wrong:
            first, others = graph.wrong[0], len(self.wrong) - 1
            more = f" (and {others} more wrong steps)" if others else ""
            return f"wrong: {graph.case.name}: {first.where} at {first.what}{more}"
        signature = seen.signature
        is_error = signature is not None and bool(signature.exception or signature.is_deadly)
        is_error = is_error or (signature is not None and signature.is_measured)
        why = "" if is_error else "; no single step is wrong"
        return f"{seen.verdict.value}: {graph.case.name}: {seen.signature or seen.detail}{why}"

    def _describe_graphs(self) -> str:
        """Describe how far the graphs show a failure of the whole program."""
        graph = next((graph for graph in self.graphs if graph.wrong), None)
        if graph is None:
            return "no graph shows it"
        alone, where = graph.judgement.verdict.value, graph.wrong[0].where
        return f"{graph.case.name} alone is {alone!r}, but {where} makes a value wrong"

    def _excuse(self) -> str:
        whole, seen = self.end_to_end, self.judgement
        names = [graph.case.name for graph in self.graphs if graph.judgement is seen]
        name = names[0] if names else whole.program if whole is not None else ""
        return f"{VERDICTS[seen.verdict]}: {name}: {seen.detail}".splitlines()[0]

    def _agreement(self) -> str:
        if not self.hidden:
            values = sum(finding.compared for finding in self.findings)
            graphs = sum(graph.judgement.verdict is not Verdict.INVALID for graph in self.graphs)
            counts = f"{count_of(graphs, 'graph')}, {count_of(len(self.findings), 'step')}"
            return f"{counts}, {count_of(values, 'value')} compared"
        first, count = self.hidden[0], len(self.hidden)
        steps = "1 step changes" if count == 1 else f"{count} steps change"
        where = f"{first.where} at {first.node}{', ...' if count > 1 else ''}"
        return f"results agree; {steps} values that the results do not show: {where}"


@takes_keywords(CheckOptions)
def check(subject: Subject, inputs: Inputs | None, options: CheckOptions) -> CheckReport:
    """Compile each graph of a program once, and compare every step of the compile with eager.

    >>> import ctk, torch
    >>> report = ctk.check(torch.nn.Linear(4, 2), torch.randn(3, 4), target="ctk")
    >>> report.ok
    True

    Args:
        subject: A program or case by name, a `Case`, a `GraphModule`, or a callable.
        inputs: Those of one call, for a graph or a callable.
        options: Keywords of `CheckOptions`.
    """
    graphs: list[GraphCheck] = []
    with open_subject(subject, inputs, options) as it:
        for number, case in enumerate(it.cases):
            options.say(f"check {case.name}", number, len(it.cases))
            write = _writer(case, options)
            graphs.append(write(check_case(case, it.executor, history=options.history)))
        if any(graph.judgement.tells_of_the_program for graph in graphs):
            return CheckReport(tuple(graphs))
        return CheckReport(tuple(graphs), it.end_to_end(options.say))


def _writer(case: Case, options: CheckOptions) -> Callable[[GraphCheck], GraphCheck]:
    """Write a case before it is asked about; return a function that writes its failure into it.

    A folder that cannot be written to is found before the answer is lost.
    """
    if options.out is None:
        return lambda found: found
    path = Path(options.out).expanduser() / case.name
    folder = save_case(replace(case, signature=None), path, inputs=options.keep)

    def write(found: GraphCheck) -> GraphCheck:
        if found.failing_case.signature is not None:
            save_case(found.failing_case, folder, inputs=options.keep, overwrite=True)
        return replace(found, folder=folder, notes=(*found.notes, *_write_trace(found, folder)))

    return write


def _write_trace(found: GraphCheck, folder: Path) -> Iterator[str]:
    """Write the trace of a compile into its case; yield why it is not there."""
    (folder / TRACE).unlink(missing_ok=True)
    if not found.log.events:
        return
    try:
        write_trace(found.make_trace(), folder)
    except Exception as error:
        yield f"{TRACE} is not written: {error_line(error)}"


def check_case(
    case: Case, executor: Executor | None = None, *, history: bool = False
) -> GraphCheck:
    """Compile and run a case once, and check every step of the compile.

    Args:
        case: Only read.
        executor: Asked first if it survives crashes: a case that kills or stops the process has no
            steps to check, and is not run here.
        history: Measure the error of every value that a step changes.
    """
    first: Judgement | None = None
    if executor is not None and executor.isolates:
        first = conclude(executor.ask(Question(case, case.signature, Veto())))
        prefix = find_slow_prefix(case, first, executor, executor.limit_seconds)
        if prefix is not None:
            slow = Judgement(Verdict.REPRODUCES, prefix.signature)
            return GraphCheck(prefix, slow, (), CompileLog())
        if first.signature is not None and first.signature.is_deadly:
            return GraphCheck(case, first, (), CompileLog())
    recorder, started = Recorder(keep_calls=True), time.perf_counter()
    try:
        judgement = conclude(judge(case, expected=case.signature, observer=recorder))
    except LostAccelerator:
        if first is None:
            raise
        return GraphCheck(case, first, (), CompileLog())
    if case.signature is not None and case.signature.is_measured:  # no values were compared
        return GraphCheck(case, judgement, (), recorder.log)
    run_seconds = time.perf_counter() - started
    kind = judgement.signature.kind if judgement.fails and judgement.signature else None
    told = _find_told(case, recorder.log, kind) if kind is not None else ()
    findings = (*told, *check_log(case, recorder.log))
    changes = measure_error_history(case, recorder.log) if history else ()
    notes = [judgement.detail] if judgement.verdict is Verdict.INVALID else []
    if judgement.is_no_failure:
        notes += _find_notes(case, recorder.log, run_seconds)
    seconds = time.perf_counter() - started
    return GraphCheck(
        case, judgement, findings, recorder.log, changes, seconds=seconds, notes=tuple(notes)
    )


def _find_notes(case: Case, log: CompileLog, seconds: float) -> Iterator[str]:
    """Yield the notes on a passing case: its compile, its random numbers, its custom operators.

    Args:
        seconds: The time of its runs in eager and compiled.
    """
    calls = sum(node.op in CALLS for node in case.graph.graph.nodes)
    if seconds > max(SLOW_SECONDS, calls * SLOW_SECONDS_OF_A_CALL):
        yield (
            f"it took {seconds:.0f} s for {count_of(calls, 'call')}; --compile-above"
            f" {SLOW_SECONDS:.0f} asks whether the compile grows faster than the graph"
        )
    target = target_of(case.target)
    draws = any(is_random(node) for stage in log.stages() for node in stage.graph.graph.nodes)
    if draws and (own := target.native().keys() - case.config.keys()):
        options = ", ".join(f"{name}={target.defaults[name]}" for name in sorted(own))
        yield f"compiled with {options}: random numbers that {target.name} draws are not compared"
    modules = (each for each in case.graph.modules() if isinstance(each, GraphModule))
    nodes = (node for each in modules for node in each.graph.nodes)
    if any(is_custom(getattr(node.target, "default", node.target)) for node in nodes):
        yield from (f"{fault}; no result shows it" for fault in find_declaration_faults(case))


def _find_told(case: Case, log: CompileLog, kind: FailureKind) -> Iterator[Finding]:
    """Yield the findings on declarations of operators, which come before any wrong value."""
    yield from find_operator_findings(case)
    yield from find_meta_findings(case, log, kind)
