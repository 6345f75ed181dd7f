"""The interface of removed nodes: new inputs for their values, new outputs for their operands."""

from collections.abc import Mapping

import torch
from torch.fx import GraphModule, Node

from ctk.compiler.fx.effects import mutated_arguments
from ctk.compiler.fx.rebuild import NewInput, Substitute
from ctk.compiler.fx.walk import CALLS, output_leaves
from ctk.toolkit.reduce.analysis import Facts
from ctk.toolkit.reduce.eager_values import TensorInfo


def first_readers(gm: GraphModule, removed: frozenset[str]) -> dict[str, str]:
    """Return, for each removed node that a kept node reads (outputs aside), the first reader."""
    readers: dict[str, str] = {}
    for node in gm.graph.nodes:
        if node.name in removed or node.op == "output":
            continue
        for argument in node.all_input_nodes:
            if argument.name in removed:
                readers.setdefault(argument.name, node.name)
    return readers


def outputs_without(gm: GraphModule, removed: frozenset[str], facts: Facts) -> tuple[str, ...]:
    """Return the names of the outputs after a removal.

    Remaining results, and kept values that removed nodes read; without any of these, the tensors
    that kept in-place ops change.
    """
    kept = [leaf.name for leaf in output_leaves(gm) if isinstance(leaf, Node)]
    outputs = [name for name in kept if name not in removed]
    listed = frozenset(outputs)
    for node in gm.graph.nodes:
        is_read = any(user.name in removed for user in node.users)
        is_value = node.op in CALLS and isinstance(facts.infos[node.name], TensorInfo)
        if is_read and is_value and node.name not in removed and node.name not in listed:
            outputs.append(node.name)
    if outputs:
        return tuple(outputs)
    kept_nodes = (node for node in gm.graph.nodes if node.name not in removed)
    written = (argument for node in kept_nodes for argument in mutated_arguments(node))
    tensors = (a.name for a in written if isinstance(facts.infos[a.name], TensorInfo))
    return tuple(dict.fromkeys(tensors))


def as_inputs(value: object, name: str, inputs: dict[str, object]) -> Substitute:
    """Return the replacement of a removed value: inputs (added to `inputs`), or numbers."""
    if isinstance(value, torch.Tensor):
        inputs[name] = value
        return NewInput(name)
    if isinstance(value, tuple):
        return tuple(as_inputs(item, f"{name}.{i}", inputs) for i, item in enumerate(value))
    return value


def without_grad(
    gm: GraphModule, removed: frozenset[str], inputs: Mapping[str, object]
) -> dict[str, object]:
    """Return the new inputs, with `requires_grad` off if a kept node writes them in place.

    Autograd refuses to change a leaf in place; as an intermediate value it was allowed.
    """
    kept = [node for node in gm.graph.nodes if node.name not in removed]
    written = {argument.name for node in kept for argument in mutated_arguments(node)}
    return {
        name: value.detach() if name in written and isinstance(value, torch.Tensor) else value
        for name, value in inputs.items()
    }
