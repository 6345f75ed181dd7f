"""Operators that compute each row of a result from the same row of their operands.

Rows are the leading dimensions of a tensor, of which there may be several: `[batch, position, V]`
has `batch * position` rows, and a chunk of them is a tensor `[n, V]`. How a call treats them:

    exp(x)  x + bias  softmax(x, -1)     rows -> rows        bias: whole
    x.view(-1, V)  x.gather(1, target)   rows -> rows        target: rows
    g.t()                                rows -> turned      rows are the second of two dimensions
    mm(g, w)                             rows -> rows        w: whole
    mm(g.t(), x)  g.sum(0)  loss.sum()   rows -> sum         the sum of the results of all chunks

An operator without a rule is not split. Also here: which calls are linear in an operand.
"""

import math
import operator
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from ctk.compiler.fx.properties import is_pure
from ctk.compiler.fx.types import tensor_of
from ctk.compiler.passes.joint.fold_uniform_values import FILLS, fill_value, number_of
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import operators
from ctk.compiler.torch_compat.fx.arguments import argument_of, declared_parameters

aten = torch.ops.aten
Kind = Literal["rows", "turned", "whole", "sum"]


@dataclass(frozen=True, slots=True)
class Split:
    """How a call is computed in chunks of rows: the kind of its result, and of its operands."""

    result: Kind
    operands: Mapping[Node, Kind]


def leading(shape: Sequence[int], rows: int) -> int:
    """Return the number of leading dimensions that hold all rows; 0 if none do."""
    return next((n for n in range(1, len(shape) + 1) if math.prod(shape[:n]) == rows), 0)


def has_rows(node: Node, rows: int) -> bool:
    """Return whether a tensor may hold rows: in its leading dimensions, or turned."""
    shape = _shape(node)
    return leading(shape, rows) > 0 or (len(shape) == 2 and shape[1] == rows)


def chunk_sizes(shape: Sequence[int], rows: int, size: int) -> list[int]:
    """Return the sizes of a chunk of `size` rows."""
    return [size, *shape[leading(shape, rows) :]]


def split_of(node: Node, kinds: Mapping[Node, Kind], rows: int) -> Split | None:
    """Return how a call is split, for operands of which some are split already."""
    if node.op != "call_function" or not is_pure(node):
        return None
    sizes = [size for each in (node, *node.all_input_nodes) for size in _shape(each)]
    if any(map(fake.is_symbolic, sizes)):
        return None
    declared = operators.declared_by(node.target)
    rule = _RULES.get(node.target)
    if rule is None and declared is not None and declared.pointwise:
        rule = _pointwise
    split = rule(node, kinds, rows) if rule is not None else None
    known = split is not None and all(
        kinds.get(n, kind) == kind for n, kind in split.operands.items()
    )
    return split if known else None


def _pointwise(node: Node, kinds: Mapping[Node, Kind], rows: int) -> Split | None:
    """`op(rows, rows, whole) -> rows`, where operands are aligned from the right."""
    if any(kinds.get(operand) == "turned" for operand in node.all_input_nodes):
        (operand, *others) = node.all_input_nodes
        return None if others else Split("turned", {operand: "turned"})
    if node.kwargs.get("memory_format") not in (
        None,
        torch.preserve_format,
        torch.contiguous_format,
    ):
        return None
    found: dict[Node, Kind | None] = {o: _aligned(o, node, rows) for o in node.all_input_nodes}
    operands: dict[Node, Kind] = {o: kind for o, kind in found.items() if kind is not None}
    is_split = leading(_shape(node), rows) > 0
    return Split("rows", operands) if is_split and len(operands) == len(found) else None


def _aligned(operand: Node, node: Node, rows: int) -> Kind | None:
    """Return whether an operand, broadcast to a result, has its rows; None if some of them."""
    tensor, shape = tensor_of(operand), _shape(node)
    count = leading(shape, rows)
    if tensor is None:
        return None
    if len(tensor.shape) == len(shape) and tuple(tensor.shape[:count]) == tuple(shape[:count]):
        return "rows"
    common = max(0, len(tensor.shape) - (len(shape) - count))
    is_whole = all(size == 1 for size in tensor.shape[:common]) and common in (0, count)
    return "whole" if is_whole and (common == 0 or count == 1) else None


def _reshape(node: Node, kinds: Mapping[Node, Kind], rows: int) -> Split | None:
    (operand,) = node.all_input_nodes
    is_split = leading(_shape(node), rows) and leading(_shape(operand), rows)
    return Split("rows", {operand: "rows"}) if is_split else None


def _turn(node: Node, kinds: Mapping[Node, Kind], rows: int) -> Split | None:
    (operand,) = node.all_input_nodes
    dims: Any = node.args[1:]
    swaps = ((), (0, 1), (1, 0), (-2, -1), (-1, -2))
    if node.target is aten.permute.default:
        dims, swaps = tuple(dims[0]), ((1, 0), (-1, -2))
    if len(_shape(operand)) != 2 or dims not in swaps:
        return None
    if kinds.get(operand) == "turned":
        return Split("rows", {operand: "turned"})
    return Split("turned", {operand: "rows"}) if _shape(operand)[0] == rows else None


