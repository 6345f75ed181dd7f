"""Collect the constants of a graph under flat names, as attributes of one module."""

from collections.abc import Mapping

import torch
from torch.fx import Graph, GraphModule

from ctk.compiler.codegen.torchscript.refuse import refusal
from ctk.compiler.fx.walk import fetch
from ctk.compiler.torch_compat import fake


def bind_constants(gm: GraphModule, graph: Graph) -> Mapping[str, object]:
    """Point each `get_attr` node at a flat name and return the values, shared with `gm`.

    Flat names (`layer.weight` -> `constant_layer_weight`) spare TorchScript the module hierarchy;
    what the graph does not use is left out. A name that two constants would share gets a number.

    Raises:
        CodegenUnsupported: A nested graph, a tensor without numbers, or an object that TorchScript
            has no type for.
    """
    values: dict[str, object] = {}
    flat_names: dict[str, str] = {}
    for node in graph.find_nodes(op="get_attr"):
        value = fetch(gm, node.target)
        if isinstance(value, torch.nn.Module):
            raise refusal(node, "a nested graph")
        if fake.is_fake(value):
            raise refusal(node, "a constant that is a fake tensor: it has no numbers")
        if not isinstance(value, (torch.Tensor, bool, int, float)):
            raise refusal(node, f"a constant of type {type(value).__name__}")
        name = flat_names.setdefault(str(node.target), _free_name(str(node.target), values))
        values[name] = value
        node.target = name
    return values


def _free_name(target: str, taken: Mapping[str, object]) -> str:
    flat = "constant_" + target.replace(".", "_")  # the prefix: no clash with attributes of Module
    candidates = [flat, *(f"{flat}_{number}" for number in range(len(taken)))]
    return next(name for name in candidates if name not in taken)
