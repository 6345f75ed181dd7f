"""Remove operations that return their operand unchanged.

Rules, where the operand has the result's type and strides:
    1. views: `view|reshape|expand|permute|slice|squeeze|alias|detach|view.dtype(x) -> x`;
    2. copies: `clone|_to_copy|repeat|constant_pad_nd 0|mul 1|div 1|sub 0|pow 1(x) -> x`,
       `ceil|floor|round|trunc(x) -> x` of integers, `cat([x]) -> x`, `copy(y, x) -> x`;
    3. `_assert_tensor_metadata(x) -> nothing`, where the type of `x` is known to be this one.
Preconditions: a copy is removed only if that is unobservable: it does not leave the graph, or its
operand is new memory that does not leave it otherwise; and nothing writes to either.
Arithmetic of complex numbers stays: `inf * 1` has a NaN there, and zeros change their signs.
`detach` and `alias` stay if they or views of them leave the graph: autograd distinguishes results
by object, and of `z.detach(), z[0]` only one has a gradient.
`x + 0` and `x - -0.0` stay: they turn -0.0 into 0.0. Exact.

Source: Inductor's `remove_noop_ops`; this pass keeps strides, aliases and signs of zero.
"""

import math
from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch.fx import Node

from ctk.compiler.fx.properties import base_of, escapes, is_view, mutated_bases
from ctk.compiler.fx.types import same_layout, same_sizes, tensor_of, value_of
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fx import arguments, operators

aten, prims = torch.ops.aten, torch.ops.prims
_VIEWS = frozenset(
    {
        aten.view.default,
        aten._unsafe_view.default,
        aten.reshape.default,
        aten.expand.default,
        aten.permute.default,
        aten.slice.Tensor,
        aten.squeeze.dims,
        aten.squeeze.dim,
        aten.squeeze.default,
        aten.alias.default,
        aten.detach.default,
        aten.view.dtype,
    }
)
_BARRIERS = (aten.alias.default, aten.detach.default)
_COPIES = frozenset(
    {
        aten.clone.default,
        aten.copy.default,
        aten.repeat.default,
        aten._to_copy.default,
        prims.convert_element_type.default,
        prims.device_put.default,
    }
)
_ROUNDING = frozenset(
    {aten.ceil.default, aten.floor.default, aten.round.default, aten.trunc.default}
)
_ASSERT = aten._assert_tensor_metadata.default
_NEUTRAL: Mapping[object, int] = {
    aten.mul.Tensor: 1,
    aten.mul.Scalar: 1,
    aten.div.Tensor: 1,
    aten.div.Scalar: 1,
    aten.sub.Tensor: 0,
    aten.sub.Scalar: 0,
    aten.pow.Tensor_Scalar: 1,
}


class RemoveNoops(Pass):
    """Remove operations that return their operand unchanged."""

    name = "remove_noops"

    def run(self, rewriter: Rewriter) -> None:
        mutated = mutated_bases(rewriter.graph)
        for node in rewriter.nodes():
            if node.target is _ASSERT and _holds(node):
                rewriter.erase(node, rule=f"{node.target}(x) -> nothing")
                continue
            source = _source(node)
            if not isinstance(source, Node) or not _is_noop(node) or not same_layout(node, source):
                continue
            is_seen = escapes(node) and not _is_private(source)
            is_written = node in mutated or base_of(source) in mutated
            if node.target not in _VIEWS and (is_seen or is_written):
                continue
            if node.target in _BARRIERS and escapes(node, by_place=False):
                continue
            rewriter.replace(node, source, rule=f"{node.target}(x) -> x")


def _source(node: Node) -> object:
    """Return the operand whose values a node would have."""
    if node.op != "call_function" or not node.args:
        return None
    if node.target is aten.copy.default:
        return node.args[1]
    if node.target is aten.cat.default and isinstance(node.args[0], (list, tuple)):
        return node.args[0][0] if len(node.args[0]) == 1 else None
    return node.args[0]


def _is_private(source: Node) -> bool:
    """Return whether a node is new memory that the program gets by way of its copy only."""
    is_new = source.op == "call_function" and operators.declared_by(source.target) is not None
    return is_new and not is_view(source) and not escapes(source)


def _holds(node: Node) -> bool:
    """Rule 3."""
    given = arguments.full_arguments(node.target, node.args, node.kwargs)
    tensor = None if given is None else tensor_of(given[0])
    if given is None or tensor is None:
        return False
    _, sizes, strides, dtype, device, layout = given
    known = ((tensor.dtype, dtype), (tensor.device, device), (tensor.layout, layout))
    lists = ((tensor.shape, sizes), (tensor.stride(), strides))
    return all(given in (None, own) for own, given in known) and all(
        given is None or same_sizes(own, map(value_of, cast("Sequence[object]", given)))
        for own, given in lists
    )


def _is_noop(node: Node) -> bool:
    """Type and strides decide for views and copies, unless equal sizes could hide a permutation."""
    if node.target is aten.permute.default:
        order = node.args[1]
        return isinstance(order, (list, tuple)) and list(order) == list(range(len(order)))
    if node.target is aten.slice.Tensor:
        return _is_whole(node)
    if node.target in _VIEWS or node.target in _COPIES or node.target is aten.cat.default:
        return True
    if node.target is aten.constant_pad_nd.default:
        return all(
            type(each) is int and each == 0 for each in cast("Sequence[object]", node.args[1])
        )
    if node.target in _ROUNDING:
        return (tensor := tensor_of(node)) is not None and not tensor.is_floating_point()
    if node.target not in _NEUTRAL or node.kwargs or len(node.args) != 2:
        return False
    operand, result = node.args[1], tensor_of(node)
    if result is None or result.is_complex():
        return False
    if not isinstance(operand, (int, float)) or isinstance(operand, bool):
        return False
    return operand == _NEUTRAL[node.target] and math.copysign(1, operand) > 0


def _is_whole(node: Node) -> bool:
    """Return whether a slice of equal size is the whole: for any bounds, unless it steps."""
    step = node.args[4] if len(node.args) > 4 else 1
    return isinstance(step, int) and step == 1


def examples() -> list[Example]:
    """Return programs that the pass changes."""
    x, y = torch.ones(4, 3), torch.ones(4, 3, dtype=torch.int64)
    return [
        (lambda x: (x.view(4, 3).expand(4, 3) * 1).sin(), (x,)),
        (lambda x: (x.clone() - 0).permute(0, 1)[0:4].sin(), (x,)),
        (lambda x: aten.constant_pad_nd.default(x.repeat(1, 1), [0, 0]).sin(), (x,)),
        (lambda x: x.view(torch.float32).sin() ** 1, (x,)),
        (lambda x: x.sin().clone(), (x,)),
        (lambda y: y.floor() + y.round() * y.trunc(), (y,)),
        (lambda x, y: aten.copy.default(x, torch.cat([x / 1])) + y.ceil(), (x, y)),
        (lambda x: prims.convert_element_type.default(x, torch.float32).sin(), (x,)),
    ]


PASS = RemoveNoops()
