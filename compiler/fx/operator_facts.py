"""Facts of operators: the one table that passes, the partitioner and the toolkit read.

An overload's schema and tags declare the rest (`torch_compat.fx.operators.declared_by`);
`properties` answers questions of nodes from both. Sets of operators that only one pass has rules
for are not facts: they stand in that pass.

Source of the sets for recomputation: torch/_functorch/partitioners.py, `get_default_op_list`, with
its additions of pointwise operators by tag. Differs: random operators and views are found by tag
and schema, not by lists of names.
"""

import operator
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch.fx import Node

from ctk.compiler.torch_compat.fx import operators

aten = torch.ops.aten

UNDECLARED_VIEWS: Mapping[object, Callable[..., object]] = {
    aten._unsafe_view.default: aten.view.default,
    aten.unsafe_chunk.default: aten.chunk.default,
    aten.unsafe_split.Tensor: aten.split.Tensor,
    aten.unsafe_split_with_sizes.default: aten.split_with_sizes.default,
}
"""Views whose schema hides it from autograd, and the same operators with an honest schema."""

SPLITS: frozenset[object] = frozenset(
    {
        aten.split.Tensor,
        aten.split_with_sizes.default,
        aten.unsafe_split.Tensor,
        aten.unsafe_split_with_sizes.default,
    }
)
"""Operators that cut a tensor into consecutive parts along one dimension."""

CASTS: frozenset[object] = frozenset(
    {aten._to_copy.default, torch.ops.prims.convert_element_type.default}
)
"""Operators that return the numbers of a tensor in another dtype."""

TAKES_EACH_ONCE: frozenset[object] = SPLITS | {
    aten.alias.default,
    aten.clone.default,
    aten.detach.default,
    aten.flip.default,
    aten.permute.default,
    aten.reshape.default,
    aten.select.int,
    aten.slice.Tensor,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.t.default,
    aten.transpose.int,
    aten.unbind.int,
    aten.unsqueeze.default,
    aten._to_copy.default,
    aten._unsafe_view.default,
    aten.view.default,
}
"""Operators whose results hold each element of their operand at most once, in any order."""

RANGES = (aten.arange.default, aten.arange.start, aten.arange.start_step)
PERMUTATIONS = (aten.randperm.default, aten.randperm.generator)
SORTS = (aten.sort.default, aten.sort.stable, aten.topk.default)

READS_MEMORY: frozenset[object] = frozenset(
    {
        aten.as_strided.default,
        aten.as_strided_copy.default,
        aten.as_strided_scatter.default,
        aten._reshape_alias.default,
        aten.sym_stride.int,
        aten.sym_storage_offset.default,
        aten.view.dtype,
    }
)
"""Operators whose values, not only strides, depend on the memory layout of an operand."""

CHEAP_VIEWS = "alias as_strided expand permute select slice split squeeze t unsqueeze view"
CHEAP = """
    _grad_sum_to_size _to_copy _unsafe_view amax amin any arange argmax argmin broadcast_tensors
    clone empty empty_like full full_like gather gelu gelu_backward index lift_fresh lift_fresh_copy
    max mean min new_zeros ones ones_like reshape scalar_tensor softplus std sum sum_to_size
    threshold threshold_backward to triu tril type_as var var_mean where zeros zeros_like
"""
"""Bandwidth-bound operators: fused into their readers, so that recomputing them costs little."""

CHEAP_PRIMS = """
    _low_memory_max_pool_offsets_to_indices broadcast_in_dim convert_element_type div iota
    prepare_softmax_online sum var
"""
EXPENSIVE = """
    _efficient_attention_forward _flash_attention_forward _scaled_dot_product_efficient_attention
    _scaled_dot_product_flash_attention _scaled_mm addmm bmm convolution convolution_backward mm
    upsample_bilinear2d
"""
"""Operators bound by arithmetic."""

FUSIBLE_RANDOM = "native_dropout rand_like randn_like"


def packet_of(node: Node) -> object:
    """Return the operator of a node without its overload, or the function that it calls."""
    return getattr(node.target, "_overloadpacket", node.target)


def is_declared_view(target: object) -> bool:
    """Return whether an operator's result may share storage with an operand."""
    declared = operators.declared_by(target)
    return target in UNDECLARED_VIEWS or (declared is not None and declared.views)


def is_cheap(node: Node) -> bool:
    """Return whether an operator is known to be cheap to compute again."""
    return _is_cheap(packet_of(node))


def is_expensive(node: Node) -> bool:
    """Return whether a node is bound by arithmetic: products, convolutions, attention."""
    return packet_of(node) in _packets("aten", EXPENSIVE)


def is_fusible_random(node: Node) -> bool:
    """Return whether a code generator fuses a random operator into its readers."""
    return packet_of(node) in _packets("aten", FUSIBLE_RANDOM)


@cache
def _packets(namespace: str, names: str) -> frozenset[object]:
    library = getattr(torch.ops, namespace)
    packets = (getattr(library, name, None) for name in names.split())
    return frozenset(packet for packet in packets if packet is not None)


@cache
def _is_cheap(target: object) -> bool:
    listed = (
        _packets("aten", CHEAP) | _packets("aten", CHEAP_VIEWS) | _packets("prims", CHEAP_PRIMS)
    )
    listed |= _packets("ctk", "draw")  # registered by `philox.py` before a graph can hold it
    return target in listed or target is operator.getitem or _is_pointwise(target)


def _is_pointwise(packet: Any) -> bool:
    if not hasattr(packet, "overloads"):
        return False
    overloads = (getattr(packet, name) for name in packet.overloads())
    return any(torch.Tag.pointwise in overload.tags for overload in overloads)
