"""Lowerings of special functions: I of Bessel, erfcx, digamma, ndtri, made of simpler ones.

Each is an expression of the loop IR, so that both code generators have it. The polynomials are
minimax fits of the relative error, the highest coefficient first.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import torch

from ctk.compiler.lowering.arrays import Array, apply, cast, equal, filled, where
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.operators.promotion import operands
from ctk.compiler.sizes.size_guards import NotLowered

aten = torch.ops.aten

_I0_NEAR = (
    1.531922810822297e-05, 9.709799124323701e-05, 0.0012619932553188304, 0.01099904121987577,
    0.08353166885601918, 0.521840292314826, 2.6419226534326734, 10.567657154353189,
    32.363457219029456, 72.81777772224352, 113.77777778231167, 113.77777777756387,
    64.00000000000503, 15.999999999999956, 1.0,
)  # fmt: skip
"""I0(x) by (x / 8)**2, for |x| <= 8."""

_I1_NEAR = (
    5.008415061412196e-07, 3.5315705001100265e-06, 4.8353870833722925e-05, 0.00045860515373904624,
    0.003796551491840704, 0.026092271218907066, 0.1467733468940588, 0.6604786209459084,
    2.311675503341127, 6.068148145612562, 11.377777778001397, 14.222222222210664,
    10.66666666666697, 3.999999999999997, 0.5,
)  # fmt: skip
"""I1(x) / x, likewise."""

_I0_FAR = (
    -0.00014655581392953858, 0.001415636277046496, -0.006242577098116721, 0.016640897278346122,
    -0.029945937252252135, 0.038501621890008574, -0.03653284969191361, 0.026068200024009173,
    -0.014122032255527455, 0.005819673598037146, -0.0018143040305533236, 0.0004218610910302274,
    -7.09768724577557e-05, 8.578944446924287e-06, 2.8830220283074556e-07, 2.7797651223284463e-06,
    1.0924544083418336e-05, 5.706903931621628e-05, 0.0004382910830274293, 0.006233473131234718,
    0.39894228040143276,
)  # fmt: skip
"""I0(x) * exp(-x) * sqrt(x) by 8 / x, for x >= 8."""

_I1_FAR = (
    0.00015457452747519605, -0.0014974599947246993, 0.006625271211307021, -0.017727921375148052,
    0.03204168876985182, -0.04140718356493939, 0.03952903815930648, -0.02841396767894537,
    0.015533212379508745, -0.0064756273969683465, 0.0020498882028919564, -0.0004868974975807508,
    8.459867213437311e-05, -1.0765032109524925e-05, -2.0395436706346763e-07,
    -3.4134450424810244e-06, -1.404451408582449e-05, -7.989673047573911e-05,
    -0.0007304851355877161, -0.018700419393781788, 0.3989422804014326,
)  # fmt: skip
"""I1, likewise."""

_PSI = (
    -0.017270915254271484, 0.007499546868174489, -0.004165898293345586, 0.003968250010055482,
    -0.00833333332391438, 0.08333333333332586,
)  # fmt: skip
"""(log(x) - 1 / (2 * x) - digamma(x)) * x**2 by x**-2, for x >= 8."""

_ERFCX = (
    -1.381469776741154e-08, -2.4840815260300144e-08, 8.839690626616609e-08,
    2.3310342065358535e-07, -1.2139590691502898e-07, -9.449553290662989e-07,
    -8.587702296852956e-07, 1.5904021855581202e-06, 5.347469056456717e-06, 3.663426849183565e-06,
    -1.355620967977385e-05, -3.64052369437498e-05, -1.4877703154177327e-06,
    0.00015103439167788905, 0.0002063620637901947, -0.00045433998625282523, -0.001456813176549635,
    0.0012713388718942913, 0.008722653807059437, -0.008034015076448678, -0.0542200009888586,
    0.16405128003326253, -0.16603039761534719, -0.09276382658574438, 1.2769783815525289,
)  # fmt: skip
"""erfcx(x) * (1 + 2 * x) by (x - 2) / (x + 2), for x >= 0."""


def polynomial(x: Array, coefficients: Sequence[float]) -> Array:
    """Return a polynomial, the highest coefficient first."""
    total = filled(x, coefficients[0])
    for number in coefficients[1:]:
        total = total * x + number
    return total


def _bessel(order: int, *, scaled: bool) -> Callable[[Builder, Array], Array]:
    """Return the lowering of a modified Bessel function; `scaled` by exp(-|x|)."""

    def lower(_: Builder, x: Array) -> Array:
        (wide,) = operands(x, to_float=True)
        size = apply("abs", wide)
        eighth = size * 0.125
        near = polynomial(eighth * eighth, _I1_NEAR if order else _I0_NEAR)
        over = apply("minimum", 8 / size, filled(size, 1))
        far = polynomial(over, _I1_FAR if order else _I0_FAR) * apply("rsqrt", size)
        if order:
            near, far = near * (wide + 0), apply("copysign", far, wide)  # 0.0 of -0.0
        if scaled:
            return where(size <= 8, near * apply("exp", -size), far)
        half = apply("exp", size * 0.5)  # the whole is infinite a little earlier than the result
        return where(size <= 8, near, far * half * half)  # NaN of infinities, as in eager

    return lower


def _erfcx(_: Builder, x: Array) -> Array:
    (wide,) = operands(x, to_float=True)
    size = apply("abs", wide)
    place = where(equal(size, math.inf), 1.0, (size - 2) / (size + 2))
    near = polynomial(place, _ERFCX) * 0.5 / (size + 0.5)
    return where(wide < 0, apply("exp", wide * wide) * 2 - near, near)


def _digamma(_: Builder, x: Array) -> Array:
    """Shift to 8 and more, where a series converges; reflect numbers below 0."""
    (wide,) = operands(x, to_float=True)
    below = wide < 0
    size = where(below, 1 - wide, wide)
    total = filled(size, 0)
    for _step in range(8):
        more = size < 8
        total = total + where(more, 1 / size, 0.0)
        size = where(more, size + 1, size)
    over = 1 / (size * size)
    result = apply("log", size) - 0.5 / size - over * polynomial(over, _PSI) - total
    whole = apply("round", wide)  # so that the rest is exact
    reflected = result - math.pi / apply("tan", (wide - whole) * math.pi)
    reflected = where(equal(whole - wide, 0), math.nan, reflected)
    result = where(below, where(apply("isinf", wide), math.nan, reflected), result)
    result = where(equal(wide, math.inf), math.inf, result)
    return where(equal(wide, 0), apply("copysign", filled(wide, math.inf), -wide), result)


_NDTRI_CENTRE = (
    2.5958462494618952e-08, 4.769656218001318e-08, -1.004662783164852e-07, -1.8424066407276422e-07,
    2.7346185918090547e-07, 5.024819555890693e-07, -2.5191894157823415e-07, -4.5892288106071924e-07,
    6.517500042327531e-07, 1.2101464860586167e-06, 9.498342703307118e-07, 1.8078345730697176e-06,
    4.261488844597527e-06, 8.114597373713666e-06, 1.5168480366221638e-05, 2.920816465069683e-05,
    5.6711327021881417e-05, 0.00011070121102194084, 0.00021797468862017757, 0.0004338278205642179,
    0.0008747683988118522, 0.0017930590648386003, 0.0037543815396941537, 0.00808978744405727,
    0.018155795859248064, 0.04336306362906847, 0.11522935658073226, 0.38325511733382234,
    2.805404111909714,
)  # fmt: skip
"""ndtri(p) / (p - 1/2) by the square of p - 1/2, as `u` from -1 to 1."""

_NDTRI_TAIL = (
    6.358763863496555e-10, 4.833391151136324e-10, -6.7761016185338815e-09, -1.4342593266088721e-10,
    3.310485506508902e-08, -2.7130525588430143e-08, -8.155522418387188e-08, 1.8492500523048297e-07,
    -2.506572087286318e-08, -5.527011571794375e-07, 1.0938042332797189e-06, -3.871959507581599e-08,
    -4.3111764870366836e-06, 9.690465107773161e-06, -5.745900104326858e-06, -5.865891431296301e-06,
    -0.00012354694833448024, 0.0011593156226169853, -0.005511009922321859, 0.01819656567591805,
    -0.04475423753849843, 0.08209087248453095, -0.10761148920476063, 0.0907879715910991,
    0.9627135761033234,
)  # fmt: skip
"""-ndtri(p) / r by log(r), r = sqrt(-2 * log(p)) from 2.2 to 38.7, as `u` from -1 to 1."""

_CENTRE = 0.18
"""The largest square of p - 1/2 of the polynomial around 1/2."""

_MIDDLE, _HALF = math.log(2.2 * 38.7) / 2, math.log(38.7 / 2.2) / 2
"""Of the logarithms of `r`."""


def in_double(function: Callable[[Array], Array]) -> Callable[[Builder, Array], Array]:
    """Return the lowering of a function that is computed in float64."""

    def lower(_: Builder, x: Array) -> Array:
        (wide,) = operands(x, to_float=True)
        return cast(function(cast(wide, torch.float64)), wide.dtype)

    return lower


def _ndtri(p: Array) -> Array:
    away = p - 0.5
    square = away * away
    near = away * polynomial(square * (2 / _CENTRE) - 1, _NDTRI_CENTRE)
    less = apply("log", where(away < 0, p, 1 - p)) * -2
    place = (apply("log", less) * 0.5 - _MIDDLE) / _HALF
    tail = apply("sqrt", less) * polynomial(place, _NDTRI_TAIL)
    result = where(square <= _CENTRE, near, apply("copysign", tail, away))
    ends = where(equal(p, 0), -math.inf, where(equal(p, 1), math.inf, result))
    return where((p < 0) | (p > 1), math.nan, ends)


_TRIGAMMA = (-3617 / 510, 7 / 6, -691 / 2730, 5 / 66, -1 / 30, 1 / 42, -1 / 30, 1 / 6)
"""Bernoulli's numbers of even order, from 16 to 2."""


