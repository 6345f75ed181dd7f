"""The format of a trace, and the nodes of a graph in it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import AfterValidator

from ctk.compiler.observe import Numerics, Stage
from ctk.toolkit.case.formats.checked_types import Count, Line, Size
from ctk.toolkit.case.formats.plain_text import many_lines
from ctk.toolkit.case.formats.schema import document
from ctk.toolkit.compile_log.steps import StepKind

FILE = "trace.json"
SCHEMA: Final = 1

Status = Literal["ok", "wrong", "unknown", ""]
Text = Annotated[str, AfterValidator(many_lines)]
"""Lines of code, made printable."""


@document
@dataclass(frozen=True, slots=True)
class TraceNode:
    """One node of a graph.

    Attributes:
        name: Its name; in a sub-graph with the path of that before it: `cond_true.add`.
        text: The node as one line: `add: float32[8] = aten.add.Tensor(x, y)`.
        inputs: Names of its operands.
        value: `float32[8, 64]`; empty if unknown.
        place: `FILE:LINE` in the user's program; empty if unknown.
        module: Path of the module whose code it is: `encoder.layers.0`.
    """

    name: Line
    op: Line
    text: Line
    inputs: tuple[Line, ...] = ()
    value: Line = ""
    place: Line = ""
    module: Line = ""


@document
@dataclass(frozen=True, slots=True)
class TraceEdit:
    """A change of a list of nodes: at a place of the old list, `nodes` replace `removed` ones."""

    at: Count
    removed: Count
    nodes: tuple[TraceNode, ...]


@document
@dataclass(frozen=True, slots=True)
class TraceGraph:
    """A graph as edits of an earlier one; without a base, one edit has all nodes."""

    base: Count | None
    edits: tuple[TraceEdit, ...]


@document
@dataclass(frozen=True, slots=True)
class TraceErrorSize:
    """Error of a value against float64; null: infinite.

    Attributes:
        ulp: The largest over the elements, in units in the last place of its dtype.
        abs: The largest absolute error.
        rms: The root of the mean square.
    """

    ulp: Size | None
    abs: Size | None
    rms: Size | None


@document
@dataclass(frozen=True, slots=True)
class TraceError:
    """Error of one value before and after a step.

    Attributes:
        value: A node, `output.N` or `input.N`.
        node: The node behind it, in the graph after the step.
    """

    value: Line
    node: Line | None
    dtype: Line
    before: TraceErrorSize
    after: TraceErrorSize


@document
@dataclass(frozen=True, slots=True)
class TraceRewrite:
    """One rewrite of a pass; `number` counts in the whole compile, `index` in the pass, from 1."""

    number: int
    index: int
    rule: Line
    nodes: tuple[Line, ...]
    vetoed: bool = False


@document
@dataclass(frozen=True, slots=True)
class TraceKernel:
    """A generated kernel.

    Attributes:
        nodes: Names of its nodes; empty for all nodes of the graph before it.
        source: Its generated code; null if the code generator has none.
        suffix: Suffix of a file with that code.
        ir: Its loop IR; null without one.
        reason: Why earlier code generators did not take the graph.
        wrong_lines: Lines of `source`, from 1, that compute the wrong value of the step.
    """

    nodes: tuple[Line, ...]
    source: Text | None
    suffix: Line
    ir: Text | None = None
    reason: Line = ""
    wrong_lines: tuple[int, ...] = ()


@document
@dataclass(frozen=True, slots=True)
class TraceStep:
    """One step of the compile.

    Attributes:
        id: `stage/pass#2`, `joint/partition`, or `lowered/codegen:name`; of a stage its name.
        kind: `stage`: a graph on entry to a stage; the others as in `CompileStep`.
        before: Index of the graph before it in `Trace.graphs`; null if it was not kept.
        after: Index of the graph after it; of a pass without effect that before it.
        seconds: Its duration; null if it was not measured.
        status: The result of the check; empty if the step was not checked.
        node: The first wrong node.
        mismatch: How its value differs, in one line.
        compared: How many values were compared.
        reason: Why the status is unknown.
        errors: The values that it changes, the worst growth first; null if they were not measured.
        kernel: The kernel, of a step that is one.
    """

    id: Line
    kind: StepKind
    stage: Stage
    before: Count | None = None
    after: Count | None = None
    numerics: Numerics | None = None
    seconds: float | None = None
    vetoed: bool = False
    status: Status = ""
    node: Line = ""
    mismatch: Line = ""
    compared: int = 0
    reason: Line = ""
    rewrites: tuple[TraceRewrite, ...] = ()
    errors: tuple[TraceError, ...] | None = None
    kernel: TraceKernel | None = None


@document
@dataclass(frozen=True, slots=True)
class Trace:
    """One observed compile.

    Attributes:
        case: Name of the compiled case.
        cut: The omissions because of a limit, a sentence each.
        schema: Version of this document.
    """

    case: Line
    target: Line
    steps: tuple[TraceStep, ...]
    graphs: tuple[TraceGraph, ...]
    cut: tuple[Line, ...] = ()
    schema: Literal[1] = SCHEMA

    def nodes_of(self, index: int) -> tuple[TraceNode, ...]:
        """Return the nodes of a graph, in order."""
        nodes: tuple[TraceNode, ...] = ()
        for graph in reversed([*self._chain(index)]):
            nodes = apply_edits(nodes, graph.edits)
        return nodes

    def _chain(self, index: int) -> Iterator[TraceGraph]:
        """Yield a graph, its base, the base of that, and so on."""
        following: int | None = index
        while following is not None:
            graph = self.graphs[following]
            yield graph
            following = graph.base


def apply_edits(
    nodes: tuple[TraceNode, ...], edits: tuple[TraceEdit, ...]
) -> tuple[TraceNode, ...]:
    """Return nodes with edits applied, which are in order and do not overlap."""
    made: list[TraceNode] = []
    done = 0
    for edit in edits:
        made += [*nodes[done : edit.at], *edit.nodes]
        done = edit.at + edit.removed
    return (*made, *nodes[done:])
