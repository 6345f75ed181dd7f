"""C functions that transpose a block of memory, by squares in registers.

`transpose_BITS(to, gap, from, step, rows, columns)` copies `to[column*gap + row] =
from[row*step + column]`. A square has as many rows as a vector has numbers; smaller squares are the
rest of a block. Squares that write parts of the same lines of the cache follow each other: columns
may be powers of two apart, and then their lines share a set, which holds few of them.
"""

from collections.abc import Iterable, Mapping

_BLOCK = """\
static void NAME(word_BITS* restrict to, int64_t gap, const word_BITS* restrict from,
                 int64_t step, int64_t rows, int64_t columns) {
    const int64_t tall = rows - rows % COUNT, wide = columns - columns % COUNT;
    for (int64_t first = 0; first < tall; first += LINE)
        for (int64_t column = 0; column < wide; column += COUNT)
            for (int64_t row = first; row < tall && row < first + LINE; row += COUNT)
                SQUARE(to + column*gap + row, gap, from + row*step + column, step);
    if (tall < rows) REST(to + tall, gap, from + tall*step, step, rows - tall, wide);
    if (wide < columns) REST(to + wide*gap, gap, from + wide, step, rows, columns - wide);
}"""

_SINGLY = """\
static void transpose_singly_BITS(word_BITS* restrict to, int64_t gap,
                                  const word_BITS* restrict from, int64_t step, int64_t rows,
                                  int64_t columns) {
    for (int64_t column = 0; column < columns; ++column)
        for (int64_t row = 0; row < rows; ++row) to[column*gap + row] = from[row*step + column];
}"""

_SHUFFLE = """\
#ifdef __clang__
#define SHUFFLE_TYPE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE_TYPE(a, b, ...) __builtin_shuffle(a, b, (TYPE){__VA_ARGS__})
#endif
"""

_EIGHT_32 = """\
typedef uint32_t row_32 __attribute__((vector_size(32), aligned(4), may_alias));
SHUFFLE
FN void transpose_square_32(word_32* restrict to, int64_t gap,
                            const word_32* restrict from, int64_t step) {
    row_32 a[8], b[8];
    #pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) a[i] = *(const row_32*)(from + i*step);
    #pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {  // pairs of rows
        b[i] = SHUFFLE_row_32(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        b[i + 1] = SHUFFLE_row_32(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    #pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {  // fours of rows
        int from_b = i / 2 * 4 + i % 2, to_a = i / 2 * 4 + i % 2 * 2;
        a[to_a] = SHUFFLE_row_32(b[from_b], b[from_b + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        a[to_a + 1] = SHUFFLE_row_32(b[from_b], b[from_b + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
    #pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        *(row_32*)(to + i*gap) = SHUFFLE_row_32(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        *(row_32*)(to + (i + 4)*gap) = SHUFFLE_row_32(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}"""

_SIXTEEN_32 = """\
typedef uint32_t long_row_32 __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint64_t long_pairs_32 __attribute__((vector_size(64)));
SHUFFLES
FN void transpose_wide_32(word_32* restrict to, int64_t gap,
                          const word_32* restrict from, int64_t step) {
    long_row_32 a[16], b[16];
    #pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) a[i] = *(const long_row_32*)(from + i*step);
    #pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {  // pairs of rows
        b[i] = SHUFFLE_TYPE(a[i], a[i + 1], PAIRS);
        b[i + 1] = SHUFFLE_TYPE(a[i], a[i + 1], LATER_PAIRS);
    }
    #pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {  // fours of rows
        int from_b = i / 2 * 4 + i % 2, to_a = i / 2 * 4 + i % 2 * 2;
        long_pairs_32 one = (long_pairs_32)b[from_b], two = (long_pairs_32)b[from_b + 2];
        a[to_a] = (long_row_32)SHUFFLE_PAIRS(one, two, EVENS);
        a[to_a + 1] = (long_row_32)SHUFFLE_PAIRS(one, two, ODDS);
    }
    #pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {  // eights of rows
        int at = i / 4 * 8 + i % 4;
        b[at] = SHUFFLE_TYPE(a[at], a[at + 4], LANES);
        b[at + 4] = SHUFFLE_TYPE(a[at], a[at + 4], LATER_LANES);
    }
    #pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
        *(long_row_32*)(to + i*gap) = SHUFFLE_TYPE(b[i], b[i + 8], LANES);
        *(long_row_32*)(to + (i + 8)*gap) = SHUFFLE_TYPE(b[i], b[i + 8], LATER_LANES);
    }
}"""
"""Each shuffle stays within lanes of 128 bits, or moves whole ones: the fastest kinds."""


