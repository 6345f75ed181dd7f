"""Graphs as text, one line per node, and readable differences between two graphs.

The text is stable (no ids, no addresses): two graphs of one compile differ only where a pass
changed them.
"""

import difflib
from itertools import islice

from torch.fx import GraphModule, Node

from ctk.compiler.fx.types import type_text, value_of
from ctk.compiler.fx.walk import graphs_by_path


def graph_lines(gm: GraphModule) -> list[str]:
    """Return one line per node; sub-graphs follow, each under a line with its name."""
    lines: list[str] = []
    for name, module in graphs_by_path(gm).items():
        indent = "    " if name else ""
        lines += [f"sub-graph {name}:"] if name else []
        lines += [f"{indent}{node_line(node)}" for node in module.graph.nodes]
    return lines


def last_lines(gm: GraphModule, count: int) -> list[str]:
    """Return the lines of the last nodes of a graph, its result included; cheap for any graph."""
    last = islice(reversed(gm.graph.nodes), count)
    return [node_line(node) for node in last][::-1]


def graph_diff(before: GraphModule, after: GraphModule) -> str:
    """Return the unified difference of two graphs, or an empty string if their texts are equal."""
    texts = graph_lines(before), graph_lines(after)
    lines = difflib.unified_diff(*texts, "before", "after", lineterm="")
    return "".join(f"{line}\n" for line in lines)


def node_line(node: Node) -> str:
    """Return a node as `name: float32[2, 3] = target(args)`."""
    if node.op == "output":
        return f"return {node.args[0]!r}"
    arguments = [repr(argument) for argument in node.args]
    arguments += [f"{key}={value!r}" for key, value in node.kwargs.items()]
    if node.op == "placeholder":
        return f"{_name_and_type(node)} = input"
    if node.op == "get_attr":
        return f"{_name_and_type(node)} = self.{node.target}"
    return f"{_name_and_type(node)} = {target_name(node)}({', '.join(arguments)})"


def target_name(node: Node) -> str:
    """Return the target of a node: `aten.add.Tensor`, `torch.nn.functional.relu`, `.view`."""
    if isinstance(node.target, str):
        return f"self.{node.target}" if node.op == "call_module" else f".{node.target}"
    if type(node.target).__module__ == "torch._ops":  # overloads and higher-order operators
        return str(node.target)
    module = getattr(node.target, "__module__", None)
    name = getattr(node.target, "__qualname__", None) or getattr(node.target, "__name__", None)
    return ".".join(str(part) for part in (module, name or type(node.target).__name__) if part)


def _name_and_type(node: Node) -> str:
    value = value_of(node)
    return node.name if value is None else f"{node.name}: {type_text(value)}"
