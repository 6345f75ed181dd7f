"""Compute with tensors of equal elements without the tensors.

`full`, `zeros`, `ones` and their `_like` and `new_` forms are uniform, and so are `fill`, views of
them, `add`, `sub`, `mul`, `neg`, `abs`, casts, comparisons and `where` of uniforms, and `x * 0` of
integers. Rules:
    1. op(uniforms...) -> full(sizes, value)      computed on one element, with the same dtypes;
       also `fill(x, value)`, `zeros_like(x)`, `x.new_ones(...)`, which need no `x` then
    2. mul(x, 1) -> x     div(x, 1) -> x     sub(x, 0) -> x     add(x, 0) -> x (integers)
       with a cast in place of `x`, if the uniform promotes it
    3. where(True, a, b) -> a     where(False, a, b) -> b
Preconditions: 1. the value is finite and not -0.0 (code generators print it), the result is dense,
a view does not leave the graph, and nothing writes to a uniform. 2. and 3. `x` has the type and
strides of the result, replacing it by `x` is unobservable, and 2. is not complex (`inf * 1` has a
NaN there, and zeros change their signs). `x * 0` stays (NaN), and so does `x + 0` of
floats (-0.0). Exact.

Source: `torch/_inductor/fx_passes/joint_graph.py` (`UniformValueConstantFolder`) also tracks
integers and sizes and folds any operator; this pass computes only operators with the same bits on
every device.
"""

import math
from collections.abc import Mapping
from functools import partial

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from ctk.compiler.fx.operator_facts import CASTS
from ctk.compiler.fx.properties import base_of, escapes, is_view, mutated_bases
from ctk.compiler.fx.types import is_dense, same_layout, same_sizes, tensor_of
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake

aten = torch.ops.aten
FILLS: Mapping[object, float | int | None] = {  # None: the value is the second argument
    aten.fill.Scalar: None,
    aten.full.default: None,
    aten.full_like.default: None,
    aten.new_full.default: None,
    aten.zeros.default: 0,
    aten.zeros_like.default: 0,
    aten.new_zeros.default: 0,
    aten.ones.default: 1,
    aten.ones_like.default: 1,
    aten.new_ones.default: 1,
}
"""The operators that make uniforms, with their values."""

_VIEWS = frozenset(
    {
        aten.view.default,
        aten._unsafe_view.default,
        aten.reshape.default,
        aten.expand.default,
        aten.permute.default,
        aten.t.default,
        aten.transpose.int,
        aten.unsqueeze.default,
        aten.squeeze.dim,
        aten.select.int,
        aten.slice.Tensor,
    }
)
_POINTWISE = frozenset(
    {
        aten.abs.default,
        aten.neg.default,
        aten.where.self,
        *(
            getattr(op, kind)
            for op in (aten.add, aten.sub, aten.mul)
            for kind in ("Tensor", "Scalar")
        ),
        *(
            getattr(op, kind)
            for op in (aten.eq, aten.ne, aten.lt, aten.le, aten.gt, aten.ge)
            for kind in ("Tensor", "Scalar")
        ),
    }
)
_NEUTRAL: Mapping[object, int] = {aten.mul.Tensor: 1, aten.div.Tensor: 1, aten.sub.Tensor: 0}


class FoldUniformValues(Pass):
    """Compute with tensors of equal elements without the tensors."""

    name = "fold_uniform_values"

    def run(self, rewriter: Rewriter) -> None:
        written = mutated_bases(rewriter.graph)
        known: dict[Node, torch.Tensor] = {}
        for node in rewriter.nodes():
            value = None if base_of(node) in written else _value(node, known)
            if value is not None:
                known[node] = value
            is_full = node.target in FILLS and not node.all_input_nodes
            if value is not None and not is_full and _may_fill(node, value):
                _fill(rewriter, node, value, known)
            elif value is None:
                source = _same_as(node, known)
                if source is None:
                    continue
                if not _is_told_apart(node, source, written):
                    rewriter.replace(node, source, rule=f"{node.target}(x, uniform) -> x")
                elif _is_promoted(node, source):
                    _cast(rewriter, node, source)


