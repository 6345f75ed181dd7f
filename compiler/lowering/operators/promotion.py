"""Types of elementwise operators: of their operands, and of their arithmetic.

Rules, those of torch's type promotion:
    1. the result has the highest kind among the operands: bool < integer < float
    2. within a kind, tensors with dimensions decide, else those without, else numbers
    3. numbers are integers of 64 bits or the default float
Floats of 16 bits are computed in float32, numbers beside them too.

Source: docs "Tensor Attributes", section type promotion.
"""

from collections.abc import Sequence
from functools import reduce
from typing import TypeAlias

import torch

from ctk.compiler.lowering.arrays import Array, Number, cast, compute_type, constant
from ctk.compiler.lowering.ir import Dtype
from ctk.compiler.sizes.index import Index

Operand: TypeAlias = Array | Index | Number


def promoted(operands: Sequence[Operand], *, to_float: bool = False) -> Dtype:
    """Return the type of an elementwise result; `to_float` is for operators like `div`, `exp`."""
    ranks = [_rank(operand) for operand in operands]
    types = [_type(operand) for operand in operands]
    highest = max(map(_kind, types))
    deciding = max(r for r, t in zip(ranks, types, strict=True) if _kind(t) == highest)
    chosen = [t for r, t in zip(ranks, types, strict=True) if r == deciding and _kind(t) == highest]
    dtype = reduce(torch.promote_types, chosen)
    return torch.get_default_dtype() if to_float and _kind(dtype) < 2 else dtype


def operand(value: Operand, dtype: Dtype, *, rounded: bool = False) -> Array:
    """Return an operand as an array of the type that `dtype` is computed in.

    With `rounded`, numbers and tensors without dimensions are rounded to it as well, as eager does
    in comparisons; tensors with dimensions always are.
    """
    wanted = compute_type(dtype)
    array = value if isinstance(value, Array) else constant(value, wanted)
    return cast(cast(array, dtype) if rounded or array.shape else array, wanted)


def operands(*values: Operand, to_float: bool = False, rounded: bool = False) -> tuple[Array, ...]:
    """Return operands as arrays of the type that their elementwise result is computed in."""
    dtype = promoted(values, to_float=to_float)
    return tuple(operand(value, dtype, rounded=rounded) for value in values)


def _rank(value: Operand) -> int:
    """Return 2 for a tensor with dimensions, 1 for one without, 0 for a number."""
    return 1 + bool(value.shape) if isinstance(value, Array) else 0


def _type(value: Operand) -> Dtype:
    if isinstance(value, Array):
        return value.dtype
    if isinstance(value, bool):
        return torch.bool
    return torch.get_default_dtype() if isinstance(value, float) else torch.int64


def _kind(dtype: Dtype) -> int:
    if dtype == torch.bool:
        return 0
    return 2 if dtype.is_floating_point else 1
