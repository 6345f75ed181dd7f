"""Record on an exception where in the compile it was raised, and report it to the observer."""

import contextlib
import dataclasses

from torch.fx import GraphModule

from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.fx.excerpt import excerpt
from ctk.compiler.observe import ErrorRecord, Observer


def place(
    record: ErrorRecord, observer: Observer | None, *, where: str | None = None, hint: str = ""
) -> None:
    """Write `ctk_where` and a note on an exception, and pass its record to the observer; once.

    The innermost caller knows the place best: an exception with a place stays unchanged.

    Args:
        record: The exception and the known parts of its place. The observer gets a copy of its
            graph.
        where: Name of the place; None for the kernel, the pass or the stage of the record.
        hint: A next step for the user, besides `ctk diagnose`.
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
    kind = "kernel " if record.kernel else "pass " if record.pass_id else ""
    rewrite = f", {record.rewrite}" if record.rewrite else ""
    node = f", at node {record.node}" if record.node is not None else ""
    around = [excerpt(record.graph.graph, record.node)] if record.graph is not None else []
    following = "; ".join(part for part in (hint, "whole story: ctk diagnose") if part)
    return "\n".join([f"ctk: in {kind}{where}{rewrite}{node}", *around, f"ctk: {following}"])


def _copy_if_possible(graph: GraphModule | None) -> GraphModule | None:
    """Return a copy for the record; None without a graph, or for one too broken to copy."""
    try:
        return None if graph is None else copy_graph_module(graph, lazy=True)
    except Exception:
        return None
