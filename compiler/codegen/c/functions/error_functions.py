"""C functions of the normal distribution: erf, erfc and erfinv."""

from collections.abc import Mapping

from ctk.compiler.codegen.c.function_texts import of_floats, with_polynomials

_SINGLE = {
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
    "erf_small_f32": """\
FN float erf_small_f32(float x) {  // for |x| <= 1/2
    float s = x * x;
    float p = POLYNOMIAL(s, -0.000813001185f, 0.00519990642f, -0.0268589407f, 0.112836875f,
        -0.376126319f, 0.128379166f);
    return fma_f32(p, x, x);
}""",
    "erfc_tail_f32": """\
FN float erfc_tail_f32(float x) {  // erfc(x) for x >= 0
    float t = x > 10.1f ? 10.1f : x;
    float q = (t - 2.0f) / (t + 2.0f);
    // exp(t * t) * erfc(t) * (1 + 2 * t)
    float p = POLYNOMIAL(q, -0.000400573655f, -0.00122992008f, 0.00131352653f, 0.00863167737f,
        -0.00805987976f, -0.0542043f, 0.164055347f, -0.16603142f, -0.0927639827f, 1.27697837f);
    p = p / (1.0f + 2.0f * t);
    float s = t * t, low = fused_f32(t, t, -s);
    float n = rintf(s * -1.44269504f);
    float r = fma_f32(n, -0.693359375f, -s);
    float e = exp_rest_f32(fma_f32(n, 2.12194440e-4f, r) - low) + 1.0f;
    int32_t half = (int32_t)n >> 1, rest = (int32_t)n - half;
    return p * e * power_of_two_f32(half) * power_of_two_f32(rest);
}""",
    # erfinv(x) / x by w = -log(1 - x * x), below 5 and from 5 to 17
    "erfinv_f32": """\
FN float erfinv_f32(float x) {
    float w = -log_f32((1.0f - x) * (1.0f + x)), v = w - 2.5f;
    float p = POLYNOMIAL(v, -8.7905967e-09f, 2.32332162e-08f, 4.66164551e-07f, -3.46271145e-06f,
        -4.96332086e-06f, 0.000218344459f, -0.0012527419f, -0.00417738687f, 0.24664028f,
        1.50140941f);
    v = sqrtf(w) - 3.0f;
    float q = POLYNOMIAL(v, 0.000110099965f, -0.000304365793f, -4.86759673e-05f, 0.0014786562f,
        -0.0036016407f, 0.00568940258f, -0.00763639109f, 0.00944500882f, 1.00167489f, 2.83297682f);
    float result = (w < 5.0f ? p : q) * x;
    return fabsf(x) == 1.0f ? copysignf(INFINITY, x) : result;
}""",
}