def _along(node: Node, kinds: Mapping[Node, Kind], rows: int) -> Split | None:
    """`op(rows, dim) -> rows`, for an operator that mixes elements along its `dim` only."""
    shapes = [_shape(operand) for operand in node.all_input_nodes]
    counts = {tuple(shape[: leading(shape, rows)]) for shape in shapes}
    dims = _dims(node)
    if len(counts) != 1 or counts == {()} or dims is None or min(dims) < len(*counts):
        return None
    return Split("rows", _all_rows(node))


def _all_rows(node: Node) -> Mapping[Node, Kind]:
    return dict.fromkeys(node.all_input_nodes, "rows")


def _reduction(node: Node, kinds: Mapping[Node, Kind], rows: int) -> Split | None:
    """`sum(rows) -> sum` along all rows, `sum(rows, dim) -> rows` along none of them."""
    (operand,) = node.all_input_nodes
    dims, count = _dims(node), leading(_shape(operand), rows)
    if count and (dims is None or set(range(count)) <= set(dims)):
        return Split("sum", {operand: "rows"})
    return _along(node, kinds, rows)


def _product(node: Node, kinds: Mapping[Node, Kind], rows: int) -> Split | None:
    """`mm(rows, whole) -> rows`, `mm(turned, rows) -> sum`; a bias has rows or not."""
    *bias, first, second = node.args
    if not isinstance(first, Node) or not isinstance(second, Node) or first is second:
        return None
    one, two = kinds.get(first), kinds.get(second)
    if not bias and (one == "turned" or two == "rows"):
        is_fit = _shape(first)[1] == rows
        return Split("sum", {first: "turned", second: "rows"}) if is_fit else None
    if two is not None or _shape(first)[0] != rows or one == "turned":
        return None
    operands: dict[Node, Kind] = {first: "rows", second: "whole"}
    for each in bias:
        kind = _aligned(each, node, rows) if isinstance(each, Node) else None
        if not isinstance(each, Node) or kind is None:
            return None
        operands[each] = kind
    return Split("rows", operands)


def _loss(node: Node, kinds: Mapping[Node, Kind], rows: int) -> Split | None:
    """`nll_loss(rows, rows, whole) -> rows`: a tuple, of which `_item` takes a sum or rows."""
    scores, target, weight = loss_operands(node)
    if len(_shape(scores)) != 2 or _shape(scores)[0] != rows or len(_shape(target)) != 1:
        return None
    return Split("rows", {scores: "rows", target: "rows", **({weight: "whole"} if weight else {})})


def _loss_gradient(node: Node, kinds: Mapping[Node, Kind], rows: int) -> Split | None:
    split = _loss(node, kinds, rows)
    gradient = node.args[0]
    if split is None or not isinstance(gradient, Node):
        return None
    kind: Kind = "rows" if reduction_of(node) == 0 else "whole"
    return Split("rows", {gradient: kind, **split.operands})


def loss_operands(node: Node) -> tuple[Node, Node, Node | None]:
    """Return the scores, targets and weights of `nll_loss_forward` or its backward."""
    start = 0 if node.target is aten.nll_loss_forward.default else 1
    scores, target, weight = node.args[start : start + 3]
    assert isinstance(scores, Node)
    assert isinstance(target, Node)
    return scores, target, weight if isinstance(weight, Node) else None


def reduction_of(node: Node) -> object:
    """Return the reduction of a loss: 0 none, 1 mean, 2 sum."""
    return argument_of(node.target, node.args, node.kwargs, "reduction")


def _item(node: Node, kinds: Mapping[Node, Kind], rows: int) -> Split | None:
    (loss,) = node.all_input_nodes
    if loss.target is not aten.nll_loss_forward.default:
        return None
    is_rows = reduction_of(loss) == 0 and node.args[1] == 0
    return Split("rows" if is_rows else "sum", {loss: "rows"})


def _fill(node: Node, kinds: Mapping[Node, Kind], rows: int) -> Split | None:
    is_known = fill_value(node) is not None and leading(_shape(node), rows)
    return Split("rows", {}) if is_known else None


