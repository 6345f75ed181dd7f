"""Print the part of a graph around a node, for error messages."""

from torch.fx import Graph, Node

AROUND = 10


def excerpt(graph: Graph, name: str | None) -> str:
    """Return the node called `name` (marked `>`) and `AROUND` nodes on each side; else the head."""
    nodes = list(graph.nodes)
    at = next((i for i, node in enumerate(nodes) if node.name == name), None)
    first = 0 if at is None else max(0, at - AROUND)
    last = 2 * AROUND if at is None else at + AROUND + 1
    lines = [
        f"{'>' if i == at else ' '} {_line(nodes[i])}" for i in range(first, min(last, len(nodes)))
    ]
    head = ["  …"] if first else []
    tail = ["  …"] if last < len(nodes) else []
    return "\n".join([*head, *lines, *tail])


def _line(node: Node) -> str:
    text = node.format_node()
    return text if isinstance(text, str) else f"{node.op} {node.name}"
