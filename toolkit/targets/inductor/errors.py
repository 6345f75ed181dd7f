"""Record on an exception where in an Inductor compile it was raised, without changing its type.

Inductor wraps exceptions raised inside it (`InductorError`, `BackendCompilerFailed`). The user's
failure is the innermost exception, so that one gets the name of the place and is raised.
"""

from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from torch.fx import Node

from ctk.compiler.observe import ErrorRecord, PassId, RewriteId
from ctk.compiler.torch_compat.inductor import inductor_lowering
from ctk.toolkit.case.raise_site import root_error
from ctk.toolkit.targets.inductor.compile_record import CompileRecord
from ctk.toolkit.targets.inductor.frames import Frame
from ctk.toolkit.targets.inductor.snapshot import snapshot
from ctk.toolkit.targets.reporting import report


def reraise(error: BaseException) -> NoReturn:
    """Raise the innermost exception; its own cause stays."""
    inner = root_error(error)
    raise inner from inner.__cause__


def fail_pass(
    session: CompileRecord,
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
    record = ErrorRecord(error, frame.stage, pass_id, rewrite, node=node, graph=graph)
    report(session.observer, record)


def find_lowered_node(error: BaseException) -> str | None:
    """Return the node whose lowering raised, or whose lowered form failed in code generation.

    The traceback's innermost `run_node(n)`, or the innermost method of a piece of Inductor's IR
    that computes a node.
    """
    found = None
    for frame in _frames(root_error(error)):
        node = frame.f_locals.get("n")
        if frame.f_code.co_name == "run_node" and isinstance(node, Node):
            found = node.name
        origin = inductor_lowering.origin_of(frame.f_locals.get("self"))
        found = origin.name if origin is not None else found
    return found


def _frames(error: BaseException) -> Iterator[FrameType]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next
