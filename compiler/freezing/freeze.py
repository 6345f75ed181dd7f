"""Turn the tensors of the user's module into constants of an inference graph, and fold them.

`freeze` changes the signature of a graph: parameters and buffers that are never written become
attributes, and the positions of the inputs that remain are returned. The passes of the stage
`frozen` then fold the constants.

The plain tensors of a wrapper subclass (weights that torchao quantized) are frozen one by one.
These stay inputs: tensors that the graph writes to or returns (a caller may change them), tensors
of other subclasses, and all tensors if autograd dispatch reordered the inputs. `call.py` calls the
result, and detects later changes of the originals.

Source: `torch/_inductor/freezing.py` (`freeze`, `replace_params_with_constants`). That one finds
the parameters in the tracing context, where Dynamo puts them under a setting of the process.
"""

import logging
from collections.abc import Callable, Mapping, Sequence

import torch
from torch.fx import GraphModule, Node

from ctk.compiler.fx.properties import base_of, mutated_bases
from ctk.compiler.fx.tensor_parts import parts_of
from ctk.compiler.fx.types import same_sizes, tensor_of, value_of
from ctk.compiler.fx.walk import placeholders
from ctk.compiler.passes import PASSES
from ctk.compiler.rewriting.numbering import Numbering
from ctk.compiler.rewriting.run_stage import run_stage
from ctk.compiler.torch_compat.dynamo import tensor_sources
from ctk.compiler.torch_compat.fake import fake_tensors as fake

log = logging.getLogger("ctk.pipeline")

Transform = Callable[[GraphModule, Sequence[object]], object]
"""Changes a graph in place; gets its inputs too."""

_PREFIX = "_frozen_"
"""How the constants are called, followed by the position of the input."""

_FROZEN = "ctk_frozen"
"""Where a graph and its copies keep the values of the inputs that became constants."""


def fold(graph: GraphModule, inputs: Sequence[object]) -> None:
    """Run the passes of the stage `frozen` over a graph, with the default options."""
    run_stage(graph, "frozen", PASSES["frozen"], Numbering(), inputs=inputs)


def freeze(
    captured: GraphModule,
    graph: GraphModule,
    example_inputs: Sequence[object],
    *,
    transform: Transform = fold,
) -> tuple[GraphModule, list[int]]:
    """Make the tensors of the user's module constants of a graph, and fold them.

    Args:
        captured: The graph before autograd dispatch. Its parameters and buffers come first among
            the inputs of `graph`.
        graph: The ATen inference graph after autograd dispatch. Changed in place.
        example_inputs: The inputs of `captured`. Real tensors among them become constants if they
            are parameters, or belong to a module according to Dynamo.
        transform: Transforms the graph with its constants; by default by the passes of the stage
            `frozen`.

    Returns:
        The graph, and the positions of the inputs that it still takes (`preserved`).
    """
    values = constants_of(captured, graph, example_inputs)
    return graph, freeze_values(graph, values, transform)


def freeze_values(
    graph: GraphModule, values: Mapping[int, torch.Tensor], transform: Transform
) -> list[int]:
    """Make inputs constants, by position, and transform the graph; return the remaining inputs."""
    inputs = placeholders(graph)
    preserved = [index for index in range(len(inputs)) if index not in values]
    _replace(graph, inputs, values)
    transform(graph, [value_of(inputs[index]) for index in preserved])
    return preserved


def constants_of(
    captured: GraphModule, graph: GraphModule, example_inputs: Sequence[object]
) -> dict[int, torch.Tensor]:
    """Return the tensors that may become constants, by position among the inputs of a graph."""
    inputs = placeholders(graph)
    values = _held_values(captured, example_inputs)
    if not _are_aligned(inputs, values):
        log.warning(
            "freezing skipped: the inputs were reordered by autograd dispatch (aliased inputs)"
        )
        return {}
    returned = {base_of(node) for node in graph.graph.output_node().all_input_nodes}
    fixed = mutated_bases(graph.graph) | returned
    found: dict[int, torch.Tensor] = {}
    for index, (node, (value, is_held)) in enumerate(zip(inputs, values, strict=True)):
        if is_held and node not in fixed and isinstance(value, torch.Tensor) and _is_plain(value):
            found[index] = value
    return found


