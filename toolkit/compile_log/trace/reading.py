"""Read a trace from a file that may be hostile: bounded, of the declared types, consistent."""

from collections.abc import Sequence
from pathlib import Path

from ctk.compiler.errors import CaseError
from ctk.toolkit.case.formats.limits import TRACE_NBYTES, TRACE_NODES, check_at_most
from ctk.toolkit.case.formats.schema import read_document
from ctk.toolkit.compile_log.trace.document import FILE, SCHEMA, Trace, TraceGraph

_NEXT_STEP = "run the operation that made the folder again"


def read_trace(folder: Path) -> Trace:
    """Return the trace of a folder.

    Raises:
        CaseError: It is missing, damaged, inconsistent or larger than the limit, or of another ctk.
    """
    path = folder / FILE
    trace = read_document(Trace, path, next_step=_NEXT_STEP, schema=SCHEMA, limit=TRACE_NBYTES)
    try:
        _check_graphs(trace.graphs)
        _check_steps(trace)
    except CaseError as error:
        raise CaseError(f"{FILE}: {error}, in {folder}; {_NEXT_STEP}") from error
    return trace


def _check_graphs(graphs: Sequence[TraceGraph]) -> None:
    """Check each base and edit, so that every graph can be rebuilt, in bounded memory."""
    lengths: list[int] = []
    for index, graph in enumerate(graphs):
        where = f"$.graphs[{index}]"
        if graph.base is not None and graph.base >= index:
            raise CaseError(f"{where}.base: {graph.base} is not an earlier graph")
        length = 0 if graph.base is None else lengths[graph.base]
        lengths.append(_edited_length(graph, length, where))
    check_at_most(sum(lengths), TRACE_NODES, "$.graphs: nodes of all graphs")


def _edited_length(graph: TraceGraph, length: int, where: str) -> int:
    """Return the number of nodes of a graph whose base has `length` nodes."""
    done, made = 0, length
    for number, edit in enumerate(graph.edits):
        if not done <= edit.at <= edit.at + edit.removed <= length:
            raise CaseError(
                f"{where}.edits[{number}]: it replaces the nodes {edit.at} to "
                f"{edit.at + edit.removed} of {length}, of which {done} are replaced already"
            )
        done = edit.at + edit.removed
        made += len(edit.nodes) - edit.removed
    return made


def _check_steps(trace: Trace) -> None:
    for number, step in enumerate(trace.steps):
        for side in ("before", "after"):
            index = getattr(step, side)
            if index is not None and index >= len(trace.graphs):
                raise CaseError(
                    f"$.steps[{number}].{side}: there is no graph {index}: the trace has "
                    f"{len(trace.graphs)}"
                )
        kernel = step.kernel
        if kernel is not None:
            lines = len((kernel.source or "").splitlines())
            if not all(1 <= line <= lines for line in kernel.wrong_lines):
                raise CaseError(f"$.steps[{number}].kernel.wrong_lines: the source has {lines}")
