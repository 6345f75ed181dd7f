"""C functions that convert floats of 16 bits, and that draw random bits."""

from collections.abc import Mapping

PHILOX = """\
FN int64_t philox(int64_t seed, int64_t offset, int64_t lane) {
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)((uint64_t)seed >> 32);
    uint32_t c0 = (uint32_t)offset, c1 = (uint32_t)((uint64_t)offset >> 32);
    uint32_t c2 = (uint32_t)(lane / 4), c3 = (uint32_t)((uint64_t)(lane / 4) >> 32);
    for (int round = 0; round < 10; ++round) {
        uint64_t a = (uint64_t)c0 * 0xD2511F53u, b = (uint64_t)c2 * 0xCD9E8D57u;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    int64_t word = lane % 4;
    return word < 2 ? (word == 0 ? c0 : c1) : (word == 2 ? c2 : c3);
}"""

_NARROW = {
    "f32_of_bf16": """\
FN float f32_of_bf16(bf16 a) {
    return number_of_f32((int32_t)((uint32_t)a << 16));
}""",
    "bf16_of_f32": """\
FN bf16 bf16_of_f32(float a) {
    uint32_t bits = (uint32_t)bits_of_f32(a);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
    return (bf16)(a != a ? 0x7fc0u : rounded);
}""",
    "round_bf16_f32": """\
FN float round_bf16_f32(float a) {  // to the numbers of bfloat16
    uint32_t bits = (uint32_t)bits_of_f32(a);
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) & 0xffff0000u;
    return a != a ? a : number_of_f32((int32_t)rounded);
}""",
    "round_f16_f32": """\
FN float round_f16_f32(float a) {  // to the numbers of float16
    uint32_t size = (uint32_t)bits_of_f32(a) & 0x7fffffffu;
    float normal = number_of_f32((int32_t)((size + 0xfffu + ((size >> 13) & 1)) & ~0x1fffu));
    float small = (number_of_f32((int32_t)size) + 0.5f) - 0.5f;
    float large = size > 0x7f800000u ? a : INFINITY;
    float rounded = size < 0x38800000u ? small : normal;
    return copysignf(size >= 0x477ff000u ? large : rounded, a);
}""",
    "f32_of_f16": """\
FN float f32_of_f16(f16 a) {
    uint32_t size = (uint32_t)(a & 0x7fff) << 13;
    float scaled = number_of_f32((int32_t)size) * 0x1p112f;
    uint32_t bits = (uint32_t)bits_of_f32(scaled) | (size >= 0x0f800000u ? 0x7f800000u : 0u);
    return number_of_f32((int32_t)(bits | (uint32_t)(a & 0x8000) << 16));
}""",
    "f16_of_f32": """\
FN f16 f16_of_f32(float a) {
    uint32_t bits = (uint32_t)bits_of_f32(a);
    uint32_t sign = (bits >> 16) & 0x8000u, size = bits & 0x7fffffffu;
    uint32_t normal = (size - 0x38000000u + 0xfffu + ((size >> 13) & 1)) >> 13;
    float shifted = number_of_f32((int32_t)size) + 0.5f;
    uint32_t small = (uint32_t)bits_of_f32(shifted) - 0x3f000000u;
    uint32_t large = size > 0x7f800000u ? 0x7e00u : 0x7c00u;
    uint32_t result = size < 0x38800000u ? small : normal;
    return (f16)(sign | (size >= 0x477ff000u ? large : result));
}""",
}
"""From and to floats of 16 bits, which are kept as their bits, without branches. To the narrower
type they round to the nearest, halves to even; a NaN stays one.
"""

CONVERSIONS: Mapping[str, str] = {**_NARROW, "philox": PHILOX}
