"""Accumulators of reductions, and how they are begun, updated and finished in C.

Sums of float32 are made in blocks of at most `BLOCK` numbers: within a block in float32, one partial
sum for each lane of the SIMD loop; over blocks in double. So the error does not grow with the
length, and the order is fixed by the length alone. `max` and `min` keep a NaN.

`argmax` and `argmin` find the extreme of a block first, then search the block for its place if the
extreme is a new one. `mean_m2` takes a block's mean first, then the squares around it, and combines
blocks as Chan, Golub and LeVeque do.

Source: T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating formulae and a pairwise algorithm for
computing sample variances" (1979).
"""

from __future__ import annotations

import torch

from ctk.compiler.codegen.c.types import C_TYPES, SUFFIXES
from ctk.compiler.lowering.ir import Dtype, Reduce

BLOCK = 4096
"""How many numbers are summed up in float32 before a double takes the sum."""

_SIGNS = {"sum": "+", "mean_m2": "+", "prod": "*", "any": "|", "all": "&"}
_EXTREMES = {"max": "largest", "argmax": "largest", "min": "smallest", "argmin": "smallest"}
"""What combines values; of `mean_m2`, in the loop that finds the mean."""


def identity(kind: str, dtype: Dtype) -> str:
    """Return the C code of what changes nothing."""
    if kind in ("sum", "any", "mean_m2"):
        return "false" if dtype == torch.bool else "0"
    if kind in ("prod", "all"):
        return "true" if dtype == torch.bool else "1"
    largest = kind in ("min", "argmin")
    if dtype == torch.bool:
        return "true" if largest else "false"
    if dtype.is_floating_point:
        return "INFINITY" if largest else "-INFINITY"
    limit = torch.iinfo(dtype).max if largest else torch.iinfo(dtype).min
    if dtype == torch.int64:
        return "INT64_MAX" if largest else "INT64_MIN"
    return str(limit)


def wide_type(reduce: Reduce) -> str:
    """Return the C type in which the results of blocks are combined."""
    dtype = reduce.value.dtype
    return "double" if is_blocked(reduce) else C_TYPES[dtype]


def is_blocked(reduce: Reduce) -> bool:
    """Return whether a long reduction is made in blocks, for its accuracy."""
    return reduce.kind in ("sum", "mean_m2") and reduce.value.dtype == torch.float32


def clause(kind: str, dtype: Dtype, name: str) -> str:
    """Return the clause of `omp simd` for an accumulator."""
    if kind in _EXTREMES and dtype.is_floating_point:
        return f"reduction({_EXTREMES[kind]}_{SUFFIXES[dtype]} : {name})"
    if kind in _EXTREMES:
        return f"reduction({kind.removeprefix('arg')} : {name})"
    return f"reduction({_SIGNS[kind]} : {name})"


def update(kind: str, dtype: Dtype, name: str, value: str) -> str:
    """Return the statement that combines an accumulator with a value."""
    if kind in _SIGNS:
        return f"{name} {_SIGNS[kind]}= {value};"
    function = "maximum" if kind in ("max", "argmax") else "minimum"
    return f"{name} = {function}_{SUFFIXES[dtype]}({name}, {value});"
