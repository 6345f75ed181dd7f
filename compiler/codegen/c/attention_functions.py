"""C functions of attention: the products and the softmax of a block of scores.

A block holds `LANES` queries side by side, in SIMD lanes: scores are stored key by key, results
part by part. So both products take numbers of keys and values one by one, as they lie in memory,
times whole vectors, and the softmax needs no sum within a vector.

In the texts, `T` stands for the C type and `X` for its suffix.
"""

import re
from collections.abc import Mapping

LANES = 64
"""How many queries a block has."""

_VECTOR = """\
#ifdef __AVX512F__
#define WIDTH_X (256 / (int64_t)sizeof(T))
#else
#define WIDTH_X (64 / (int64_t)sizeof(T))
#endif
typedef T vector_X __attribute__((vector_size(64), aligned(64), may_alias));"""

_TILE = """\
        for (; row + ROWS <= rows; row += ROWS) {
            vector_X sum[ROWS][WIDTH_X * sizeof(T) / 64];
            const T* from = a + row * a_row;
            vector_X* into = (vector_X*)(to + row * LANES + lane);
            UNROLL for (int i = 0; i < ROWS; ++i)
                UNROLL for (int v = 0; v < WIDTH_X * sizeof(T) / 64; ++v)
                    sum[i][v] = adds ? into[i * (LANES * sizeof(T) / 64) + v] : (vector_X){0};
            for (int64_t x = 0; x < depth; ++x) {
                const vector_X* b_row = (const vector_X*)(b + x * LANES + lane);
                UNROLL for (int i = 0; i < ROWS; ++i) {
                    const T factor = from[i * a_row + x * a_step];
                    UNROLL for (int v = 0; v < WIDTH_X * sizeof(T) / 64; ++v)
                        sum[i][v] += factor * b_row[v];
                }
            }
            UNROLL for (int i = 0; i < ROWS; ++i)
                UNROLL for (int v = 0; v < WIDTH_X * sizeof(T) / 64; ++v)
                    into[i * (LANES * sizeof(T) / 64) + v] = sum[i][v];
        }"""

_PRODUCT = f"""\
{_VECTOR}
static __attribute__((noinline, optimize("fp-contract=fast"))) void block_product_X(
    T* restrict to, const T* restrict a, int64_t a_row, int64_t a_step, const T* restrict b,
    int64_t rows, int64_t depth, bool adds) {{  // to = (to +) a @ b, for LANES columns
    #ifdef __clang__
    #pragma clang fp contract(fast)
    #endif
    for (int64_t lane = 0; lane < LANES; lane += WIDTH_X) {{
        int64_t row = 0;
{_TILE.replace("ROWS", "4")}
{_TILE.replace("ROWS", "1")}
    }}
}}"""

_SOFTMAX = """\
FN void block_softmax_X(T* restrict score, T* restrict largest, T* restrict total,
                        T* restrict sum, int64_t keys, int64_t parts) {
    T high[LANES], base[LANES], scale[LANES], added[LANES];
    bool same = true;
    for (int i = 0; i < LANES; ++i) high[i] = largest[i];
    for (int64_t n = 0; n < keys; ++n) {
        #pragma omp simd
        for (int i = 0; i < LANES; ++i) {
            const T each = score[n * LANES + i];
            high[i] = each > high[i] ? each : high[i];
        }
    }
    for (int i = 0; i < LANES; ++i) same &= high[i] == largest[i];
    #pragma omp simd
    for (int i = 0; i < LANES; ++i) {
        base[i] = high[i] == -INFINITY ? 0 : high[i];
        scale[i] = exp_X(largest[i] - base[i]);
        largest[i] = high[i];
        added[i] = 0;
    }
    for (int64_t n = 0; n < keys; ++n) {
        #pragma omp simd
        for (int i = 0; i < LANES; ++i) {
            const T weight = exp_X(score[n * LANES + i] - base[i]);
            score[n * LANES + i] = weight;
            added[i] += weight;
        }
    }
    if (same) {
        for (int i = 0; i < LANES; ++i) total[i] += added[i];
        return;
    }
    for (int i = 0; i < LANES; ++i) total[i] = total[i] * scale[i] + added[i];
    for (int64_t e = 0; e < parts; ++e) {
        #pragma omp simd
        for (int i = 0; i < LANES; ++i) sum[e * LANES + i] *= scale[i];
    }
}"""


def _of_type(text: str, ctype: str, suffix: str) -> str:
    text = text.replace("UNROLL", '\n_Pragma("GCC unroll 4")').replace("LANES", str(LANES))
    text = re.sub(r"\bT\b", ctype, text)
    return re.sub(r"\b(\w+)_X\b", rf"\1_{suffix}", text)


ATTENTION_FUNCTIONS: Mapping[str, str] = {
    f"block_{name}_{suffix}": _of_type(text, ctype, suffix)
    for name, text in (("product", _PRODUCT), ("softmax", _SOFTMAX))
    for ctype, suffix in (("float", "f32"), ("double", "f64"))
}
