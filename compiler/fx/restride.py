"""Predict the effect of other strides on a graph, before a pass changes a layout.

The users run again on fake tensors: a user that makes a new tensor with its old strides hides the
change; a view propagates it. A user notices if it returns the value, writes to it, reads its
memory, or cannot take the strides. Graphs with symbolic sizes count as noticing, because a run
would add guards.
"""

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from ctk.compiler.fx.operator_facts import READS_MEMORY
from ctk.compiler.fx.properties import is_pure, is_view
from ctk.compiler.fx.types import same_sizes, tensor_of, value_of
from ctk.compiler.torch_compat.fake import fake_tensors as fake


def is_noticed(strides: Mapping[Node, Sequence[int]]) -> bool:
    """Return whether new strides of nodes (single tensors) change the program or stop it."""
    mode = fake.mode_of([value_of(node) for node in strides])
    changed: dict[Node, object] = {}
    for node, new in strides.items():
        value = tensor_of(node)
        if value is None or mode is None or _is_symbolic(value):
            return True
        with fake.fake_compute(mode):
            changed[node] = torch.empty_strided(
                value.shape, list(new), dtype=value.dtype, device=value.device
            )
    return _spreads(changed, mode)


_TORCH = ("aten", "prims", "quantized_decomposed")
"""Libraries whose operators depend on strides only as listed."""


def _spreads(changed: dict[Node, object], mode: object) -> bool:
    """Follow a change through the users, in the order of the graph, until no value differs."""
    pending = {user for node in changed for user in node.users}
    current = next(iter(changed))
    while pending:
        if current in pending:
            pending.remove(current)
            new = again(current, changed, mode)
            if new is None:
                return True
            if is_view(current) or not same_layouts(value_of(current), new):
                changed[current] = new
                pending.update(current.users)
        current = current.next
    return False


def again(node: Node, changed: Mapping[Node, object], mode: object) -> object | None:
    """Return a user's value on changed operands; None if it notices."""
    if node.op != "call_function" or not is_pure(node) or node.target in READS_MEMORY:
        return None
    if getattr(node.target, "namespace", "aten") not in _TORCH:
        return None  # a foreign operator may read memory

    def operand(each: Node) -> object:
        return changed.get(each, value_of(each))

    args, kwargs = map_arg(node.args, operand), map_arg(node.kwargs, operand)  # type: ignore[arg-type]  # map_arg takes any value
    try:
        with fake.fake_compute(mode):
            return node.target(*args, **kwargs)  # type: ignore[operator]  # an operator
    except Exception:  # a view that these strides do not allow, or no rule for fake tensors
        return None


def same_layouts(old: object, new: object) -> bool:
    """Return whether two values are tensors, or lists of tensors, of one shape and layout."""
    if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor):
        return same_sizes(old.shape, new.shape) and same_sizes(old.stride(), new.stride())
    if isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)):
        pairs = zip(cast("tuple[object]", old), cast("tuple[object]", new), strict=True)
        return all(same_layouts(a, b) for a, b in pairs)
    return type(old) is type(new)


def _is_symbolic(value: torch.Tensor) -> bool:
    return any(map(fake.is_symbolic, (*value.shape, *value.stride())))
