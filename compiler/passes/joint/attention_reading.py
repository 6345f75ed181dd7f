"""Read attention in a graph: its parts forwards, and their gradients backwards.

    weights = softmax(steps(q @ k.mT))          steps: a scale, then masks and casts, each optional
    out = dropout(weights).to(v.dtype) @ v

The reading starts at the softmax, and follows operands to the product of the scores and users to
the product `out`. At every node it is known which step it is, so that each combination of steps, in
each layout, is one of few cases:

    1. scale    mul or div by a number; `alpha` of `baddbmm`
    2. add      a mask that is added; the first operand of `baddbmm`
    3. fill     masked_fill or where, with a number
    4. cast     to another floating dtype

Backwards, autograd undoes the same steps in the opposite order, from `_softmax_backward_data`:

    of_out @ v.mT -> _softmax_backward_data -> undone steps -> @ k        gradient of q
                                                            -> q.mT @     gradient of k, swapped
    weights.mT @ of_out                                                   gradient of v

A reading returns a text where it ends at another node: it is the reason why a rule does not fire.
"""

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeGuard, cast

import torch
from torch.fx import Node

from ctk.compiler.fx.constants import constant_value
from ctk.compiler.fx.properties import escapes, is_constant
from ctk.compiler.fx.types import same_sizes, tensor_of, value_of
from ctk.compiler.passes.joint.attention_views import (
    are_equal,
    are_swapped,
    keeps_rows,
    origin_of,
    reshaped,
    sizes_of,
    swapped,
    users_of,
)
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import arguments

aten = torch.ops.aten
BMM, BADDBMM = aten.bmm.default, aten.baddbmm.default
SOFTMAX, SAFE_SOFTMAX = aten._softmax.default, aten._safe_softmax.default
_DROPOUT, _TO_COPY = aten.native_dropout.default, aten._to_copy.default
_MUL = (aten.mul.Tensor, aten.mul.Scalar)
_DIV = (aten.div.Tensor, aten.div.Scalar)
_FILLS = (aten.masked_fill.Scalar, aten.masked_fill.Tensor, aten.where.self)
_ADDS = 4
"""The most sums between scores and weights: either operand of each may be the scores."""
_DEPTH = 100
"""The most nodes between scores and weights: a longer way is another program."""


