"""Fold arithmetic with constants into the weights of the convolution or product before it.

Rules, `c` a number, a constant of one element, or one of one element per output channel, and `y` a
convolution or an `addmm` with constant weight `w` and bias `b` (`mm` has none: see the last):
    1. y + c -> y with b + c        y - c -> y with b - c
    2. y * c -> y with w * c, b * c        y / c -> y with w / c, b / c
    3. mm(x, w) * c -> mm(x, w * c)        mm(x, w) / c -> mm(x, w / c)
Preconditions: nobody else uses `y`; all dtypes are the same, float32 or float64; the result has
the type and strides of `y`; `c` is finite, and as a factor between 2^-20 and 2^20, lest weights
overflow or vanish. Reassociates.

Source: `torch/_inductor/fx_passes/binary_folding.py`. That one counts on a later folding of
unrelated operators, and folds any factor; this one looks at the values.
"""

from dataclasses import dataclass

import torch
from torch.fx import Graph, Node

from ctk.compiler.fx.constants import Constants
from ctk.compiler.fx.properties import is_constant, is_written_between
from ctk.compiler.fx.types import same_sizes, same_type, tensor_of
from ctk.compiler.passes.freezing.fold_batch_norm import along_outputs
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat import fake

aten = torch.ops.aten
_SUMS = (aten.add.Tensor, aten.sub.Tensor)
_FACTORS = (aten.mul.Tensor, aten.div.Tensor)
_COMMUTATIVE = (aten.add.Tensor, aten.mul.Tensor)
_PRODUCTS = (aten.convolution.default, aten.addmm.default, aten.mm.default)


@dataclass(frozen=True, slots=True)
class _Layer:
    """A product with constant weights, by the positions of its weight and bias."""

    node: Node
    weight: Node
    bias: Node | None

    @staticmethod
    def of(node: object) -> "_Layer | None":
        if not isinstance(node, Node) or node.target not in _PRODUCTS or node.kwargs:
            return None
        if len(node.users) != 1:
            return None
        is_addmm = node.target is aten.addmm.default
        weight = node.args[2 if is_addmm else 1]
        bias = None if node.target is aten.mm.default else node.args[0 if is_addmm else 2]
        if not isinstance(weight, Node) or not is_constant(weight):
            return None
        if not isinstance(bias, Node):
            return _Layer(node, weight, None) if bias is None else None
        row = tensor_of(bias)
        is_row = row is not None and row.dim() == 1 and is_constant(bias)
        return _Layer(node, weight, bias) if is_row else None


class FoldBinary(Pass):
    """Fold arithmetic with constants into the weights of the product before it."""

    name = "fold_binary"
    numerics = "reassociates"

    def run(self, rewriter: Rewriter) -> None:
        constants = Constants(rewriter.module)
        for node in rewriter.nodes():
            for layer, operand in _readings(node):
                if _keeps_type(node, layer) and _is_foldable(node, layer, operand, constants):
                    _fold(rewriter, node, layer, operand)
                    break


def _readings(node: Node) -> list[tuple[_Layer, object]]:
    """Return a product and a constant for each way to read an operation as one of the two."""
    if node.target not in (*_SUMS, *_FACTORS) or node.kwargs or len(node.args) != 2:
        return []
    orders = [node.args, node.args[::-1]] if node.target in _COMMUTATIVE else [node.args]
    found = [(_Layer.of(a), b) for a, b in orders]
    return [(layer, other) for layer, other in found if layer is not None]


def _keeps_type(node: Node, layer: _Layer) -> bool:
    result, product = tensor_of(node), tensor_of(layer.node)
    if result is None or product is None or not same_type(result, product):
        return False
    if result.dtype not in (torch.float32, torch.float64) or result.dim() < 2:
        return False
    is_sum_of_mm = node.target in _SUMS and layer.node.target is aten.mm.default  # fuse_addmm
    is_same = same_sizes(result.stride(), product.stride())
    return is_same and not is_sum_of_mm and not is_written_between(layer.node, node)


def _is_foldable(node: Node, layer: _Layer, operand: object, constants: Constants) -> bool:
    """Return whether an operand is one number per output channel, or one for all, and harmless."""
    with fake.real_compute():
        if isinstance(operand, (int, float)) and not isinstance(operand, bool):
            value = torch.tensor(float(operand), dtype=torch.float64)
        elif isinstance(operand, Node) and constants.is_known(operand):
            value, result = constants.value(operand), tensor_of(node)
            if result is None or value.dtype != result.dtype or not _is_per_channel(value, result):
                return False
        else:
            return False
        is_fine = bool(torch.isfinite(value).all())
        if node.target in _FACTORS:
            is_fine &= bool(((value.abs() >= 2**-20) & (value.abs() <= 2**20)).all())
    return is_fine


def _is_per_channel(value: torch.Tensor, result: torch.Tensor) -> bool:
    """Return whether a value broadcasts along dimension 1 of a result and no other."""
    if value.numel() == 1:
        return True
    sizes = [1] * (result.dim() - value.dim()) + list(value.shape)
    sizes[1:2] = [1] if sizes[1] == result.shape[1] else [0]
    return all(size == 1 for size in sizes)


def _fold(rewriter: Rewriter, node: Node, layer: _Layer, operand: object) -> None:
    def call(target: object, *args: object) -> Node:
        return rewriter.insert(target, args, before=node)  # type: ignore[arg-type]  # as FX types arguments

    def flat() -> object:
        """The operand as a row, or a number."""
        return call(aten.reshape.default, operand, [-1]) if isinstance(operand, Node) else operand

    def bias(row: object) -> Node | None:
        result = tensor_of(node)
        assert result is not None  # _keeps_type has looked
        if layer.bias is not None:
            return call(node.target, layer.bias, row)
        if node.target in _FACTORS:
            return None
        none = rewriter.insert(
            aten.full.default,
            ([result.shape[1]], 0.0),
            {"dtype": result.dtype, "device": result.device},
            before=node,
        )
        return call(node.target, none, row)

    def weight(row: object) -> Node:
        if node.target in _SUMS:
            return layer.weight
        scale = tensor_of(row)
        if layer.node.target is aten.convolution.default and scale is not None:
            views = along_outputs(layer.weight, layer.node.args[6], layer.node.args[8])
            for target, args in views if scale.numel() > 1 else ():
                row = call(target, row, *args)
        return call(node.target, layer.weight, row)

    def edit(graph: Graph) -> None:
        row = flat()
        replaced = {layer.weight: weight(row)}
        args = list(layer.node.args)
        if layer.node.target is aten.convolution.default:
            args[1:3] = [replaced[layer.weight], bias(row)]
        elif layer.node.target is aten.addmm.default:
            args = [bias(row), args[1], replaced[layer.weight]]
        else:
            args[1] = replaced[layer.weight]
        node.replace_all_uses_with(call(layer.node.target, *args))
        graph.erase_node(node)
        graph.erase_node(layer.node)

    rule = f"{node.target}({layer.node.target}, constant) -> {layer.node.target}"
    rewriter.rewrite(rule, [node, layer.node], edit)


def examples() -> list[Example]:
    """Return programs that the pass changes: products, and what is folded into them."""

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
    ]  # fmt: skip


PASS = FoldBinary()
