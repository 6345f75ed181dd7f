"""diff: two compiles of one program, with two targets or two sets of options, step by step.

Nothing is vetoed, and neither side is blamed (`bisect` does that).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ctk.toolkit.case.case import Case
from ctk.toolkit.case.judgement import Judgement, Verdict
from ctk.toolkit.compile_log.compare import CompileComparison, compare_logs
from ctk.toolkit.compile_log.recorder import CompileLog, Recorder
from ctk.toolkit.importers import Inputs, Subject
from ctk.toolkit.importers.base import apply_request
from ctk.toolkit.operations.keywords import takes_keywords
from ctk.toolkit.options import AskOptions, CaseOptions
from ctk.toolkit.oracle.open_subject import most_telling, open_subject
from ctk.toolkit.oracle.progress import Say, silent
from ctk.toolkit.oracle.questions.judge import conclude, judge


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two compiles; a missing field is the case's own.

    Attributes:
        target: Target spec.
        config: Options of the target, on top of the case's own if the target is the same.
    """

    target: str | None = None
    config: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class GraphDiff:
    """One graph, compiled twice.

    Attributes:
        cases: The graph with target and options of each side.
        judgements: Of the results of each side, compared with eager.
    """

    cases: tuple[Case, Case]
    judgements: tuple[Judgement, Judgement]
    comparison: CompileComparison


@dataclass(frozen=True, slots=True)
class DiffReport:
    """The graphs of a program, in order; at least one. As a string: the answer in one line."""

    graphs: tuple[GraphDiff, ...]

    @property
    def judgement(self) -> Judgement:
        """The most severe judgement of a side: a failure, if either side has one."""
        return most_telling(each for graph in self.graphs for each in graph.judgements)

    @property
    def is_same(self) -> bool:
        """Whether both compiles of every graph went the same way."""
        return all(graph.comparison.is_same for graph in self.graphs)

    def __str__(self) -> str:
        graph = next((each for each in self.graphs if not each.comparison.is_same), self.graphs[0])
        left, right = (_describe(seen) for seen in graph.judgements)
        said = f"both are {left}" if left == right else f"left is {left}, right is {right}"
        return f"{graph.cases[0].name}: {said}; {_first(graph.comparison)}"


def _describe(judgement: Judgement) -> str:
    """Return an adjective for the results of one side."""
    if judgement.is_no_failure:
        return "correct"
    if judgement.verdict is Verdict.INVALID:
        return "not compared with eager"
    return "wrong" if judgement.fails else judgement.verdict.value


def _first(comparison: CompileComparison) -> str:
    if comparison.is_same:
        return "the two compiles are the same, step by step"
    graph, value = comparison.graph, comparison.value
    parts: list[str] = []
    if graph is not None:
        where = graph.left if graph.left == graph.right else f"{graph.left} / {graph.right}"
        parts.append(f"the graphs first differ after {where}")
    if value is not None:
        parts.append(f"the values first differ at {value.node or value.value} after {value.step}")
    return ", ".join(parts) or "other rewrites, the same graphs and values"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions(AskOptions):
    """The options of `diff`; `target` and `config` are for both sides.

    Attributes:
        left: One side.
        right: The other side.
        say: Progress callback.
    """

    left: Side
    right: Side
    say: Say = silent


@takes_keywords(DiffOptions)
def diff(subject: Subject, inputs: Inputs | None, options: DiffOptions) -> DiffReport:
    """Compile each graph of a program twice, and compare the two compiles step by step.

    >>> import ctk, torch
    >>> from ctk.toolkit.operations.diff import Side
    >>> off = Side(config={"disable": ["joint/simplify_views"]})
    >>> ctk.diff(torch.nn.Linear(4, 2), torch.randn(3, 4), left=Side(), right=off).is_same
    True

    Args:
        subject: A program or case by name, a `Case`, a `GraphModule`, or a callable.
        inputs: Those of one call, for a graph or a callable.
        options: Keywords of `DiffOptions`.
    """
    graphs: list[GraphDiff] = []
    with open_subject(subject, inputs, options) as it:
        if it.uncaptured is not None:
            raise it.uncaptured
        for number, case in enumerate(it.cases):
            options.say(f"compile {case.name} twice", number, len(it.cases))
            graphs.append(diff_case(case, options.left, options.right))
    return DiffReport(tuple(graphs))


def diff_case(case: Case, left: Side, right: Side) -> GraphDiff:
    """Compile a case in two ways, and compare the compiles."""
    first, second = (
        apply_request(case, CaseOptions(target=side.target, config=side.config))
        for side in (left, right)
    )
    (seen, log), (other_seen, other_log) = _observe_case(first), _observe_case(second)
    comparison = compare_logs((first, log), (second, other_log))
    return GraphDiff((first, second), (seen, other_seen), comparison)


def _observe_case(case: Case) -> tuple[Judgement, CompileLog]:
    recorder = Recorder(keep_calls=True)
    return conclude(judge(case, expected=None, observer=recorder)), recorder.log