Rule = Callable[[Node, Mapping[Node, Kind], int], Split | None]
PRODUCTS = (aten.mm.default, aten.addmm.default)
"""Products of two matrices, the rows of the first of which are those of the result."""
_SUMS = (aten.sum.default, aten.sum.dim_IntList, aten.mean.default)
_MOVES = (
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.select.int,
    aten.slice.Tensor,
    aten.gather.default,
    aten.select_backward.default,
    aten.slice_backward.default,
)
_TURNS = (aten.t.default, aten.transpose.int, aten.permute.default)
_RESHAPES = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)
_COPIES = (
    aten.detach.default,
    aten.alias.default,
    aten.clone.default,
    aten._to_copy.default,
    aten.expand.default,
)
_SCATTERS = (aten.scatter.value, aten.scatter.src, aten.scatter_add.default)
_ALONG = (
    *_MOVES,
    *_SCATTERS,
    aten.mean.dim,
    aten.amax.default,
    aten.amin.default,
    aten.argmax.default,
    aten.argmin.default,
    aten.logsumexp.default,
    aten.linalg_vector_norm.default,
    aten._softmax.default,
    aten._log_softmax.default,
    aten._softmax_backward_data.default,
    aten._log_softmax_backward_data.default,
)
_RULES: Mapping[object, Rule] = {
    **dict.fromkeys(FILLS, _fill),
    **dict.fromkeys(_COPIES, _pointwise),
    **dict.fromkeys(_RESHAPES, _reshape),
    **dict.fromkeys(_TURNS, _turn),
    **dict.fromkeys(_ALONG, _along),
    **dict.fromkeys(_SUMS, _reduction),
    **dict.fromkeys(PRODUCTS, _product),
    aten.nll_loss_forward.default: _loss,
    aten.nll_loss_backward.default: _loss_gradient,
    operator.getitem: _item,
}


def _shape(node: Node) -> Sequence[int]:
    tensor = tensor_of(node)
    return () if tensor is None else tensor.shape


def _dims(node: Node) -> list[int] | None:
    """Return the dimensions of a call, from 0; None if it names none."""
    given = argument_of(node.target, node.args, node.kwargs, "dim")
    dims = [given] if isinstance(given, int) else given
    if not isinstance(dims, (list, tuple)) or not dims:
        return None
    return [dim % dimensions(node) for dim in dims]


def dimensions(node: Node) -> int:
    """Return of how many dimensions the `dim` of a call is one: its operand's, or its own."""
    is_longer = node.target in (
        aten.unsqueeze.default,
        aten.select_backward.default,
        aten.slice_backward.default,
    )
    return len(_shape(node if is_longer else node.all_input_nodes[0]))


def chunk_arguments(
    node: Node, rows: int, size: int, chunked: Callable[[Node], Node]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call for a chunk: its operands, dimensions and sizes."""
    count = leading(_shape(node.all_input_nodes[0]) if node.all_input_nodes else (), rows)
    own = leading(_shape(node), rows)

    def change(name: str, value: Any) -> Any:
        if name == "dim" and value is not None:
            dims = [value] if isinstance(value, int) else value
            moved = [dim % dimensions(node) - max(count, own) + 1 for dim in dims]
            return moved[0] if isinstance(value, int) else moved
        if name in ("size", "input_sizes", "shape"):
            return chunk_sizes(_shape(node), rows, size)
        return map_arg(value, chunked)

    if node.target is operator.getitem:
        return (chunked(node.all_input_nodes[0]), node.args[1]), {}
    names = [each.name for each in declared_parameters(node.target)]
    args = tuple(change(name, value) for name, value in zip(names, node.args, strict=False))
    return args, {name: change(name, value) for name, value in node.kwargs.items()}


def is_zero(value: object) -> bool:
    """Return whether a value is a number 0, or a tensor of zeros."""
    if not isinstance(value, Node):
        return value == 0
    if value.target in (aten.expand.default, aten.view.default, aten.scalar_tensor.default):
        return is_zero(value.args[0])
    fill = fill_value(value) if value.target in FILLS else None
    return fill is not None and number_of(fill) == 0


def is_linear(node: Node, varying: Container[Node]) -> bool:
    """Return whether a call is linear in its varying operands: `f(s * v) = s * f(v)`."""
    if node.target in _LINEAR:
        return all(operand in varying for operand in node.all_input_nodes[:1])
    first = node.args[0]
    varies = [value for value in node.args if isinstance(value, Node) and value in varying]
    if node.target in (aten.mul.Tensor, aten.mul.Scalar, *PRODUCTS[:1]):
        return len(varies) == 1
    if node.target in (aten.div.Tensor, aten.div.Scalar, aten.gather.default):
        return varies == [first]
    parts = _summands(node)
    if parts:
        is_sum = all(part in varies or is_zero(part) for part in parts)
        return is_sum and all(value in parts for value in varies)
    if node.target is aten.masked_fill.Scalar:
        return varies == [first] and is_zero(node.args[2])
    return "backward" in str(node.target) and varies == [first]


def _summands(node: Node) -> tuple[Any, ...]:
    """Return the operands each of which is zero, or varies with the result of a linear call."""
    if node.target in (aten.add.Tensor, aten.sub.Tensor):
        return node.args[:2]
    if node.target in _SCATTERS:
        return node.args[0], node.args[3]
    return node.args[1:] if node.target is aten.where.self else ()


_LINEAR = (
    *_COPIES,
    *_RESHAPES,
    *_TURNS,
    *_SUMS,
    *(each for each in _MOVES if each is not aten.gather.default),
    aten.mean.dim,
    aten.neg.default,
)