@dataclass(frozen=True, slots=True)
class Step:
    """A step between the product of the scores and the weights.

    Attributes:
        node: The call; that of `baddbmm` is several steps.
        source: The scores before.
        value: The factor of the scores or of the mask that is added; the number to fill in.
        mask: The mask that is added, or that chooses the scores to fill or to keep.
        keeps: Whether the mask chooses the scores to keep.
    """

    kind: Literal["scale", "add", "fill", "cast"]
    node: Node
    source: Node
    value: float = 1.0
    mask: Node | None = None
    keeps: bool = False

    @property
    def dtype(self) -> torch.dtype:
        return _dtype(self.node)

    @property
    def level(self) -> list[Any]:
        """The sizes of the scores here, without rows and columns."""
        return sizes_of(self.node)[:-2]


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention in a graph.

    Attributes:
        out: The product of weights and values.
        scores: The product of queries and keys: `bmm` or `baddbmm`.
        softmax: The weights before dropout and casts.
        steps: From the scores to the softmax.
        dropout: The call of `native_dropout`, if there is one.
    """

    out: Node
    scores: Node
    softmax: Node
    steps: tuple[Step, ...]
    dropout: Node | None = None

    @property
    def operands(self) -> tuple[Node, Node, Node]:
        """Queries, keys with rows and columns swapped, and values, each of three dimensions."""
        first = 1 if self.scores.target is BADDBMM else 0
        q, k = self.scores.args[first : first + 2]
        return cast("Node", q), cast("Node", k), cast("Node", self.out.args[1])

    @property
    def masks(self) -> tuple[Node, ...]:
        return tuple(step.mask for step in self.steps if step.mask is not None)

    @property
    def scale(self) -> float:
        return math.prod(step.value for step in self.steps if step.kind == "scale")

    @property
    def p(self) -> float:
        return 0.0 if self.dropout is None else cast("float", self.dropout.args[1])


@dataclass(frozen=True, slots=True)
class Gradients:
    """The gradients of attention in a graph, in the layouts of their products.

    Attributes:
        of_out: The gradient of the result, with three dimensions.
        results: The gradients that are computed: of `q`, of swapped `k`, of `v`.
        of_sums: The gradients of the sums with masks, of which those of masks are computed.
    """

    of_out: Node
    results: dict[str, Node] = field(default_factory=dict[str, Node])
    of_sums: list[Node] = field(default_factory=list[Node])


def read_attention(softmax: Node) -> Attention | str:
    """Return the attention with the weights of a softmax, or why there is none."""
    dim, rank = cast("int", softmax.args[1]), len(sizes_of(softmax))
    if dim % rank != rank - 1:
        return f"{softmax} is a softmax of the dimension {dim - rank * (dim > 0)}, not -1"
    steps = _read_steps(cast("Node", softmax.args[0]), _ADDS, _DEPTH)
    if isinstance(steps, str):
        return steps
    (_, scores), *rest = steps
    flat = (*_steps_of_product(scores), *(step for each in rest for step in each[0]))
    dropout: Node | None = None
    node = softmax
    while True:
        users = [*users_of(node)]
        out = next((each for each in users if each.target is BMM), None)
        weights = None if out is None else cast("Node", out.args[0])
        if out is not None and weights is not None and origin_of(weights) is node:
            if not keeps_rows(weights, softmax):
                return f"{weights} has other rows than {softmax}"
            return Attention(out, scores, softmax, flat, dropout)
        found = [each for each in users if _is_step_of_weights(each)]
        if len(found) != 1:
            return f"no product of {softmax} and values uses it"
        (node,) = found
        dropout = node if node.target is _DROPOUT else dropout


def _is_step_of_weights(user: Node) -> bool:
    is_first = user.target is operator.getitem and user.args[1:] == (0,)
    return user.target is _DROPOUT or is_first or _source_of_cast(user) is not None


def _unlike(node: Node, wanted: str) -> str:
    kind = node.target if node.op == "call_function" else node.op
    return f"{node} is a {kind}, not {wanted}"


def _source_of_rows(node: Node) -> Node | None:
    """Return the operand of a cast, or of reshapes that together keep rows and columns."""
    source = reshaped(node)
    while source is not None and not keeps_rows(node, source):
        source = reshaped(source)
    return source or _source_of_cast(node)


def _source_of_cast(node: Node) -> Node | None:
    source = node.args[0] if node.target is _TO_COPY else None
    mine, other = tensor_of(node), tensor_of(source)
    if mine is None or other is None or mine.device != other.device:
        return None
    is_floating = mine.is_floating_point() and other.is_floating_point()
    return cast("Node", source) if is_floating else None


_Read = list[tuple[tuple[Step, ...], Node]]


def _read_steps(node: Node, sums: int, depth: int) -> _Read | str:
    """Return the product of the scores, then the steps from it to a node.

    Args:
        sums: The most sums on the way.
        depth: The most nodes on the way.
    """
    if node.target in (BMM, BADDBMM):
        return [((), node)]
    if not depth:
        return f"no product of scores is within {_DEPTH} nodes of the softmax"
    reason = _unlike(node, "a product of scores or a step of attention")
    for source, steps in _ways_down(node):
        left = sums - (node.target is aten.add.Tensor)
        found = _read_steps(source, left, depth - 1) if left >= 0 else reason
        if not isinstance(found, str):
            return [*found, (steps, node)]
        reason = found
    return reason


def _ways_down(node: Node) -> Iterator[tuple[Node, tuple[Step, ...]]]:
    """Yield the operands of a node that may be the scores, with the step that it is then."""
    source = _source_of_rows(node)
    if source is not None:
        yield source, () if reshaped(node) is not None else (Step("cast", node, source),)
    elif node.target in (*_MUL, *_DIV):
        yield from _scales(node)
    elif node.target is aten.add.Tensor and not node.kwargs and len(node.args) == 2:
        one, other = node.args
        for scores, mask in ((one, other), (other, one)):
            if _fits(scores, node) and isinstance(mask, Node):
                yield scores, (Step("add", node, scores, mask=mask),)
    elif node.target in _FILLS:
        yield from _fill(node)


def _dtype(node: Node) -> torch.dtype:
    tensor = tensor_of(node)
    assert tensor is not None  # between the operands of two products
    return tensor.dtype


def _fits(scores: object, node: Node) -> TypeGuard[Node]:
    """Return whether an operand has the shape of the result: scores are not broadcast."""
    return isinstance(scores, Node) and same_sizes(sizes_of(scores), sizes_of(node))


def _scales(node: Node) -> Iterator[tuple[Node, tuple[Step, ...]]]:
    one, other = node.args[:2]
    for scores, factor in ((one, other), (other, one)):
        number = number_of(factor, _dtype(node))
        is_scale = number and math.isfinite(number) and (scores is one or node.target in _MUL)
        if number and is_scale and _fits(scores, node):
            value = 1 / number if node.target in _DIV else number
            yield scores, (Step("scale", node, scores, value),)


def _fill(node: Node) -> Iterator[tuple[Node, tuple[Step, ...]]]:
    first, second, third = node.args[:3]
    choices = [(first, second, third, False)]
    if node.target is aten.where.self:
        choices = [(second, first, third, True), (third, first, second, False)]
    for scores, mask, filled, keeps in choices:
        number = number_of(filled, _dtype(node))
        if number is not None and isinstance(mask, Node) and _fits(scores, node):
            yield scores, (Step("fill", node, scores, number, mask, keeps),)


def number_of(value: object, dtype: torch.dtype) -> float | None:
    """Return a number as it is; rounded to a dtype, that of a constant of equal elements."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    tensor = tensor_of(value)
    if not isinstance(value, Node) or tensor is None or not tensor.is_floating_point():
        return None
    if value.target is aten.full.default:
        given = value.args[1]
    elif value.target is aten.scalar_tensor.default:
        given = value.args[0]
    elif tensor.dim() == 0 and is_constant(value) and not escapes(value):
        with fake.real_compute():
            given = constant_value(value).item()
    else:
        return None
    if not isinstance(given, (int, float)):
        return None
    return rounded(rounded(given, tensor.dtype), dtype)


