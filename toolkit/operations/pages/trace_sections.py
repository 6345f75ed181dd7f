"""The sections of a page about one observed compile: its graph, its steps, a kernel, the errors."""

import difflib
from pathlib import Path

from ctk.compiler.errors import CaseError, count_of
from ctk.toolkit.case.formats.plain_text import one_line
from ctk.toolkit.case.next_step import NextStep
from ctk.toolkit.compile_log.trace.document import FILE, Trace, TraceStep
from ctk.toolkit.compile_log.trace.reading import read_trace
from ctk.toolkit.operations.report.as_json import CulpritRecord
from ctk.toolkit.page.page import (
    Absent,
    Block,
    Code,
    Focus,
    GraphView,
    Picture,
    Prose,
    Section,
    StepsView,
    section,
)
from ctk.toolkit.page.plots import plot_errors

_CONTEXT = 3
_MOST_LINES = 400


def find_trace(folder: Path) -> tuple[Trace | None, str]:
    """Return the trace of a folder; without a readable one, why."""
    if not (folder / FILE).exists():
        return None, f"No compile was recorded in this folder (there is no {FILE})."
    try:
        trace = read_trace(folder)
    except CaseError as error:
        return None, one_line(f"The recorded compile cannot be shown: {error}.")
    return (trace, "") if trace.steps else (None, "The recorded compile has no steps.")


def find_focus(trace: Trace, culprit: CulpritRecord | None = None) -> Focus:
    """Return the step of the culprit; else the first wrong one, else the last with a change."""
    steps = [*enumerate(trace.steps)]
    guilty = [at for at, step in steps if culprit is not None and step.id == culprit.where]
    wrong = [at for at, step in steps if step.status == "wrong"]
    if guilty or wrong:
        at = (guilty or wrong)[0]
        label = "culprit" if guilty else "first wrong"
        return Focus(at, _nodes_in_focus(trace.steps[at], culprit), label)
    changed = [at for at, step in steps if step.before != step.after]
    return Focus(changed[-1] if changed else 0, (), "start")


def _nodes_in_focus(step: TraceStep, culprit: CulpritRecord | None) -> tuple[str, ...]:
    if culprit is not None and culprit.nodes:
        return culprit.nodes
    if step.kernel is not None and step.kernel.nodes:
        return step.kernel.nodes
    return (step.node,) if step.node else ()


def place_of(trace: Trace, focus: Focus) -> str:
    """Return `FILE:LINE` of the user's program for the nodes in focus; empty if unknown."""
    step = trace.steps[focus.step]
    for index in (step.after, step.before):
        nodes = trace.nodes_of(index) if index is not None else ()
        found = next((node.place for node in nodes if node.name in focus.nodes and node.place), "")
        if found:
            return found
    return ""


def trace_sections(
    trace: Trace | None, focus: Focus, why: str, again: NextStep | None
) -> tuple[Section, ...]:
    """Return the sections Graph, Steps, Kernel and Errors; without a trace one with the reason.

    Args:
        why: Why there is no trace.
        again: The command that records one.
    """
    if trace is None:
        return (section("Compile", (), Absent(why, again)),)
    step = trace.steps[focus.step]
    cut = tuple(Prose(f"Left out: {each}") for each in trace.cut)
    graph = section("Graph", (GraphView(),) if _has_graph(step) else (), _no_graph(step))
    steps = section("Steps", (StepsView(_changes(trace, step)), *cut))
    kernel = section("Kernel", _kernel_blocks(_kernel_step(trace, step)), _no_kernel(step))
    errors = section("Errors", _error_blocks(trace), _no_errors(trace))
    return graph, steps, kernel, errors


def _has_graph(step: TraceStep) -> bool:
    return step.before is not None or step.after is not None


def _no_graph(step: TraceStep) -> Absent:
    return Absent(f"The graph of {step.id} was not recorded.")


def _changes(trace: Trace, step: TraceStep) -> Code | None:
    """Return the changes of a step as a unified diff; None for a step without two graphs."""
    if step.before is None or step.after is None or step.before == step.after:
        return None
    before, after = ([node.text for node in trace.nodes_of(at)] for at in (step.before, step.after))
    lines = [*difflib.unified_diff(before, after, lineterm="", n=_CONTEXT)][2:]
    text = "\n".join(lines[:_MOST_LINES])
    return Code(f"Changes of {step.id}", text, is_diff=True)


def _kernel_step(trace: Trace, step: TraceStep) -> TraceStep:
    """Return a step; for a lowering the first wrong kernel, which has its code."""
    if step.kernel is not None or not step.id.startswith("lowered/"):
        return step
    wrong = (each for each in trace.steps if each.kernel is not None and each.status == "wrong")
    return next(wrong, step)


def _kernel_blocks(step: TraceStep) -> tuple[Block, ...]:
    kernel = step.kernel
    if kernel is None:
        return ()
    computes = ", ".join(kernel.nodes) or "all nodes of the graph"
    blocks: list[Block] = [Prose(f"{step.id} computes {computes}.")]
    if kernel.reason:
        blocks.append(Prose(kernel.reason))
    if kernel.ir:
        blocks.append(Code("Loop IR", kernel.ir))
    if kernel.source:
        marked = frozenset(kernel.wrong_lines)
        label = "Generated source, the wrong lines marked" if marked else "Generated source"
        blocks.append(Code(label, kernel.source, marked))
    else:
        blocks.append(Prose("The code generator gives no source of it."))
    return tuple(blocks)


def _no_kernel(step: TraceStep) -> Absent:
    return Absent(f"The page is about {step.id}, which generates no kernel.")


def _error_blocks(trace: Trace) -> tuple[Block, ...]:
    svg = plot_errors(trace.steps)
    measured = sum(step.errors is not None for step in trace.steps)
    if not svg:
        return ()
    caption = (
        "Each dot is a value that a step changed; a stem leads to the worst of the step. "
        f"{measured} of {count_of(len(trace.steps), 'step')} were measured against float64."
    )
    return (Picture(svg, caption),)


def _no_errors(trace: Trace) -> Absent:
    if any(step.errors is not None for step in trace.steps):
        return Absent("No measured step changed the error of a value.")
    return Absent(
        "The errors of the steps were not measured.", NextStep("ctk check CASE --history")
    )
