"""Compute parallel products of one shape as one batched product.

Rules, for `linear`, `mm`, and `matmul` of two matrices (functions, methods, `@`, `nn.Linear`):
    1. linear(x_i, w_i, b_i) -> unbind(baddbmm(stack(b_i)[:, None], stack(x_i), stack(w_i).mT))[i]
    2. linear(x_i, w_i)      -> unbind(bmm(stack(x_i), stack(w_i).mT))[i]
    3. mm(x_i, w_i)          -> unbind(bmm(stack(x_i), stack(w_i)))[i]
With a symbolic size, 1. is a `bmm` and an `add`, since fake tensors cannot run a `baddbmm` then.
A common operand is expanded instead of stacked; the input of a `linear` may have more dimensions,
and a result that is returned or written to is cloned, so that it shares no memory.
Preconditions: all have the same shapes, one floating dtype and device, and the same operands need
gradients; none needs the result of another: they have as many products before them. Between the
first and the last nothing is written and no mode is set; the nodes that compute operands of later
products move in front of the first, and are known to draw nothing. Reassociates.

Off by default: by `benchmarks/batch_linears.py` it takes up to twice as long on a CPU for 2 or 4
linears, since weights are copied in each call, and wins (up to a half) for 16 of at most 64 rows,
columns and results. It is for many small ones, and for devices where a kernel is slow to start.

Source: `PreGradBatchLinearFusion` in `torch/_inductor/fx_passes/group_batch_fusion.py` takes
`linear` of matrices only, and lets results share memory.
"""

import math
import operator
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn
from torch.fx import Graph, Node
from torch.fx.node import Argument

from ctk.compiler.fx.effects import is_calm
from ctk.compiler.fx.torch_calls import call_of, function_of, may_escape, plain_tensor_of
from ctk.compiler.fx.types import tensor_text
from ctk.compiler.fx.walk import fetch
from ctk.compiler.passes.pre_grad.normalize_calls import normalize_module
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake

_RIGHT = {F.linear: "weight", torch.mm: "mat2", torch.matmul: "other"}


@dataclass(frozen=True, slots=True)
class _Product:
    """One product: `left @ right + bias`, `right` transposed for a `linear`."""

    node: Node
    left: Node
    right: Node
    bias: Node | None

    @property
    def is_linear(self) -> bool:
        return function_of(self.node) is F.linear


@dataclass(frozen=True, slots=True)
class BatchLinears(Pass):
    """Compute parallel products of one shape as one batched product.

    Attributes:
        enabled: Whether to do it.
        min_group: Leave fewer products than these alone.
        max_size: Leave products of more multiplications than these alone.
    """

    name = "batch_linears"
    numerics = "reassociates"
    enabled: bool = False
    min_group: int = 2
    max_size: int | None = None

    def __post_init__(self) -> None:
        if self.min_group < 2:
            raise ValueError("min_group must be at least 2")

    def run(self, rewriter: Rewriter) -> None:
        if not self.enabled:
            return
        for node in rewriter.nodes():
            if node.op == "call_module" and type(fetch(rewriter.module, node.target)) is nn.Linear:
                normalize_module(rewriter, node)
        for region in _regions(rewriter.graph):
            batcher = _Batcher(rewriter, {node: place for place, node in enumerate(region)})
            for group in _groups(region, self.max_size):
                found = batcher.early(group)
                if len(found) >= self.min_group:
                    batcher.batch(found)


def _regions(graph: Graph) -> Iterator[list[Node]]:
    """Yield the regions of nodes between writes and changes of modes."""
    region: list[Node] = []
    for node in list(graph.nodes):
        if node.op != "output" and is_calm(node):
            region.append(node)
        else:
            yield region
            region = []
    yield region