def rounded(number: float, dtype: torch.dtype) -> float:
    """Return a number with the digits of a dtype."""
    with fake.real_compute():
        return float(torch.tensor(number, dtype=torch.float64).to(dtype).item())


def _steps_of_product(scores: Node) -> tuple[Step, ...]:
    """Return the steps that `baddbmm` holds: `beta * mask + alpha * (q @ k)`."""
    if scores.target is BMM:
        return ()
    values = arguments.full_arguments(scores.target, scores.args, scores.kwargs)
    assert values is not None  # a call of the graph
    mask, _, _, beta, alpha = cast("tuple[Node, Node, Node, float, float]", values)
    scale = Step("scale", scores, scores, alpha)
    return (scale,) if beta == 0 else (scale, Step("add", scores, scores, beta, mask))


def read_gradients(attention: Attention) -> Gradients | str:
    """Return the gradients of attention, or why they are not read; without any, of no results."""
    softmax = attention.softmax
    starts = [
        user
        for user in softmax.users
        if user.target is aten._softmax_backward_data.default and user.args[1] is softmax
    ]
    if len(starts) != 1:
        return f"{len(starts)} nodes are gradients of {softmax}"
    of_out = _read_up(attention, starts[0])
    if isinstance(of_out, str):
        return of_out
    found = Gradients(of_out)
    of_scores = _read_down(attention, starts[0], found.of_sums)
    if isinstance(of_scores, str):
        return of_scores
    q, k, _ = attention.operands
    for user in _users_of_casts(of_scores):
        one, other = user.args[:2] if user.target is BMM else (None, None)
        if one is not None and are_swapped(other, k):
            found.results["q"] = _scaled(attention, user)
        elif are_swapped(one, q):
            found.results["k"] = _scaled(attention, user)
    weights = cast("Node", attention.out.args[0])
    for user in (each for swap in weights.users for each in swap.users):
        is_product = user.target is BMM and are_swapped(user.args[0], weights)
        if is_product and are_equal(cast("Node", user.args[1]), of_out):
            found.results["v"] = user
    return found


