"""C functions made of the gamma function, computed in float64."""

from collections.abc import Mapping

from ctk.compiler.codegen.c.function_texts import with_polynomials

_STEP = """
    more = y >= 3.0;
    y = more ? y - 1.0 : y;
    product = more ? product * y : product;"""

_DOUBLE = {
    "sin_pi_f64": """\
FN double sin_pi_f64(double x) {  // |sin(pi * x)|
    double r = x - rint(x), s = r * r;
    return fabs(r * POLYNOMIAL(s, 7.694729625128113e-07, -2.190318568017217e-05,
        0.00046629968889358653, -0.007370430478792083, 0.08214588656989676, -0.5992645293187385,
        2.550164039877294, -5.167712780049969, 3.141592653589793));
}""",
    # lgamma(y) / ((y - 1) * (y - 2)) for 1 <= y <= 3, by y - 2
    "lgamma_rest_f64": """\
FN double lgamma_rest_f64(double v) {
    return LONG_POLYNOMIAL(v, 4.2575855929542103e-10, -8.193378342837133e-10,
        -1.3984596417071415e-09, 2.4716761787990428e-09, 4.954360588664622e-09,
        -8.958771691801402e-09, -8.087863182636936e-10,
        -7.742340332311797e-10, 2.6305238809598326e-08,
        -5.205215650838148e-08, 8.741213882546286e-08, -1.8612111571311526e-07,
        4.0559067163783637e-07, -8.554873313735253e-07, 1.8074485311592437e-06,
        -3.846512134832039e-06, 8.222350649324516e-06, -1.7661856013509478e-05,
        3.816886221680375e-05, -8.309509985558942e-05, 0.00018255264205082377,
        -0.00040570739994836294, 0.0009153769220552241, -0.0021081308338285623,
        0.004998641164704088, -0.01238419219337437, 0.03296500062115573, -0.1003173016743539,
        0.42278433509846713);
}""",
    "lgamma_rest_of_large_f64": """\
FN double lgamma_rest_of_large_f64(double z, double log) {  // Stirling's series for z >= 8
    double over = 1.0 / z;
    double w = over * over;
    double p = POLYNOMIAL(w, -0.0016395623747397954, 0.0008367337700263822,
        -0.000595194236181501, 0.000793650610163265, -0.002777777777464477, 0.0833333333333332);
    return ((z - 0.5) * (log - 1.0) - 0.5) + (p * over + 0.9189385332046728);
}""",
    "lgamma_f64": f"""\
FN double lgamma_f64(double x) {{
    double a = fabs(x), product = 1.0, y = a, minus = a - 1.0;
    bool more;{_STEP * 5}  // from below 8 to below 3
    bool low = a < 1.0, large = a >= 8.0;
    double less = low ? a : y - 1.0, least = low ? minus : y - 2.0;
    double rest = less * least * lgamma_rest_f64(least);  // of lgamma(1 + a), if it is low
    double log = log_f64(large || low ? a : product);
    double result = rest + (low ? -log : log);
    result = large ? lgamma_rest_of_large_f64(a, log) : result;
    double sine = sin_pi_f64(a) * 0.3183098861837907 * (low ? 1.0 : a);
    double mirrored = -log_f64(sine) - (low ? rest : result);
    result = x < 0 ? mirrored : result;
    bool far = a > 2.5563481638716906e+305;  // infinite from here on in C's libraries
    return far || (x < 0 && sine == 0) ? INFINITY : result;
}}""",
    "lgamma_f32": "FN float lgamma_f32(float x) { return (float)lgamma_f64(x); }",
}

GAMMAS: Mapping[str, str] = with_polynomials(_DOUBLE)
