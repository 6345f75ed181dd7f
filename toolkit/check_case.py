"""check: compare every value that survives a step of the compile with eager, graph by graph.

What it does not do: it vetoes nothing, so it proves nothing; `bisect` and `diagnose` do.
"""

from dataclasses import dataclass
from typing import Unpack

from ctk.toolkit.case.case import Case
from ctk.toolkit.compile_log.check import Finding, check_log
from ctk.toolkit.compile_log.recorder import CompileLog, Recorder
from ctk.toolkit.importers import Inputs, Subject, load_cases
from ctk.toolkit.importers.base import CaseOptions, request_of
from ctk.toolkit.oracle.judge import judge
from ctk.toolkit.oracle.judgement import Judgement, Verdict
from ctk.toolkit.oracle.progress import Say, silent
from ctk.toolkit.oracle.several import most_telling


@dataclass(frozen=True, slots=True)
class GraphCheck:
    """One graph of a program.

    Attributes:
        case: The graph.
        judgement: What its results show.
        findings: What each step of its compile did to the values.
        log: The compile.
    """

    case: Case
    judgement: Judgement
    findings: tuple[Finding, ...]
    log: CompileLog

    @property
    def wrong(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.status == "wrong")


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The graphs of a program, in order; at least one. As a string: the answer in one line."""

    graphs: tuple[GraphCheck, ...]

    @property
    def ok(self) -> bool:
        """Whether all results agree with eager, and no step makes a value wrong."""
        return not self.wrong and self.judgement.verdict is Verdict.PASSES

    @property
    def judgement(self) -> Judgement:
        """The judgement of the results that tells most of the program."""
        return most_telling(graph.judgement for graph in self.graphs)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every step of every graph, in the order of the compiles."""
        return tuple(finding for graph in self.graphs for finding in graph.findings)

    @property
    def wrong(self) -> tuple[Finding, ...]:
        """The steps that make a value wrong."""
        return tuple(finding for graph in self.graphs for finding in graph.wrong)

    def __str__(self) -> str:
        for graph in self.graphs:
            for finding in graph.wrong:
                others = len(self.wrong) - 1
                more = f" (and {others} more wrong steps)" if others else ""
                return f"wrong: {graph.case.name}: {finding.where} at {finding.what}{more}"
        if self.ok:
            values = sum(finding.compared for finding in self.findings)
            counts = f"{len(self.graphs)} graph(s), {len(self.findings)} steps"
            return f"no failure: {counts}, {values} values compared"
        seen = self.judgement
        case = next(graph.case for graph in self.graphs if graph.judgement is seen)
        is_error = seen.signature is not None and seen.signature.exception is not None
        why = "" if is_error else "; no single step is wrong"
        return f"{seen.verdict.value}: {case.name}: {seen.signature or seen.detail}{why}"


def check(
    subject: Subject,
    inputs: Inputs | None = None,
    *,
    say: Say = silent,
    **options: Unpack[CaseOptions],
) -> CheckReport:
    """Compile each graph of a program once, and compare every step of the compile with eager.

    >>> import ctk, torch
    >>> report = ctk.check(torch.nn.Linear(4, 2), torch.randn(3, 4), target="ctk")
    >>> report.ok
    True

    Args:
        subject: A program or case by name, a `Case`, a `GraphModule`, or a callable.
        inputs: Those of one call, for a graph or a callable.
        say: Told what happens.
        options: `target`, `config`, `backward`, `dynamic`, `graph`, `allow_imports`.
    """
    cases = load_cases(subject, inputs, request_of(options))
    graphs: list[GraphCheck] = []
    for number, case in enumerate(cases):
        say(f"check {case.name}", number, len(cases))
        graphs.append(check_case(case))
    return CheckReport(tuple(graphs))


def check_case(case: Case) -> GraphCheck:
    """Compile and run a case once, and check every step of the compile."""
    recorder = Recorder(keep_calls=True)
    judgement = judge(case, observer=recorder)
    return GraphCheck(case, judgement, tuple(check_log(case, recorder.log)), recorder.log)