def _read_up(attention: Attention, start: Node) -> Node | str:
    """Return the gradient of the result, from which that of the weights is computed."""
    node = cast("Node", start.args[0])
    while node.target is not BMM:
        source = _source_of_rows(node)
        if node.target is aten.native_dropout_backward.default:
            mask = cast("Node", node.args[1])
            is_own = mask.target is operator.getitem and mask.args == (attention.dropout, 1)
            source = node.args[0] if is_own else None
        if not isinstance(source, Node):
            return _unlike(node, "a gradient of the weights")
        node = source
    of_out, values = node.args
    if not are_swapped(values, attention.operands[2]):
        return f"{node} is not the product of a gradient and the values"
    return cast("Node", of_out)


def _read_down(attention: Attention, node: Node, of_sums: list[Node]) -> Node | str:
    """Return the gradient of the product of the scores: each step undone, the last one first."""
    for step in reversed(attention.steps):
        if step.kind == "add":
            of_sums.append(node)
        undoes = {"fill": _unfills, "scale": _unscales}.get(step.kind)
        if step.node is attention.scores or undoes is None:
            continue
        found = next((user for user in _users_of_casts(node) if undoes(step, user)), None)
        if found is None:
            return f"no user of {node} is the gradient of {step.node}"
        node = found
    return node


def _users_of_casts(node: Node) -> Iterator[Node]:
    """Yield the users of a gradient and of its casts: several are one where they are simplified."""
    todo = [node]
    while todo:
        for user in users_of(todo.pop()):
            if _source_of_cast(user) is None:
                yield user
            else:
                todo.append(user)


def _unscales(step: Step, user: Node) -> bool:
    scales = _scales(user) if user.target in (*_MUL, *_DIV) else ()
    return any(undone.value == step.value for _, (undone,) in scales)


def _unfills(step: Step, user: Node) -> bool:
    fills = _fill(user) if user.target in _FILLS else ()
    wanted = (step.mask, step.keeps, 0.0)
    return any((undone.mask, undone.keeps, undone.value) == wanted for _, (undone,) in fills)


def _scaled(attention: Attention, product: Node) -> Node:
    """Return a gradient after the factor `alpha` of `baddbmm`."""
    alpha = next((s for s in attention.steps if s.node is attention.scores), None)
    users = users_of(product) if alpha is not None and alpha.value != 1.0 else ()
    return next((user for user in users if alpha is not None and _unscales(alpha, user)), product)


def inside(results: Sequence[Node], operands: Sequence[Node]) -> list[Node]:
    """Return the nodes from operands to results, without the operands.

    Reshapes and swaps of operands that another node needs are left out: they stay.
    """
    stops, found, todo = set(operands), dict[Node, None](), [*results]
    while todo:
        node = todo.pop()
        is_known = node in stops or node in found or fake.is_symbolic(value_of(node))
        if is_known or not node.all_input_nodes:
            continue
        found[node] = None
        todo += node.all_input_nodes
    plumbing = {node for node in found if _is_plumbing(node, stops)}
    for node in sorted(plumbing, reverse=True):
        if any(user not in found for user in node.users) and node not in results:
            del found[node]
    return list(found)


def _is_plumbing(node: Node, stops: set[Node]) -> bool:
    while node not in stops:
        source = reshaped(node) or swapped(node)
        if source is None:
            return False
        node = source
    return True


def origin_of_swapped(node: Node) -> Node | None:
    """Return the origin of a tensor that a node has with rows and columns swapped, if any."""
    first = origin_of(node)
    source = swapped(first)
    return origin_of(source) if source is not None and keeps_rows(node, first) else None
