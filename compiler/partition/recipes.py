"""Recipes of recomputation: the operands and calls that compute a node of forward in backward.

Nearly all nodes are called again unchanged. The exceptions:
1. `native_dropout(x, p, True)[0] -> x * mask * 1 / (1 - p)`: drawn once, the mask is saved.
2. batch norm in training, items 0 to 2: without the running statistics, which it does not read and
   forward overwrites. Its other items, the new statistics, are never recomputed.
3. The gradient of batch norm in training: without the running statistics, likewise.
4. A random operator, from the state that its generator had in forward.

(1) to (3) give the same bits (tested); (1) requires that dropout rounds the two products
separately.

Source: torch/_functorch/partitioners.py, `functionalize_rng_ops`, has (4) for checkpointed regions
only. Differs: (1) to (3) have no counterpart there.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from ctk.compiler.fx.properties import is_random
from ctk.compiler.fx.types import tensor_of, value_of
from ctk.compiler.partition.roles import is_getitem
from ctk.compiler.torch_compat.aot import partition as compat
from ctk.compiler.torch_compat.fx.graphs import tree_leaves

aten = torch.ops.aten
Copies = Callable[[Node], Node]
_NEW_STATISTICS = (3, 4)
"""The items of a batch norm that are new running statistics."""

_DATA = slice(3)
"""The arguments of a batch norm, and of its gradient, in front of the running statistics; also the
items that are recomputed."""

_TRAINING = 7
"""Position of the argument `train` of the gradient of a batch norm."""


def operands_in_backward(node: Node) -> Sequence[Node]:
    """Return the operands of a node of backward."""
    if not _is_gradient_of_norm(node):
        return node.all_input_nodes
    return [arg for arg in _without_statistics(node) if isinstance(arg, Node)]


def operands_again(node: Node) -> Sequence[Node]:
    """Return the operands of a recomputed node."""
    if (mask := _mask_of(node)) is not None:
        return [_input_of_dropout(node), mask]
    if is_batch_norm(node):
        return [arg for arg in node.args[_DATA] if isinstance(arg, Node)]
    return operands_in_backward(node)


def compute_in_backward(graph: Graph, node: Node, copies: Copies) -> Node:
    """Append the computation of a node of backward to a graph; return its value there."""
    if not _is_gradient_of_norm(node):
        return graph.node_copy(node, copies)
    arguments = map_arg(_without_statistics(node), copies)
    return _call(graph, node, node.target, arguments, node.kwargs)


def compute_again(graph: Graph, node: Node, copies: Copies) -> Node:
    """Append the recomputation of a node that is not random to a graph; return its value."""
    if (mask := _mask_of(node)) is not None:
        return _drop_again(graph, node, (copies(_input_of_dropout(node)), copies(mask)))
    if is_batch_norm(node):
        return _normalize_again(graph, node, copies)
    return compute_in_backward(graph, node, copies)


def is_new_statistics(node: Node) -> bool:
    """Return whether a node is an item of a batch norm that is never recomputed."""
    whole = node.args[0] if is_getitem(node) else None
    return isinstance(whole, Node) and is_batch_norm(whole) and node.args[1] in _NEW_STATISTICS


def _is_gradient_of_norm(node: Node) -> bool:
    if node.target is not aten.native_batch_norm_backward.default:
        return False
    return len(node.args) > _TRAINING and node.args[_TRAINING] is True


def _without_statistics(node: Node) -> tuple[Any, ...]:
    return (*node.args[_DATA], None, None, *node.args[_DATA.stop + 2 :])


def is_batch_norm(node: Node) -> bool:
    """Return whether a node is a batch norm in training that returns new running statistics."""
    if node.target is not aten._native_batch_norm_legit_functional.default:
        return False
    return len(node.args) == 8 and node.args[5] is True


def state_nbytes(node: Node) -> int | None:
    """Return the bytes of the state that a random node is drawn again from; None if it cannot be.

    Only the state of a default generator is saved, so all tensors must be on its device.
    """
    device = _device_of(node)
    if not is_random(node) or device is None or node.kwargs.get("generator") is not None:
        return None
    return compat.rng_state_nbytes(device)


def _mask_of(node: Node) -> Node | None:
    """Return the mask of a dropout's result, if the result can be recomputed from the mask."""
    whole = node.args[0] if is_getitem(node) and node.args[1] == 0 else None
    if not isinstance(whole, Node) or whole.target is not aten.native_dropout.default:
        return None
    value = tensor_of(node)
    exact = value is not None and (value.device.type == "cpu" or value.dtype.itemsize >= 4)
    if not exact or whole.args[2] is not True:
        return None
    return next((user for user in whole.users if is_getitem(user) and user.args[1] == 1), None)


def _input_of_dropout(node: Node) -> Node:
    return cast("Node", cast("Node", node.args[0]).args[0])


def _drop_again(graph: Graph, node: Node, operands: tuple[Node, Node]) -> Node:
    kept = 1.0 - cast("float", cast("Node", node.args[0]).args[1])
    masked = _call(graph, node, aten.mul.Tensor, operands, suffix="_masked")
    return _call(graph, node, aten.mul.Tensor, (masked, 1.0 / kept if kept else 0.0))


def _normalize_again(graph: Graph, node: Node, copies: Copies) -> Node:
    arguments = (*node.args[_DATA], *node.args[_DATA.stop + 2 :])
    target = aten._native_batch_norm_legit.no_stats
    again = _call(graph, node, target, map_arg(arguments, copies), suffix="_again")
    again.meta["val"] = tuple(node.meta["val"][_DATA])
    return again


def draw(graph: Graph, node: Node, copies: Copies) -> tuple[Node, Node]:
    """Append a random node to forward; return its value and the state from which it was drawn."""
    args, kwargs = _arguments(node, copies)
    target = compat.run_and_save_rng_state()
    pair = _call(graph, node, target, (node.target, *args), kwargs, suffix="_and_state")
    state = _call(graph, node, operator.getitem, (pair, 0), suffix="_state")
    state.meta = state_meta(node)
    pair.meta["val"] = state.meta["val"], value_of(node)
    return _call(graph, node, operator.getitem, (pair, 1)), state


def state_meta(node: Node) -> dict[str, object]:
    """Return the metadata of the generator state of a random node."""
    return {"val": compat.empty_rng_state(_device_of(node), value_of(node))}


def draw_again(graph: Graph, node: Node, state: Node, copies: Copies) -> Node:
    """Append a call to backward that draws the numbers of a random node of forward again."""
    args, kwargs = _arguments(node, copies)
    target = compat.run_with_rng_state()
    return _call(graph, node, target, (state, node.target, *args), kwargs)


def _call(
    graph: Graph, node: Node, target: Any, args: Any, kwargs: Any = None, *, suffix: str = ""
) -> Node:
    """Append a call with the name of a node, by which its value is compared, and its metadata."""
    call = graph.create_node("call_function", target, args, kwargs, f"{node.name}{suffix}")
    call.meta = dict(node.meta)
    return call


def _arguments(node: Node, copies: Copies) -> tuple[Any, Any]:
    return map_arg(node.args, copies), map_arg(node.kwargs, copies)


def _device_of(node: Node) -> str | None:
    """Return the kind of device on which a node draws, if all of its tensors are there."""
    values = [
        leaf for each in (node, *node.all_input_nodes) for leaf in tree_leaves(value_of(each))
    ]
    kinds = {value.device.type for value in values if isinstance(value, torch.Tensor)}
    return kinds.pop() if len(kinds) == 1 else None
