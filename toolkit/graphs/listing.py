"""Graphs as text, one line per node, and readable differences between two graphs.

The text is for people: it is stable (node names, no ids, no addresses), so that two graphs of one
compile differ only where a pass changed them. It cannot be loaded back; graph_json.py can.
"""

import difflib
from collections.abc import Iterator

import torch
from torch.fx import GraphModule, Node

SHORT_DTYPES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "complex64": "c64",
    "complex128": "c128",
    "bool": "b8",
}


def graph_lines(gm: GraphModule) -> list[str]:
    """Return one line per node; sub-graphs follow, each under a line with its name."""
    return [line for name, module in _graphs(gm) for line in _section(name, module)]


def graph_diff(
    before: GraphModule, after: GraphModule, *, names: tuple[str, str] = ("before", "after")
) -> str:
    """Return the unified difference of two graphs, or an empty string when they read the same."""
    lines = difflib.unified_diff(
        graph_lines(before), graph_lines(after), names[0], names[1], lineterm=""
    )
    return "".join(f"{line}\n" for line in lines)


def node_line(node: Node) -> str:
    """Return a node as `name: f32[2, 3] = target(args)`."""
    if node.op == "output":
        return f"return {node.args[0]!r}"
    arguments = [repr(argument) for argument in node.args]
    arguments += [f"{key}={value!r}" for key, value in node.kwargs.items()]
    if node.op == "placeholder":
        return f"{_typed(node)} = input"
    if node.op == "get_attr":
        return f"{_typed(node)} = self.{node.target}"
    return f"{_typed(node)} = {target_name(node)}({', '.join(arguments)})"


def target_name(node: Node) -> str:
    """Return what a node calls: `aten.add.Tensor`, `torch.nn.functional.relu`, `.view`."""
    if isinstance(node.target, str):
        return f"self.{node.target}" if node.op == "call_module" else f".{node.target}"
    if type(node.target).__module__ == "torch._ops":  # overloads and higher-order operators
        return str(node.target)
    module = getattr(node.target, "__module__", None)
    name = getattr(node.target, "__qualname__", None) or getattr(node.target, "__name__", None)
    return ".".join(str(part) for part in (module, name or type(node.target).__name__) if part)


def describe_value(value: object) -> str:
    """Return dtype and shape of a tensor (`f32[2, s0]`), or the type of anything else."""
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        sizes = ", ".join(str(size) for size in value.shape)
        return f"{SHORT_DTYPES.get(dtype, dtype)}[{sizes}]"
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return f"{type(value).__name__}({value})"
    if isinstance(value, tuple | list):
        return f"({', '.join(describe_value(item) for item in value)})"
    return type(value).__name__


def _typed(node: Node) -> str:
    value = node.meta.get("val", node.meta.get("example_value"))
    return node.name if value is None else f"{node.name}: {describe_value(value)}"


def _graphs(gm: GraphModule) -> Iterator[tuple[str, GraphModule]]:
    for name, module in gm.named_modules():
        if isinstance(module, GraphModule):
            yield name, module


def _section(name: str, gm: GraphModule) -> list[str]:
    head = [f"sub-graph {name}:"] if name else []
    indent = "    " if name else ""
    return head + [f"{indent}{node_line(node)}" for node in gm.graph.nodes]
