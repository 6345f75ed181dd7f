"""Find loads that walk across the rows of memory where the store walks along them.

`out[i*n + j] = a[i*n + j] + b[i + j*n]`: the loop over `j` jumps through `b`. So the two loops run
in square tiles, and a tile of `b` is first copied, along its own rows, into a small array. Numbers
of 16 and 32 bits go there in squares of eight rows, which are transposed in registers.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ctk.compiler.codegen.c.loops import variables_of
from ctk.compiler.lowering.ir import Guarded, Kernel, Load
from ctk.compiler.lowering.walk import indirect, loads, walk
from ctk.compiler.sizes.index import ONE, Var

SIDE = 32
"""Rows and columns of a tile: a line of the cache, twice, of float32."""

_BEHIND = """\
FN void transpose_BITS(uintBITS_t (*restrict to)[SIDE], const uintBITS_t* restrict from,
                     int64_t step, int64_t rows, int64_t columns) {
    const int64_t whole = columns - columns % 8;
    int64_t row = 0;
    for (; row + 8 <= rows; row += 8) {
        for (int64_t column = 0; column < whole; column += 8)
            transpose_eight_BITS(to + column, row, from + row*step + column, step);
        for (int64_t column = whole; column < columns; ++column)
            for (int64_t each = row; each < row + 8; ++each)
                to[column][each] = from[each*step + column];
    }
    for (; row < rows; ++row)
        for (int64_t column = 0; column < columns; ++column)
            to[column][row] = from[row*step + column];
}"""

_SHUFFLE = """\
#ifdef __clang__
#define SHUFFLE_BITS(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE_BITS(a, b, ...) __builtin_shuffle(a, b, (eight_BITS){__VA_ARGS__})
#endif
"""

_EIGHT_32 = """\
typedef uint32_t eight_32 __attribute__((vector_size(32), aligned(4), may_alias));
SHUFFLE
FN void transpose_eight_32(uint32_t (*restrict to)[SIDE], int64_t at, const uint32_t* restrict from,
                           int64_t step) {
    eight_32 a[8], b[8];
    #pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) a[i] = *(const eight_32*)(from + i*step);
    #pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {  // pairs of rows
        b[i] = SHUFFLE_32(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        b[i + 1] = SHUFFLE_32(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    #pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {  // fours of rows
        int from_b = i / 2 * 4 + i % 2, to_a = i / 2 * 4 + i % 2 * 2;
        a[to_a] = SHUFFLE_32(b[from_b], b[from_b + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        a[to_a + 1] = SHUFFLE_32(b[from_b], b[from_b + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
    #pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        *(eight_32*)(to[i] + at) = SHUFFLE_32(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        *(eight_32*)(to[i + 4] + at) = SHUFFLE_32(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}"""

_EIGHT_16 = """\
typedef uint16_t eight_16 __attribute__((vector_size(16), aligned(2), may_alias));
SHUFFLE
FN void transpose_eight_16(uint16_t (*restrict to)[SIDE], int64_t at, const uint16_t* restrict from,
                           int64_t step) {
    eight_16 a[8], b[8];
    #pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) a[i] = *(const eight_16*)(from + i*step);
    #pragma GCC unroll 3
    for (int round = 0; round < 3; ++round) {  // each turns the bits of (row, column) by one
        #pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            b[2*i] = SHUFFLE_16(a[i], a[i + 4], 0, 8, 1, 9, 2, 10, 3, 11);
            b[2*i + 1] = SHUFFLE_16(a[i], a[i + 4], 4, 12, 5, 13, 6, 14, 7, 15);
        }
        #pragma GCC unroll 8
        for (int i = 0; i < 8; ++i) a[i] = b[i];
    }
    #pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) *(eight_16*)(to[i] + at) = a[i];
}"""


def _of_bits(text: str, bits: int) -> str:
    text = text.replace("SHUFFLE\n", _SHUFFLE).replace("[SIDE]", f"[{SIDE}]")
    return text.replace("BITS", str(bits))


TRANSPOSES: Mapping[str, str] = {
    "transpose_eight_16": _of_bits(_EIGHT_16, 16),
    "transpose_16": _of_bits(_BEHIND, 16),
    "transpose_eight_32": _of_bits(_EIGHT_32, 32),
    "transpose_32": _of_bits(_BEHIND, 32),
}
"""`transpose_BITS` copies a tile: `to[column][row] = from[row*step + column]`."""


@dataclass(frozen=True, slots=True)
class Transposed:
    """Loads that are made a tile at a time.

    Attributes:
        across: The loop along which these loads walk through memory.
        along: The innermost loop, along which the stores do.
    """

    across: Var
    along: Var
    loads: tuple[Load, ...]


def transposed(kernel: Kernel) -> Transposed | None:
    """Return the loads of a pointwise kernel that jump in its innermost loop, if tiles help."""
    if len(kernel.outer) < 2 or any(sweep.inner for sweep in kernel.sweeps):
        return None
    along = kernel.outer[-1]
    if not _is_long(along) or any(isinstance(v, Guarded) for v in walk(*kernel.statements)):
        return None
    written = {store.buffer for store in kernel.stores}
    found: dict[Var, list[Load]] = {}
    for load in loads(kernel):
        if load.buffer in written or indirect(load.index):
            continue
        jump = load.index.factor_of(along)
        if along not in variables_of(load.index) or jump is None or jump == ONE:
            continue
        for loop in kernel.outer[:-1]:
            if load.index.factor_of(loop) == ONE and _is_long(loop):
                found.setdefault(loop, []).append(load)
    if not found:
        return None
    across = max(found, key=lambda loop: len(found[loop]))
    return Transposed(across, along, tuple(found[across]))


def _is_long(loop: Var) -> bool:
    return loop.size.number is None or loop.size.number >= SIDE // 2
