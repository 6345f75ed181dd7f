"""Collect the constants of a graph under flat names, as attributes of one module."""

from collections.abc import Mapping

import torch
from torch.fx import Graph, GraphModule

from ctk.compiler.codegen.torchscript.refuse import refusal
from ctk.compiler.fx.walk import fetch, free_name
from ctk.compiler.torch_compat.fake import fake_tensors as fake


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
        # The prefix: no clash with attributes of Module.
        flat = "constant_" + str(node.target).replace(".", "_")
        name = flat_names.setdefault(str(node.target), free_name(flat, flat, values))
        values[name] = value
        node.target = name
    return values
