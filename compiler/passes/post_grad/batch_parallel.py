"""Compute parallel pointwise functions, or layer norms, of one shape as one of a stack.

Rules:
    1. f(x_i) -> unbind(f(stack(x_i)))[i], for a pointwise `f` of one or two tensors
    2. native_layer_norm(x_i, shape, w_i, b_i) -> the parts of native_layer_norm(stack(x_i), shape)
       times stack(w_i) plus stack(b_i)
Preconditions: all have operands and results of the same sizes and dtypes without gaps, on one
device, and the same settings; behind all operands and before all users is a place, and no write is
between it and one of them. An operand or a weight that all share is not copied. A result that
leaves the graph is a copy, so that it shares no memory. Sizes are numbers. Reassociates: vectors of
a kernel end elsewhere, where it rounds in another way, and 2. scales behind the norm.

Off by default: by `benchmarks/batch_parallel.py` the copies of a stack cost more than kernels save
on a CPU, where fused kernels make one loop of parallel functions anyway.

Source: `BatchPointwiseOps*Fusion`, `BatchMathOpsPreGradFusion` and `BatchLayernormFusion` in
`torch/_inductor/fx_passes/group_batch_fusion.py`, which search independent sets within limits of
depth, and let results share memory. Dropout is not batched: its mask would be another one.
"""

import operator
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch.fx import Graph, Node

from ctk.compiler.fx.properties import escapes, is_mutating, is_pure
from ctk.compiler.fx.types import is_dense, tensor_of, value_of
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import arguments

aten = torch.ops.aten
_NORM = aten.native_layer_norm.default
Call = Callable[..., Node]


@dataclass(frozen=True, slots=True)
class BatchParallel(Pass):
    """Compute parallel pointwise functions, or layer norms, of one shape as one of a stack.

    Attributes:
        enabled: Whether to do it.
        pointwise: Whether to batch pointwise functions.
        layer_norms: Whether to batch layer norms.
        min_group: Leave fewer than these alone.
    """

    name = "batch_parallel"
    numerics = "reassociates"
    enabled: bool = False
    pointwise: bool = True
    layer_norms: bool = True
    min_group: int = 2

    def __post_init__(self) -> None:
        if self.min_group < 2:
            raise ValueError("min_group must be at least 2")

    def run(self, rewriter: Rewriter) -> None:
        if not self.enabled:
            return
        refused: set[Node] = set()
        while (group := _find_group(rewriter.graph, self, refused)) is not None:
            if not _batch(rewriter, group):
                refused.update(group.nodes)


@dataclass(slots=True)
class _Group:
    """Nodes with one key that can be computed at one place: behind `after`, before `before`."""

    nodes: list[Node]
    after: int
    before: int

    def joined(self, other: "_Group") -> "_Group | None":
        """Return both as one; None if no place is left, as where one uses the other."""
        after, before = max(self.after, other.after), min(self.before, other.before)
        nodes = [*self.nodes, *other.nodes]
        operands = [operand for node in other.nodes for operand in node.all_input_nodes]
        used = {o.all_input_nodes[0] if _is_item(o) else o for o in operands}
        is_free = after < before and used.isdisjoint(self.nodes)
        return _Group(nodes, after, before) if is_free else None


def _find_group(graph: Graph, options: BatchParallel, refused: set[Node]) -> _Group | None:
    """Return the first group that is large enough."""
    places = {node: place for place, node in enumerate(graph.nodes)}
    writes = [place for node, place in places.items() if is_mutating(node)]
    found: dict[Hashable, list[_Group]] = {}
    for node, place in places.items():
        key = _key(node, options) if node.op == "call_function" and node not in refused else None
        if key is None:
            continue
        users = [u for user in node.users for u in (user.users if _is_item(user) else [user])]
        if not users:
            continue  # dead code
        operands = [places[operand] for operand in node.all_input_nodes]
        after = max([*operands, *(write for write in writes if write < place)])
        before = min([*map(places.__getitem__, users), *(w for w in writes if w > place)])
        _add(found.setdefault(key, []), _Group([node], after, before))
    groups = (group for same in found.values() for group in same)
    return next((group for group in groups if len(group.nodes) >= options.min_group), None)


def _is_item(node: Node) -> bool:
    return node.target is operator.getitem


def _add(groups: list[_Group], one: _Group) -> None:
    for index, group in enumerate(groups):
        joined = group.joined(one)
        if joined is not None:
            groups[index] = joined
            return
    groups.append(one)


def _key(node: Node, options: BatchParallel) -> Hashable:
    """Return the key that nodes of one batch share; None if a node cannot be batched."""
    is_norm = node.target is _NORM and options.layer_norms
    if not is_norm and not (options.pointwise and _is_pointwise(node)):
        return None
    if is_norm and not all(map(_is_item, node.users)):
        return None
    value = value_of(node)
    results = cast("Sequence[object]", value) if isinstance(value, (list, tuple)) else [value]
    given = [*map(value_of, node.all_input_nodes), *results]
    tensors = [t for t in given if isinstance(t, torch.Tensor) and _is_plain(t)]
    if len(tensors) != len(given) or len({tensor.device for tensor in tensors}) != 1:
        return None
    if not is_norm and any(tensor.shape != tensors[-1].shape for tensor in tensors):
        return None  # broadcast operands
    if any(operand.target is aten.stack.default for operand in node.all_input_nodes):
        return None  # it may be a batch
    shapes = tuple((tensor.dtype, tuple(tensor.shape)) for tensor in tensors)
    settings = [None if isinstance(each, Node) else repr(each) for each in _operands(node)]
    return (node.target, shapes, *settings)


