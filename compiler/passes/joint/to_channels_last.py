"""Run convolutions with their channels last in memory.

Rule: `convolution(x, w)` -> `convolution(x, clone(w, channels_last))`, for all convolutions of a
graph at once, and for `convolution_backward` with them. Their results have channels last then, and
so have those of the pointwise operators, norms and pools behind them; in front of a user that would
notice (an output, a view that such strides do not allow, a write, a random draw, a foreign
operator) a copy restores the strides. A weight of one pixel needs no copy if the input has channels
last, and its gradient only a view. `fold_constants` stores new frozen weights; other weights are
copied in each call, as the libraries would do themselves.
Preconditions: float; all sizes known; fewer than 300 nodes for each convolution; fewer copies of
results than convolutions. On CPUs with oneDNN two or three dimensions; on CUDA two, where cuDNN
runs on tensor cores: 16 bits, or float32 as TF32. In training only with the option `training`,
since the gain of whole steps is not measured yet.
Reassociates: other kernels sum in another order.

`python -m benchmarks.convolutions` measures cuDNN: on an H100 channels last are faster for nearly
all kinds of convolutions in 16 bits and TF32, and slower in float32 without tensor cores.

Source: `GraphLowering.decide_layout_opt` and `convert_conv_weights_to_channels_last` of
`torch/_inductor`: on CPUs with oneDNN always, elsewhere not below one convolution in 300 nodes,
nor by the kinds of convolutions, whose times on an A100 are weighed. They force strides at outputs
and `as_strided` only; this pass runs each user on fake tensors, in the joint graph, so that values
that forward saves have the new strides as well.
"""

import operator
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import torch
from torch.fx import Graph, Node

from ctk.compiler.fx.properties import base_of, escapes, is_view, mutated_bases
from ctk.compiler.fx.restride import again, same_layouts
from ctk.compiler.fx.types import HALVES, dense_strides, tensor_of, value_of
from ctk.compiler.patterns.insert import insert_copy
from ctk.compiler.rewriting.base import Example, Pass
from ctk.compiler.rewriting.rewriter import Rewriter
from ctk.compiler.torch_compat.fake import fake_tensors as fake

aten = torch.ops.aten
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
_BACKWARD = aten.convolution_backward.default
_NODES_PER_CONVOLUTION = 300


@dataclass(frozen=True, slots=True)
class ToChannelsLast(Pass):
    """Run convolutions with their channels last in memory.

    Attributes:
        training: Also in training, with the gradients of convolutions.
    """

    name = "to_channels_last"
    numerics = "reassociates"
    training: bool = False

    def run(self, rewriter: Rewriter) -> None:
        graph = rewriter.graph
        if not self.training and graph.find_nodes(op="call_function", target=_BACKWARD):
            return
        plan = _plan(graph)
        copies = [node for node in plan.restored if not _is_same_memory(node, plan)]
        if len(copies) < len(plan.changed):
            rule = f"{len(plan.changed)} convolutions -> channels last"
            rewriter.rewrite(rule, list(plan.changed), lambda graph: _apply(rewriter, plan))


@dataclass(slots=True)
class _Plan:
    """What to change.

    Attributes:
        changed: The convolutions whose results change, with the format for a copy of the weight:
            None if the weight may stay.
        values: The nodes whose strides change, with their new fake values.
        restored: The nodes that some users need with their old strides, with these users.
    """

    changed: dict[Node, torch.memory_format | None] = field(
        default_factory=dict[Node, "torch.memory_format | None"]
    )
    values: dict[Node, object] = field(default_factory=dict[Node, object])
    restored: dict[Node, dict[Node, None]] = field(default_factory=dict[Node, dict[Node, None]])


def _plan(graph: Graph) -> _Plan:
    """Follow the new strides through a graph, in its order."""
    nodes = list(graph.nodes)
    mode = fake.mode_of([value_of(node) for node in nodes])
    convolutions = {node for node in nodes if _is_candidate(node)}
    if mode is None or not _may_pay(convolutions, len(nodes)):
        return _Plan()
    plan, written = _Plan(), mutated_bases(graph)
    for node in nodes:
        if node.target is operator.getitem and value_of(node) is None:
            continue  # a gradient that is not computed
        changed = {
            operand: plan.values[operand]
            for operand in node.all_input_nodes
            if operand in plan.values and node not in plan.restored.get(operand, ())
        }
        is_convolution = node in convolutions
        new, format_ = again(node, changed, mode) if changed else None, None
        if is_convolution and not _takes_weight(node, new):
            new, format_ = _with_copied_weight(node, changed, mode)
        if new is None:
            for each in changed:
                plan.restored.setdefault(each, {})[node] = None
            continue
        if same_layouts(value_of(node), new):
            continue
        if base_of(node) in written:  # a write through a view of it needs the same memory
            return _Plan()
        if is_convolution:
            plan.changed[node] = format_
        plan.values[node] = new
        _hand_out(plan, node)
    return plan if all(map(_is_restorable, plan.restored)) else _Plan()


