"""Fold arithmetic with constants into the weights of the convolution or product before it.

Rules, `c` a number, a constant of one element, or one of one element per output channel, and `y` a
convolution or an `addmm` with constant weight `w` and bias `b`, or `mm(x, w)`, which has none:
    1. y + c -> y with b + c        y - c -> y with b - c        (an `mm` becomes an `addmm`)
    2. y * c -> y with w * c, b * c        y / c -> y with w / c, b / c
    3. view(y) op c -> view(y with op), the view of a product splitting rows only: a linear layer
       of tokens
    4. batch_norm(y) -> y, for a `y` that 1 or 2 have just made: the rules of `fold_batch_norm`
Nodes are visited once, in the order of the graph, and each reads the folded nodes before it. So a
chain of any length folds as a whole (`conv * c + d`, a batch norm, `- e`), and a vetoed rewrite is
offered once.
Preconditions: `y` has no other user; all dtypes are the same, float32 or float64; the result has
the type and strides of `y`; `c` is finite, and as a factor between 2^-20 and 2^20, lest weights
overflow or vanish. Reassociates.

Source: `torch/_inductor/fx_passes/binary_folding.py` repeats folding of constants and of arithmetic
four times, depends on a later folding of unrelated operators, and folds any factor; this pass
checks the values.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.fx import Graph, Node

from ctk.compiler.fx.constants import Constants
from ctk.compiler.fx.properties import is_constant, is_written_between
from ctk.compiler.fx.types import same_sizes, same_type, tensor_of
from ctk.compiler.passes.freezing.fold_batch_norm import along_outputs, fold_behind
from ctk.compiler.passes.freezing.quantized import is_quantized
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake

aten = torch.ops.aten
_SUMS = (aten.add.Tensor, aten.sub.Tensor)
_FACTORS = (aten.mul.Tensor, aten.div.Tensor)
_COMMUTATIVE = (aten.add.Tensor, aten.mul.Tensor)
_PRODUCTS = (aten.addmm.default, aten.mm.default)
_VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)


@dataclass(frozen=True, slots=True)
class _Layer:
    """A convolution or product with constant weights.

    Attributes:
        node: The call.
        weight: Its weight.
        bias: Its bias, if it has one.
        seen: The operand of the arithmetic: the call, or a view of it that splits rows.
    """

    node: Node
    weight: Node
    bias: Node | None
    seen: Node

    @staticmethod
    def of(seen: object) -> "_Layer | None":
        node = _behind_view(seen)
        if node is None or node.kwargs or len(node.users) != 1:
            return None
        if node.target not in (aten.convolution.default, *_PRODUCTS):
            return None
        assert isinstance(seen, Node)  # _behind_view has looked
        is_addmm = node.target is aten.addmm.default
        weight = node.args[2 if is_addmm else 1]
        bias = None if node.target is aten.mm.default else node.args[0 if is_addmm else 2]
        if not isinstance(weight, Node) or not is_constant(weight) or is_quantized(weight):
            return None
        if not isinstance(bias, Node):
            return _Layer(node, weight, None, seen) if bias is None else None
        row = tensor_of(bias)
        is_row = row is not None and row.dim() == 1 and is_constant(bias)
        return _Layer(node, weight, bias, seen) if is_row else None


def _behind_view(seen: object) -> Node | None:
    """Return the product that a node is a view of, if that splits rows only; else the node."""
    inner = seen.args[0] if isinstance(seen, Node) and seen.target in _VIEWS else None
    if not isinstance(inner, Node) or inner.target not in _PRODUCTS:
        return seen if isinstance(seen, Node) else None
    shown, product = tensor_of(seen), tensor_of(inner)
    if shown is None or product is None or shown.dim() < 2:
        return None
    is_same = same_sizes(shown.shape[-1:], product.shape[-1:])
    return inner if is_same and len(seen.users) == 1 else None  # type: ignore[union-attr]  # a node, as inner is one


class FoldBinary(Pass):
    """Fold arithmetic with constants into the weights of the product before it."""

    name = "fold_binary"
    numerics = "reassociates"

    def run(self, rewriter: Rewriter) -> None:
        constants, made = Constants(rewriter.module), set[Node]()
        for node in rewriter.nodes():
            made.update(fold_behind(rewriter, node, made))
            for layer, operand in _readings(node):
                if _keeps_type(node, layer) and _is_foldable(node, layer, operand, constants):
                    made.update(_fold(rewriter, node, layer, operand))
                    break


def _readings(node: Node) -> list[tuple[_Layer, object]]:
    """Return a product and a constant for each way to read an operation as one of the two."""
    if node.target not in (*_SUMS, *_FACTORS) or node.kwargs or len(node.args) != 2:
        return []
    orders = [node.args, node.args[::-1]] if node.target in _COMMUTATIVE else [node.args]
    found = [(_Layer.of(a), b) for a, b in orders]
    return [(layer, other) for layer, other in found if layer is not None]


def _keeps_type(node: Node, layer: _Layer) -> bool:
    result, seen = tensor_of(node), tensor_of(layer.seen)
    if result is None or seen is None or not same_type(result, seen):
        return False
    if result.dtype not in (torch.float32, torch.float64) or result.dim() < 2:
        return False
    is_same = same_sizes(result.stride(), seen.stride())
    return is_same and not is_written_between(layer.node, node)


def _is_foldable(node: Node, layer: _Layer, operand: object, constants: Constants) -> bool:
    """Return whether an operand is one number per output channel, or one for all, and harmless."""
    axis = 1 if layer.node.target is aten.convolution.default else -1
    with fake.real_compute():
        if isinstance(operand, (int, float)) and not isinstance(operand, bool):
            value = torch.tensor(float(operand), dtype=torch.float64)
        elif isinstance(operand, Node) and constants.is_known(operand):
            value, result = constants.value(operand), tensor_of(node)
            if result is None or value.dtype != result.dtype:
                return False
            if not _is_per_channel(value, result, axis):
                return False
        else:
            return False
        is_fine = bool(torch.isfinite(value).all())
        if node.target in _FACTORS:
            is_fine &= bool(((value.abs() >= 2**-20) & (value.abs() <= 2**20)).all())
    return is_fine


def _is_per_channel(value: torch.Tensor, result: torch.Tensor, axis: int) -> bool:
    """Return whether a value broadcasts along the channels of a result and no other dimension."""
    if value.numel() == 1:
        return True
    sizes = [1] * (result.dim() - value.dim()) + list(value.shape)
    sizes[axis] = 1 if sizes[axis] == result.shape[axis] else 0
    return all(size == 1 for size in sizes)


def _fold(rewriter: Rewriter, node: Node, layer: _Layer, operand: object) -> list[Node]:
    """Fold an operand into a layer; return the new layer, and its view for later arithmetic."""
    new: list[Node] = []

    def edit(graph: Graph) -> None:
        folded = _folded(rewriter, node, layer, operand)
        new.append(folded)
        if layer.seen is not layer.node:
            view, sizes = layer.seen.target, layer.seen.args[1:]
            new.append(rewriter.insert(view, (folded, *sizes), before=node))
        node.replace_all_uses_with(new[-1])
        for each in dict.fromkeys((node, layer.seen, layer.node)):
            graph.erase_node(each)

    target = _target(node, layer)
    rule = f"{node.target}({layer.node.target}, constant) -> {target}"
    rewriter.rewrite(rule, [node, layer.node], edit)
    return new


def _target(node: Node, layer: _Layer) -> object:
    """Return the call of a layer with a folded operation."""
    if node.target in _SUMS and layer.node.target is aten.mm.default:
        return aten.addmm.default
    return layer.node.target


def _folded(rewriter: Rewriter, node: Node, layer: _Layer, operand: object) -> Node:
    """Add a layer with an operand in its weights, in front of the arithmetic."""
    call = rewriter.inserter(before=node)
    row = call(aten.reshape.default, operand, [-1]) if isinstance(operand, Node) else operand
    weight, bias = _weight(call, node, layer, row), layer.bias
    if bias is None and node.target in _SUMS:
        bias = _no_bias(call, layer)
    bias = None if bias is None else call(node.target, bias, row)
    target, args = _target(node, layer), list(layer.node.args)
    if target is aten.addmm.default:
        return call(target, bias, args[-2], weight)
    return call(target, args[0], weight, *([bias, *args[3:]] if len(args) > 2 else []))


def _weight(call: Callable[..., Node], node: Node, layer: _Layer, row: object) -> Node:
    """Return the weight with a factor in it: a row, or a number."""
    if node.target in _SUMS:
        return layer.weight
    scale = tensor_of(row)
    if layer.node.target is aten.convolution.default and scale is not None:
        views = along_outputs(layer.weight, layer.node.args[6], layer.node.args[8])
        for target, args in views if scale.numel() > 1 else ():
            row = call(target, row, *args)
    return call(node.target, layer.weight, row)


def _no_bias(call: Callable[..., Node], layer: _Layer) -> Node:
    """Add a row of zeros, one for each output channel, of the kind of the weight."""
    result = tensor_of(layer.node)
    assert result is not None  # _keeps_type has looked
    return call(aten.new_full.default, layer.weight, [result.shape[1]], 0.0)


def examples() -> list[Example]:
    """Return programs that the pass changes: products with arithmetic to fold."""

    def constant(*shape: int) -> torch.Tensor:
        return torch.nn.Parameter(torch.ones(shape))

    x, row, one = torch.ones(2, 4, 3, 3), constant(4), constant(4, 1, 1)
    y, w, kernel = torch.ones(2, 3), constant(3, 4), constant(4, 4, 2, 2)
    plain = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    grouped = ([2, 2], [0, 0], [1, 1], True, [0, 0], 2)
    return [
        (lambda x, w, b, c: aten.convolution.default(x, w, b, *plain) * c, (x, kernel, row, one)),
        (lambda x, w, c: aten.convolution.default(x, w, None, *plain) - c, (x, kernel, one)),
        (lambda x, w, b, c: aten.convolution.default(x, w, b, *grouped) / c,
         (x, constant(4, 2, 2, 2), row, one)),
        (lambda y, w, b, c: torch.addmm(b, y, w) + c, (y, w, row, row)),
        (lambda y, w, b: torch.addmm(b, y, w) / 2.0, (y, w, row)),
        (lambda y, w, c: c * torch.mm(y, w), (y, w, row)),
        (lambda y, w: torch.mm(y, w) / 3, (y, w)),
        (lambda y, w, c: torch.mm(y, w).view(1, 2, 4) * c - c, (y, w, row)),
        (lambda x, w, b, c: _normalize(aten.convolution.default(x, w, b, *plain) * c, b) - c,
         (x, kernel, row, one)),
    ]  # fmt: skip


def _normalize(y: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    norm = aten._native_batch_norm_legit_no_training.default
    return norm(y, row, row, row, row, 0.1, 0.5)[0]


PASS = FoldBinary()
