"""The part of a joint graph that is computed in chunks of the rows of a large product.

    inner    the product, all on a way from it to a tensor of its size, so that none is stored, and
             the direct readers of these; also large or scaled operands (`expand(gradient)`)
    sinks    the small inner nodes that others read: sums over rows, or rows
    scale    the number to which the gradients in the region are proportional: the gradient of the
             loss, or the last number before the region if that depends on the loss itself

A node that needs other rows ends the search with a reason, and so does a large tensor that others
read.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch.fx import Graph, Node

from ctk.compiler.fx.properties import mutated_bases
from ctk.compiler.fx.types import tensor_of
from ctk.compiler.partition.roles import is_tangent
from ctk.compiler.passes.joint.row_operators import Kind, has_rows, is_linear, split_of

aten = torch.ops.aten
_SCALES = 8
"""How many numbers are tried as the scale."""


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a graph that is computed in chunks of rows.

    Attributes:
        product: The node with which it begins.
        rows: The number of rows.
        scale: The number by which results are multiplied; None if no gradient is in the region.
        kinds: How values that chunks make, or read a part of, are split; others are read whole.
        inner: The nodes that chunks compute.
        sinks: Those whose results others read, in their order.
        scaled: The scale, and all nodes that depend on it.
    """

    product: Node
    rows: int
    scale: Node | None
    kinds: Mapping[Node, Kind]
    inner: frozenset[Node]
    sinks: tuple[Node, ...]
    scaled: frozenset[Node]


class _NotSplitError(Exception):
    """A value cannot be computed in chunks of rows."""


def find_region(graph: Graph, product: Node) -> Region | str:
    """Return the region behind a product, or the reason why there is none."""
    reason = ""
    for scale in _scales(graph, product):
        try:
            return _Search(graph, product, scale).region()
        except _NotSplitError as error:
            reason = reason or str(error)
    return reason


def _scales(graph: Graph, product: Node) -> Iterator[Node | None]:
    """Yield numbers that the gradients in the region may be proportional to."""
    behind = _reached([product])
    before = _origins([node for node in behind if _is_large(node, product)])
    tangents = [node for node in graph.nodes if is_tangent(node) and node in before]
    gradients = _reached(tangents)
    numbers = [n for n in graph.nodes if n in gradients and n in before and _is_number(n)]
    yield from numbers[:_SCALES] or [None]


def _is_number(node: Node) -> bool:
    tensor = tensor_of(node)
    return tensor is not None and tensor.dim() == 0 and tensor.is_floating_point()


def _is_large(node: Node, product: Node) -> bool:
    tensor, own = tensor_of(node), tensor_of(product)
    if tensor is None or own is None or tensor.numel() < own.numel():
        return False
    return has_rows(node, own.shape[0])


def _operands(node: Node) -> list[Node]:
    """Return the operands of a node, without the total weight of a loss: it needs no scores."""
    if node.target is aten.nll_loss_backward.default:
        return [each for each in node.args[:6] if isinstance(each, Node)]
    return node.all_input_nodes


def _reached(starts: Iterable[Node], stop: Node | None = None) -> frozenset[Node]:
    """Return nodes and all that depend on them, by no way through `stop`."""
    found, queue = set(starts), list(starts)
    while queue:
        node = queue.pop()
        users = {user for user in node.users if user.op != "output" and node in _operands(user)}
        new = users - found
        found |= new
        queue += [user for user in new if user is not stop]
    return frozenset(found)


def _origins(ends: Iterable[Node], stop: Node | None = None) -> frozenset[Node]:
    """Return nodes and all that they depend on, by no way through `stop`."""
    found, queue = set(ends), list(ends)
    while queue:
        new = set(_operands(queue.pop())) - found - {stop}
        found |= new
        queue += new
    return frozenset(found)