def _groups(region: Iterable[Node], max_size: int | None) -> list[list[Node]]:
    """Return products that have the same key and as many products before them, by that number."""
    before: dict[Node, int] = {}
    groups: dict[Hashable, list[Node]] = {}
    depths: dict[Hashable, int] = {}
    for node in region:
        depth = max((before.get(operand, 0) for operand in node.all_input_nodes), default=0)
        product = _product(node)
        before[node] = depth + (product is not None)
        key = _key(product, max_size) if product is not None else None
        if key is not None:
            groups.setdefault((depth, key), []).append(node)
            depths[depth, key] = depth
    return [groups[key] for key in sorted(groups, key=depths.__getitem__)]


def _product(node: Node) -> _Product | None:
    right = _RIGHT.get(function_of(node))  # type: ignore[call-overload]  # None is not a key
    call = call_of(node) if right is not None else None
    if right is None or call is None:
        return None
    left, right, bias = call.node("input"), call.node(right), call.arguments.get("bias")
    if left is None or right is None or not (bias is None or isinstance(bias, Node)):
        return None
    return _Product(node, left, right, bias)


def _key(product: _Product, max_size: int | None) -> Hashable:
    """Return the key that products of one batch share; None if it cannot be batched."""
    operands = [product.left, product.right, *([product.bias] if product.bias else [])]
    tensors = [plain_tensor_of(each) for each in (product.node, *operands)]
    if any(tensor is None or tensor.layout is not torch.strided for tensor in tensors):
        return None
    result, left, right, *bias = (tensor for tensor in tensors if tensor is not None)
    is_flat = left.dim() == 2 or (product.is_linear and _is_known(left) and left.dim() > 2)
    if not is_flat or right.dim() != 2 or any(each.dim() != 1 for each in bias):
        return None
    types = {(each.dtype, each.device) for each in (result, left, right, *bias)}
    if len(types) != 1 or not result.is_floating_point():  # autocast, or another promotion
        return None
    if max_size is not None and not (_is_known(left, right) and _size(left, right) <= max_size):
        return None
    shapes = [tensor_text(str(each.dtype), each.shape) for each in (left, right, *bias)]
    gradients = [each.requires_grad for each in (left, right, *bias)]
    return (product.is_linear, result.device, *shapes, *gradients)


def _is_known(*tensors: torch.Tensor) -> bool:
    return not any(fake.is_symbolic(size) for tensor in tensors for size in tensor.shape)


def _size(left: torch.Tensor, right: torch.Tensor) -> int:
    """Return the number of multiplications."""
    return left.numel() * right.numel() // max(left.shape[-1], 1)


