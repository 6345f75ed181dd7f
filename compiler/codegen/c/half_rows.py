"""Convert float16 a piece of a row at a time, by instructions that gcc does not put into loops.

    float wide[1024];
    widen_f16(wide, &x[i0*1024], 1024);
    for (int64_t r0 = 0; r0 < 1024; ++r0)
        out_wide[r0] = wide[r0] * 2.0f;
    narrow_f16(&out[i0*1024], out_wide, 1024);

Loads and stores qualify if they go through memory step by step, at an index that the kernel does
not compute. Others convert in integers (`functions/conversions.py`), as bfloat16 does, which needs
two operations.
"""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import torch

from ctk.compiler.codegen.c.loops import variables_of
from ctk.compiler.lowering.ir import Guarded, Load, Op, Statement, Store, Value
from ctk.compiler.lowering.walk import indirect, walk
from ctk.compiler.sizes.index import ONE, Index, Var, of_atom

PIECE = 1024
"""How many numbers are converted at a time: several operands stay in the nearest cache."""

ROW = 2048
"""A row of at most so many is converted whole; a row under a reduction may be `LONGEST`."""

_LEAST = 16


@dataclass(frozen=True, slots=True)
class Halves:
    """The conversions of a loop that are made apart from it.

    Attributes:
        loads: Casts to float32, and the load of each.
        stores: Stores of float32 that is cast.
    """

    loads: tuple[tuple[Op, Load], ...]
    stores: tuple[Store, ...]

    def __bool__(self) -> bool:
        return bool(self.loads or self.stores)


def halves_of(loop: Var, statements: Sequence[Statement], written: Container[str]) -> Halves:
    """Return the conversions of float16 along a loop.

    Args:
        loop: The loop.
        statements: Its statements.
        written: The buffers that the kernel writes.
    """
    if loop.size.number is not None and loop.size.number < _LEAST:
        return Halves((), ())
    values = walk(*statements)
    lazy = {id(v) for each in values if isinstance(each, Guarded) for v in _below(each.value)}
    loads = tuple(
        (value, load)
        for value in values
        if isinstance(value, Op) and _is_cast(value, torch.float16, torch.float32)
        and isinstance(load := value.args[0], Load) and load.buffer not in written
        and id(value) not in lazy and _is_step(load.index, loop)
    )  # fmt: skip
    stores = tuple(
        store
        for store in statements
        if isinstance(store, Store) and store.mode == "set" and store.guard is None
        and _is_cast(store.value, torch.float32, torch.float16) and _is_step(store.index, loop)
    )  # fmt: skip
    once = _count(statements, values)
    return Halves(loads, tuple(store for store in stores if once.get(store.buffer) == 1))


def wide_row(name: str, count: int) -> str:
    """Return the declaration of an array of float32, from which vectors are loaded at once."""
    return f"_Alignas(64) float {name}[{count}];"


def _is_cast(value: Value, source: torch.dtype, target: torch.dtype) -> bool:
    return isinstance(value, Op) and (value.name, value.dtype, value.args[0].dtype) == (
        "cast",
        target,
        source,
    )


def _is_step(index: Index, loop: Var) -> bool:
    """Return whether an index goes on by one with a loop."""
    if indirect(index) or index.factor_of(loop) != ONE:
        return False
    return loop not in variables_of(index - of_atom(loop))


def _below(value: Value) -> list[Value]:
    return walk(Store("", ONE, value))


def _count(statements: Sequence[Statement], values: Sequence[Value]) -> Mapping[str, int]:
    """Return how often the statements write or read each buffer."""
    used = [statement.buffer for statement in statements if isinstance(statement, Store)]
    return Counter((*used, *(value.buffer for value in values if isinstance(value, Load))))


_VECTORS = """\
#if defined(__AVX512F__) && !defined(__clang__)
typedef short halves __attribute__((vector_size(32), aligned(2), may_alias));
typedef float floats __attribute__((vector_size(64), aligned(4), may_alias));
#define WIDENED(a) __builtin_ia32_vcvtph2ps512_mask(a, (floats){0}, -1, 4)
#define NARROWED(a) __builtin_ia32_vcvtps2ph512_mask(a, 0, (halves){0}, -1)
#elif defined(__F16C__) && !defined(__clang__)
typedef short halves __attribute__((vector_size(16), aligned(2), may_alias));
typedef float floats __attribute__((vector_size(32), aligned(4), may_alias));
#define WIDENED(a) __builtin_ia32_vcvtph2ps256(a)
#define NARROWED(a) __builtin_ia32_vcvtps2ph256(a, 0)
#endif
FN int64_t half_lanes(void) {
#ifdef WIDENED
    return sizeof(halves) / sizeof(f16);
#else
    return 1;
#endif
}"""

HALF_ROWS: Mapping[str, str] = {
    "half_lanes": _VECTORS,
    "widen_f16": """\
FN void widen_f16(float* restrict to, const f16* restrict from, int64_t count) {
    int64_t i = 0;
#ifdef WIDENED
    const int64_t step = half_lanes();
    for (; i + step <= count; i += step)
        *(floats*)(to + i) = (floats)WIDENED(*(const halves*)(from + i));
    if (i < count && step <= count) {  // once more, so that none is left
        i = count - step;
        *(floats*)(to + i) = (floats)WIDENED(*(const halves*)(from + i));
        i = count;
    }
#elif defined(__FLT16_MANT_DIG__)
    for (; i < count; ++i) to[i] = (float)((const _Float16*)from)[i];
#endif
    for (; i < count; ++i) to[i] = f32_of_f16(from[i]);
}""",
    "narrow_f16": """\
FN void narrow_f16(f16* restrict to, const float* restrict from, int64_t count) {
    int64_t i = 0;
#ifdef WIDENED
    const int64_t step = half_lanes();
    for (; i + step <= count; i += step)
        *(halves*)(to + i) = (halves)NARROWED(*(const floats*)(from + i));
    if (i < count && step <= count) {
        i = count - step;
        *(halves*)(to + i) = (halves)NARROWED(*(const floats*)(from + i));
        i = count;
    }
#elif defined(__FLT16_MANT_DIG__)
    for (; i < count; ++i) ((_Float16*)to)[i] = (_Float16)from[i];
#endif
    for (; i < count; ++i) to[i] = f16_of_f32(from[i]);
}""",
}
"""Compilers of machines that have the type, and clang, make vectors of its conversions."""