def _value(node: Node, known: Mapping[Node, torch.Tensor]) -> torch.Tensor | None:
    """Return a uniform as one element with its dtype and number of dimensions, else None."""
    tensor = tensor_of(node)
    if node.op != "call_function" or tensor is None or tensor.dtype.is_complex:
        return None
    if node.target in FILLS:
        return fill_value(node)
    if _is_zero_product(node, tensor, known):
        with fake.real_compute():
            return torch.zeros([1] * tensor.dim(), dtype=tensor.dtype)
    if not node.all_input_nodes or not all(operand in known for operand in node.all_input_nodes):
        return None
    with fake.real_compute():
        if node.target in _VIEWS:
            return known[node.all_input_nodes[0]].reshape([1] * tensor.dim())
        if node.target in CASTS:
            return _cast_value(known[node.all_input_nodes[0]], tensor.dtype)
        if node.target not in _POINTWISE:
            return None
        args, kwargs = (map_arg(each, known.__getitem__) for each in (node.args, node.kwargs))  # type: ignore[arg-type]  # map_arg takes any value
        found = node.target(*args, **kwargs)  # type: ignore[operator]  # an operator
    return found if found.dtype == tensor.dtype and found.dim() == tensor.dim() else None


def _is_zero_product(node: Node, tensor: torch.Tensor, known: Mapping[Node, torch.Tensor]) -> bool:
    """Return whether a node multiplies integers by 0, which floats (NaN, -0.0) do not survive."""
    if node.target not in (aten.mul.Tensor, aten.mul.Scalar) or tensor.is_floating_point():
        return False
    numbers = (arg for arg in node.args if isinstance(arg, (int, float)))
    uniforms = (number_of(known[arg]) for arg in node.all_input_nodes if arg in known)
    return 0 in (*numbers, *uniforms)


