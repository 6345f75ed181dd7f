"""The views around the parts of attention: reshapes, swaps of rows and columns, chains of both.

A reshape keeps the order of the elements, with or without a copy: `view`, `clone`, `expand` to
the same number of elements, and permutations of dimensions of one element, of which `einsum` makes
many. Two tensors of one shape with the same origin, the tensor before their reshapes, are equal:

    q [2, 4, 8, 16] -> clone -> view [8, 8, 16] -> bmm          the origin of the operand is `q`
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.fx import Node

from ctk.compiler.fx.types import same_sizes, same_type, tensor_of, value_of

aten = torch.ops.aten
_RESHAPES = frozenset(
    {
        aten.view.default,
        aten._unsafe_view.default,
        aten.reshape.default,
        aten.unsqueeze.default,
        aten.squeeze.default,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.clone.default,
        aten.alias.default,
        aten.detach.default,
    }
)


def sizes_of(node: Node) -> list[Any]:
    """Return the sizes of a node; none if it is not a tensor."""
    tensor = tensor_of(node)
    return [] if tensor is None else list(tensor.shape)


def order_of(node: Node) -> list[int] | None:
    """Return the dimensions of the operand in the order of a permutation, None for another call."""
    dims = list(range(len(sizes_of(node))))
    if node.target is aten.permute.default:
        return [dim % len(dims) for dim in cast("Sequence[int]", node.args[1])]
    if node.target is aten.transpose.int:
        one, other = (cast("int", dim) % len(dims) for dim in node.args[1:3])
    elif node.target is aten.t.default and len(dims) == 2:
        one, other = 0, 1
    else:
        return None
    dims[one], dims[other] = dims[other], dims[one]
    return dims


def reshaped(node: Node) -> Node | None:
    """Return the operand whose elements a node has in the same order, else None."""
    source = node.args[0] if node.op == "call_function" and node.args else None
    if not isinstance(source, Node):
        return None
    if node.target in _RESHAPES:
        return source
    for first, order in _permutations(node):
        long = [dim for dim in order if not _is_one(sizes_of(first)[dim])]
        if long == sorted(long):
            return first
    if node.target is aten.copy.default:  # a gradient that is written in place
        source = cast("Node", node.args[1])
        return source if same_type(value_of(node), value_of(source)) else None
    if node.target is aten.expand.default:
        mine, others = (
            [size for size in sizes_of(each) if not _is_one(size)] for each in (node, source)
        )
        return source if same_sizes(mine, others) else None
    return None


def _permutations(node: Node) -> Iterator[tuple[Node, list[int]]]:
    """Yield the operands of a chain of permutations, each with the dimensions in their order."""
    order: list[int] | None = None
    while (inner := order_of(node)) is not None:
        order = inner if order is None else [inner[dim] for dim in order]
        node = cast("Node", node.args[0])
        yield node, order


def _is_one(size: object) -> bool:
    return type(size) is int and size == 1


def origin_of(node: Node) -> Node:
    """Return the first node of a chain of reshapes."""
    while (source := reshaped(node)) is not None:
        node = source
    return node


def keeps_rows(node: Node, source: Node) -> bool:
    """Return whether a reshape keeps the last two dimensions."""
    return same_sizes(sizes_of(node)[-2:], sizes_of(source)[-2:])


def swapped(node: Node) -> Node | None:
    """Return the operand whose last two dimensions a node swaps, else None."""
    for source, order in _permutations(node):
        rank = len(order)
        if order == [*range(rank - 2), rank - 1, rank - 2]:
            return source
    return None


def are_equal(one: Node, other: Node) -> bool:
    """Return whether two nodes are known to have the same elements and shape."""
    return one is other or (
        origin_of(one) is origin_of(other) and same_sizes(sizes_of(one), sizes_of(other))
    )


def are_swapped(one: object, other: object) -> bool:
    """Return whether one of two nodes has the last two dimensions of the other swapped."""
    if not isinstance(one, Node) or not isinstance(other, Node):
        return False
    pairs = ((swapped(one), other), (swapped(other), one))
    return any(source is not None and are_equal(source, to) for source, to in pairs)


def users_of(node: Node) -> Iterator[Node]:
    """Yield the users of a node and of its reshapes that are not reshapes."""
    todo = [(node, user) for user in node.users]
    while todo:
        base, user = todo.pop()
        if reshaped(user) is base:
            todo += [(user, each) for each in user.users]
        elif order_of(user) is not None:  # two permutations may be a reshape
            todo += [(base, each) for each in user.users]
        elif base in user.all_input_nodes:
            yield user


@dataclass(frozen=True, slots=True)
class Exit:
    """The last of a chain of views of a result, and the way to it.

    Attributes:
        node: The last view with one user for each before it; the result itself without one.
        moves: Sizes of a reshape (a tuple), or the order of a permutation (a list).
        dtype: Of the node.
    """

    node: Node
    moves: tuple[tuple[Any, ...] | list[int], ...]
    dtype: torch.dtype

    def of(self, value: Tensor) -> Tensor:
        """Return the same views of another tensor with the elements of the result."""
        for move in self.moves:
            value = value.permute(move) if isinstance(move, list) else reshape(value, move)
        return value.to(self.dtype)


def exit_of(result: Node) -> Exit:
    """Return the exit of a result: its layout is that of the caller, not that of a product."""
    node, moves = result, list[tuple[Any, ...] | list[int]]()
    while len(node.users) == 1:
        (user,) = node.users
        order = None if reshaped(user) is node else order_of(user)
        if order is None and reshaped(user) is not node:
            break
        is_second = order is None and bool(moves) and isinstance(moves[-1], tuple)
        moves[len(moves) - is_second :] = [tuple(sizes_of(user)) if order is None else order]
        node = user
    first = moves and isinstance(moves[0], tuple)
    moves = moves if first else [tuple(sizes_of(result)), *moves]
    return Exit(node, tuple(moves), node.meta["val"].dtype)


def reshape(value: Tensor, sizes: Sequence[Any]) -> Tensor:
    """Return a tensor with these sizes: itself if it has them."""
    if same_sizes(value.shape, sizes):
        return value
    symbols = [place for place, size in enumerate(sizes) if type(size) is not int]
    if len(symbols) == 1:
        sizes = [-1 if place in symbols else size for place, size in enumerate(sizes)]
    return value.reshape(list(sizes))
