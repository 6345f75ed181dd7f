"""C functions of floats: exponentials, logarithms, functions made of them, and conversions.

The polynomials of float32 are least-squares fits, weighted towards the smallest relative error, on
the intervals that the comments name.
"""

import re
from collections.abc import Mapping

_LIBRARY = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma",
)  # fmt: skip
_LIBRARY_OF_TWO = ("hypot", "pow", "atan2")

_CALLED = ("fabs", "floor", "ceil", "trunc", "rint", "sqrt")
_CALLED_OF_TWO = ("fmod", "copysign", "nextafter")

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

_SINGLE = {
    "fma_f32": """\
FN float fma_f32(float a, float b, float c) {
#ifdef __FMA__
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}""",
    "power_of_two_f32": """\
FN float power_of_two_f32(int32_t n) {  // for -126 <= n <= 127
    return number_of_f32((n + 127) << 23);
}""",
    "exp_rest_f32": """\
FN float exp_rest_f32(float r) {  // exp(r) - 1 for |r| <= log(2) / 2
    float p = POLYNOMIAL(r, 0.000199193776f, 0.00139472249f, 0.00833326299f, 0.0416662544f,
        0.166666672f, 0.5f);
    return fma_f32(p, r * r, r);
}""",
    "exp_f32": """\
FN float exp_f32(float x) {
    float y = x > 89.0f ? 89.0f : x;
    y = x < -104.0f ? 0.0f : y;  // -inf of a mask: no slow products below the normal numbers
    float n = rintf(y * 1.44269504f);
    float r = fma_f32(n, -0.693359375f, y);
    float e = exp_rest_f32(fma_f32(n, 2.12194440e-4f, r)) + 1.0f;
    int32_t half = (int32_t)n >> 1, rest = (int32_t)n - half;
    e = e * power_of_two_f32(half) * power_of_two_f32(rest);
    return x < -104.0f ? 0.0f : e;
}""",
    "exp2_f32": """\
FN float exp2_f32(float x) {
    float y = x > 129.0f ? 129.0f : x;
    y = x < -151.0f ? 0.0f : y;
    float n = rintf(y);
    float e = exp_rest_f32((y - n) * 0.693147181f) + 1.0f;
    int32_t half = (int32_t)n >> 1, rest = (int32_t)n - half;
    e = e * power_of_two_f32(half) * power_of_two_f32(rest);
    return x < -151.0f ? 0.0f : e;
}""",
    "expm1_f32": """\
FN float expm1_f32(float x) {
    float limited = x > 89.0f ? 89.0f : x;
    limited = limited < -25.0f ? -25.0f : limited;
    float n = rintf(limited * 1.44269504f);
    float r = fma_f32(n, -0.693359375f, limited);
    float half = power_of_two_f32((int32_t)n - 1);
    float e = exp_rest_f32(fma_f32(n, 2.12194440e-4f, r));
    return x == 0 ? x : 2.0f * fma_f32(half, e, half - 0.5f);
}""",
    "log_rest_f32": """\
FN float log_rest_f32(float f) {  // log(1 + f) - f + f * f / 2 for sqrt(1/2) <= 1 + f < sqrt(2)
    float p = POLYNOMIAL(f, 0.0674655959f, -0.116796426f, 0.118903361f, -0.124051377f,
        0.14219223f, -0.166680068f, 0.200021341f, -0.250000089f, 0.333333135f);
    return p * f * (f * f);
}""",
    "exponent_f32": """\
FN int32_t exponent_f32(float x) {  // n of x = m * 2**n with sqrt(1/2) <= m < sqrt(2)
    return (bits_of_f32(x) - 0x3f3504f3) >> 23;
}""",
    "fraction_f32": """\
FN float fraction_f32(float x) {  // m - 1 of the same m
    return number_of_f32(bits_of_f32(x) - (exponent_f32(x) << 23)) - 1.0f;
}""",
    "normal_f32": """\
FN float normal_f32(float x) { return x < 0x1p-126f ? x * 0x1p24f : x; }""",
    "logarithm_f32": """\
FN float logarithm_f32(float x, float result) {  // the result of a logarithm, or a special value
    float other = x == 0 ? -INFINITY : NAN;
    return x > 0 ? (x < INFINITY ? result : x) : other;
}""",
    "log_f32": """\
FN float log_f32(float x) {
    float y = normal_f32(x), f = fraction_f32(y);
    float n = (float)exponent_f32(y) - (x < 0x1p-126f ? 24.0f : 0.0f);
    float rest = fma_f32(n, -2.12194440e-4f, log_rest_f32(f));
    return logarithm_f32(x, fma_f32(n, 0.693359375f, f + fma_f32(-0.5f, f * f, rest)));
}""",
    "log2_f32": """\
FN float log2_f32(float x) {
    float y = normal_f32(x), f = fraction_f32(y);
    float n = (float)exponent_f32(y) - (x < 0x1p-126f ? 24.0f : 0.0f);
    float rest = fma_f32(-0.5f, f * f, log_rest_f32(f));
    float low = fma_f32(f, 0.442695041f, rest * 1.44269504f);
    return logarithm_f32(x, n + (f + low));
}""",
    "log10_f32": """\
FN float log10_f32(float x) {
    float y = normal_f32(x), f = fraction_f32(y);
    float n = (float)exponent_f32(y) - (x < 0x1p-126f ? 24.0f : 0.0f);
    float natural = f + fma_f32(-0.5f, f * f, log_rest_f32(f));
    float low = fma_f32(n, 4.60503e-6f, natural * 0.434294482f);
    return logarithm_f32(x, fma_f32(n, 0.301025391f, low));
}""",
    "log1p_f32": """\
FN float log1p_f32(float x) {
    float u = 1.0f + x;
    float lost = (x - (u - 1.0f)) / u;
    float result = log_f32(u) + (u > 0 && u < INFINITY ? lost : 0.0f);
    return x == 0 ? x : result;
}""",
    "tanh_f32": """\
FN float tanh_f32(float x) {
    float e = expm1_f32(-2.0f * fabsf(x));
    return copysignf(-e / (e + 2.0f), x);
}""",
    "sigmoid_f32": """\
FN float sigmoid_f32(float x) {
    float e = exp_f32(-fabsf(x));
    return (x < 0 ? e : 1.0f) / (1.0f + e);
}""",
    "erf_f32": """\
FN float erf_f32(float x) {
    float s = x * x, t = fabsf(x);
    // erf(x) / x - 1 for |x| <= 0.93
    float p = POLYNOMIAL(s, 8.31677244e-05f, -0.000813001185f, 0.00519990642f, -0.0268589407f,
        0.112836875f, -0.376126319f, 0.128379166f);
    t = t > 3.95f ? 3.95f : t;
    // -log(erfc(t)) for 0.92 <= t <= 3.95
    float q = POLYNOMIAL(t, 2.10950529e-05f, -0.00043446265f, 0.00417106319f, -0.0251194276f,
        0.108280092f, 0.633346915f, 1.12951493f, -0.00017468445f);
    float n = rintf(q * -1.44269504f);
    float r = fma_f32(n, -0.693359375f, -q);
    float e = exp_rest_f32(fma_f32(n, 2.12194440e-4f, r));
    float scale = power_of_two_f32((int32_t)n);
    float large = copysignf(1.0f - fma_f32(scale, e, scale), x);
    return fabsf(x) > 0.925f ? large : fma_f32(p, x, x);
}""",
    # With pi/2 in two doubles, a quarter of a turn is right up to 2**40; the library does the rest.
    "turn_f32": """\
FN double turn_f32(float x) {  // |x| in quarters of a turn, less a multiple of four
    double a = fabsf(x), n = rint(a * 0.6366197723675814);
    double r = __builtin_fma(-n, 1.5707963267948966, a);
    r = __builtin_fma(-n, 6.123233995736766e-17, r);
    return n - 4.0 * floor(n * 0.25) + r * 0.6366197723675814;
}""",
    "wave_f32": """\
FN float wave_f32(double turn, int32_t shift) {  // sine of a turn in quarters, and shift quarters
    double n = rint(turn);
    float r = (float)((turn - n) * 1.5707963267948966), s = r * r;
    int32_t quarter = (int32_t)n + shift;
    // (sin(r) - r) / r**3 for |r| <= pi / 4
    float p = POLYNOMIAL(s, 2.71823729e-06f, -0.000198393274f, 0.00833332911f, -0.166666672f);
    p = fma_f32(p * s, r, r);
    // (cos(r) - 1 + r**2 / 2) / r**4
    float q = POLYNOMIAL(s, -2.72095434e-07f, 2.47995122e-05f, -0.00138888834f, 0.0416666679f);
    q = fma_f32(q * s, s, fma_f32(-0.5f, s, 1.0f));
    float wave = quarter & 1 ? q : p;
    return quarter & 2 ? -wave : wave;
}""",
    "sin_of_large_f32": """\
#pragma omp declare simd notinbranch
static __attribute__((noinline)) float sin_of_large_f32(float x, float wave) {
    return fabsf(x) < 0x1p40f ? wave : sinf(x);
}""",
    "cos_of_large_f32": """\
#pragma omp declare simd notinbranch
static __attribute__((noinline)) float cos_of_large_f32(float x, float wave) {
    return fabsf(x) < 0x1p40f ? wave : cosf(x);
}""",
    "sin_f32": """\
FN float sin_f32(float x) {
    float wave = wave_f32(turn_f32(x), 0);
    return sin_of_large_f32(x, bits_of_f32(x) < 0 ? -wave : wave);
}""",
    "cos_f32": """\
FN float cos_f32(float x) { return cos_of_large_f32(x, wave_f32(turn_f32(x), 1)); }""",
    "rsqrt_f32": "FN float rsqrt_f32(float x) { return 1.0f / sqrtf(x); }",
    "erfinv_f32": "FN float erfinv_f32(float x) { return (float)erfinv_f64(x); }",
}