def _trigamma(x: Array) -> Array:
    """Shift to 8 and more, where Stirling's series converges; reflect numbers below 1/2."""
    below = x < 0.5
    size = where(below, 1 - x, x)
    total = filled(size, 0)
    for _step in range(8):
        more = size < 8
        total = total + where(more, 1 / (size * size), 0.0)
        size = where(more, size + 1, size)
    over = 1 / size
    square = over * over
    result = total + over * (1 + over * 0.5 + square * polynomial(square, _TRIGAMMA))
    sine = apply("sin", (x - apply("round", x)) * math.pi) / math.pi
    return where(below, 1 / (sine * sine) - result, result)


def _polygamma(b: Builder, order: int, x: Array) -> Array:
    if order == 0:
        return _digamma(b, x)
    if order != 1:
        raise NotLowered(f"derivatives of order {order} take iterations without a bound")
    return in_double(_trigamma)(b, x)


TABLE: Mapping[object, Callable[..., Array]] = {
    aten.digamma.default: _digamma,
    aten.i0.default: _bessel(0, scaled=False),
    aten.polygamma.default: _polygamma,
    aten.special_erfcx.default: _erfcx,
    aten.special_i0e.default: _bessel(0, scaled=True),
    aten.special_i1.default: _bessel(1, scaled=False),
    aten.special_i1e.default: _bessel(1, scaled=True),
    aten.special_modified_bessel_i0.default: _bessel(0, scaled=False),
    aten.special_modified_bessel_i1.default: _bessel(1, scaled=False),
    aten.special_ndtri.default: in_double(_ndtri),
}
