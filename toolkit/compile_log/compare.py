"""Compare two compiles of one case, step by step: the first graph and the first value that differ.

    left    captured   joint/fold      joint/reassociate   forward   kernel
    right   captured   joint/fold                          forward   kernel
                                       first graph         first value

Steps are aligned by name: a pass by its id, the call of a whole graph by its stage, so that other
targets align as far as they have the same stages. A step of one side only is compared with the
graph before it. Graphs are equal up to the names of their nodes; values are equal bit by bit, and
the report holds the error of both against float64. Neither side counts as right.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

import torch
from torch.fx import GraphModule
from torch.fx.node import map_arg

from ctk.compiler.fx.walk import NO_SWAPS, children
from ctk.compiler.observe import PassRecord, StageRecord
from ctk.repro_templates.numbers.errors import identical
from ctk.toolkit.case.case import Case
from ctk.toolkit.case.graphs.graph_lines import graph_diff
from ctk.toolkit.compile_log.check import Checker, ValuesAround
from ctk.toolkit.compile_log.error_history import ErrorSize, is_measurable, measure_error
from ctk.toolkit.compile_log.recorder import CompileLog
from ctk.toolkit.compile_log.steps import CompileStep, compile_steps
from ctk.toolkit.processes.link import report_alive


@dataclass(frozen=True, slots=True)
class GraphDifference:
    """The first graphs that differ.

    Attributes:
        left: The step before the graph of the left compile: a stage (on entry) or `stage/pass`.
        right: The same of the right compile.
        diff: Unified diff of the graphs' lines.
    """

    left: str
    right: str
    diff: str


@dataclass(frozen=True, slots=True)
class ValueDifference:
    """The first value that differs.

    Attributes:
        step: The step after which it differs.
        side: `both` if both compiles have the step; else the side that has it, whose value before
            the step is compared with the one after.
        value: Its name: a node, `output.N` or `input.N`.
        left: Error of the left value against float64; None if it cannot be measured.
        right: The same of the right value.
    """

    step: str
    side: str
    value: str
    node: str | None
    left: ErrorSize | None
    right: ErrorSize | None


@dataclass(frozen=True, slots=True)
class MadeRewrite:
    """Rewrites of one rule at some nodes that only one compile made."""

    pass_id: str
    rule: str
    nodes: tuple[str, ...]
    count: int = 1


@dataclass(frozen=True, slots=True)
class CompileComparison:
    """The differences of two compiles; None and empty where they agree."""

    graph: GraphDifference | None
    value: ValueDifference | None
    only_left: tuple[MadeRewrite, ...]
    only_right: tuple[MadeRewrite, ...]

    @property
    def is_same(self) -> bool:
        """Whether nothing differs."""
        return self.graph is None and self.value is None and not self.only_left + self.only_right


def compare_logs(
    left: tuple[Case, CompileLog], right: tuple[Case, CompileLog]
) -> CompileComparison:
    """Compare two finished compiles of one graph; both logs must hold their calls."""
    graph = find_first_graph(left[1], right[1])
    made = tuple(_rewrites(log, lowered=graph is None) for _, log in (left, right))
    return CompileComparison(
        graph,
        next(_values(left, right), None),
        _only(made[0], made[1]),
        _only(made[1], made[0]),
    )


def find_first_graph(left: CompileLog, right: CompileLog) -> GraphDifference | None:
    """Return the first graphs that differ, in the order of the compiles.

    Cases: 1. both have the step, and different graphs after it; 2. only one has it: the graph of
    the other side is the last one before.
    """
    sides = ([*_graphs(left)], [*_graphs(right)])
    names = [[name for name, _ in side] for side in sides]
    a: tuple[str, GraphModule] | None = None
    b: tuple[str, GraphModule] | None = None
    for i, j in _align(*names):
        a = sides[0][i] if i is not None else a
        b = sides[1][j] if j is not None else b
        if a is not None and b is not None and graph_structure(a[1]) != graph_structure(b[1]):
            return GraphDifference(a[0], b[0], graph_diff(a[1], b[1]))
    return None


def graph_structure(gm: GraphModule) -> tuple[object, ...]:
    """Return the structure of a graph without the names of its nodes."""
    number = {node: index for index, node in enumerate(gm.graph.nodes)}
    lines = tuple(
        (
            node.op,
            "" if node.op in ("placeholder", "output") else str(node.target),
            str(map_arg((node.args, node.kwargs), lambda operand: f"%{number[operand]}")),
        )
        for node in gm.graph.nodes
    )
    inner = children(gm, NO_SWAPS).items()
    return (lines, tuple((name, graph_structure(child)) for name, child in inner))


def _graphs(log: CompileLog) -> Iterator[tuple[str, GraphModule]]:
    for event in log.events:
        if isinstance(event, StageRecord):
            yield event.stage, event.graph
        elif isinstance(event, PassRecord) and event.changed:
            yield str(event.id), event.after


def _align(left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[int | None, int | None]]:
    """Yield the indices of aligned steps: in pairs, or one side after the other."""
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if tag == "equal":
            yield from zip(range(i1, i2), range(j1, j2), strict=True)
        else:
            yield from ((i, None) for i in range(i1, i2))
            yield from ((None, j) for j in range(j1, j2))


def _values(
    left: tuple[Case, CompileLog], right: tuple[Case, CompileLog]
) -> Iterator[ValueDifference]:
    checkers = (Checker(*left), Checker(*right))
    steps = ([*compile_steps(left[1])], [*compile_steps(right[1])])
    for i, j in _align(*([_key(step) for step in side] for side in steps)):
        report_alive()
        a = checkers[0].around(steps[0][i]) if i is not None else None
        b = checkers[1].around(steps[1][j]) if j is not None else None
        if a is not None and b is not None:
            yield from _in_both(checkers[0], a, b)
        elif a is not None and j is None:
            yield from _in_one(checkers[0], a, "left")
        elif b is not None and i is None:
            yield from _in_one(checkers[1], b, "right")


def _key(step: CompileStep) -> str:
    """Return the name to align a step by; all code generators of a whole graph are one step."""
    return f"call of {step.stage}" if step.kind == "kernel" and step.inputs is None else step.where


def _in_both(checker: Checker, a: ValuesAround, b: ValuesAround) -> Iterator[ValueDifference]:
    for name in a.names:
        if name in b.after and not identical(a.after[name], b.after[name]):
            exact = checker.exact(a, name)
            sizes = (_size(a.after[name], exact), _size(b.after[name], exact))
            wheres = dict.fromkeys((a.step.where, b.step.where))
            yield ValueDifference(" / ".join(wheres), "both", name, a.node(name), *sizes)


def _in_one(checker: Checker, around: ValuesAround, side: str) -> Iterator[ValueDifference]:
    for name in around.names:
        if not identical(around.before[name], around.after[name]):
            exact = checker.exact(around, name)
            own, other = _size(around.after[name], exact), _size(around.before[name], exact)
            sizes = (own, other) if side == "left" else (other, own)
            yield ValueDifference(around.step.where, side, name, around.node(name), *sizes)


def _size(value: object, exact: object) -> ErrorSize | None:
    if not (is_measurable(value) and is_measurable(exact)) or value.shape != exact.shape:
        return None
    assert isinstance(value, torch.Tensor)
    return measure_error(value, exact)


def _rewrites(log: CompileLog, *, lowered: bool) -> Counter[tuple[str, str, tuple[str, ...]]]:
    """Count the rewrites of a compile.

    Args:
        lowered: Whether to count those of code generation, which differ for different graphs.
    """
    return Counter(
        (str(record.id), rewrite.id.rule, rewrite.nodes)
        for record in log.passes()
        for rewrite in record.rewrites
        if not rewrite.vetoed and (lowered or record.id.stage != "lowered")
    )


def _only(
    made: Counter[tuple[str, str, tuple[str, ...]]],
    other: Counter[tuple[str, str, tuple[str, ...]]],
) -> tuple[MadeRewrite, ...]:
    return tuple(MadeRewrite(*what, count=count) for what, count in (made - other).items())


def format_rewrites(rewrites: Sequence[MadeRewrite], limit: int) -> Iterator[str]:
    """Yield lines for people, the first `limit` of them."""
    for rewrite in rewrites[:limit]:
        times = f" ({rewrite.count} times)" if rewrite.count > 1 else ""
        place = f" at {', '.join(rewrite.nodes[:4])}" if rewrite.nodes else ""
        yield f"{rewrite.pass_id}: {rewrite.rule}{place}{times}"
    if len(rewrites) > limit:
        yield f"and {len(rewrites) - limit} more"
