"""Put a traced graph in the place of a match: through the rewriter, at the earliest places.

    %q, %k, %v                               search: softmax(q @ k.mT) @ v
    %attention = sdpa(%q, %k, %v)            each new call stands right behind the last of its
    %out -> %attention                       operands, so that all users of the old results follow

A result gets the strides that the old one had (a copy is added where they differ): code behind it
has been traced for those, and callers see them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from ctk.compiler.fx.properties import is_mutating
from ctk.compiler.fx.types import same_sizes, same_type, tensor_of, type_text, value_of
from ctk.compiler.patterns.expression import Match
from ctk.compiler.patterns.matcher import replace_match
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import tracing

TraceFunction = Callable[[Callable[..., Any], Sequence[object]], GraphModule]

fwd_only: TraceFunction = tracing.trace_forward
"""Traces for inference."""

joint_fwd_bwd: TraceFunction = tracing.trace_joint
"""Traces for training: forward and backward, through AOTAutograd."""

jvp: TraceFunction = tracing.trace_jvp
"""Traces for forward-mode derivatives: results, then tangents, through dual numbers."""


def replace_by_example(
    rewriter: Rewriter,
    match: Match,
    replacement_fn: Callable[..., Any],
    operands: Sequence[Node],
    *,
    name: str,
) -> bool:
    """Replace a match by the trace of a function of operands, in one rewrite.

    Args:
        replacement_fn: A function of one tensor for each operand; returns one result for each of
            the match.
        operands: Nodes of the graph before the match.

    Returns:
        Whether the rewrite was allowed.

    Raises:
        ValueError: An operand has no type, or the results have another type than the match's.
    """
    mode = fake.mode_of([value_of(node) for node in operands])
    tensors = [tensor_of(node) for node in operands]
    if mode is None or None in tensors:
        raise ValueError(f"the types of the operands {operands} are unknown")
    fakes = [tracing.fake_like(tensor, mode) for tensor in tensors if tensor is not None]
    module = fwd_only(replacement_fn, fakes)
    reason = unfit(module, operands, match.outputs)
    if reason:
        raise ValueError(f"{name}: {reason}")
    return replace_match(
        rewriter, name, match, lambda: insert_graph(rewriter, module, operands, match)
    )


def unfit(module: GraphModule, operands: Sequence[object], outputs: Sequence[Node]) -> str | None:
    """Return why the results of a traced graph cannot replace those of a match."""
    results = _results(module)
    if len(results) != len(outputs):
        return f"the replacement has {len(results)} results, the match {len(outputs)}"
    for new, old in zip(results, outputs, strict=True):
        if not isinstance(new, Node) or not same_type(value_of(new), value_of(old)):
            types = type_text(value_of(new), device=True), type_text(value_of(old), device=True)
            return "the replacement makes {} of {}".format(*types)
        layout = _layout(old)
        if layout is None and not _has_layout(new, old):
            return f"the strides of {old} are those of no dense tensor"
    if any(node.op == "get_attr" for node in module.graph.nodes):
        return "the replacement makes a tensor constant"
    if any(is_mutating(node) for node in module.graph.nodes):
        return "the replacement writes to a tensor"
    return _too_late(module, operands, outputs)


def _too_late(
    module: GraphModule, operands: Sequence[object], outputs: Sequence[Node]
) -> str | None:
    """Return which operand of a new result is computed behind a user of the old one.

    Search `(sin(x), cos(y))` where `y` is computed from that sine: no call can make both.
    """
    values = dict(zip(module.graph.find_nodes(op="placeholder"), operands, strict=False))
    needs: dict[Node, set[Node]] = {}
    for node in module.graph.nodes:
        own = values.get(node)
        needs[node] = {own} if isinstance(own, Node) else set[Node]()
        needs[node] = needs[node].union(*(needs[each] for each in node.all_input_nodes))
    for new, old in zip(_results(module), outputs, strict=True):
        users = [user for user in old.users if user not in outputs]
        for operand in sorted(needs[cast("Node", new)]):
            if operand in outputs:
                return f"{operand} is a result of the match and an operand of its replacement"
            early = next((user for user in users if not operand < user), None)
            if early is not None:
                return f"{early} uses {old} before {operand} is computed"
    return None


def _results(module: GraphModule) -> list[object]:
    args = module.graph.output_node().args[0]
    results = cast("Sequence[object]", args) if isinstance(args, (list, tuple)) else [args]
    return [result for result in results if result is not None]


def insert_graph(
    rewriter: Rewriter, module: GraphModule, operands: Sequence[object], match: Match
) -> list[Node]:
    """Insert the calls of a traced graph that fits (`unfit`), inside an edit; return results."""
    start = min(match.covered)
    values = iter(operands)
    made: dict[Node, Any] = {}
    for node in module.graph.nodes:
        if node.op == "placeholder":
            made[node] = _operand(rewriter, next(values), node, start)
        elif node.op == "call_function":
            args, kwargs = map_arg((node.args, node.kwargs), made.__getitem__)
            made[node] = _insert(rewriter, node.target, args, kwargs, start)
    results = [made[cast("Node", result)] for result in _results(module)]
    pairs = zip(results, match.outputs, strict=True)
    return [_with_layout(rewriter, new, old, start) for new, old in pairs]


def _operand(rewriter: Rewriter, value: object, traced: Node, start: Node) -> object:
    """Return an operand with the strides of tracing: a tangent may have others than its result."""
    return _with_layout(rewriter, value, traced, start) if isinstance(value, Node) else value


def _insert(
    rewriter: Rewriter,
    target: Callable[..., object],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    start: Node,
) -> Node:
    operands: list[Node] = []
    map_arg((args, dict(kwargs)), operands.append)
    last = max(operands, default=None)
    before = start if last is None or last < start else last.next
    return rewriter.insert(target, args, kwargs, before=before)


def _has_layout(new: object, old: Node) -> bool:
    mine, others = tensor_of(new), tensor_of(old)
    return mine is None or others is None or same_sizes(mine.stride(), others.stride())


def _layout(node: Node) -> list[int] | None:
    """Return the dimensions of a dense tensor from the outermost to the innermost, else None."""
    tensor = tensor_of(node)
    if tensor is None:
        return None
    hints = [_hint(each) for each in tensor.stride()]
    order = sorted(range(tensor.dim()), key=lambda dim: -hints[dim])
    expected: Any = 1
    for dim in reversed(order):
        if str(tensor.stride(dim)) != str(expected):
            return None
        expected = expected * tensor.shape[dim]
    return order


def _hint(size: object) -> float:
    hint = fake.symbol_and_hint(size)[1] if fake.is_symbolic(size) else size
    return float(cast("float", hint or 0))


def _with_layout(rewriter: Rewriter, new: Node, old: Node, start: Node) -> Node:
    """Return a result with the strides of the one it replaces: itself, or a copy."""
    order = None if _has_layout(new, old) else _layout(old)
    return new if order is None else insert_copy(rewriter, new, order, start)


def insert_copy(rewriter: Rewriter, node: Node, order: Sequence[int], start: Node) -> Node:
    """Insert a dense copy of a node, right behind it but not in front of `start`.

    Args:
        order: The dimensions from the outermost in memory to the innermost.
    """
    aten, inverse = torch.ops.aten, [order.index(dim) for dim in range(len(order))]
    dense = {"memory_format": torch.contiguous_format}
    is_plain = list(order) == inverse == list(range(len(order)))
    if not is_plain:
        node = _insert(rewriter, aten.permute.default, (node, list(order)), {}, start)
    node = _insert(rewriter, aten.clone.default, (node,), dense, start)
    return node if is_plain else _insert(rewriter, aten.permute.default, (node, inverse), {}, start)
