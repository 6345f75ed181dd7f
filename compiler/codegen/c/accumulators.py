"""Accumulators of reductions in C: how they are begun, updated and combined.

Sums of float32 are made in blocks of at most `BLOCK` numbers: within a block in float32, one
partial sum for each lane of the SIMD loop; over blocks in double. So the error does not grow with
the length, and the order is fixed by the length alone. `max` and `min` keep a NaN.

`mean_m2` takes a block's mean first, then the squares around it, and combines blocks as Chan, Golub
and LeVeque do.

Source: T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating formulae and a pairwise algorithm for
computing sample variances" (1979).
"""

import torch

from ctk.compiler.codegen.c.types import SUFFIXES, memory_type
from ctk.compiler.lowering.ir import POSITIONS, Dtype, Reduce, ReduceKind, ScanKind
from ctk.compiler.lowering.vocabulary import neutral

BLOCK = 4096
"""How many numbers are summed up in float32 before a double takes the sum."""

ROWS = 128
"""The same where columns are summed up side by side: each has one partial sum, not one per lane."""

SEARCHED = 128
"""In how many numbers at once the place of an extreme is searched for."""

_SIGNS = {"sum": "+", "mean_m2": "+", "prod": "*", "any": "|", "all": "&"}
"""The operator that combines values; of `mean_m2`, in the loop over the mean."""

_EXTREMES = ("max", "argmax", "min", "argmin")


def identity(kind: ReduceKind | ScanKind, dtype: Dtype) -> str:
    """Return the neutral element as C code."""
    number = neutral(kind, dtype)
    if dtype == torch.bool:
        return "true" if number else "false"
    if isinstance(number, float):
        return "INFINITY" if number > 0 else "-INFINITY"
    if dtype == torch.int64 and abs(number) > 1:
        return "INT64_MAX" if number > 0 else "INT64_MIN"
    return str(number)


def is_arg(reduce: Reduce) -> bool:
    """Return whether a reduction also gives a position."""
    return reduce.kind in POSITIONS


def is_blocked(reduce: Reduce) -> bool:
    """Return whether blocks of a long reduction have accumulators of their own."""
    return reduce.kind == "mean_m2" or is_arg(reduce) or _is_long_sum(reduce)


def wide_type(reduce: Reduce) -> str:
    """Return the C type in which the results of blocks are combined."""
    dtype = reduce.value.dtype
    return "double" if _is_long_sum(reduce) else memory_type(dtype)


def is_float_extreme(reduce: Reduce) -> bool:
    """Return whether a reduction is an extreme of floats: it keeps a NaN."""
    return reduce.kind in _EXTREMES and reduce.value.dtype.is_floating_point


def clause(reduce: Reduce, name: str) -> str:
    """Return the clause of `omp simd` for an accumulator."""
    kind = reduce.kind
    if kind in _EXTREMES:
        return f"reduction({kind.removeprefix('arg')} : {name})"
    return f"reduction({_SIGNS[kind]} : {name})"


def update(kind: str, dtype: Dtype, name: str, value: str) -> str:
    """Return the statement that combines an accumulator with a value."""
    if kind in _SIGNS:
        return f"{name} {_SIGNS[kind]}= {value};"
    if kind == "logsumexp":
        return f"{name} = logaddexp_f64({name}, {value});"
    function = "maximum" if kind in ("max", "argmax") else "minimum"
    return f"{name} = {function}_{SUFFIXES[dtype]}({name}, {value});"


def ordered_update(reduce: Reduce, name: str, value: str) -> str:
    """Return the statement that takes a float if it is a new extreme, and leaves out a NaN.

    It is one instruction, where `update` takes three that wait for each other.
    """
    sign = ">" if reduce.kind in ("max", "argmax") else "<"
    return f"{name} = {value} {sign} {name} ? {value} : {name};"


def arg_update(reduce: Reduce, best: tuple[str, str], new: tuple[str, str]) -> list[str]:
    """Return statements that take a new extreme and its place, if it is better.

    The place begins at 0: an extreme that equals the neutral element is the first number.
    """
    sign = ">" if reduce.kind == "argmax" else "<"
    newer = f"{new[0]} {sign} {best[0]}"
    if reduce.value.dtype.is_floating_point:
        newer += f" || ({new[0]} != {new[0]} && {best[0]} == {best[0]})"
    return [f"if ({newer}) {{", f"    {best[0]} = {new[0]};", f"    {best[1]} = {new[1]};", "}"]


def combine_squares(
    reduce: Reduce, total: tuple[str, str, str], new: tuple[str, str, str]
) -> list[str]:
    """Return statements that combine mean, squares and count with those of a further block."""
    wide = wide_type(reduce)
    mean, squares, count = total
    return [
        f"const {wide} apart = {new[0]} - {mean};",
        f"const {wide} share = ({wide}){new[2]} / ({count} + {new[2]});",
        f"{mean} += apart * share;",
        f"{squares} += {new[1]} + apart * apart * {count} * share;",
    ]


def _is_long_sum(reduce: Reduce) -> bool:
    return reduce.kind in ("sum", "mean_m2") and reduce.value.dtype == torch.float32
