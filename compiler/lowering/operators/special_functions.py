"""Lowerings of special functions: of Bessel, of erfcx and of digamma, made of simpler ones.

Each is an expression of the loop IR, so that both code generators have it. The polynomials are
minimax fits of the relative error, the highest coefficient first.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import torch

from ctk.compiler.lowering.arrays import Array, apply, equal, filled, where
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.operators.promotion import operands

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


def _polynomial(x: Array, coefficients: Sequence[float]) -> Array:
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
        near = _polynomial(eighth * eighth, _I1_NEAR if order else _I0_NEAR)
        over = apply("minimum", 8 / size, filled(size, 1))
        far = _polynomial(over, _I1_FAR if order else _I0_FAR) * apply("rsqrt", size)
        if order:
            near, far = near * wide, apply("copysign", far, wide)
        if scaled:
            return where(size <= 8, near * apply("exp", -size), far)
        half = apply("exp", size * 0.5)  # the whole is infinite a little earlier than the result
        return where(size <= 8, near, far * half * half)  # NaN of infinities, as in eager

    return lower


def _erfcx(_: Builder, x: Array) -> Array:
    (wide,) = operands(x, to_float=True)
    size = apply("abs", wide)
    place = where(equal(size, math.inf), 1.0, (size - 2) / (size + 2))
    near = _polynomial(place, _ERFCX) / (1 + size * 2)
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
    result = apply("log", size) - 0.5 / size - over * _polynomial(over, _PSI) - total
    whole = apply("trunc", wide)
    reflected = result - math.pi / apply("tan", (wide - whole) * math.pi)
    reflected = where(equal(whole - wide, 0), math.nan, reflected)
    result = where(below, where(apply("isinf", wide), math.nan, reflected), result)
    result = where(equal(wide, math.inf), math.inf, result)
    return where(equal(wide, 0), apply("copysign", filled(wide, math.inf), -wide), result)


TABLE: Mapping[object, Callable[..., Array]] = {
    aten.digamma.default: _digamma,
    aten.i0.default: _bessel(0, scaled=False),
    aten.special_erfcx.default: _erfcx,
    aten.special_i0e.default: _bessel(0, scaled=True),
    aten.special_i1.default: _bessel(1, scaled=False),
    aten.special_i1e.default: _bessel(1, scaled=True),
    aten.special_modified_bessel_i0.default: _bessel(0, scaled=False),
    aten.special_modified_bessel_i1.default: _bessel(1, scaled=False),
}