def sources_of(
    captured: GraphModule, example_inputs: Sequence[object]
) -> list[tuple[str, Node | None]]:
    """Return a name (`encoder.weight`) and the placeholder, if any, of each dispatched input."""
    named = tensor_sources.names_in_module(captured)
    owned = [*captured.named_parameters(), *captured.named_buffers()]
    given = zip(placeholders(captured), example_inputs, strict=True)
    sources: list[tuple[str, Node | None, object]] = [
        *((named.get(name, name), None, value) for name, value in owned),
        *((tensor_sources.name_in_module(node) or node.name, node, value) for node, value in given),
    ]
    return [(name, node) for name, node, value in sources for _ in _plain_parts(value)]


def _plain_parts(value: object) -> list[object]:
    """Return the tensors that autograd dispatch hands to a graph for one input."""
    if isinstance(value, torch.Tensor) and hasattr(value, "__tensor_flatten__"):
        return [tensor for _, tensor in parts_of(value).plain()]
    return [value]


def note_frozen(graph: GraphModule, values: Mapping[str, torch.Tensor]) -> None:
    """Keep with a graph the values of inputs that became constants, by name of the input."""
    graph.meta[_FROZEN] = {**frozen_parameters(graph), **values}


def frozen_parameters(graph: GraphModule) -> Mapping[str, torch.Tensor]:
    """Return the values of inputs that became constants, by name (also of a graph's copy)."""
    return graph.meta.get(_FROZEN, {})


def _replace(
    graph: GraphModule, inputs: Sequence[Node], values: Mapping[int, torch.Tensor]
) -> None:
    body = next(node for node in graph.graph.nodes if node.op != "placeholder")
    note_frozen(graph, {inputs[index].name: value for index, value in values.items()})
    for index, value in values.items():
        node, name = inputs[index], f"{_PREFIX}{index}"
        with fake.real_compute():
            graph.register_buffer(name, value.detach(), persistent=False)
        with graph.graph.inserting_before(body):
            constant = graph.graph.get_attr(name)
        constant.meta.update(node.meta)
        node.replace_all_uses_with(constant)
        graph.graph.erase_node(node)
    graph.recompile()


def _held_values(
    captured: GraphModule, example_inputs: Sequence[object]
) -> list[tuple[object, bool]]:
    """Return each input of the dispatched graph, and whether the user's module holds it.

    Autograd dispatch gives a graph the plain tensors of a wrapper subclass.
    """
    owned = [*captured.parameters(), *captured.buffers()]
    given = zip(placeholders(captured), example_inputs, strict=True)
    held = [(value, True) for value in owned] + [
        (value, isinstance(value, torch.nn.Parameter) or tensor_sources.is_static(node))
        for node, value in given
    ]
    return [(part, is_held) for value, is_held in held for part in _plain_parts(value)]


def _is_plain(value: torch.Tensor) -> bool:
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return False
    return value.layout == torch.strided and not value.is_meta and not value.is_nested


def _are_aligned(inputs: Sequence[Node], values: Sequence[tuple[object, bool]]) -> bool:
    return len(inputs) == len(values) and all(
        _fits(tensor_of(node), value)
        for node, (value, is_held) in zip(inputs, values, strict=True)
        if is_held and isinstance(value, torch.Tensor)
    )


def _fits(recorded: torch.Tensor | None, value: torch.Tensor) -> bool:
    if recorded is None or recorded.dtype != value.dtype:
        return False
    return same_sizes(recorded.shape, value.shape)
