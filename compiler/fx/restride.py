"""Predict the effect of other strides on a graph, before a pass changes a layout.

The users run again on fake tensors: a user that makes a new tensor with its old strides hides the
change; a view propagates it. A user notices if it returns the value, writes to it, reads its
memory, or cannot take the strides. Graphs with symbolic sizes count as noticing, because a run
would add guards.
"""

from collections.abc import Iterable, Mapping, Sequence
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


def refresh(users: Iterable[Node]) -> None:
    """Record the values of nodes whose operands have new layouts, and of their users in turn.

    A later `is_noticed` would otherwise compare with layouts that the graph no longer has. Values
    with symbolic sizes are left to the verifier, which runs when the pass ends.
    """
    pending, changed = set(users), dict[Node, object]()
    current = min(pending, default=None)
    while pending and current is not None:
        if current in pending:
            pending.remove(current)
            values = [value_of(each) for each in (current, *current.all_input_nodes)]
            parts = [part for value in values for part in _parts(value)]
            if any(isinstance(each, torch.Tensor) and _is_symbolic(each) for each in parts):
                return
            mode = fake.mode_of(parts)
            new = None if mode is None else again(current, changed, mode)
            if new is not None and not same_layouts(value_of(current), new):
                changed[current] = new
                pending.update(current.users)
        current = current.next
    for node, value in changed.items():
        node.meta["val"] = value


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
            return fake.run_on_fakes(node.target, args, kwargs)
    except Exception:  # a view that these strides do not allow, or no rule for fake tensors
        return None


def same_layouts(old: object, new: object) -> bool:
    """Return whether two values are tensors, or lists of tensors, of one shape and layout.

    The layout of a tensor is its strides, and where it begins in its memory.
    """
    if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor):
        mine, others = ((*each.shape, *each.stride(), each.storage_offset()) for each in (old, new))
        return same_sizes(mine, others)
    if isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)):
        pairs = zip(cast("tuple[object]", old), cast("tuple[object]", new), strict=True)
        return all(same_layouts(a, b) for a, b in pairs)
    return type(old) is type(new)


def _parts(value: object) -> Sequence[object]:
    return cast("Sequence[object]", value) if isinstance(value, (list, tuple)) else (value,)


def _is_symbolic(value: torch.Tensor) -> bool:
    return any(map(fake.is_symbolic, (*value.shape, *value.stride())))