def _takes_weight(node: Node, new: object) -> bool:
    """Return whether a convolution has channels last without a copy of its weight.

    So it is with channels last in its input, and a weight of one pixel, whose numbers are in the
    same places.
    """
    weight = tensor_of(_weight(node))
    first = new[0] if isinstance(new, tuple) else new
    if weight is None or not isinstance(first, torch.Tensor):
        return False
    format_ = _FORMATS[weight.dim()]
    return all(each.is_contiguous(memory_format=format_) for each in (weight, first))


def _with_copied_weight(
    node: Node, changed: Mapping[Node, object], mode: object
) -> tuple[object, torch.memory_format]:
    """Return the value of a convolution with a copy of its weight, and the format of that."""
    weight = _weight(node)
    tensor = tensor_of(weight)
    assert tensor is not None  # _is_candidate has looked
    format_ = _FORMATS[tensor.dim()]
    with fake.fake_compute(mode):
        copied = tensor.clone(memory_format=format_)
    return again(node, {**changed, weight: copied}, mode), format_


def _hand_out(plan: _Plan, node: Node) -> None:
    """Give the caller, and all views of its results, a copy with the old strides."""
    if not isinstance(plan.values[node], torch.Tensor) or not escapes(node):
        return
    sharing = [user for user in node.users if user.op == "output" or is_view(user)]
    plan.restored[node] = dict.fromkeys(sharing)


def _apply(rewriter: Rewriter, plan: _Plan) -> None:
    for node, format_ in plan.changed.items():
        if format_ is not None:
            options, weight = {"memory_format": format_}, _weight(node)
            copied = rewriter.insert(aten.clone.default, (weight,), options, before=node)
            node.update_arg(_WEIGHTS[node.target], copied)
    for node, value in plan.values.items():
        old, is_view_enough = tensor_of(node), _is_same_memory(node, plan)
        node.meta["val"] = value
        if node in plan.restored:
            assert old is not None  # _is_restorable has looked
            if is_view_enough:
                sizes = (node, list(old.shape), list(old.stride()))
                restored = rewriter.insert(aten.as_strided.default, sizes, before=node.next)
            else:
                restored = insert_copy(rewriter, node, _order(old), node)
            for user in plan.restored[node]:
                user.replace_input_with(node, restored)


def _is_same_memory(node: Node, plan: _Plan) -> bool:
    """Return whether old and new strides differ in dimensions of one element only."""
    old, new = tensor_of(node), plan.values.get(node)
    if old is None or not isinstance(new, torch.Tensor):
        return False
    dimensions = zip(old.shape, old.stride(), new.stride(), strict=True)
    return all(size == 1 or before == after for size, before, after in dimensions)


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


_WEIGHTS: Mapping[object, int] = {aten.convolution.default: 1, _BACKWARD: 2}
"""The operand of each convolution that is its weight."""


def _weight(node: Node) -> Node:
    weight = node.args[_WEIGHTS[node.target]]
    assert isinstance(weight, Node)  # _is_candidate has looked
    return weight


def _is_candidate(node: Node) -> bool:
    place = _WEIGHTS.get(node.target)
    if place is None or node.kwargs:
        return False
    return all(map(_is_fitting, map(tensor_of, node.args[: place + 1])))


def _is_fitting(tensor: torch.Tensor | None) -> bool:
    if tensor is None or tensor.dim() not in _FORMATS or not tensor.is_floating_point():
        return False
    return not any(map(fake.is_symbolic, tensor.shape))


def _may_pay(convolutions: Collection[Node], size: int) -> bool:
    """Return whether the library of the device prefers channels last."""
    if not convolutions or size >= _NODES_PER_CONVOLUTION * len(convolutions):
        return False
    tensors = [tensor_of(_weight(node)) for node in convolutions]
    weights = [tensor for tensor in tensors if tensor is not None]
    if all(weight.device.type == "cuda" for weight in weights):
        return all(map(_is_faster_in_cudnn, weights))
    return all(weight.device.type == "cpu" for weight in weights) and _has_onednn()


def _is_faster_in_cudnn(weight: torch.Tensor) -> bool:
    precision = torch.backends.cudnn.conv.fp32_precision  # type: ignore[attr-defined]  # torch's module is an object
    is_tf32 = precision == "tf32"
    is_on_tensor_cores = weight.dtype in HALVES or (weight.dtype is torch.float32 and is_tf32)
    return is_on_tensor_cores and weight.dim() == 4


def _has_onednn() -> bool:
    return torch.backends.mkldnn.is_available() and bool(torch.backends.mkldnn.enabled)


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
