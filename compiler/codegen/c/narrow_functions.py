"""C functions that convert floats of 16 bits, which are kept as their bits, from and to float32.

They have no branches. To the narrower type they round to the nearest, halves to even; a NaN stays
one.
"""

from collections.abc import Mapping

NARROW_FUNCTIONS: Mapping[str, str] = {
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