@dataclass(slots=True)
class _Batcher:
    """Turns the groups of one region into batched products.

    Attributes:
        places: The position of each node; a moved or inserted node has the position of its
            successor.
        made: The nodes that were inserted.
    """

    rewriter: Rewriter
    places: dict[Node, int]
    made: set[Node] = field(default_factory=set[Node])

    def early(self, group: list[Node]) -> dict[Node, list[Node]]:
        """Return the products that can be computed at the first, with the nodes to move there."""
        first = group[0]
        needed = {node: self._late_operands(node, self.places[first]) for node in group}
        return {node: late for node, late in needed.items() if late is not None}

    def _late_operands(self, node: Node, first: int) -> list[Node] | None:
        """Return the operands of a node behind a place, in order; None if one cannot move."""
        nodes: set[Node] = set()
        queue = [node]
        while queue:
            for operand in queue.pop().all_input_nodes:
                if self.places.get(operand, -1) <= first or operand in nodes:
                    continue
                if not self._may_move(operand):
                    return None
                nodes.add(operand)
                queue.append(operand)
        return sorted(nodes, key=self.places.__getitem__)

    def _may_move(self, node: Node) -> bool:
        if node in self.made or node.op == "get_attr" or node.target is operator.getitem:
            return True
        call = call_of(node)  # draws have no form; a batch norm may write its statistics
        return call is not None and call.function is not F.batch_norm

    def batch(self, group: dict[Node, list[Node]]) -> None:
        """Make the products of a group one."""
        products = [each for each in map(_product, group) if each is not None]
        first, rule = products[0].node, _RULES[products[0].is_linear]

        def edit(graph: Graph) -> None:
            for node in sorted({n for late in group.values() for n in late}, key=self._order):
                first.prepend(node)
                self.places[node] = self.places[first]
            parts = self._insert(first, torch.unbind, self._product(products))
            nodes = [product.node for product in products]
            for node, new in [(n, self._part(first, parts, i, n)) for i, n in enumerate(nodes)]:
                node.replace_all_uses_with(new)
                graph.erase_node(node)

        self.rewriter.rewrite(rule, [product.node for product in products], edit)

    def _order(self, node: Node) -> int:
        return self.places[node]

    def _insert(self, before: Node, function: object, *args: Argument) -> Node:
        node = self.rewriter.insert(function, args, before=before)
        self.places[node] = self.places[before]
        self.made.add(node)
        return node

    def _product(self, products: list[_Product]) -> Node:
        first = products[0].node
        left = self._stack(first, self._matrices(first, [product.left for product in products]))
        right = self._stack(first, [product.right for product in products])
        if products[0].is_linear:
            right = self._insert(first, torch.transpose, right, 1, 2)
        biases = [product.bias for product in products if product.bias is not None]
        if not biases:
            return self._insert(first, torch.bmm, left, right)
        bias = self._insert(first, torch.unsqueeze, self._stack(first, biases), 1)
        if _is_known(_tensor(left)):
            return self._insert(first, torch.baddbmm, bias, left, right)
        return self._insert(first, torch.add, self._insert(first, torch.bmm, left, right), bias)

    def _matrices(self, first: Node, operands: list[Node]) -> list[Node]:
        """Return operands with all dimensions but the last as one."""
        shape = _tensor(operands[0]).shape
        if len(shape) == 2:
            return operands
        sizes = [math.prod(shape[:-1]), shape[-1]]
        flat = {n: self._insert(first, torch.reshape, n, sizes) for n in dict.fromkeys(operands)}
        return [flat[operand] for operand in operands]

    def _stack(self, first: Node, operands: list[Node]) -> Node:
        """Return operands as one tensor; a common operand is not copied."""
        if len({*operands}) > 1:
            return self._insert(first, torch.stack, operands)
        once = self._insert(first, torch.unsqueeze, operands[0], 0)
        kept = [-1] * _tensor(operands[0]).dim()
        return self._insert(first, torch.Tensor.expand, once, len(operands), *kept)

    def _part(self, first: Node, parts: Node, index: int, node: Node) -> Node:
        """Return a product's result in its shape, and in its own memory if that is observable."""
        part = self._insert(first, operator.getitem, parts, index)
        if _tensor(node).dim() > 2:
            part = self._insert(first, torch.reshape, part, list(_tensor(node).shape))
        return self._insert(first, torch.clone, part) if may_escape(node) else part


def _tensor(node: Node) -> torch.Tensor:
    tensor = plain_tensor_of(node)
    assert tensor is not None  # _key has looked
    return tensor


_RULES = {
    True: "linear(x_i, w_i, b_i) -> unbind(baddbmm(b, x, w.mT))[i]",
    False: "mm(x_i, w_i) -> unbind(bmm(x, w))[i]",
}


def examples() -> list[Example]:
    """Return programs that the pass changes when it is on, one for each rule."""
    x, y, v, w, b = (torch.ones(*sizes) for sizes in ((2, 3), (2, 3), (4, 3), (4, 3), (4,)))
    return [
        (lambda x, v, w, b: F.linear(x, v, b) * F.linear(x, w, b), (x, v, w, b)),
        (lambda x, y, w: (F.linear(x, w), F.linear(y.sin(), w)), (x, y, w)),
        (lambda x, y, v, w: x @ v.t() + torch.mm(y, w.t()), (x, y, v, w)),
    ]


PASS = BatchLinears()
