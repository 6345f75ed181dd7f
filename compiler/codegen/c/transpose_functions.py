"""C functions that transpose a block of memory, by squares in registers.

`transpose_BITS(to, gap, from, step, rows, columns)` copies `to[column*gap + row] =
from[row*step + column]`. A square has as many rows as a vector of the function has numbers.
"""

from collections.abc import Mapping

_BLOCK = """\
static void transpose_BITS(word_BITS* restrict to, int64_t gap, const word_BITS* restrict from,
                           int64_t step, int64_t rows, int64_t columns) {
    const int64_t whole = columns - columns % COUNT;
    int64_t row = 0;
    for (; row + COUNT <= rows; row += COUNT) {
        for (int64_t column = 0; column < whole; column += COUNT)
            transpose_square_BITS(to + column*gap + row, gap, from + row*step + column, step);
        for (int64_t column = whole; column < columns; ++column)
            for (int64_t each = row; each < row + COUNT; ++each)
                to[column*gap + each] = from[each*step + column];
    }
    for (; row < rows; ++row)
        for (int64_t column = 0; column < columns; ++column)
            to[column*gap + row] = from[row*step + column];
}"""

_SHUFFLE = """\
#ifdef __clang__
#define SHUFFLE_BITS(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE_BITS(a, b, ...) __builtin_shuffle(a, b, (row_BITS){__VA_ARGS__})
#endif
"""

_EIGHT_32 = """\
typedef uint32_t word_32 __attribute__((may_alias));
typedef uint32_t row_32 __attribute__((vector_size(32), aligned(4), may_alias));
SHUFFLE
FN void transpose_square_32(word_32* restrict to, int64_t gap,
                            const word_32* restrict from, int64_t step) {
    row_32 a[8], b[8];
    #pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) a[i] = *(const row_32*)(from + i*step);
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
        *(row_32*)(to + i*gap) = SHUFFLE_32(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        *(row_32*)(to + (i + 4)*gap) = SHUFFLE_32(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}"""

_IN_ROUNDS = """\
typedef uintBITS_t word_BITS __attribute__((may_alias));
typedef uintBITS_t row_BITS __attribute__((vector_size(16), aligned(BYTES), may_alias));
SHUFFLE
FN void transpose_square_BITS(word_BITS* restrict to, int64_t gap,
                              const word_BITS* restrict from, int64_t step) {
    row_BITS a[COUNT], b[COUNT];
    #pragma GCC unroll COUNT
    for (int i = 0; i < COUNT; ++i) a[i] = *(const row_BITS*)(from + i*step);
    #pragma GCC unroll ROUNDS
    for (int round = 0; round < ROUNDS; ++round) {  // each turns the bits of (row, column) by one
        #pragma GCC unroll HALF
        for (int i = 0; i < HALF; ++i) {
            b[2*i] = SHUFFLE_BITS(a[i], a[i + HALF], FIRST_PAIRS);
            b[2*i + 1] = SHUFFLE_BITS(a[i], a[i + HALF], LAST_PAIRS);
        }
        #pragma GCC unroll COUNT
        for (int i = 0; i < COUNT; ++i) a[i] = b[i];
    }
    #pragma GCC unroll COUNT
    for (int i = 0; i < COUNT; ++i) *(row_BITS*)(to + i*gap) = a[i];
}"""
"""A square of numbers of 8 or 16 bits: a row is half the longest vector of AVX2."""


def _in_rounds(bits: int, count: int) -> str:
    pairs = [f"{i}, {i + count}" for i in range(count)]
    words = {
        "FIRST_PAIRS": ", ".join(pairs[: count // 2]), "LAST_PAIRS": ", ".join(pairs[count // 2 :]),
        "HALF": str(count // 2), "BYTES": str(bits // 8), "ROUNDS": str(count.bit_length() - 1),
    }  # fmt: skip
    text = _IN_ROUNDS
    for word, code in words.items():
        text = text.replace(word, code)
    return text


_FOUR_64 = """\
typedef uint64_t word_64 __attribute__((may_alias));
typedef uint64_t row_64 __attribute__((vector_size(32), aligned(8), may_alias));
SHUFFLE
FN void transpose_square_64(word_64* restrict to, int64_t gap,
                            const word_64* restrict from, int64_t step) {
    row_64 a[4], b[4];
    #pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) a[i] = *(const row_64*)(from + i*step);
    #pragma GCC unroll 2
    for (int i = 0; i < 4; i += 2) {  // pairs of rows
        b[i] = SHUFFLE_64(a[i], a[i + 1], 0, 4, 2, 6);
        b[i + 1] = SHUFFLE_64(a[i], a[i + 1], 1, 5, 3, 7);
    }
    #pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
        *(row_64*)(to + i*gap) = SHUFFLE_64(b[i], b[i + 2], 0, 1, 4, 5);
        *(row_64*)(to + (i + 2)*gap) = SHUFFLE_64(b[i], b[i + 2], 2, 3, 6, 7);
    }
}"""


def _of_bits(text: str, bits: int, count: int) -> str:
    text = text.replace("SHUFFLE\n", _SHUFFLE).replace("COUNT", str(count))
    return text.replace("BITS", str(bits))


_SQUARES = (
    (8, _in_rounds(8, 16), 16),
    (16, _in_rounds(16, 8), 8),
    (32, _EIGHT_32, 8),
    (64, _FOUR_64, 4),
)

TRANSPOSES: Mapping[str, str] = {
    name: text
    for bits, square, count in _SQUARES
    for name, text in (
        (f"transpose_square_{bits}", _of_bits(square, bits, count)),
        (f"transpose_{bits}", _of_bits(_BLOCK, bits, count)),
    )
}
