"""The recorded value of a node (a fake tensor, a symbol), and its text: `float32[4, s0]`."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.fx import Node

from ctk.compiler.torch_compat.fake.fake_tensors import is_symbolic, known_equal

HALVES = (torch.float16, torch.bfloat16)
"""The floats of 16 bits."""


def value_of(node: object) -> object:
    """Return the value recorded for a node, or None; other arguments are returned unchanged.

    `meta["val"]` (AOTAutograd, and the verifier after a change) precedes `example_value` (Dynamo),
    which becomes stale.
    """
    if not isinstance(node, Node):
        return node
    return node.meta.get("val", node.meta.get("example_value"))


def tensor_of(node: object) -> torch.Tensor | None:
    """Return the recorded fake tensor of a node, or None when it has none."""
    value = value_of(node)
    return value if isinstance(value, torch.Tensor) else None


def same_type(a: object, b: object) -> bool:
    """Return whether two recorded values agree in kind, dtype, device, layout and shape."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        mine, others = (a.dtype, a.device, a.layout), (b.dtype, b.device, b.layout)
        return mine == others and same_sizes(a.shape, b.shape)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(same_type(x, y) for x, y in zip(a, b, strict=True))
    return (number_type(a) or type(a)) == (number_type(b) or type(b))


def same_sizes(a: Iterable[object], b: Iterable[object]) -> bool:
    """Return whether sizes or strides are known to be equal, without adding a guard."""
    mine, others = list(a), list(b)
    return len(mine) == len(others) and all(
        str(x) == str(y) or known_equal(x, y) for x, y in zip(mine, others, strict=True)
    )


def same_layout(a: object, b: object) -> bool:
    """Return whether two values are known to be tensors of the same type and strides.

    A lazy conjugate or negative (`z.conj()`) has another layout than an ordinary tensor.
    """
    mine, others = tensor_of(a), tensor_of(b)
    if mine is None or others is None or not same_type(mine, others):
        return False
    if (mine.is_conj(), mine.is_neg()) != (others.is_conj(), others.is_neg()):
        return False
    return same_sizes(mine.stride(), others.stride())


def dense_strides(sizes: Sequence[int]) -> list[int]:
    """Return the strides, in elements, of a tensor without gaps, its last dimension innermost."""
    lengths: list[Any] = [torch.sym_max(size, 1) for size in sizes]  # no guard on symbols
    return [math.prod(lengths[axis + 1 :]) for axis in range(len(lengths))]


def channels_last_strides(sizes: Sequence[int]) -> list[int]:
    """Return the strides of a tensor [batch, channels, ...] without gaps, channels innermost."""
    batch, *areas, channels = dense_strides([sizes[0], *sizes[2:], sizes[1]])
    return [batch, channels, *areas]


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is known to have no gaps, its last dimension innermost."""
    return same_sizes(tensor.stride(), dense_strides(tensor.shape))


def number_type(value: object) -> type | None:
    """Return `bool`, `int` or `float` for a number or a symbolic one, else None."""
    return next((found for found, kinds in _NUMBERS if isinstance(value, kinds)), None)


_NUMBERS = (
    (bool, (bool, torch.SymBool)),  # before int: a bool is one
    (int, (int, torch.SymInt)),
    (float, (float, torch.SymFloat)),
)


def type_text(value: object, *, device: bool = False) -> str:
    """Return the type of a value for people.

    `float32[4, s0]` for a tensor (`float32[4, s0] on cpu` with its device), `s0` for a symbol,
    `(float32[2], s0)` for a tuple, the name of the class for anything else.
    """
    if isinstance(value, torch.Tensor):
        text = tensor_text(str(value.dtype), value.shape)
        return f"{text} on {value.device}" if device else text
    if isinstance(value, (list, tuple)):
        return f"({', '.join(type_text(item, device=device) for item in value)})"
    return str(value) if is_symbolic(value) else type(value).__name__


def tensor_text(dtype: str, sizes: Iterable[object]) -> str:
    """Return the type of a tensor for people, from its parts."""
    return f"{dtype.removeprefix('torch.')}[{', '.join(str(size) for size in sizes)}]"
