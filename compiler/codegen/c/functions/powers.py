"""C functions of powers.

A power is 2 to the product of y and log2(|x|), which has to be more precise than the result: a
double in float32, two doubles in float64.
"""

from collections.abc import Mapping

from ctk.compiler.codegen.c.function_texts import of_floats, with_polynomials

_SINGLE = {
    "log2_magnitude_f32": """\
FN double log2_magnitude_f32(float x) {  // log2(x) for x >= 0, to 33 bits
    float y = normal_f32(x);
    double f = (double)fraction_f32(y);
    double n = (double)((float)exponent_f32(y) - (x < 0x1p-126f ? 24.0f : 0.0f));
    double p = POLYNOMIAL(f, -0.08633883904168446, 0.15486555166178384, -0.15699164610486432,
        0.159001052599785, -0.1790452615718435, 0.20609616633495245, -0.24050428509530977,
        0.28854065118065253, -0.36067279772941463, 0.48089832058128257, -0.7213475252332058,
        1.4426950409397403);
    return fma_f64(p, f, n);
}""",
    "magnitude_f32": """\
FN float magnitude_f32(float x, float y) {  // x**y for x >= 0
    float special = x == 0 ? -INFINITY : x;  // its logarithm, if it is one
    double log = x > 0 && x < INFINITY ? log2_magnitude_f32(x) : (double)special;
    double t = (double)y * log;
    t = t > 200.0 ? 200.0 : t;
    t = t < -200.0 ? -200.0 : t;
    double n = rint(t);
    float r = (float)(t - n);
    float p = POLYNOMIAL(r, 0.000153457047f, 0.00133999379f, 0.00961848907f, 0.0555032864f,
        0.240226462f, 0.693147182f, 1.0f);
    int32_t power = (int32_t)n, half = power >> 1;
    return p * power_of_two_f32(half) * power_of_two_f32(power - half);
}""",
}

_DOUBLE = {
    "magnitude_f64": """\
FN double magnitude_f64(double x, double y) {
    double number = normal_f64(x), whole = exponent_f64(number);
    double f = fraction_f64(number, whole), n = whole - (x < 0x1p-1022 ? 54.0 : 0.0);
    // log(1 + f) = 2 * atanh(s) = 2 * s * (1 + u), s = f / (2 + f), w = s * s; all of two doubles
    double high = 2.0 + f, low = f - (high - 2.0), s = f / high;
    double s_low = (fused_f64(-s, high, f) - s * low) / high;
    double w = s * s, w_low = fma_f64(2.0 * s, s_low, fused_f64(s, s, -w));
    double p = POLYNOMIAL(w, 0.06598411242641021, 0.06628384602671071, 0.0769337959345847,
        0.09090892166230857, 0.11111111260124076, 0.14285714285049084, 0.20000000000001128);
    double third = w * 0.3333333333333333;
    double third_low = fused_f64(w, 0.3333333333333333, -third) + w * 1.850371707708594e-17;
    double u_low = fma_f64(w_low, 0.3333333333333333, fma_f64(p * w, w, third_low));
    double u = third + u_low;
    u_low = (third - u) + u_low;
    double product = s * u;
    double rest = fused_f64(s, u, -product) + fma_f64(s, u_low, fma_f64(s_low, u, s_low));
    double log = s + product;
    rest = ((s - log) + product) + rest;
    // times 2 / log(2), and n more
    double two = log * 2.8853900817779268, two_low = fused_f64(log, 2.8853900817779268, -two);
    two_low = fma_f64(log, 4.071054748191003e-17, fma_f64(rest, 2.8853900817779268, two_low));
    double sum = n + two, part = sum - n;
    double sum_low = (n - (sum - part)) + (two - part) + two_low;
    double special = x == 0 ? -INFINITY : x;
    bool usual = x > 0 && x < INFINITY;
    double t = y * (usual ? sum : special), t_low = fused_f64(y, sum, -t) + y * sum_low;
    bool far = !(fabs(t) < 1100.0);
    t_low = far || !usual ? 0.0 : t_low;
    t = t > 1100.0 ? 1100.0 : t;
    t = t < -1100.0 ? -1100.0 : t;
    double power = rint(t), r = t - power, scaled = r * 0.6931471805599453;
    double scaled_low = fused_f64(r, 0.6931471805599453, -scaled);
    scaled_low += fma_f64(r, 2.3190468138462996e-17, t_low * 0.6931471805599453);
    return scaled_f64(exp_rest_f64(scaled, scaled_low) + 1.0, power);
}""",
}

_OF_FLOATS = {
    "pow": """\
FN T pow_X(T x, T y) {
    T a = fabsF(x), size = magnitude_X(a, y), half = y * (T)0.5;
    size = (a == 1 && y == y) || y == 0 ? (T)1 : size;
    bool whole = rintF(y) == y, odd = whole && rintF(half) != half;
    T result = signbit_X(x) && odd ? -size : size;
    result = x < 0 && a < INFINITY && !whole ? (T)NAN : result;
    return x == 1 || y == 0 ? (T)1 : result;
}""",
}

POWERS: Mapping[str, str] = {
    **with_polynomials(_SINGLE),
    **with_polynomials(_DOUBLE),
    **of_floats(_OF_FLOATS),
}