_DOUBLE = {
    "sigmoid_f64": "FN double sigmoid_f64(double x) { return 1.0 / (1.0 + exp(-x)); }",
    "rsqrt_f64": "FN double rsqrt_f64(double x) { return 1.0 / sqrt(x); }",
    "erfinv_f64": """\
FN double erfinv_f64(double y) {  // a guess, and three steps of Halley's method
    double w = log1p(-y * y), a = 4.33074675 + 0.5 * w;
    double x = copysign(sqrt(sqrt(a * a - w * 6.80272108) - a), y);
    for (int step = 0; step < 3; ++step) {
        double off = x > 0 ? (1 - y) - erfc(x) : erfc(-x) - (1 + y);
        off = fabs(y) < 0.5 ? erf(x) - y : off;
        off = off / (1.1283791670955126 * exp(-x * x));
        x = x - off / (1 + x * off);
    }
    double edge = fabs(y) == 1 ? copysign(INFINITY, y) : NAN;
    return fabs(y) < 1 ? (y == 0 ? y : x) : edge;
}""",
    "logaddexp_f64": """\
FN double logaddexp_f64(double a, double b) {
    double high = a > b || a != a ? a : b, low = a > b || a != a ? b : a;
    double sum = high + log1p(exp(low - high));
    return high == low && fabs(high) == INFINITY ? high : sum;
}""",
}

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


