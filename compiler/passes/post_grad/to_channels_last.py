"""Run convolutions with their channels last in memory.

Rule: `convolution(x, w)` -> `convolution(x, clone(w, channels_last))`, for all convolutions of a
graph at once. Their results have channels last then, and so have those of the pointwise operators,
norms and pools behind them; in front of a user that would notice (an output, a view that such
strides do not allow, a write, a random draw, a foreign operator) a copy restores the strides.
`fold_constants` stores new frozen weights; other weights are copied in each call, as oneDNN would
do itself.
Preconditions: two or three dimensions, float, on a CPU with oneDNN; all sizes known; fewer than 300
nodes for each convolution; fewer copies of results than convolutions. A training step saves values
for backward in the old strides, so there it rarely pays.
Reassociates: other kernels sum in another order.

Source: `GraphLowering.decide_layout_opt` and `convert_conv_weights_to_channels_last` of
`torch/_inductor`: on CPUs with oneDNN always, elsewhere not below one convolution in 300 nodes.
They force strides at outputs and `as_strided` only; this pass runs each user on fake tensors.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch.fx import Graph, Node

from ctk.compiler.fx.properties import base_of, escapes, is_view, mutated_bases
from ctk.compiler.fx.restride import again, same_layouts
from ctk.compiler.fx.types import dense_strides, tensor_of, value_of
from ctk.compiler.patterns.insert import insert_copy
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake

aten = torch.ops.aten
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
_NODES_PER_CONVOLUTION = 300


class ToChannelsLast(Pass):
    """Run convolutions with their channels last in memory."""

    name = "to_channels_last"
    numerics = "reassociates"

    def run(self, rewriter: Rewriter) -> None:
        plan = _plan(rewriter.graph)
        if plan.weights and len(plan.restored) < len(plan.weights):
            rule = f"{len(plan.weights)} convolutions -> channels last"
            rewriter.rewrite(rule, list(plan.weights), lambda graph: _apply(rewriter, plan))


@dataclass(slots=True)
class _Plan:
    """What to change.

    Attributes:
        weights: The convolutions whose weights are copied, with the format.
        values: The nodes whose strides change, with their new fake values.
        restored: The nodes that some users need with their old strides, with these users.
    """

    weights: dict[Node, torch.memory_format] = field(
        default_factory=dict[Node, torch.memory_format]
    )
    values: dict[Node, object] = field(default_factory=dict[Node, object])
    restored: dict[Node, dict[Node, None]] = field(default_factory=dict[Node, dict[Node, None]])


def _plan(graph: Graph) -> _Plan:
    """Follow the new strides through a graph, in its order."""
    nodes = list(graph.nodes)
    mode = fake.mode_of([value_of(node) for node in nodes])
    convolutions = [node for node in nodes if _is_candidate(node)]
    if mode is None or len(nodes) >= _NODES_PER_CONVOLUTION * len(convolutions):
        return _Plan()
    plan, written = _Plan(), mutated_bases(graph)
    for node in nodes:
        changed = {
            operand: plan.values[operand]
            for operand in node.all_input_nodes
            if operand in plan.values and node not in plan.restored.get(operand, ())
        }
        format_ = _FORMATS[_rank(node)] if node in convolutions else None
        new = _value(node, changed, mode, format_)
        if new is None:
            for each in changed:
                plan.restored.setdefault(each, {})[node] = None
            continue
        if same_layouts(value_of(node), new):
            continue
        if base_of(node) in written:  # a write through a view of it needs the same memory
            return _Plan()
        if format_ is not None:
            plan.weights[node] = format_
        plan.values[node] = new
        _hand_out(plan, node)
    return plan if all(map(_is_restorable, plan.restored)) else _Plan()


def _value(
    node: Node, changed: Mapping[Node, object], mode: object, format_: torch.memory_format | None
) -> object:
    """Return the value of a node on changed operands; None if it notices, or stays the same."""
    if format_ is None:
        return again(node, changed, mode) if changed else None
    weight = node.args[1]
    assert isinstance(weight, Node)  # _is_candidate has looked
    tensor = tensor_of(weight)
    assert tensor is not None
    with fake.fake_compute(mode):
        copied = tensor.clone(memory_format=format_)
    return again(node, {**changed, weight: copied}, mode)


def _hand_out(plan: _Plan, node: Node) -> None:
    """Give the caller, and all views of its results, a copy with the old strides."""
    if not isinstance(plan.values[node], torch.Tensor) or not escapes(node):
        return
    sharing = [user for user in node.users if user.op == "output" or is_view(user)]
    plan.restored[node] = dict.fromkeys(sharing)


def _apply(rewriter: Rewriter, plan: _Plan) -> None:
    for node, format_ in plan.weights.items():
        options = {"memory_format": format_}
        copied = rewriter.insert(aten.clone.default, (node.args[1],), options, before=node)
        node.update_arg(1, copied)
    for node, value in plan.values.items():
        old = tensor_of(node)
        node.meta["val"] = value
        if node in plan.restored:
            assert old is not None  # _is_restorable has looked
            restored = insert_copy(rewriter, node, _order(old), node)
            for user in plan.restored[node]:
                user.replace_input_with(node, restored)


def _order(tensor: torch.Tensor) -> list[int]:
    """Return the dimensions of a tensor, that with the largest stride first."""
    strides = tensor.stride()
    return sorted(range(tensor.dim()), key=lambda axis: -strides[axis])


def _is_restorable(node: Node) -> bool:
    """Return whether a copy can have the strides that a node had."""
    tensor = tensor_of(node)
    if tensor is None:
        return False
    order = _order(tensor)
    dense = dense_strides([tensor.shape[axis] for axis in order])
    return [tensor.stride(axis) for axis in order] == dense


def _rank(node: Node) -> int:
    result = tensor_of(node)
    return 0 if result is None else result.dim()


def _is_candidate(node: Node) -> bool:
    if node.target is not aten.convolution.default or node.kwargs:
        return False
    operands = [tensor_of(each) for each in (node, *node.args[:2])]
    if not torch.backends.mkldnn.is_available() or not torch.backends.mkldnn.enabled:
        return False
    return all(map(_is_fitting, operands))


def _is_fitting(tensor: torch.Tensor | None) -> bool:
    if tensor is None or tensor.device.type != "cpu" or tensor.dim() not in _FORMATS:
        return False
    return tensor.is_floating_point() and not any(map(fake.is_symbolic, tensor.shape))


def examples() -> list[Example]:
    """Return programs that the pass changes: convolutions with users."""
    x, w = torch.ones(1, 2, 4, 4), torch.nn.Parameter(torch.ones(4, 2, 3, 3))
    plain = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    v = torch.nn.Parameter(torch.ones(2, 4, 2, 2))
    return [
        (
            lambda x, w, v: aten.convolution.default(
                aten.convolution.default(x, w, None, *plain).sin(), v, None, *plain
            ),
            (x, w, v),
        ),
    ]


PASS = ToChannelsLast()