def _sixteen() -> str:
    lanes, names = range(0, 16, 4), {"SHUFFLE_PAIRS": "SHUFFLE_long_pairs_32"}
    for name, at in (("LATER_PAIRS", 2), ("PAIRS", 0)):
        names[name] = _numbers(n + at + each for n in lanes for each in (0, 16, 1, 17))
    for name, at in (("EVENS", 0), ("ODDS", 1)):
        names[name] = _numbers(n + at + each for n in range(0, 8, 2) for each in (0, 8))
    for name, at in (("LATER_LANES", 4), ("LANES", 0)):
        names[name] = _numbers(n + at + each for n in range(0, 32, 8) for each in range(4))
    shuffles = "".join(_SHUFFLE.replace("TYPE", t) for t in ("long_row_32", "long_pairs_32"))
    names |= {"SHUFFLES\n": shuffles, "TYPE": "long_row_32"}
    return _replace_words(_SIXTEEN_32, names)


def _numbers(places: Iterable[int]) -> str:
    return ", ".join(map(str, places))


_IN_ROUNDS = """\
typedef uintBITS_t TYPE __attribute__((vector_size(VECTOR), aligned(BYTES), may_alias));
SHUFFLE
FN void SQUARE(word_BITS* restrict to, int64_t gap,
                   const word_BITS* restrict from, int64_t step) {
    TYPE a[COUNT], b[COUNT];
    #pragma GCC unroll COUNT
    for (int i = 0; i < COUNT; ++i) a[i] = *(const TYPE*)(from + i*step);
    #pragma GCC unroll ROUNDS
    for (int round = 0; round < ROUNDS; ++round) {  // each turns the bits of (row, column) by one
        #pragma GCC unroll HALF
        for (int i = 0; i < HALF; ++i) {
            b[2*i] = SHUFFLE_TYPE(a[i], a[i + HALF], FIRST_PAIRS);
            b[2*i + 1] = SHUFFLE_TYPE(a[i], a[i + HALF], LAST_PAIRS);
        }
        #pragma GCC unroll COUNT
        for (int i = 0; i < COUNT; ++i) a[i] = b[i];
    }
    #pragma GCC unroll COUNT
    for (int i = 0; i < COUNT; ++i) *(TYPE*)(to + i*gap) = a[i];
}"""


_ONCE = """\
static __attribute__((noinline)) void LARGE(
        word_BITS* restrict to, int64_t gap, const word_BITS* restrict from, int64_t step) {
    WIDE(to, gap, from, step);
}"""

_SIXTEEN = """\
FN void transpose_sixteen_BITS(word_BITS* restrict to, int64_t gap,
                               const word_BITS* restrict from, int64_t step) {
    #pragma GCC unroll 16
    for (int column = 0; column < 16; column += COUNT)
        #pragma GCC unroll 16
        for (int row = 0; row < 16; row += COUNT)
            SQUARE(to + column*gap + row, gap, from + row*step + column, step);
}"""
"""Sixteen rows of sixteen numbers; an array that they are read from at once stays in registers."""


