"""Index tensors that are known to hold different numbers, none of them negative.

    perm = randperm(n)              # n different numbers below n
    index = perm[:k]                # k of them

From a node backwards: operators that take each element at most once, up to a source of different
numbers. Nothing runs, and no guard is added.
"""

import operator
from collections.abc import Iterator, Sequence
from typing import cast

import torch
from torch.fx import Node

from ctk.compiler.fx.operator_facts import PERMUTATIONS, RANGES, SORTS, TAKES_EACH_ONCE
from ctk.compiler.fx.types import tensor_of, value_of
from ctk.compiler.torch_compat.fake import fake_tensors as fake
from ctk.compiler.torch_compat.fx import arguments


def unique_below(index: Node) -> tuple[object, tuple[Node, ...]] | None:
    """Return a bound of a tensor's numbers if they are different, and not negative.

    The bound is exclusive, a number or a symbol. With it come the nodes that the numbers come from,
    which must not be written to. None if two numbers may be equal.
    """
    chain = tuple(_chain(index))
    if any(not _is_whole(node) for node in chain):
        return None
    bound = _exclusive_bound(chain[-1])
    return None if bound is None else (bound, chain)


def _chain(node: Node) -> Iterator[Node]:
    """Yield a node, and the nodes that its elements were taken from."""
    yield node
    while _takes_each_once(node):
        node = node.all_input_nodes[0]
        yield node


def _takes_each_once(node: Node) -> bool:
    source = node.args[0] if node.op == "call_function" and node.args else None
    if not isinstance(source, Node):
        return False
    if node.target is operator.getitem:
        return source.target in TAKES_EACH_ONCE
    return node.target in TAKES_EACH_ONCE


def _is_whole(node: Node) -> bool:
    """Return whether a node holds 64-bit integers or several tensors; smaller integers may wrap."""
    value = value_of(node)
    if isinstance(value, (list, tuple)):
        return True
    return isinstance(value, torch.Tensor) and value.dtype == torch.int64


def _exclusive_bound(node: Node) -> object:
    """Return the exclusive bound of a source of different numbers; None for another node."""
    if node.target in PERMUTATIONS and node.args:
        return value_of(node.args[0])
    if node.target in RANGES:
        return _end_of_range(node)
    source = node.args[0] if node.target is operator.getitem else None
    if isinstance(source, Node) and source.target in SORTS and node.args[1] == 1:
        tensor = tensor_of(source.args[0])
        return tensor.shape[0] if tensor is not None and tensor.dim() == 1 else None
    return None


def _end_of_range(node: Node) -> object:
    start, step = (_argument(node, name, default) for name, default in (("start", 0), ("step", 1)))
    if type(start) is not int or type(step) is not int or start < 0 or step < 1:
        return None
    return value_of(_argument(node, "end", None))


def _argument(node: Node, name: str, default: object) -> object:
    found = arguments.argument_of(node.target, node.args, node.kwargs, name)
    return default if found is None else found


def is_at_most(bound: object, size: object) -> bool:
    """Return whether a bound is known to be no larger than a size, without adding a guard."""
    if type(bound) is int and type(size) is int:
        return bound <= size
    return fake.is_symbolic(bound) and str(bound) == str(size)


def only_index(indices: object) -> tuple[int, Node] | None:
    """Return the dimension and the tensor of the only index in a list: `x[:, index]`."""
    given = cast("Sequence[object]", indices if isinstance(indices, (list, tuple)) else ())
    found = [(axis, each) for axis, each in enumerate(given) if isinstance(each, Node)]
    return found[0] if len(found) == 1 else None
