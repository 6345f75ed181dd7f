"""Say where in an Inductor compile an exception was raised, without changing its type.

Inductor wraps what is raised inside it (`InductorError`, `BackendCompilerFailed`); the user's failure is the innermost
exception, so that is what gets the name of the place and what is raised in the end.
"""

from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from compiler.excerpt import excerpt
from compiler.observe import ErrorRecord, KernelId, PassId, RewriteId, Stage
from torch.fx import GraphModule, Node

from toolkit.targets.inductor_session import Frame, Session
from toolkit.targets.inductor_snapshot import snapshot


def innermost(error: BaseException) -> BaseException:
    """Return the exception that torch wrapped, or the exception itself."""
    while isinstance(inner := getattr(error, "inner_exception", None), BaseException):
        error = inner
    return error


def reraise(error: BaseException) -> NoReturn:
    """Raise the innermost exception; its own cause stays."""
    inner = innermost(error)
    raise inner from inner.__cause__


def fail_pass(
    session: Session,
    frame: Frame,
    error: BaseException,
    *,
    pass_id: PassId | None = None,
    rewrite: RewriteId | None = None,
    node: str | None = None,
) -> None:
    """Report an exception that left a pass, or a stage outside of any announced pass."""
    session.end_run(frame)
    graph = snapshot(frame.root, frame.swaps)
    report(
        session, error, stage=frame.stage, pass_id=pass_id, rewrite=rewrite, node=node, graph=graph
    )


def report(
    session: Session,
    error: BaseException,
    *,
    stage: Stage,
    pass_id: PassId | None = None,
    rewrite: RewriteId | None = None,
    kernel: KernelId | None = None,
    node: str | None = None,
    graph: GraphModule | None = None,
    where: str | None = None,
) -> None:
    """Write the place on the exception (`ctk_where` and a note) and tell the observer, once per exception."""
    inner = innermost(error)
    if getattr(inner, "ctk_where", None) is not None:
        return
    where = where or str(kernel or pass_id or stage)
    inner.ctk_where = where  # type: ignore[attr-defined]  # exceptions take attributes
    place = f"in {where}" + (f", {rewrite}" if rewrite else "") + (f", at node {node}" if node else "")
    around = f"\n{excerpt(graph.graph, node)}" if graph is not None else ""
    inner.add_note(f"ctk: {place}{around}\nctk: whole story: ctk diagnose")
    session.observer.on_error(ErrorRecord(inner, stage, pass_id, rewrite, kernel, node, graph))


def lowered_node(error: BaseException) -> str | None:
    """Return the node whose lowering raised, as the traceback tells: the innermost `run_node(n)`."""
    found = None
    for frame in _frames(innermost(error)):
        node = frame.f_locals.get("n")
        if frame.f_code.co_name == "run_node" and isinstance(node, Node):
            found = node.name
    return found


def _frames(error: BaseException) -> Iterator[FrameType]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next