def _in_rounds(bits: int, count: int, square: str, row: str) -> str:
    pairs = [f"{i}, {i + count}" for i in range(count)]
    words = {
        "SHUFFLE\n": _SHUFFLE, "SQUARE": square, "TYPE": row,
        "FIRST_PAIRS": ", ".join(pairs[: count // 2]), "LAST_PAIRS": ", ".join(pairs[count // 2 :]),
        "HALF": str(count // 2), "BYTES": str(bits // 8), "ROUNDS": str(count.bit_length() - 1),
        "VECTOR": str(count * bits // 8), "COUNT": str(count), "BITS": str(bits),
    }  # fmt: skip
    return _replace_words(_IN_ROUNDS, words)


_FOUR_64 = """\
typedef uint64_t row_64 __attribute__((vector_size(32), aligned(8), may_alias));
SHUFFLE
FN void transpose_square_64(word_64* restrict to, int64_t gap,
                            const word_64* restrict from, int64_t step) {
    row_64 a[4], b[4];
    #pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) a[i] = *(const row_64*)(from + i*step);
    #pragma GCC unroll 2
    for (int i = 0; i < 4; i += 2) {  // pairs of rows
        b[i] = SHUFFLE_row_64(a[i], a[i + 1], 0, 4, 2, 6);
        b[i + 1] = SHUFFLE_row_64(a[i], a[i + 1], 1, 5, 3, 7);
    }
    #pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
        *(row_64*)(to + i*gap) = SHUFFLE_row_64(b[i], b[i + 2], 0, 1, 4, 5);
        *(row_64*)(to + (i + 2)*gap) = SHUFFLE_row_64(b[i], b[i + 2], 2, 3, 6, 7);
    }
}"""


_LONG = """\
#ifdef __AVX512BW__
LONG
#else
SHORT
#endif"""


def _replace_words(text: str, words: Mapping[str, str]) -> str:
    for word, code in words.items():
        text = text.replace(word, code)
    return text


def _block(bits: int, count: int, name: str, square: str, rest: str) -> str:
    words = {
        "COUNT": str(count), "LINE": str(512 // bits), "BITS": str(bits),
        "NAME": name, "SQUARE": square, "REST": rest,
    }  # fmt: skip
    return _replace_words(_BLOCK, words)


def _squares(bits: int, count: int, square: str) -> str:
    return _replace_words(_SIXTEEN, {"COUNT": str(count), "BITS": str(bits), "SQUARE": square})


def _by_machine(long: str, short: str) -> str:
    return _replace_words(_LONG, {"LONG": long, "SHORT": short})


def _functions(
    bits: int, count: int, long: int, square: str = "", long_square: str = ""
) -> Mapping[str, str]:
    """Return the functions for numbers of some bits; AVX-512 has squares of `long` rows too."""
    name, small, wide, large, singly, squares = (
        f"transpose_{part}{bits}"
        for part in ("", "square_", "wide_", "large_", "singly_", "squares_")
    )
    short = _block(bits, count, name, small, singly)
    by_large = _block(bits, long, name, large, squares)
    return {
        f"word_{bits}": f"typedef uint{bits}_t word_{bits} __attribute__((may_alias));",
        singly: _SINGLY.replace("BITS", str(bits)),
        small: square or _in_rounds(bits, count, small, f"row_{bits}"),
        squares: _block(bits, count, squares, small, singly),
        wide: long_square or _in_rounds(bits, long, wide, f"long_row_{bits}"),
        large: _replace_words(_ONCE, {"LARGE": large, "WIDE": wide, "BITS": str(bits)}),
        name: _by_machine(by_large, short) if long > count else short,
        f"transpose_sixteen_{bits}": _by_machine(
            _squares(bits, long, wide), _squares(bits, count, small)
        ),
    }


_EIGHT = _replace_words(_EIGHT_32, {"SHUFFLE\n": _SHUFFLE, "TYPE": "row_32"})
_FOUR = _replace_words(_FOUR_64, {"SHUFFLE\n": _SHUFFLE, "TYPE": "row_64"})

TRANSPOSES: Mapping[str, str] = {
    **_functions(8, 16, 16),
    **_functions(16, 8, 16),
    **_functions(32, 8, 16, _EIGHT, _sixteen()),
    **_functions(64, 4, 8, _FOUR),
}
