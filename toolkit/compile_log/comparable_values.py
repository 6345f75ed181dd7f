"""Find the values of a graph worth comparing: determined by the program, and used.

1. Undetermined: unwritten memory (`torch.empty`, the padding of a buffer), and the position of a
   generator (the seed and offset that fused attention keeps for its backward pass). A value that is
   computed from one may be determined: a buffer that is overwritten, the gradient of an attention
   without dropout. So the graph runs again with other numbers in those places, and a value that
   changes is undetermined.
2. Used: an output, a write in place or an effect depends on it.

    buffer = empty(4)              undetermined
    copied = copy(buffer, x)       determined: the same in both runs
    unused = copied + 1            determined, but unused
    return copied"""

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
"""Operators that return unwritten memory."""

RESIZING = ("resize", "resize_")
"""Operators that may add unwritten memory."""

GENERATOR_STATE: Mapping[str, tuple[int, ...]] = {
    "_scaled_dot_product_efficient_attention": (2, 3),
    "_efficient_attention_forward": (2, 3),
    "_scaled_dot_product_flash_attention": (6, 7, 8),
    "_flash_attention_forward": (2, 3, 4),
    "_scaled_dot_product_cudnn_attention": (6, 7, 8),
    "_scaled_dot_product_fused_attention_overrideable": (6, 7, 8),
}
"""Results of operators that hold the position of a generator, or debugging memory."""


def unwritten_nodes(gm: GraphModule) -> frozenset[str]:
    """Return the names of the nodes that return unwritten memory or a generator's position."""
    return frozenset(node.name for node in gm.graph.nodes if _is_unwritten(node))


def find_undetermined_values(
    values: Mapping[str, object], others: Mapping[str, object]
) -> frozenset[str]:
    """Return the names of the values that differ when unwritten places hold other numbers."""
    return frozenset(
        name
        for name, value in values.items()
        if name not in others or compare_values(name, value, others[name]) is not None
    )


def read_nodes(gm: GraphModule) -> frozenset[str]:
    """Return the names of the nodes on which an output, a write or an effect depends."""
    read: set[Node] = set()
    for node in reversed(gm.graph.nodes):
        is_root = node.op in ("output", "placeholder") or bool(mutated_arguments(node))
        if is_root or node.is_impure() or any(user in read for user in node.users):
            read.add(node)
    return frozenset(node.name for node in read)


def spoil(value: object) -> None:
    """Overwrite a tensor with other numbers."""
    if isinstance(value, torch.Tensor) and value.numel() and value.device.type != "meta":
        with torch.no_grad():
            if value.dtype == torch.bool:
                value.logical_not_()
            else:
                value.fill_(97)


def _is_unwritten(node: Node) -> bool:
    if node.target is operator.getitem and isinstance(node.args[0], Node):
        return node.args[1] in GENERATOR_STATE.get(_name(node.args[0]), ())
    if _name(node) in RESIZING and isinstance(node.args[0], Node):
        return _is_unwritten(node.args[0])
    return _name(node) in UNWRITTEN or _is_made_by_size(node)


def _is_made_by_size(node: Node) -> bool:
    """Return whether a node is `torch.Tensor(4, 8)` or `x.new(4, 8)`: sizes, and no values."""
    sizes = node.args[1:] if node.op == "call_method" else node.args
    is_class = isinstance(node.target, type) and issubclass(node.target, torch.Tensor)
    is_maker = is_class or (node.op == "call_method" and node.target == "new")
    return is_maker and bool(sizes) and all(isinstance(size, int) for size in sizes)


def _name(node: Node) -> str:
    """Return the name of a node's target, without its overload."""
    if node.op == "call_method":
        return str(node.target)
    if node.op != "call_function":
        return ""
    packet = getattr(node.target, "overloadpacket", node.target)
    return str(getattr(packet, "__name__", ""))


def draws_differ(
    graph: GraphModule, before: Mapping[str, object], after: Mapping[str, object]
) -> bool:
    """Return whether a random node of the graph after a step drew other numbers on equal operands.

    The step then moved, added or removed a draw, and the values behind it cannot be compared.
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