def _operands(node: Node) -> tuple[object, ...]:
    return arguments.full_arguments(node.target, node.args, node.kwargs) or ()


def _is_pointwise(node: Node) -> bool:
    tags = getattr(node.target, "tags", ())
    operands = [each for each in node.args if isinstance(each, Node)]
    is_own = len(operands) in (1, 2) and operands == node.all_input_nodes and not node.kwargs
    is_pointwise = torch.Tag.pointwise in tags and node.target is not aten.clone.default
    return is_pointwise and is_own and is_pure(node)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has known sizes and no gaps."""
    if any(map(fake.is_symbolic, tensor.shape)):
        return False
    return tensor.layout is torch.strided and tensor.dim() > 0 and is_dense(tensor)


def _batch(rewriter: Rewriter, group: _Group) -> bool:
    """Make the nodes of a group one, behind the last of their operands."""
    first, nodes = group.nodes[0], group.nodes
    place = list(rewriter.graph.nodes)[group.before]

    def edit(graph: Graph) -> None:
        call = rewriter.inserter(place)
        columns = [[_operands(node)[i] for node in nodes] for i in _places(first)]
        is_shared = [len({*column}) == 1 for column in columns]
        is_shared[0] &= first.target is not _NORM and not all(is_shared)
        stacks = [_stack(call, *each) for each in zip(columns, is_shared, strict=True)]
        if first.target is _NORM:
            results = [call(aten.unbind.int, each) for each in _norm(call, first, stacks)]
            items = [(i, item) for i, node in enumerate(nodes) for item in [*node.users]]
            for index, item in items:
                _replace(call, item, results[cast("int", item.args[1])], index)
            for node in nodes:
                graph.erase_node(node)
        else:
            operands = list(first.args)
            for position, stack in zip(_places(first), stacks, strict=True):
                operands[position] = stack
            parts = call(aten.unbind.int, call(first.target, *operands))
            for index, node in enumerate(nodes):
                _replace(call, node, parts, index)

    return rewriter.rewrite(_RULES[first.target is _NORM], nodes, edit)


_RULES = {
    False: "f(x_i) -> unbind(f(stack(x_i)))[i]",
    True: "layer_norm(x_i, w_i, b_i) -> unbind(layer_norm(stack(x_i)) * w + b)[i]",
}


def _places(node: Node) -> list[int]:
    return [i for i, each in enumerate(_operands(node)) if isinstance(each, Node)]


def _stack(call: Call, operands: Sequence[object], is_shared: bool) -> Node:
    """Return operands as one tensor; a common one is broadcast instead."""
    if is_shared:
        return call(aten.unsqueeze.default, operands[0], 0)
    return call(aten.stack.default, list(operands))


def _shape(operand: object) -> list[int]:
    tensor = tensor_of(cast("Node", operand))
    assert tensor is not None  # `_key` has looked
    return list(tensor.shape)


def _norm(call: Call, first: Node, stacks: list[Node]) -> list[Node]:
    """Return the three results of the norm of a stack, scaled by stacks of weights."""
    _, shape, weight, bias, eps = _operands(first)
    inputs, *scales = stacks
    normed = call(_NORM, inputs, shape, None, None, eps)
    result, mean, rstd = (call(operator.getitem, normed, index) for index in range(3))
    between = len(_shape(inputs)) - 1 - len(cast("list[int]", shape))
    for given, target in ((weight, aten.mul.Tensor), (bias, aten.add.Tensor)):
        if given is not None:
            scale = scales.pop(0)
            sizes = _shape(scale)
            wide = call(aten.view.default, scale, [sizes[0], *[1] * between, *sizes[1:]])
            result = call(target, result, wide)
    return [result, mean, rstd]


def _replace(call: Call, node: Node, parts: Node, index: int) -> None:
    """Replace a result by a part, in its own memory if that is observable."""
    part = call(operator.getitem, parts, index)
    node.replace_all_uses_with(call(aten.clone.default, part) if escapes(node) else part)
    node.graph.erase_node(node)


def examples() -> list[Example]:
    """Return programs that the pass changes when it is on, one for each rule."""
    x, y, w, b = torch.ones(4, 3), torch.ones(4, 3), torch.ones(3), torch.ones(3)
    norm = torch.nn.functional.layer_norm
    return [
        (lambda x, y: (torch.tanh(x), torch.tanh(y).neg()), (x, y)),
        (lambda x, y: (x * 2) @ (y * 2).t() + (x + y) @ (y + x).t(), (x, y)),
        (lambda x, y, w, b: norm(x, (3,), w, b) * norm(y, (3,), b, w), (x, y, w, b)),
        (lambda x, y: (norm(x, (3,)), norm(y, (3,))), (x, y)),
    ]


PASS = BatchParallel()
