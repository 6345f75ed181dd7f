"""Regions of autocast in a graph of torch calls: they begin and end at nodes of their own."""

# pyright: reportPrivateUsage=false

import contextlib
from collections.abc import Generator, Iterable

import torch
from torch.fx import Node


def open_regions(node: Node) -> list[Node]:
    """Return the nodes that enter the regions a node is in, the outermost first."""
    target = torch.amp.autocast_mode._enter_autocast
    enters = node.graph.find_nodes(op="call_function", target=target)
    return [enter for enter in enters if enter < node and not _is_left(enter, node)]


def _is_left(enter: Node, node: Node) -> bool:
    target = torch.amp.autocast_mode._exit_autocast
    return any(user.target is target and user < node for user in enter.users)


@contextlib.contextmanager
def enter_regions(enters: Iterable[Node]) -> Generator[None]:
    """Run the body as inside of regions; casts of weights are not cached."""
    with contextlib.ExitStack() as stack:
        for enter in enters:
            device_type, dtype, enabled = enter.args[:3]
            region = torch.autocast(device_type, dtype, enabled, cache_enabled=False)  # type: ignore[arg-type]  # Dynamo writes these arguments
            stack.enter_context(region)
        yield
