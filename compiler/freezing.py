"""Turn the parameters of an inference graph into constants, so that the frozen stage can fold them.

Not a pass: it changes the graph's signature. A parameter that the graph writes to stays an input.
"""

import logging
from collections.abc import Mapping, Sequence

import torch
from torch.fx import GraphModule

from ctk.compiler.fx.properties import mutated_bases
from ctk.compiler.fx.types import same_sizes, tensor_of
from ctk.compiler.fx.walk import placeholders
from ctk.compiler.torch_compat import fake
from ctk.compiler.torch_compat.graphs import Boxed, boxed

log = logging.getLogger("ctk.pipeline")

_PREFIX = "_frozen_"
"""How the constants are called, followed by the position of the input."""

_FROZEN = "ctk_frozen"
"""Where a graph and its copies keep the values of the inputs that became constants."""


def freeze_parameters(
    graph: GraphModule, captured: GraphModule, example_inputs: Sequence[object]
) -> list[int]:
    """Replace the placeholders of parameters by attributes of the graph, in place.

    Args:
        graph: ATen inference graph. Its placeholders are the captured graph's parameters and
            buffers, then its inputs.
        captured: The captured graph, which may own parameters.
        example_inputs: Inputs of the captured graph; an `nn.Parameter` among them is frozen.

    Returns:
        Positions of the inputs that remain.
    """
    inputs = placeholders(graph)
    owned = [*captured.parameters(), *captured.buffers()]
    values = [*owned, *example_inputs]
    if not _are_aligned(inputs, values):
        log.warning(
            "freezing skipped: the inputs were reordered by autograd dispatch (aliased inputs)"
        )
        return list(range(len(inputs)))
    written = mutated_bases(graph.graph)
    body = next(node for node in graph.graph.nodes if node.op != "placeholder")
    kept: list[int] = []
    frozen: dict[str, torch.Tensor] = {}
    for index, (node, value) in enumerate(zip(inputs, values, strict=True)):
        if not isinstance(value, torch.nn.Parameter) or node in written:
            kept.append(index)
            continue
        name = f"{_PREFIX}{index}"
        with fake.real_compute():
            graph.register_buffer(name, value.detach(), persistent=False)
        with graph.graph.inserting_before(body):
            constant = graph.graph.get_attr(name)
        constant.meta.update(node.meta)
        frozen[node.name] = value
        node.replace_all_uses_with(constant)
        graph.graph.erase_node(node)
    note_frozen(graph, frozen)
    graph.recompile()
    return kept


def note_frozen(graph: GraphModule, values: Mapping[str, torch.Tensor]) -> None:
    """Keep with a graph the values of inputs that became constants, by name of the input."""
    graph.meta[_FROZEN] = {**frozen_parameters(graph), **values}


def frozen_parameters(graph: GraphModule) -> Mapping[str, torch.Tensor]:
    """Return the values of the inputs that became constants of a graph, or of one it is a copy of.

    Returns:
        By the name of the input that each was.
    """
    return graph.meta.get(_FROZEN, {})


def without_frozen(inner: Boxed, kept: Sequence[int]) -> Boxed:
    """Return a boxed callable that takes all inputs and hands on those that remain."""

    def run(args: list[object]) -> Sequence[object]:
        remaining = [args[index] for index in kept]
        args.clear()
        return inner(remaining)

    return boxed(run)


def _are_aligned(inputs: Sequence[torch.fx.Node], values: Sequence[object]) -> bool:
    if len(inputs) != len(values):
        return False
    for node, value in zip(inputs, values, strict=True):
        tensor = tensor_of(node)
        if isinstance(value, torch.nn.Parameter) and (
            tensor is None or not same_sizes(tensor.shape, value.shape)
        ):
            return False
    return True
