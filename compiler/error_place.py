"""Write on an exception where it was raised, and tell the observer: the one place that does.

Passes, code generators, adapters and the pipeline call `place` when something that they ran raised.
What reads it: the printed traceback (a note), and whoever compares failures (`ctk_where`).
"""

import contextlib
import dataclasses

from torch.fx import GraphModule

from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.fx.excerpt import excerpt
from ctk.compiler.observe import ErrorRecord, Observer


def place(
    record: ErrorRecord, observer: Observer | None, *, where: str | None = None, hint: str = ""
) -> None:
    """Write `ctk_where` and a note on an exception, and hand its record to the observer; once.

    The innermost caller knows the place best: an exception that has a place already is left alone.

    Args:
        record: The exception, and what is known of its place. Its graph is the graph at hand; the
            observer gets a copy.
        observer: Whom to tell, if anybody watches.
        where: Name of the place; None for that of the kernel, the pass or the stage of the record.
        hint: What the user can do next, besides `ctk diagnose`.
    """
    error = record.error
    if getattr(error, "ctk_where", None) is not None:
        return
    where = where or str(record.kernel or record.pass_id or record.stage)
    with contextlib.suppress(AttributeError):  # an exception with slots takes no attribute
        error.ctk_where = where  # type: ignore[attr-defined]  # exceptions take attributes
    error.add_note(_note(record, where, hint))
    if observer is not None:
        observer.on_error(dataclasses.replace(record, graph=_copy_if_possible(record.graph)))


def where_of(error: BaseException) -> str | None:
    """Return the place that `place` wrote on an exception, or None."""
    where = getattr(error, "ctk_where", None)
    return where if isinstance(where, str) else None


def _note(record: ErrorRecord, where: str, hint: str) -> str:
    """Return the place, the nodes around it, and what to do next, a line each."""
    kind = "kernel " if record.kernel else "pass " if record.pass_id else ""
    rewrite = f", {record.rewrite}" if record.rewrite else ""
    node = f", at node {record.node}" if record.node is not None else ""
    around = [excerpt(record.graph.graph, record.node)] if record.graph is not None else []
    following = "; ".join(part for part in (hint, "whole story: ctk diagnose") if part)
    return "\n".join([f"ctk: in {kind}{where}{rewrite}{node}", *around, f"ctk: {following}"])


def _copy_if_possible(graph: GraphModule | None) -> GraphModule | None:
    """Return a copy for the record; None when there is no graph, or it is too broken to be copied.

    The exception that is being reported says more than a second one about its graph would.
    """
    try:
        return None if graph is None else copy_graph_module(graph, lazy=True)
    except Exception:
        return None
