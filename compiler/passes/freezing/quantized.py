"""Read quantized tensors in graphs as PT2E quantization writes them.

    q = quantize_per_tensor(x, scale, zero_point, low, high, dtype)      # integers
    y = dequantize_per_tensor(q, scale, zero_point, low, high, dtype)    # (q - zero_point) * scale

and `dequantize_per_channel` for weights. Shared by several passes; this module has no pass.
"""

import operator
from dataclasses import dataclass

import torch
from torch.fx import Node

from ctk.compiler.fx.properties import escapes, is_constant, is_written_between
from ctk.compiler.fx.types import same_sizes, tensor_of
from ctk.compiler.patterns.expression import Op
from ctk.compiler.torch_compat.fx import arguments

aten = torch.ops.aten
prims = torch.ops.prims

LAYERS = (aten.convolution.default, aten.addmm.default, aten.mm.default)
"""The operators that oneDNN computes with integers."""

_LIBRARY = "quantized_decomposed"
_TRANSPOSES = (aten.t.default, aten.permute.default, aten.transpose.int)
CONVERSIONS = (aten._to_copy.default, prims.convert_element_type.default)
_COPIES = (aten.clone.default, *CONVERSIONS)
_MOVES = (
    *(aten.view.default, aten.reshape.default, aten.clone.default, *_TRANSPOSES),
    aten.max_pool2d_with_indices.default,
)
"""Operators whose first result has numbers of their operand only."""


def name_of(pattern: Op) -> str:
    """Return the short name of a pattern's callee: `view`."""
    return str(pattern.target).split(".")[1]


def is_call_of(node: object, name: str) -> bool:
    """Return whether a node calls an operator of PT2E quantization, of any overload."""
    target = node.target if isinstance(node, Node) and node.op == "call_function" else None
    if getattr(target, "namespace", None) != _LIBRARY:
        return False
    return str(target).split(".")[1] == name


@dataclass(frozen=True, slots=True)
class Integers:
    """The operands of a dequantize.

    Attributes:
        node: The integers.
        scale: A number, a node with one, or a node with one for each channel.
        zero_point: The same; None for zeros.
        axis: The dimension of the channels; None with one scale for all.
    """

    node: Node
    scale: object
    zero_point: object
    axis: int | None


def integers_of(node: object) -> Integers | None:
    """Return the operands of a dequantize to floats; None for another node or kind of dequantize.

    A type of integers as that of the result, or of the scales, wraps around: it has no numbers.
    """
    numbers = tensor_of(node)
    if not isinstance(node, Node) or numbers is None or not numbers.is_floating_point():
        return None

    def argument(name: str) -> object:
        return arguments.argument_of(node.target, node.args, node.kwargs, name)

    given = argument("input")
    if not isinstance(given, Node):
        return None
    if is_call_of(node, "dequantize_per_tensor") and not str(node.target).endswith("tensor2"):
        return Integers(given, argument("scale"), argument("zero_point"), None)
    if is_call_of(node, "dequantize_per_channel"):
        axis, tensor, scales = argument("axis"), tensor_of(given), argument("scales")
        known = tensor_of(scales)
        if not isinstance(axis, int) or tensor is None or known is None:
            return None
        if known.is_floating_point():
            return Integers(given, scales, argument("zero_points"), axis % tensor.dim())
    return None


def is_fixed(found: Integers | None) -> bool:
    """Return whether a dequantize has numbers for its scale and zero point, none extreme."""
    if found is None or found.axis is not None or not isinstance(found.zero_point, int):
        return False
    return isinstance(found.scale, float) and 1e-30 < found.scale < 1e30


def reason_to_stay(y: Node, found: Integers, behind: Node) -> str | None:
    """Return why an operator behind a dequantize `y` cannot read the integers instead."""
    if escapes(y):
        return f"{y}, or a view of it, leaves the graph or is written to"
    if is_written_between(y, behind):
        return f"something is written between {y} and {behind}"
    integers, numbers = tensor_of(found.node), tensor_of(y)
    if integers is None or numbers is None:
        return f"the type of {y} is unknown"
    if not same_sizes(integers.stride(), numbers.stride()):
        return f"{found.node} has other strides than {y}"
    return None


def plain(node: object, dtype: torch.dtype) -> object:
    """Return the original of a copy: with other strides, or rounded from float32."""
    while isinstance(node, Node) and node.target in _COPIES and node.all_input_nodes:
        tensor = tensor_of(node)
        if tensor is None or tensor.dtype != dtype:
            return node
        node = node.args[0]
    return node


def skip_transpose(node: object, dtype: torch.dtype) -> tuple[object, bool]:
    """Return a matrix behind copies and transposes, and whether it is the other way round."""
    is_other, node = False, plain(node, dtype)
    while isinstance(node, Node) and node.target in _TRANSPOSES:
        is_other ^= _swaps(node)
        node = plain(node.args[0], dtype)
    return node, is_other


def _swaps(node: Node) -> bool:
    """Return whether a transpose of a matrix is one: `permute([0, 1])` is none."""
    if node.target is aten.permute.default:
        order = node.args[1]
        return isinstance(order, (list, tuple)) and order[0] in (1, -1)
    if node.target is aten.transpose.int:
        return len({axis % 2 for axis in node.args[1:] if isinstance(axis, int)}) == 2
    return True


def is_quantized(weight: object) -> bool:
    """Return whether a weight is dequantized from constant integers.

    Folding anything into it, or joining it with others, would hide it from oneDNN.
    """
    tensor = tensor_of(weight)
    if tensor is None:
        return False
    integers = integers_of(skip_transpose(weight, tensor.dtype)[0])
    return integers is not None and is_constant(integers.node)


def bounds_of(node: Node) -> tuple[int, int]:
    """Return the range of integers: the bounds of their quantize, or of their type."""
    tensor = tensor_of(node)
    assert tensor is not None  # the caller has looked
    info = torch.iinfo(tensor.dtype)
    low, high = _bounds(node, (info.min, info.max))
    return max(info.min, low), min(info.max, high)


def _bounds(node: object, widest: tuple[int, int]) -> tuple[int, int]:
    if not isinstance(node, Node):
        return widest
    if node.target is aten.cat.default and isinstance(node.args[0], (list, tuple)):
        parts = [_bounds(each, widest) for each in node.args[0]]
        return min(low for low, _ in parts), max(high for _, high in parts)
    if node.target in _MOVES or node.target is operator.getitem:
        return _bounds(node.args[0], widest)
    if node.target is aten.clamp.default and len(node.args) == 3:
        inner, (low, high) = _bounds(node.args[0], widest), node.args[1:]
    elif is_call_of(node, "quantize_per_tensor"):
        inner = widest
        low, high = (
            arguments.argument_of(node.target, node.args, node.kwargs, name)
            for name in ("quant_min", "quant_max")
        )
    else:
        return widest
    if not isinstance(low, int) or not isinstance(high, int):
        return inner
    return max(inner[0], low), min(inner[1], high)
