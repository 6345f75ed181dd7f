"""Which values of a graph mean something: those that the program determines, and that are read.

1. Undetermined: what nobody has written (`torch.empty`, the padding of a buffer), and where a
   generator stands (the seed and offset that fused attention keeps for its backward pass). What is
   computed from such a value may be determined all the same: a buffer that is overwritten, the
   gradient of an attention without dropout. So the graph is run once more with other numbers in
   those places; what differs then is undetermined too.
2. Read: values on which an output, a write in place or an effect depends.

    buffer = empty(4)              undetermined
    copied = copy(buffer, x)       determined: the same in both runs
    unused = copied + 1            determined, but not read
    return copied

What it does not do: it compares nothing with another graph.
"""

import operator
from collections.abc import Mapping

import torch
from torch.fx import GraphModule, Node

from ctk.compiler.fx.effects import mutated_arguments
from ctk.compiler.fx.properties import is_random
from ctk.repro_templates.numbers.compare import compare_values
from ctk.repro_templates.numbers.errors import identical

UNWRITTEN = frozenset(
    {
        "empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided",
        "empty_permuted", "empty_quantized",
    }
)  # fmt: skip
"""Operators whose result nobody has written."""

RESIZING = ("resize", "resize_")
"""Operators that may add memory to what nobody has written."""

GENERATOR_STATE: Mapping[str, tuple[int, ...]] = {
    "_scaled_dot_product_efficient_attention": (2, 3),
    "_efficient_attention_forward": (2, 3),
    "_scaled_dot_product_flash_attention": (6, 7, 8),
    "_flash_attention_forward": (2, 3, 4),
    "_scaled_dot_product_cudnn_attention": (6, 7, 8),
    "_scaled_dot_product_fused_attention_overrideable": (6, 7, 8),
}
"""Results of operators that say where a generator stood, and memory kept for debugging."""


def unwritten_nodes(gm: GraphModule) -> frozenset[str]:
    """Return the names of the nodes whose values nobody has determined."""
    return frozenset(node.name for node in gm.graph.nodes if _is_unwritten(node))


def undetermined_values(
    values: Mapping[str, object], others: Mapping[str, object]
) -> frozenset[str]:
    """Return the names of the values that other numbers in unwritten places change.

    Args:
        values: Of a run.
        others: Of a run with other numbers in the unwritten places.
    """
    return frozenset(
        name
        for name, value in values.items()
        if name not in others or compare_values(name, value, others[name]) is not None
    )


def read_nodes(gm: GraphModule) -> frozenset[str]:
    """Return the names of the nodes on which something depends that the caller gets or sees."""
    read: set[Node] = set()
    for node in reversed(gm.graph.nodes):
        is_root = node.op in ("output", "placeholder") or bool(mutated_arguments(node))
        if is_root or node.is_impure() or any(user in read for user in node.users):
            read.add(node)
    return frozenset(node.name for node in read)


def spoil(value: object) -> None:
    """Write other numbers into a tensor that nobody has written."""
    if isinstance(value, torch.Tensor) and value.numel() and value.device.type != "meta":
        with torch.no_grad():
            value.logical_not_() if value.dtype == torch.bool else value.fill_(97)


def _is_unwritten(node: Node) -> bool:
    if node.target is operator.getitem and isinstance(node.args[0], Node):
        return node.args[1] in GENERATOR_STATE.get(_name(node.args[0]), ())
    if _name(node) in RESIZING and isinstance(node.args[0], Node):
        return _is_unwritten(node.args[0])
    return _name(node) in UNWRITTEN or _is_made_by_size(node)


def _is_made_by_size(node: Node) -> bool:
    """Return whether it is `torch.Tensor(4, 8)` or `x.new(4, 8)`: sizes, and no values."""
    sizes = node.args[1:] if node.op == "call_method" else node.args
    is_class = isinstance(node.target, type) and issubclass(node.target, torch.Tensor)
    is_maker = is_class or (node.op == "call_method" and node.target == "new")
    return is_maker and bool(sizes) and all(isinstance(size, int) for size in sizes)


def _name(node: Node) -> str:
    """Return the name of what a node calls, without its overload."""
    if node.op == "call_method":
        return str(node.target)
    if node.op != "call_function":
        return ""
    packet = getattr(node.target, "overloadpacket", node.target)
    return str(getattr(packet, "__name__", ""))


def draws_differ(
    graph: GraphModule, before: Mapping[str, object], after: Mapping[str, object]
) -> bool:
    """Return whether a random node got the same operands but drew other numbers after the step.

    Then values behind it say nothing: the step has moved, added or removed a draw.

    Args:
        graph: After the step.
        before: Values before it.
        after: Values after it.
    """
    for node in graph.graph.nodes:
        if not is_random(node) or node.name not in before or node.name not in after:
            continue
        operands = [operand.name for operand in node.all_input_nodes]
        same_operands = all(_same(before.get(name), after.get(name)) for name in operands)
        if same_operands and not _same(before[node.name], after[node.name]):
            return True
    return False


def _same(a: object, b: object) -> bool:
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    return identical(a, b)
