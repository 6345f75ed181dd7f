"""Replace sizes of the result of an operator without symbolic form by symbols.

    interpolate(x[s0, s1, s2, s3], size=(s4, s5))  ->  [2, 3, 16, 16], numbers only
    link_sizes                                         [s0, s1, s4, s5]

In this order a number is taken for the size of an operand in the same dimension, a literal, a
multiple of the size of an operand in the same dimension, any size of an operand. It is a guess,
wrong if two of these are equal by chance.
"""

from collections.abc import Iterator
from typing import Any

import torch

from ctk.compiler.fx.types import dense_strides
from ctk.compiler.torch_compat.fake.fake_tensors import is_symbolic, symbol_and_hint
from ctk.compiler.torch_compat.fake.size_symbols import SizeSymbols, expression_of
from ctk.compiler.torch_compat.fx.graphs import tree_leaves, tree_map


def link_sizes(
    value: object, given: Any, symbols: SizeSymbols, asked: set[Any], linked: set[Any]
) -> object:
    """Return a node's value with symbols in place of numbers.

    Args:
        value: Tensors in it are changed; other values are returned as they are.
        linked: Extended by the symbols that were put in.
    """
    leaves = tree_leaves(given)
    operands = [each for each in leaves if isinstance(each, torch.Tensor)]
    literals = [each for each in leaves if isinstance(each, torch.SymInt)]
    if not asked or not operands:
        return value

    def of_tensor(tensor: object) -> object:
        if not isinstance(tensor, torch.Tensor) or any(tensor is each for each in operands):
            return tensor
        if tensor.layout != torch.strided or not any(_is_number(s) for s in tensor.shape):
            return tensor
        left = [each for each in literals if expression_of(each) in asked]
        sizes = [
            _link(dim, size, operands, left, asked) if _is_number(size) else size
            for dim, size in enumerate(tensor.shape)
        ]
        used = [size for size, old in zip(sizes, tensor.shape, strict=True) if size is not old]
        if not used:
            return tensor
        linked.update(*(expression_of(size).free_symbols for size in used))
        return symbols.tensor(tensor, sizes, dense_strides_like(tensor, sizes))

    return tree_map(of_tensor, value)


def _is_number(size: object) -> bool:
    return type(size) is int and size > 1


def _link(
    dim: int, size: int, operands: list[torch.Tensor], literals: list[Any], asked: set[Any]
) -> Any:
    same = [s for s in _sizes(operands, dim) if expression_of(s) in asked]
    for each in same:
        if _hint(each) == size:
            return each
    for each in literals:
        if _hint(each) == size:
            literals.remove(each)
            return each
    for each in same:
        if size % _hint(each) == 0:
            return each * (size // _hint(each))
    others = [s for s in _sizes(operands) if expression_of(s) in asked and _hint(s) == size]
    return others[0] if others else size


def _sizes(operands: list[torch.Tensor], dim: int | None = None) -> Iterator[Any]:
    for operand in operands:
        dims = range(operand.dim()) if dim is None else (dim,)
        yield from (
            operand.shape[d] for d in dims if d < operand.dim() and is_symbolic(operand.shape[d])
        )


def _hint(size: Any) -> int:
    return int(symbol_and_hint(size)[1] or 0)


def dense_strides_like(tensor: torch.Tensor, sizes: list[Any]) -> list[Any]:
    """Return dense strides in the memory order of the tensor's dimensions."""
    order = list(range(tensor.dim()))
    if all(type(stride) is int for stride in tensor.stride()):
        order.sort(key=lambda dim: (-tensor.stride(dim), dim))
    strides: list[Any] = [0] * tensor.dim()
    for dim, stride in zip(order, dense_strides([sizes[d] for d in order]), strict=True):
        strides[dim] = stride
    return strides