def _with_polynomials(text: str) -> str:
    """Write each `POLYNOMIAL(x, a, b, ...)`, the highest coefficient first, by Horner's rule."""

    def nested(found: re.Match[str]) -> str:
        x, code, *others = re.split(r",\s+", found[1])
        for other in others:
            code = f"fma_f32({code}, {x}, {other})"
        return code

    return re.sub(r"POLYNOMIAL\(([^)]*)\)", nested, text)


def _declarations() -> dict[str, str]:
    """Return declarations of C's mathematics: `math.h` takes a tenth of the time of a kernel."""
    made: dict[str, str] = {}
    for ctype, end in (("float", "f"), ("double", "")):
        one = {f"{name}{end}": ctype for name in (*_LIBRARY, *_CALLED)}
        two = {f"{name}{end}": f"{ctype}, {ctype}" for name in (*_LIBRARY_OF_TWO, *_CALLED_OF_TWO)}
        made |= {name: f"{ctype} {name}({given});" for name, given in {**one, **two}.items()}
    return made


def _library() -> dict[str, str]:
    made: dict[str, str] = {}
    for ctype, suffix, end in (("float", "f32", "f"), ("double", "f64", "")):
        for name in (*_LIBRARY, *_LIBRARY_OF_TWO):
            two = name in _LIBRARY_OF_TWO
            args = f"{ctype} a, {ctype} b" if two else f"{ctype} a"
            call = f"{name}{end}({'a, b' if two else 'a'})"
            made[f"{name}_{suffix}"] = f"FN {ctype} {name}_{suffix}({args}) {{ return {call}; }}"
    return made


FLOAT_FUNCTIONS: Mapping[str, str] = {
    **_library(),
    **_DOUBLE,
    **{name: _with_polynomials(text) for name, text in _SINGLE.items()},
    **_NARROW,
    "philox": PHILOX,
}

DECLARATIONS: Mapping[str, str] = _declarations()
