"""C functions of angles: sin, cos, tan, and their inverses."""

from collections.abc import Mapping

import torch

from ctk.compiler.codegen.c.function_texts import of_floats, rare_case, with_polynomials

_POLYNOMIALS = {
    # pi/2 in three parts; products of n with each are exact in a fused operation
    "rest_of_turn_f32": """\
FN float rest_of_turn_f32(float x, float n) {  // x - n * pi/2
    float r = fused_f32(-n, 1.57079637f, x);
    r = fused_f32(n, 4.37113883e-08f, r);
    return fused_f32(n, 1.71512451e-15f, r);
}""",
    "rest_of_turn_f64": """\
FN double rest_of_turn_f64(double x, double n) {
    double r = fused_f64(-n, 1.5707963267948966, x);
    r = fused_f64(-n, 6.123233995736766e-17, r);
    return fused_f64(n, 1.4973849048591833e-33, r);
}""",
    # (sin(r) / r - 1) / s for |r| <= pi/2 and a little more, s = r * r
    "sin_rest_f32": """\
FN float sin_rest_f32(float s) {
    return POLYNOMIAL(s, -2.38422757e-08f, 2.7522749e-06f, -0.000198408175f, 0.00833333097f,
        -0.166666672f);
}""",
    "sin_rest_f64": """\
FN double sin_rest_f64(double s) {
    return POLYNOMIAL(s, 2.717540092443303e-15, -7.642646555101846e-13, 1.6058926477238137e-10,
        -2.5052106610485983e-08, 2.755731920828576e-06, -0.00019841269841192684,
        0.00833333333333315, -0.16666666666666666);
}""",
    # (tan(r) / r - 1) / s for |r| <= pi/4
    "tan_rest_f32": """\
FN float tan_rest_f32(float s) {
    return POLYNOMIAL(s, 0.00437577209f, 9.07278954e-05f, 0.0108347256f, 0.0212826654f,
        0.0540598147f, 0.13332665f, 0.333333492f);
}""",
    "tan_rest_f64": """\
FN double tan_rest_f64(double s) {
    return LONG_POLYNOMIAL(s, 1.007504715781696e-05, -2.551280221546784e-05, 5.113407353023875e-05,
        -2.862247444228655e-05, 6.958183151752019e-05, 8.226443979801899e-05,
        0.00024425665522657643, 0.0005887228023598682, 0.0014560739715571169,
        0.0035920968766849186, 0.008863238306273363, 0.02186948837556658, 0.053968253973771495,
        0.13333333333323744, 0.3333333333333339);
}""",
    # (asin(r) / r - 1) / s for |r| <= 1/2
    "asin_rest_f32": """\
FN float asin_rest_f32(float s) {
    return POLYNOMIAL(s, 0.0375170186f, 0.0144386599f, 0.0318075679f, 0.0445169881f,
        0.0750050396f, 0.166666597f);
}""",
    "asin_rest_f64": """\
FN double asin_rest_f64(double s) {
    return POLYNOMIAL(s, 0.03262852553301108, -0.020998836424694634, 0.02170724151201629,
        0.003706509895049012, 0.010780222540657894, 0.011398917975385364, 0.013980819848550693,
        0.017351612066277035, 0.022372214985424754, 0.030381942707818337, 0.044642857174612666,
        0.07499999999970797, 0.1666666666666676);
}""",
    # (atan(r) / r - 1) / s for |r| <= 1
    "atan_rest_f32": """\
FN float atan_rest_f32(float s) {
    return POLYNOMIAL(s, 0.00111388054f, -0.00731843896f, 0.0225409456f, -0.0446912795f,
        0.0674169734f, -0.0881113708f, 0.110582367f, -0.142798349f, 0.19999671f, -0.333333284f);
}""",
    "atan_rest_f64": """\
FN double atan_rest_f64(double s) {
    return POLYNOMIAL(s, 1.3223963340050756e-05, -0.00015215024154736133, 0.000831275225353947,
        -0.002884793942887407, 0.007196277287685218, -0.013900265897743578, 0.021984570226710784,
        -0.02990365455967466, 0.036641801079142944, -0.0421917461216647, 0.04722321019950461,
        -0.05253518358945635, 0.05880527813560202, -0.0666640406612329, 0.0769227984167546,
        -0.09090907003342663, 0.11111111007057006, -0.14285714282576664, 0.19999999999951498,
        -0.3333333333333307);
}""",
}