def _cast_value(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor | None:
    """Return a cast value; None for a float that becomes an integer: it may be out of range."""
    if value.is_floating_point() and not dtype.is_floating_point:
        return None
    return value.to(dtype)


def fill_value(node: Node) -> torch.Tensor | None:
    """Return the element of a call of `FILLS`; None if it is a symbol."""
    value, tensor = FILLS[node.target], tensor_of(node)
    given = value if value is not None else (node.args[1:] or (node.kwargs.get("fill_value"),))[-1]
    if node.target is aten.new_full.default and len(node.args) > 2:
        given = node.args[2]
    if tensor is None or not isinstance(given, (bool, int, float)):
        return None
    with fake.real_compute():
        return torch.full([1] * tensor.dim(), given, dtype=tensor.dtype)


def _may_fill(node: Node, value: torch.Tensor) -> bool:
    tensor = tensor_of(node)
    if tensor is None or tensor.layout is not torch.strided or not node.users:
        return False
    if node.kwargs.get("pin_memory"):
        return False
    if is_view(node) and (escapes(node) or len(node.all_input_nodes[0].users) > 1):
        return False
    if any(map(fake.is_symbolic, tensor.shape)) or not is_dense(tensor):
        return False
    number = number_of(value)
    return math.isfinite(number) and not _is_negative_zero(number)


def number_of(value: torch.Tensor) -> float:
    """Return the number of a tensor of one element."""
    with fake.real_compute():
        return value.item()


def _is_negative_zero(number: float) -> bool:
    return number == 0 and math.copysign(1, number) < 0


def _fill(
    rewriter: Rewriter, node: Node, value: torch.Tensor, known: dict[Node, torch.Tensor]
) -> None:
    tensor = tensor_of(node)
    assert tensor is not None  # _may_fill has looked

    def make() -> Node:
        options = {"dtype": tensor.dtype, "device": tensor.device}
        args = (list(tensor.shape), number_of(value))
        new = rewriter.insert(aten.full.default, args, options, before=node)
        known[new] = value
        return new

    rewriter.replace_by(f"{node.target}(uniforms) -> full", [node], make)


def _same_as(node: Node, known: Mapping[Node, torch.Tensor]) -> Node | None:
    """Return the operand whose values a node has, by rules 2 and 3."""
    operands = [arg for arg in node.args if isinstance(arg, Node)]
    if node.op != "call_function" or node.kwargs or len(operands) != len(node.args):
        return None
    numbers = [number_of(known[operand]) if operand in known else None for operand in operands]
    if node.target is aten.where.self and numbers[0] is not None:
        return operands[1] if numbers[0] else operands[2]
    if len(operands) != 2:
        return None
    found = (
        (kept, number)
        for kept, number, is_right in (
            (operands[0], numbers[1], True),
            (operands[1], numbers[0], False),
        )
        if is_right or node.target in (aten.mul.Tensor, aten.add.Tensor)
    )
    return next((kept for kept, number in found if _is_neutral(node, number)), None)


def _is_neutral(node: Node, number: float | None) -> bool:
    tensor = tensor_of(node)
    if number is None or tensor is None or tensor.is_complex() or _is_negative_zero(number):
        return False
    if node.target is aten.add.Tensor:
        return number == 0 and not tensor.is_floating_point()
    return _NEUTRAL.get(node.target) == number


def _is_told_apart(node: Node, source: Node, written: set[Node]) -> bool:
    """Return whether a new tensor cannot be the old one: see `remove_noops`."""
    is_shared = escapes(node) or base_of(source) in written
    return is_shared or not same_layout(node, source)


def _is_promoted(node: Node, source: Node) -> bool:
    """Return whether a uniform changes the dtype only: each number fits into the wider type."""
    mine, others = tensor_of(node), tensor_of(source)
    if mine is None or others is None or mine.dtype == others.dtype or others.is_complex():
        return False
    if node.target is aten.where.self or mine.device != others.device:
        return False
    return same_sizes(mine.shape, others.shape) and same_sizes(mine.stride(), others.stride())


def _cast(rewriter: Rewriter, node: Node, source: Node) -> None:
    tensor = tensor_of(node)
    assert tensor is not None  # _is_promoted has looked
    make = partial(
        rewriter.insert, aten._to_copy.default, (source,), {"dtype": tensor.dtype}, before=node
    )
    rewriter.replace_by(f"{node.target}(x, uniform) -> cast(x)", [node], make)


def examples() -> list[Example]:
    """Return programs that the pass changes."""
    x = torch.ones(2, 3)
    return [
        (lambda x: x * (aten.full.default([2, 3], 0.5) + aten.ones.default([2, 3])), (x,)),
        (lambda x: (x * torch.ones_like(x)).sin(), (x,)),
        (lambda x: (torch.ones_like(x) * x - torch.zeros_like(x)).sin(), (x,)),
        (lambda x: (torch.full_like(x, 1.0) + x.new_full([3], 2)).view(3, 2).t(), (x,)),
        (lambda x: torch.where(torch.full_like(x, 2.0) > 1, x.sin(), x).cos(), (x,)),
        (lambda x: (x.to(torch.int64) + torch.zeros_like(x, dtype=torch.int64)).neg(), (x,)),
        (lambda x: x.new_zeros([2, 3]) + x.sin(), (x,)),
        (lambda x: aten.fill.Scalar(x[:1], 2.0) + x.sin(), (x,)),
        (lambda x: x + aten.full.default([1, 3], -0.0).expand(2, 3).neg(), (x,)),
        (lambda x: x.bfloat16() * torch.ones(3), (x,)),
        (lambda x: x.to(torch.int64) * 0 + x, (x,)),
        (lambda x: x * torch.full_like(x, 3, dtype=torch.int32).to(torch.float32).abs(), (x,)),
    ]


PASS = FoldUniformValues()