class _Search:
    """The search of a region, for one scale."""

    def __init__(self, graph: Graph, product: Node, scale: Node | None) -> None:
        tensor = tensor_of(product)
        assert tensor is not None  # a product
        self.graph, self.product, self.scale, self.rows = graph, product, scale, tensor.shape[0]
        self.behind = _reached([product], stop=scale)
        self.large = {node for node in self.behind if _is_large(node, product)}
        self.needed = _origins(self.large, stop=scale)
        self.scaled = _reached([scale]) if scale is not None else frozenset[Node]()
        self.gradients = _reached([node for node in graph.nodes if is_tangent(node)])
        self.kinds: dict[Node, Kind] = {}
        self.inner: dict[Node, None] = {}

    def region(self) -> Region:
        """Return the region.

        Raises:
            _NotSplitError: There is none for this scale.
        """
        queue: list[Node] = []
        for node in self.graph.nodes:
            if node in self.behind and self._is_inner(node):
                queue += self._add(node)
        while queue:
            node = queue.pop()
            if node not in self.inner and self.kinds.get(node) == "rows":
                queue += self._add_operand(node)
        sinks = tuple(self._sinks())
        if not sinks:
            raise _NotSplitError("no result of it is read")
        self._check_gradients()
        written = mutated_bases(self.graph)
        if any(node in written for node in self.inner):
            raise _NotSplitError("a program writes to a value in it")
        inner = frozenset(self.inner)
        return Region(self.product, self.rows, self.scale, self.kinds, inner, sinks, self.scaled)

    def _is_inner(self, node: Node) -> bool:
        parts = [each for each in _operands(node) if each in self.inner]
        is_direct = any(each in self.large or tensor_of(each) is None for each in parts)
        return node in self.needed or is_direct

    def _add(self, node: Node) -> list[Node]:
        """Add an inner node; return its operands from outside."""
        split = split_of(node, self.kinds, self.rows)
        if split is None:
            raise _NotSplitError(f"{node} ({node.target}) may need several rows at once")
        if split.result == "sum" and node in self.needed:
            raise _NotSplitError(f"a large tensor depends on {node}, a sum over all rows")
        outside = [each for each in split.operands if each not in self.inner]
        for operand in outside:
            if operand in self.behind and operand is not self.scale:
                raise _NotSplitError(f"{node} reads {operand}, which needs all rows")
            if self.kinds.setdefault(operand, split.operands[operand]) != split.operands[operand]:
                raise _NotSplitError(f"{node} reads {operand} in another order")
        self.kinds[node] = split.result
        self.inner[node] = None
        return outside

    def _add_operand(self, node: Node) -> list[Node]:
        """Let chunks compute an operand that is large, or depends on the scale."""
        is_large = node.op == "call_function" and _is_large(node, self.product)
        if node not in self.scaled and not is_large:
            return []
        if split_of(node, self.kinds, self.rows) is None and node not in self.scaled:
            return []  # it is there anyway
        return self._add(node)

    def _sinks(self) -> Iterator[Node]:
        for node in self.graph.nodes:
            if node not in self.inner or node not in self.behind or tensor_of(node) is None:
                continue
            others = [user for user in node.users if user not in self.inner]
            if others and (node in self.large or self.kinds[node] == "turned"):
                raise _NotSplitError(f"{others[0]} needs {node}, a tensor of its size, as a whole")
            if others:
                yield node

    def _check_gradients(self) -> None:
        """Check that all gradients in the region are proportional to the scale.

        Raises:
            _NotSplitError: One is not, or may be too small for its type.
        """
        queue = [node for node in (*self.inner, *self.kinds) if node in self.gradients]
        seen: set[Node] = set()
        while queue:
            node = queue.pop()
            if node in seen or node is self.scale:
                continue
            seen.add(node)
            parts = [each for each in _operands(node) if each in self.gradients]
            if node not in self.scaled or not self.scaled.issuperset(parts):
                raise _NotSplitError(f"{node} is computed from gradients that are not one number")
            if not is_linear(node, self.scaled):
                raise _NotSplitError(f"{node} ({node.target}) is not linear in the gradient")
            tensor = tensor_of(node)
            if tensor is not None and tensor.dtype == torch.float16:
                raise _NotSplitError(f"{node} is a gradient in float16, and may be too small")
            queue += parts
