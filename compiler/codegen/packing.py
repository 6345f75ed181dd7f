"""Pack the constant weights of oneDNN's products and convolutions, once, before a graph runs.

A packed weight is an opaque tensor that cannot be stored or printed and fits this machine only, so
graphs hold plain ones until here. A weight that is not an attribute of the graph stays as it is:
oneDNN packs it in each call then. The operators for integers take packed weights only, so there
the graph has a call that packs, which is computed here.
"""

from typing import cast

import torch
from torch.fx import GraphModule, Node

from ctk.compiler.fx.constants import constant_value
from ctk.compiler.fx.copy import copy_graph_module
from ctk.compiler.fx.types import tensor_of
from ctk.compiler.fx.walk import fetch
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.inductor import onednn

_PACKED = "_packed_"
"""How packed weights are called, followed by a number."""

_COMPUTED = "_packed_integers_"
"""The same for weights that a graph packs itself, followed by the name of the node."""


def with_packed_weights(gm: GraphModule) -> GraphModule:
    """Return a copy of a graph with packed weights, or the graph itself if it has none to pack."""
    if not any(_weight_position(node) or onednn.packs(node.target) for node in gm.graph.nodes):
        return gm
    copy = copy_graph_module(gm)
    _compute_packed(copy)
    packed: dict[object, str] = {}
    for node in copy.graph.nodes:
        position = _weight_position(node)
        weight = node.args[position] if position else None
        if not isinstance(weight, Node) or weight.op != "get_attr":
            continue
        settings = _settings(node)
        key = (weight.target, str(settings))
        if key not in packed:
            packed[key] = f"{_PACKED}{len(packed)}"
            copy.register_buffer(packed[key], _pack(copy, weight, settings), persistent=False)
        with copy.graph.inserting_before(node):
            node.update_arg(position, copy.graph.get_attr(packed[key]))
    copy.graph.eliminate_dead_code(lambda node: node.op != "get_attr")
    copy.recompile()
    return copy


def _compute_packed(gm: GraphModule) -> None:
    calls = [node for node in gm.graph.nodes if onednn.packs(node.target)]
    for node in calls:
        if any(operand.op != "get_attr" for operand in node.all_input_nodes):
            continue
        value = cast("object", constant_value(node))
        if isinstance(value, torch.Tensor):
            _store_packed(gm, node, value)
            continue
        assert isinstance(value, (list, tuple))  # of a layer with several weights
        for item in list(node.users):
            _store_packed(gm, item, value[item.args[1]])  # type: ignore[index]  # a getitem
        gm.graph.erase_node(node)


def _store_packed(gm: GraphModule, node: Node, value: torch.Tensor) -> None:
    name = f"{_COMPUTED}{node.name}"
    gm.register_buffer(name, value, persistent=False)
    with gm.graph.inserting_before(node):
        constant = gm.graph.get_attr(name)
    constant.meta.update(node.meta)
    node.replace_all_uses_with(constant)
    gm.graph.erase_node(node)


def _pack(gm: GraphModule, weight: Node, settings: tuple[object, ...] | None) -> torch.Tensor:
    value = fetch(gm, weight.target)
    assert isinstance(value, torch.Tensor)
    with fake.real_compute():
        if settings is None:
            return onednn.packed_linear_weight(value)
        *more, input_size = settings
        return onednn.packed_convolution_weight(value, tuple(more), list(input_size))  # type: ignore[call-overload]  # _settings gives a size


def _weight_position(node: Node) -> int:
    if node.target in (onednn.linear(), *_convolutions()):
        return 1
    return 2 if node.target in (onednn.linear_binary(), onednn.convolution_binary()) else 0


def _convolutions() -> tuple[object, ...]:
    return onednn.convolution(), onednn.transposed_convolution()


def _settings(node: Node) -> tuple[object, ...] | None:
    if node.target in (onednn.linear(), onednn.linear_binary()):
        return None
    first, x = _weight_position(node) + 2, tensor_of(node.args[0])
    count = 5 if node.target is onednn.transposed_convolution() else 4
    assert x is not None  # prepack_convolution has looked
    return (*node.args[first : first + count], tuple(fake.hints_of(x.shape)))
