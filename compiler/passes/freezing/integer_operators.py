"""Operators that compute the same from integers as from their numbers: pools, joins, round trips.

    max_pool2d(dequantize(q)) -> dequantize(max_pool2d(q))     the order of integers is the same
    cat([dequantize(q), dequantize(r)]) -> dequantize(cat([q, r]))
    quantize(dequantize(q)) -> q                               a rounding error is below one half

Rules of `promote_dequantize`, which lists their preconditions; this module has no pass.
"""

import operator
from collections.abc import Sequence
from functools import partial
from typing import cast

import torch
from torch.fx import Node

from ctk.compiler.fx.properties import escapes, is_written_between
from ctk.compiler.fx.types import same_sizes, tensor_of
from ctk.compiler.passes.freezing.quantized import (
    Integers,
    bounds_of,
    integers_of,
    is_call_of,
    is_fixed,
    reason_to_stay,
)
from ctk.compiler.patterns import Match, Op, Rule, Var
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import arguments

aten = torch.ops.aten
_POOL = aten.max_pool2d_with_indices.default
_MOST_PLACES = torch.iinfo(torch.uint8).max
"""Of an image of uint8 with its channels last: torch (2.13 to 2.15) counts places in its type."""


def _is_replaced(y: Node, root: Node) -> str | None:
    """Return why the operator behind a dequantize cannot take its integers."""
    found = integers_of(y)
    if found is None or not is_fixed(found):
        return f"{y} is not dequantized with one number for all"
    return reason_to_stay(y, found, root)


def _may_pool(match: Match) -> str | None:
    y, pool = match.node("x"), match.root.args[0]
    reason = _is_replaced(y, match.root)
    if reason is not None:
        return reason
    found = integers_of(y)
    tensor = None if found is None else tensor_of(found.node)
    if tensor is None or tensor.dtype is not torch.uint8:
        return "torch has no max pool of these integers"
    height, width = tensor.shape[-2:]
    if fake.is_symbolic(height) or fake.is_symbolic(width) or height * width > _MOST_PLACES:
        return f"torch refuses to pool {height} x {width} integers with their channels last"
    if not isinstance(pool, Node) or any(each.users for each in pool.users if each != match.root):
        return f"the indices of {pool} are read"
    return None


def _pool(rewriter: Rewriter, match: Match) -> Node:
    y, pool = match.node("x"), match.root.args[0]
    found = integers_of(y)
    assert found is not None  # _may_pool has looked
    assert isinstance(pool, Node)
    call = rewriter.inserter(before=match.root)
    pooled = call(pool.target, found.node, *pool.args[1:], **pool.kwargs)
    return call(y.target, call(operator.getitem, pooled, 0), *y.args[1:], **y.kwargs)


def _may_join(match: Match) -> str | None:
    parts = match.bound["parts"]
    if not isinstance(parts, (list, tuple)) or not parts:
        return "it joins no tensors"
    nodes = [each for each in cast("Sequence[object]", parts) if isinstance(each, Node)]
    reasons = [_is_replaced(each, match.root) for each in nodes]
    if len(nodes) != len(parts) or any(reasons):
        return next((each for each in reasons if each), "it joins something else")
    known = [(each, integers_of(each)) for each in nodes]
    kinds = {
        (node.target, found.scale, found.zero_point, _dtypes(node, found))
        for node, found in known
        if found is not None
    }
    return None if len(kinds) == 1 else "it joins numbers of several scales or types"


def _dtypes(y: Node, found: Integers) -> tuple[object, ...]:
    types = [tensor_of(each) for each in (y, found.node)]
    return tuple(None if each is None else each.dtype for each in types)


def _join(rewriter: Rewriter, match: Match) -> Node:
    parts, root = cast("Sequence[Node]", match.bound["parts"]), match.root
    found = [integers_of(each) for each in parts]
    call, first = rewriter.inserter(before=root), parts[0]
    joined = call(root.target, [each.node for each in found if each is not None], *root.args[1:])
    info = torch.iinfo(cast("torch.Tensor", tensor_of(joined)).dtype)
    scale, zero, _, _, *rest = first.args[1:]
    return call(first.target, joined, scale, zero, info.min, info.max, *rest, **first.kwargs)


def drop_round_trips(rewriter: Rewriter) -> None:
    """Rule 5: read integers in place of a quantize of their numbers."""
    for node in rewriter.nodes():
        found = _round_trip(node)
        if found is not None:
            make = partial(_keep_integers, rewriter, node, *found)
            rewriter.replace_by("quantize(dequantize) -> integers", [node], make)


def _round_trip(node: Node) -> tuple[Node, int, int] | None:
    """Return the integers behind a quantize, and its bounds."""
    if not is_call_of(node, "quantize_per_tensor") or str(node.target).endswith("tensor2"):
        return None

    def argument(name: str) -> object:
        return arguments.argument_of(node.target, node.args, node.kwargs, name)

    found, numbers = integers_of(argument("input")), tensor_of(argument("input"))
    integers, result = tensor_of(found.node if found else None), tensor_of(node)
    low, high = argument("quant_min"), argument("quant_max")
    if found is None or not is_fixed(found) or integers is None or result is None:
        return None
    if not isinstance(low, int) or not isinstance(high, int) or result.dtype != integers.dtype:
        return None
    if numbers is None or numbers.itemsize < 4 or integers.itemsize > 1:
        return None  # the numbers of larger integers may be rounded by more than one half
    if (argument("scale"), argument("zero_point")) != (found.scale, found.zero_point):
        return None
    if not same_sizes(result.stride(), integers.stride()) or is_written_between(found.node, node):
        return None
    return found.node, low, high


def _keep_integers(rewriter: Rewriter, node: Node, integers: Node, low: int, high: int) -> Node:
    least, largest = bounds_of(integers)
    if low <= least and largest <= high and not escapes(node):
        return integers
    return rewriter.insert(aten.clamp.default, (integers, low, high), before=node)


_SETTINGS = tuple(map(Var, ("kernel", "stride", "padding", "dilation", "ceil")))
INTEGER_RULES = (
    *(
        Rule(
            "max_pool2d(dequantize) -> dequantize of it",
            Op(operator.getitem, (Op(_POOL, (Var("x"), *_SETTINGS[:count])), 0)),
            _pool,
            _may_pool,
        )
        for count in range(1, 6)
    ),
    *(
        Rule(
            "cat(dequantize...) -> dequantize of it",
            Op(aten.cat.default, (Var("parts"), *more)),
            _join,
            _may_join,
        )
        for more in ((), (Var("axis"),))
    ),
)
