"""Guards of Dynamo on the identity of graph inputs."""

# pyright: reportPrivateUsage=false, reportAttributeAccessIssue=false

import importlib
from typing import Any

from torch.fx import Node


def guard_identity(node: Node, *, only: bool = False) -> None:
    """Make Dynamo recompile if a graph input is another object.

    Args:
        node: Placeholder of the graph of a running backend. Outside of Dynamo nothing is guarded.

    Seen in torch 2.11 and 2.13: `TracingContext.guards_context.dynamo_guards`, from which Dynamo
    makes its guards after the backend; `GuardBuilder.ID_MATCH`.
    """
    context = importlib.import_module("torch._guards").TracingContext.try_get()
    source = getattr(node.meta.get("grapharg"), "source", None)
    if context is None or source is None:
        return
    builder: Any = importlib.import_module("torch._dynamo.guards").GuardBuilder
    guards: Any = context.guards_context.dynamo_guards
    for guard in list(guards.inner) if only else ():
        if _is_from(guard.originating_source, source):
            guards.inner.discard(guard)
    guards.add(source.make_guard(builder.ID_MATCH))


def _is_from(source: Any, base: object) -> bool:
    """Return whether a source is `base` or a part of it, at any depth (unlike torch 2.11)."""
    while source is not None and source != base:
        source = getattr(source, "base", None)
    return source is not None
