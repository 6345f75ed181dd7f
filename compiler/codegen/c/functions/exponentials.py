"""C functions made of exponentials: exp and its kin, and hyperbolic functions.

The exponents of float64 are handled as numbers: AVX2 cannot convert integers of 64 bits.
"""

from collections.abc import Mapping

import torch

from ctk.compiler.codegen.c.function_texts import of_floats, with_polynomials

_SINGLE = {
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
    "half_exp_f32": """\
FN float half_exp_f32(float x) {  // exp(x) / 2 for x >= 0, which is finite a little longer
    float y = x > 90.0f ? 90.0f : x;
    float n = rintf(y * 1.44269504f);
    float r = fma_f32(n, -0.693359375f, y);
    float e = exp_rest_f32(fma_f32(n, 2.12194440e-4f, r)) + 1.0f;
    int32_t power = (int32_t)n - 1, half = power >> 1;
    return e * power_of_two_f32(half) * power_of_two_f32(power - half);
}""",
    "exp_of_negative_f32": """\
FN float exp_of_negative_f32(float x) {  // exp(x) for -104 <= x <= 0
    float n = rintf(x * 1.44269504f);
    float r = fma_f32(n, -0.693359375f, x);
    float e = exp_rest_f32(fma_f32(n, 2.12194440e-4f, r)) + 1.0f;
    int32_t half = (int32_t)n >> 1, rest = (int32_t)n - half;
    return e * power_of_two_f32(half) * power_of_two_f32(rest);
}""",
    "sinh_rest_f32": """\
FN float sinh_rest_f32(float s) {  // (sinh(r) / r - 1) / s for |r| <= 1, s = r * r
    return POLYNOMIAL(s, 2.81694133e-06f, 0.000198361624f, 0.0083333496f, 0.166666672f);
}""",
}

_DOUBLE = {
    "power_of_two_f64": """\
FN double power_of_two_f64(double n) {  // for a whole n from -1022 to 1023
    return number_of_f64(bits_of_f64(n + (0x1.8p52 + 1023)) << 52);
}""",
    "scaled_f64": """\
FN double scaled_f64(double x, double n) {  // x * 2**n, also where 2**n is not a normal number
    double half = rint(n * 0.5);
    return x * power_of_two_f64(half) * power_of_two_f64(n - half);
}""",
    "exp_rest_f64": """\
FN double exp_rest_f64(double high, double low) {  // exp(high + low) - 1; the sum <= log(2) / 2
    double r = high + low;
    double p = POLYNOMIAL(r, 2.082653089147195e-09, 2.511237121686395e-08, 2.755758406365432e-07,
        2.75572339180904e-06, 2.4801586921402323e-05, 0.00019841269897311493,
        0.0013888888889119983, 0.008333333333316668, 0.04166666666666608, 0.16666666666666685, 0.5);
    return high + fma_f64(p, r * r, low);
}""",
    "exp_f64": """\
FN double exp_f64(double x) {
    double y = x > 710.0 ? 710.0 : x;
    y = x < -746.0 ? 0.0 : y;
    double n = rint(y * 1.4426950408889634);
    double r = fma_f64(n, -0.6931471803691238, y);
    double e = exp_rest_f64(r, n * -1.9082149292705877e-10) + 1.0;
    return x < -746.0 ? 0.0 : scaled_f64(e, n);
}""",
    "exp2_f64": """\
FN double exp2_f64(double x) {
    double y = x > 1025.0 ? 1025.0 : x;
    y = x < -1076.0 ? 0.0 : y;
    double n = rint(y), r = y - n;
    // (2**r - 1) / r for |r| <= 1/2
    double p = POLYNOMIAL(r, 4.4572445709917163e-10, 7.073864081050354e-09,
        1.0178047342484676e-07, 1.3215434795981777e-06, 1.5252733865579686e-05,
        0.00015403530458117694, 0.0013333558146380927, 0.009618129107593305,
        0.055504108664821736, 0.24022650695910133, 0.6931471805599453);
    double e = fma_f64(p, r, 1.0);
    return x < -1076.0 ? 0.0 : scaled_f64(e, n);
}""",
    "expm1_f64": """\
FN double expm1_f64(double x) {
    double y = x > 710.0 ? 710.0 : x;
    y = y < -60.0 ? -60.0 : y;
    double n = rint(y * 1.4426950408889634);
    double r = fma_f64(n, -0.6931471803691238, y);
    double half = power_of_two_f64(n - 1.0);
    double e = exp_rest_f64(r, n * -1.9082149292705877e-10);
    return x == 0 ? x : 2.0 * fma_f64(half, e, half - 0.5);
}""",
    "half_exp_f64": """\
FN double half_exp_f64(double x) {
    double y = x > 712.0 ? 712.0 : x;
    double n = rint(y * 1.4426950408889634);
    double r = fma_f64(n, -0.6931471803691238, y);
    return scaled_f64(exp_rest_f64(r, n * -1.9082149292705877e-10) + 1.0, n - 1.0);
}""",
    "exp_of_negative_f64": """\
FN double exp_of_negative_f64(double x) {  // for -746 <= x <= 0
    double n = rint(x * 1.4426950408889634);
    double r = fma_f64(n, -0.6931471803691238, x);
    return scaled_f64(exp_rest_f64(r, n * -1.9082149292705877e-10) + 1.0, n);
}""",
    "sinh_rest_f64": """\
FN double sinh_rest_f64(double s) {
    return POLYNOMIAL(s, 7.758736926650216e-13, 1.605726028286301e-10, 2.5052123128301524e-08,
        2.755731915713764e-06, 0.0001984126984143162, 0.008333333333333148, 0.16666666666666669);
}""",
}

_OF_FLOATS = {
    "fma": """\
FN T fma_X(T a, T b, T c) {
#if defined __FMA__ || defined __ARM_FEATURE_FMA
    return __builtin_fmaF(a, b, c);
#else
    return a * b + c;
#endif
}""",
    "tanh": """\
FN T tanh_X(T x) {
    T e = expm1_X(-2 * fabsF(x));
    return copysignF(-e / (e + 2), x);
}""",
    "sinh": """\
FN T sinh_X(T x) {
    T t = fabsF(x), s = t * t, half = half_exp_X(t);
    T small = fma_X(t * s, sinh_rest_X(s), t);
    return copysignF(t < 1 ? small : half - (T)0.25 / half, x);
}""",
    "cosh": """\
FN T cosh_X(T x) {
    T half = half_exp_X(fabsF(x));
    return half + (T)0.25 / half;
}""",
    "sigmoid": """\
FN T sigmoid_X(T x) {
    T y = -fabsF(x), e = exp_of_negative_X(y < LEAST ? LEAST : y);
    return (x < 0 ? e : (T)1) / (1 + e);
}""",
}

_CONSTANTS = {torch.float32: {"LEAST": "-104.0f"}, torch.float64: {"LEAST": "-746.0"}}

_FUSED = {
    "fused_f32": """\
FN float fused_f32(float a, float b, float c) {  // of one rounding wherever the product is close
#if defined __FMA__ || defined __ARM_FEATURE_FMA
    return __builtin_fmaf(a, b, c);
#else
    return (float)((double)a * b + c);
#endif
}""",
    "fused_f64": """\
FN double fused_f64(double a, double b, double c) { return __builtin_fma(a, b, c); }""",
}

EXPONENTIALS: Mapping[str, str] = {
    **of_floats(_OF_FLOATS, _CONSTANTS),
    **_FUSED,
    **with_polynomials(_SINGLE),
    **with_polynomials(_DOUBLE),
}
