"""What is known of operators: cheap to compute again, views, expensive, fusible.

`_CHEAP` is the allow-list of `ban_not_in_allow_list`: bandwidth-bound operators, which a code
generator fuses into what reads them, so that computing them again costs little.

Source: torch/_functorch/partitioners.py, `get_default_op_list`; like it, and with its additions of
pointwise operators by tag. Differs: what is random is found by its tag, not by a list of names.
"""

import operator
from functools import cache
from typing import Any

import torch
from torch.fx import Node

from ctk.compiler.torch_compat.aot.partition import is_symbolic, packet

_VIEWS = "alias as_strided expand permute select slice split squeeze t unsqueeze view"
_CHEAP = """
    _grad_sum_to_size _to_copy _unsafe_view amax amin any arange argmax argmin broadcast_tensors
    clone empty empty_like full full_like gather gelu gelu_backward index lift_fresh lift_fresh_copy
    max mean min new_zeros ones ones_like reshape scalar_tensor softplus std sum sum_to_size
    threshold threshold_backward to triu tril type_as var var_mean where zeros zeros_like
"""
_EXPENSIVE = """
    _efficient_attention_forward _flash_attention_forward _scaled_dot_product_efficient_attention
    _scaled_dot_product_flash_attention _scaled_mm addmm bmm convolution convolution_backward mm
    upsample_bilinear2d
"""
_OURS = "draw"
_FUSIBLE_RANDOM = "native_dropout rand_like randn_like"
_PRIMS = """
    _low_memory_max_pool_offsets_to_indices broadcast_in_dim convert_element_type div iota
    prepare_softmax_online sum var
"""


@cache
def _packets(namespace: str, names: str) -> frozenset[object]:
    library = getattr(torch.ops, namespace)
    found = (getattr(library, name, None) for name in names.split())
    return frozenset(each for each in found if each is not None)


@cache
def _is_cheap(target: object) -> bool:
    named = _packets("aten", _CHEAP) | _packets("prims", _PRIMS) | _packets("aten", _VIEWS)
    named |= _packets("ctk", _OURS)  # there once `philox.py` is loaded, as every graph with it is
    return target in named or target is operator.getitem or _is_pointwise(target)


def _is_pointwise(target: Any) -> bool:
    """Return whether an overload of an operator is tagged as pointwise."""
    if not hasattr(target, "overloads"):
        return False
    overloads = (getattr(target, name) for name in target.overloads())
    return any(torch.Tag.pointwise in overload.tags for overload in overloads)


def is_view(node: Node) -> bool:
    """Return whether a node's result lies in the memory of its operand."""
    target = packet(node)
    return target in _packets("aten", _VIEWS) or target is torch.ops.prims.broadcast_in_dim


def is_cheap(node: Node) -> bool:
    """Return whether a node is known to be cheap to compute again."""
    return _is_cheap(packet(node)) or is_symbolic(node)


def is_expensive(node: Node) -> bool:
    """Return whether a node is bound by arithmetic: products, convolutions, attention."""
    return packet(node) in _packets("aten", _EXPENSIVE)


def is_fusible(producer: Node, consumer: Node) -> bool:
    """Return whether a code generator would make one loop of both; `cat` takes in what it reads."""
    if packet(consumer) is torch.ops.aten.cat:
        return True
    return _is_fusible(producer) and _is_fusible(consumer)


def _is_fusible(node: Node) -> bool:
    return is_cheap(node) or packet(node) in _packets("aten", _FUSIBLE_RANDOM)
