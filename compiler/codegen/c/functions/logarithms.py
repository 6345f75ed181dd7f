"""C functions made of logarithms: log and its kin, and inverse hyperbolic functions."""

from collections.abc import Mapping

import torch

from ctk.compiler.codegen.c.function_texts import of_floats, with_polynomials

_SINGLE = {
    "log_rest_f32": """\
FN float log_rest_f32(float f) {  // log(1 + f) - f + f * f / 2 for sqrt(1/2) <= 1 + f < sqrt(2)
    float p = POLYNOMIAL(f, 0.0674655959f, -0.116796426f, 0.118903361f, -0.124051377f,
        0.14219223f, -0.166680068f, 0.200021341f, -0.250000089f, 0.333333135f);
    return p * f * (f * f);
}""",
    # (atanh(s) / s - 1) / w for (1 + s) / (1 - s) <= sqrt(2), w = s * s
    "atanh_rest_f32": """\
FN float atanh_rest_f32(float w) {
    return POLYNOMIAL(w, 0.111111111f, 0.142857143f, 0.2f, 0.333333333f);
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
}

_DOUBLE = {
    "log_rest_f64": """\
FN double log_rest_f64(double f) {  // log(1 + f) - f + f * f / 2 for sqrt(1/2) <= 1 + f < sqrt(2)
    double s = f / (2 + f), w = s * s;
    double p = POLYNOMIAL(w, 0.14799112682515358, 0.15313753986125167, 0.18183575122634366,
        0.2222219838134208, 0.2857142874409663, 0.39999999999407737, 0.6666666666666735);
    return s * fma_f64(p, w, 0.5 * f * f);
}""",
    "atanh_rest_f64": """\
FN double atanh_rest_f64(double w) {
    return POLYNOMIAL(w, 0.07399556341257679, 0.07656876993078563, 0.09091787561317322,
        0.1111109919067109, 0.14285714372048325, 0.19999999999703889, 0.33333333333333675);
}""",
    "exponent_f64": """\
FN double exponent_f64(double x) {  // n of x = m * 2**n with sqrt(1/2) <= m < sqrt(2)
    int64_t biased = bits_of_f64(x) - 0x3fe6a09e667f3bcd + (1023LL << 52);
    return number_of_f64((int64_t)((uint64_t)biased >> 52) | 0x4330000000000000) - (0x1p52 + 1023);
}""",
    "fraction_f64": """\
FN double fraction_f64(double x, double n) {  // m - 1 of the same m
    int64_t power = bits_of_f64(n + 0x1.8p52) << 52;
    return number_of_f64(bits_of_f64(x) - power) - 1.0;
}""",
    "normal_f64": """\
FN double normal_f64(double x) { return x < 0x1p-1022 ? x * 0x1p54 : x; }""",
    "log_f64": """\
FN double log_f64(double x) {
    double y = normal_f64(x), whole = exponent_f64(y), f = fraction_f64(y, whole);
    double n = whole - (x < 0x1p-1022 ? 54.0 : 0.0), half = 0.5 * f * f;
    double low = fma_f64(n, 1.9082149292705877e-10, log_rest_f64(f));
    return logarithm_f64(x, fma_f64(n, 0.6931471803691238, f - (half - low)));
}""",
    "log2_f64": """\
FN double log2_f64(double x) {
    double y = normal_f64(x), whole = exponent_f64(y), f = fraction_f64(y, whole);
    double n = whole - (x < 0x1p-1022 ? 54.0 : 0.0), half = 0.5 * f * f;
    double high = number_of_f64(bits_of_f64(f - half) & -0x100000000);
    double low = (f - high) - half + log_rest_f64(f);
    double rest = (low + high) * 1.6751713164886512e-10 + low * 1.4426950407214463;
    double large = high * 1.4426950407214463, sum = n + large;
    return logarithm_f64(x, sum + (rest + ((n - sum) + large)));
}""",
    "log10_f64": """\
FN double log10_f64(double x) {
    double y = normal_f64(x), whole = exponent_f64(y), f = fraction_f64(y, whole);
    double n = whole - (x < 0x1p-1022 ? 54.0 : 0.0), half = 0.5 * f * f;
    double high = number_of_f64(bits_of_f64(f - half) & -0x100000000);
    double low = (f - high) - half + log_rest_f64(f);
    double rest = fma_f64(n, 3.69423907715893e-13, (low + high) * 2.5082946711645275e-11);
    double large = high * 0.4342944818781689, two = n * 0.30102999566361177, sum = two + large;
    rest = fma_f64(low, 0.4342944818781689, rest) + ((two - sum) + large);
    return logarithm_f64(x, sum + rest);
}""",
}

_OF_FLOATS = {
    "logarithm": """\
FN T logarithm_X(T x, T result) {  // the result of a logarithm, or a special value
    T other = x == 0 ? -INFINITY : NAN;
    return x > 0 ? (x < INFINITY ? result : x) : other;
}""",
    "log1p": """\
FN T log1p_X(T x) {
    T u = 1 + x;
    T lost = (x - (u - 1)) / u;
    T result = log_X(u) + (u > 0 && u < INFINITY ? lost : (T)0);
    return x == 0 ? x : result;
}""",
    "asinh": """\
FN T asinh_X(T x) {
    T t = fabsF(x), s = t * t;
    bool far = t > FAR;
    T y = far ? t : t + s / (1 + sqrtF(1 + s));
    return copysignF(log1p_X(y) + (far ? (T)0.6931471805599453 : (T)0), x);
}""",
    "acosh": """\
FN T acosh_X(T x) {
    T d = x - 1;
    bool far = x > FAR;
    T y = far ? x : d + sqrtF(d * (x + 1));
    T result = log1p_X(y) + (far ? (T)0.6931471805599453 : (T)0);
    return x >= 1 ? result : (T)NAN;
}""",
    "atanh": """\
FN T atanh_X(T x) {  // log((1 + t) / (1 - t)) / 2, of n * log(2) and a small rest, by one quotient
    T t = fabsF(x), below = t < 1 ? 1 - t : (T)0.5;
    WHOLE n = -exponent_X(below);
    T power = power_of_two_X(n), near = below * power;
    bool more = 1 + t > near * (T)1.4142135623730951;
    n = more ? n + 1 : n;
    power = more ? 2 * power : power;
    near = more ? 2 * near : near;
    T apart = n < 9 ? fma_X(t, 1 + power, 1 - power) : (1 + t) - near;  // both are 1 + t - near
    T s = n == 0 ? t : apart / ((1 + t) + near), w = s * s;
    T low = fma_X(s * w, atanh_rest_X(w), (T)n * HALF_LOG_2_REST);
    T result = fma_X((T)n, HALF_LOG_2, s + low);
    result = t < 1 ? result : (t == 1 ? (T)INFINITY : (T)NAN);
    return copysignF(result, x);
}""",
    "logaddexp": """\
FN T logaddexp_X(T a, T b) {
    T high = a > b || a != a ? a : b, low = a > b || a != a ? b : a;
    T sum = high + log1p_X(exp_X(low - high));
    return high == low && fabsF(high) == INFINITY ? high : sum;
}""",
}
"""Beyond `FAR` asinh and acosh are log(2 * x); `WHOLE` is the type of exponents."""

_CONSTANTS = {
    torch.float32: {
        "FAR": "0x1p26f", "WHOLE": "int32_t", "HALF_LOG_2": "0.3466796875f",
        "HALF_LOG_2_REST": "-1.06097220e-4f",
    },
    torch.float64: {
        "FAR": "0x1p55", "WHOLE": "double", "HALF_LOG_2": "0.3465735901845619",
        "HALF_LOG_2_REST": "9.541074646352939e-11",
    },
}  # fmt: skip


LOGARITHMS: Mapping[str, str] = {
    **with_polynomials(_SINGLE),
    **with_polynomials(_DOUBLE),
    **of_floats(_OF_FLOATS, _CONSTANTS),
}