_OF_FLOATS = {
    "wave": """\
FN T wave_X(T r, T n) {  // sin(r + n * pi)
    T s = r * r, p = fma_X(sin_rest_X(s) * s, r, r);
    I sign = bits_of_X(n + WHOLE) << (WIDTH - 1);
    return number_of_X(bits_of_X(p) ^ sign);
}""",
    "sin": """\
FN T sin_X(T x) {
    T n = fma_X(x, (T)0.3183098861837907, WHOLE) - WHOLE;
    T wave = wave_X(rest_of_turn_X(x, 2 * n), n);
    return sin_of_large_X(x, x == 0 ? x : wave);
}""",
    "cos": """\
FN T cos_X(T x) {  // sin(x + pi/2)
    T n = fma_X(x, (T)0.3183098861837907, (T)0.5);
    n = (n + WHOLE) - WHOLE;
    return cos_of_large_X(x, wave_X(rest_of_turn_X(x, 2 * n - 1), n));
}""",
    "tan": """\
FN T tan_X(T x) {
    T n = rintF(x * (T)0.6366197723675814);
    T r = rest_of_turn_X(x, n), s = r * r;
    T p = fma_X(tan_rest_X(s) * s, r, r);
    T slope = (I)n & 1 ? -1 / p : p;
    return tan_of_large_X(x, x == 0 ? x : slope);
}""",
    "asin": """\
FN T asin_X(T x) {
    T t = fabsF(x);
    bool small = t < (T)0.5;
    T s = small ? t * t : (1 - t) * (T)0.5, r = small ? t : sqrtF(s);
    T y = fma_X(r * s, asin_rest_X(s), r);
    T large = PI_2 - (2 * y - PI_2_REST);
    return copysignF(small ? y : large, x);
}""",
    "acos": """\
FN T acos_X(T x) {
    T t = fabsF(x);
    bool small = t < (T)0.5;
    T s = small ? x * x : (1 - t) * (T)0.5, r = small ? x : sqrtF(s);
    T y = fma_X(r * s, asin_rest_X(s), r);
    T far = 2 * (PI_2 - (y - PI_2_REST));
    T large = x < 0 ? far : 2 * y;
    return small ? PI_2 - (y - PI_2_REST) : large;
}""",
    "atan": """\
FN T atan_X(T x) {
    T t = fabsF(x);
    bool steep = t > 1;
    T z = steep ? 1 / t : t, s = z * z;
    T y = fma_X(z * s, atan_rest_X(s), z);
    return copysignF(steep ? PI_2 - (y - PI_2_REST) : y, x);
}""",
    "atan2": """\
FN T atan2_X(T y, T x) {
    T a = fabsF(x), b = fabsF(y);
    bool steep = b > a;
    T low = steep ? a : b, high = steep ? b : a;
    T z = low == high ? (T)1 : low / high;  // also of infinities, and of zeros
    z = high == 0 ? (T)0 : z;
    T s = z * z;
    T angle = fma_X(z * s, atan_rest_X(s), z);
    angle = steep ? PI_2 - (angle - PI_2_REST) : angle;
    angle = signbit_X(x) ? 2 * (PI_2 - (angle * (T)0.5 - PI_2_REST)) : angle;
    return x != x || y != y ? (T)NAN : copysignF(angle, y);
}""",
}
"""`PI_2` is pi/2 in the type, `PI_2_REST` the rest of it; adding `WHOLE` leaves whole numbers."""

_CONSTANTS = {
    torch.float32: {"PI_2": "1.57079637f", "PI_2_REST": "-4.37113883e-08f", "WHOLE": "0x1.8p23f"},
    torch.float64: {
        "PI_2": "1.5707963267948966", "PI_2_REST": "6.123233995736766e-17", "WHOLE": "0x1.8p52",
    },
}  # fmt: skip


def _of_large() -> dict[str, str]:
    """Return the cases in which the quarters of a turn are too many for three parts of pi/2."""
    made: dict[str, str] = {}
    for dtype, suffix, end, limit in (
        (torch.float32, "f32", "f", "0x1p17f"),
        (torch.float64, "f64", "", "0x1p27"),
    ):
        for name in ("sin", "cos", "tan"):
            key = f"{name}_of_large_{suffix}"
            slow = f"{name}{end}(x)"
            made[key] = rare_case(key, dtype, "x", usual=f"ABS(x) < {limit}", slow=slow)
    return made


TRIGONOMETRY: Mapping[str, str] = {
    **with_polynomials(_POLYNOMIALS),
    **of_floats(_OF_FLOATS, _CONSTANTS),
    **_of_large(),
}