_DOUBLE = {
    "erf_small_f64": """\
FN double erf_small_f64(double x) {  // for |x| <= 0.9
    double s = x * x;
    double p = POLYNOMIAL(s, -8.481848081532989e-10, 1.4046051987067642e-08,
        -1.6275478208951088e-07, 1.645521430604184e-06, -1.4925299775969166e-05,
        0.00012055321044332159, -0.000854832675499701, 0.005223977621604924,
        -0.026866170644806852, 0.11283791670953705, -0.37612638903183726, 0.1283791670955126);
    return fma_f64(p, x, x);
}""",
    "erfc_tail_f64": """\
FN double erfc_tail_f64(double x) {  // erfc(x) for x >= 0.45
    double t = x > 27.3 ? 27.3 : x;
    double q = (t - 2.0) / (t + 2.0);
    double p = LONG_POLYNOMIAL(q, -9.328794946107023e-08, 3.781650448954809e-07,
        1.2877272550393597e-07, -1.3064374635981903e-06, -9.486018491527673e-07,
        1.926712222552434e-06, 5.295002578633278e-06, 3.495326243366892e-06,
        -1.3492519956212864e-05, -3.635540509284606e-05, -1.5158898648097519e-06,
        0.000151025507544307, 0.00020636900784265586, -0.0004543390859413534,
        -0.0014568141989881494, 0.0012713388300218667, 0.00872265389410954, -0.00803401507650507,
        -0.054220000992683676, 0.16405128003332164, -0.16603039761528088, -0.09276382658574527,
        1.2769783815525286);
    p = p / (1.0 + 2.0 * t);
    double s = t * t, low = fused_f64(t, t, -s);
    double n = rint(s * -1.4426950408889634);
    double r = fma_f64(n, -0.6931471803691238, -s);
    double e = exp_rest_f64(r, n * -1.9082149292705877e-10 - low) + 1.0;
    return scaled_f64(p * e, n);
}""",
    "erf_f64": """\
FN double erf_f64(double x) {
    double t = fabs(x), large = copysign(1.0 - erfc_tail_f64(t), x);
    return t < 0.9 ? erf_small_f64(x) : large;
}""",
    # erfinv(x) / x by w = -log(1 - x * x), below 6.25, to 16, and to 37
    "erfinv_f64": """\
FN double erfinv_f64(double x) {
    double w = -log_f64((1.0 - x) * (1.0 + x)), v = w - 3.125;
    double p = LONG_POLYNOMIAL(v, -4.325779670028794e-21, -1.6927035135107182e-19,
        1.3223527125340909e-18, 1.1197487594715247e-17, -1.3416093520880095e-16,
        2.009310505496575e-17, 6.648647402024236e-15, -4.0534728538428705e-14,
        -8.160842003507749e-14, 2.6334259836242183e-12, -1.297467099649421e-11,
        -5.415371953160017e-11, 1.0512107358129541e-09, -4.112635189766667e-09,
        -2.9070366777550437e-08, 4.234787804712879e-07, -1.3654692039097611e-06,
        -1.3882523364968942e-05, 0.00018673420803640994, -0.0007407025341652715,
        -0.006033670871430711, 0.24015818242558948, 1.653654562683103);
    double root = sqrt(w);
    v = root - 3.25;
    double q = LONG_POLYNOMIAL(v, 3.223854997124667e-09, 9.087609273484251e-08,
        -2.7773554402579187e-07, 1.7949730716890542e-08, 1.5054459994883078e-06,
        -4.01357811203136e-06, 2.9219043849572224e-06, 1.2475151233392972e-05,
        -4.731771804435629e-05, 6.828489764844227e-05, 2.4031010896067998e-05,
        -0.0003550375282531353, 0.0009532893906099238, -0.0016882755553097792,
        0.0024914420955133893, -0.003751208507598145, 0.005370914553602558,
        1.0052589676941597, 3.0838856104922203);
    v = root - 5.0;
    double r = LONG_POLYNOMIAL(v, 3.2169906186715325e-11, -2.6216502015940877e-11,
        -3.9207542315221985e-10, 1.5046590773631861e-09, -3.550628642126239e-09,
        7.61966497079951e-09, -1.518212703599862e-08, 2.914532257608461e-08,
        -6.759411262943395e-08, 2.2900575179424737e-07, -9.930183218701416e-07,
        4.5260624244231275e-06, -1.9681772387199345e-05, 7.599527704602922e-05,
        -0.00021503011971465817, -0.00013871931833687616, 1.0103004648645433,
        4.849906401408584);
    double result = (w < 6.25 ? p : w < 16.0 ? q : r) * x;
    return fabs(x) == 1.0 ? copysign(INFINITY, x) : result;
}""",
}

_OF_FLOATS = {
    "erfc": """\
FN T erfc_X(T x) {
    T t = fabsF(x), tail = erfc_tail_X(t);
    T large = x < 0 ? 2 - tail : tail;
    return t < (T)0.5 ? 1 - erf_small_X(x) : large;
}""",
}

ERROR_FUNCTIONS: Mapping[str, str] = {
    **with_polynomials(_SINGLE),
    **with_polynomials(_DOUBLE),
    **of_floats(_OF_FLOATS),
}
