"""Lowerings of Bessel functions of orders 0 and 1: J, Y, and modified ones of the second kind.

K is computed in float64. Near 0 each function is a power series, of which a polynomial of
`u` from -1 to 1 is the interpolant at Chebyshev's nodes, the highest coefficient first:

    |x| <= 8    J by u = x**2 / 32 - 1;  Y(x) = 2/pi * log(x) * J(x) + a power series
    x <= 2      K(x) = -log(x) * I0(x) + a power series, by u = x**2 / 2 - 1; likewise of order 1
    x > 8       J + i*Y = sqrt(2/(pi*x)) * (P + i*Q) * exp(i*(x - pi/4)), P and Q by 64 / x**2
    x > 2       K = exp(-x) / sqrt(x) * a polynomial of 4 / x - 1

Source: G. N. Watson, "A Treatise on the Theory of Bessel Functions" (1922), 3.51, 7.3 and 7.34. The
coefficients were computed with mpmath in 40 digits.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import torch

from ctk.compiler.lowering.arrays import Array, apply, equal, where
from ctk.compiler.lowering.builder import Builder
from ctk.compiler.lowering.operators.promotion import operands
from ctk.compiler.lowering.operators.special_functions import in_double, polynomial

aten = torch.ops.aten

_J0_NEAR = (
    -1.2430166156640003e-11, 3.3794624520643e-10, -7.91533375368561e-09, 1.595584886623164e-07,
    -2.717749207626176e-06, 3.8473200057927604e-05, -0.0004435459224433769, 0.00405807898810883,
    -0.028472718610877044, 0.14598884856785535, -0.507468045847101, 1.0383794611436883,
    -0.8080888076696872, -0.6484692830871821, 0.9303012472958572, 0.045829664859813754,
)  # fmt: skip
"""J0(x)."""

_J1_NEAR = (
    1.1655948480687432e-11, -2.9580307437711144e-10, 6.431200760749394e-09, -1.1966856617233235e-07,
    1.8684525891685077e-06, -2.4045750380319615e-05, 0.0002494945813696478, -0.0020290394938667204,
    0.012456814392259903, -0.05474581821299503, 0.15858376432721896, -0.2595948652859166,
    0.15151665143806634, 0.08105866038589758, -0.05814382795599107,
)  # fmt: skip
"""J1(x) / x."""

_Y0_NEAR = (
    2.6920542955933077e-11, -7.165821502826742e-10, 1.6390898995460987e-08, -3.218450385303195e-07,
    5.321318774428052e-06, -7.279542368640505e-05, 0.000806158605989114, -0.007025741054992014,
    0.046367047681363883, -0.21895747096229637, 0.6721770783431702, -1.077547733821527,
    0.14412632369302453, 1.6470964788745432, -0.8284358903604587, -0.38225065445942497,
)  # fmt: skip
"""The power series in Y0."""

_Y1_NEAR = (
    -2.4988577614316527e-11, 6.20253757466557e-10, -1.3153170949282465e-08, 2.3804437685357146e-07,
    -3.6009999901654023e-06, 4.46743338903403e-05, -0.0004438173434641223, 0.0034224907383791177,
    -0.019628756833109374, 0.07854786922274865, -0.19639839859930333, 0.2350720920666676,
    0.02336757172099356, -0.24337743079193033, 0.07075985882118005,
)  # fmt: skip
"""The power series in Y1, divided by x."""

_P0 = (
    -9.956789357075715e-14, 3.4522133160706755e-13, -1.0238327024264009e-12, 4.674986189266031e-12,
    -2.490341621088381e-11, 1.5506348898107537e-10, -1.212113319927827e-09, 1.2803747958820875e-08,
    -2.052744819908975e-07, 6.13741608125692e-06, -0.000536367319212998, 0.9994572757882519,
)  # fmt: skip
"""P of order 0."""

_Q0 = (
    9.575735875005847e-14, -3.119994376116503e-13, 8.259713596314508e-13, -3.4904977440952908e-12,
    1.7051726884410257e-11, -9.475742351179434e-11, 6.432736726927442e-10, -5.6687032442267705e-09,
    7.106214898484435e-08, -1.4771388337607956e-06, 6.833149099343349e-05, -0.015555113879513503,
)  # fmt: skip
"""Q of order 0, times x / 8."""

_P1 = (
    1.0611465423215105e-13, -3.6942891113569033e-13, 1.104039648785332e-12, -5.072230977922283e-12,
    2.722599260495964e-11, -1.7137215568191013e-10, 1.360300632416571e-09, -1.4708498675907175e-08,
    2.4536766267949663e-07, -7.959694699656698e-06, 0.0008988049416705508, 1.0009070262780821,
)  # fmt: skip
"""P of order 1."""

_Q1 = (
    -1.0179381589087164e-13, 3.3289005448364253e-13, -8.87712379064879e-13, 3.771644965774865e-12,
    -1.8544350761823707e-11, 1.0400745817311543e-10, -7.151057862334875e-10, 6.420118927317563e-09,
    -8.291960750207848e-08, 1.821201852408518e-06, -9.621458822053857e-05, 0.04677687402744896,
)  # fmt: skip
"""Q of order 1, times x / 8."""

_K0_NEAR = (
    4.5993422748786554e-14, 7.213074766934886e-12, 8.891855792457129e-10, 8.336543759122932e-08,
    5.68865584835544e-06, 0.00026585892882551336, 0.00777646646981443, 0.12278562011464675,
    0.7812430851107339, 0.7819051943679178,
)  # fmt: skip
"""The power series in K0."""

_K1_NEAR = (
    -8.170324436882606e-13, -1.1369957494530444e-10, -1.2236673038740619e-08,
    -9.804715715219704e-07, -5.552936475297619e-05, -0.002063937303273545, -0.0448571051438524,
    -0.4642114109164199, -1.4177669225239864, 0.003596759534882721,
)  # fmt: skip
"""That in K1, times x."""

_I0_SMALL = (
    2.5398597955004694e-12, 3.2735986570875457e-10, 3.2362273562568426e-08, 2.357578961582825e-06,
    0.00011982068581631985, 0.003928565105644117, 0.07358986836105336, 0.635861728156068,
    1.5660829297563506,
)  # fmt: skip
"""I0(x)."""

_I1_SMALL = (
    1.403255002995983e-13, 2.031922759155545e-11, 2.2912734906951697e-09, 1.9417364085156952e-07,
    1.1787894939468833e-05, 0.00047928274326549763, 0.011785695316910426, 0.14717973672210669,
    0.6358617281560686,
)  # fmt: skip
"""I1(x) / x."""

_K0_FAR = (
    9.815402008859526e-11, -1.7415792636713548e-10, -2.511583623750801e-10, 4.297822831935991e-10,
    6.696909677353191e-10, -1.2154646925329214e-09, 2.3928247577454007e-10, -6.909445532095268e-10,
    3.649704196745876e-09, -8.004851515961861e-09, 1.713185600678902e-08, -4.106658027115221e-08,
    1.0292557328065749e-07, -2.6897300718519323e-07, 7.427862249156294e-07, -2.191167925216506e-06,
    7.002244891192467e-06, -2.4735205374482363e-05, 9.95605474680701e-05, -0.00047976905673534966,
    0.003032891810274143, -0.031071461824889863, 1.2185953385133905,
)  # fmt: skip
"""K0(x) * exp(x) * sqrt(x)."""

_K1_FAR = (
    -1.0724391572705258e-10, 1.9076899650576552e-10, 2.7260400995214217e-10, -4.671582670762342e-10,
    -7.347807544194839e-10, 1.3385849977465314e-09, -2.915889725458638e-10, 8.254002611298962e-10,
    -4.159564044495663e-09, 9.191838293612963e-09, -1.990916912542139e-08, 4.8165011477502914e-08,
    -1.2200063909110853e-07, 3.230534911986308e-07, -9.067153917791994e-07, 2.7300306911646126e-06,
    -8.961206568008175e-06, 3.2843866443823695e-05, -0.0001395902196146278, 0.0007357241548745106,
    -0.005566729880073309, 0.1033497377538656, 1.363151890371342,
)  # fmt: skip
"""K1 likewise."""

_J_NEAR, _Y_NEAR = (_J0_NEAR, _J1_NEAR), (_Y0_NEAR, _Y1_NEAR)
_P, _Q = (_P0, _P1), (_Q0, _Q1)
_K_NEAR, _I_SMALL, _K_FAR = (_K0_NEAR, _K1_NEAR), (_I0_SMALL, _I1_SMALL), (_K0_FAR, _K1_FAR)


def _in_own_type(function: Callable[[Array], Array]) -> Callable[[Builder, Array], Array]:
    return lambda _, x: function(*operands(x, to_float=True))


def _wave(order: int, x: Array) -> tuple[Array, Array]:
    """Return J and Y of numbers beyond 8."""
    over = 8 / x
    place = over * over * 2 - 1
    p, q = polynomial(place, _P[order]), polynomial(place, _Q[order]) * over
    sine, cosine = apply("sin", x), apply("cos", x)
    along, across = cosine + sine, sine - cosine  # of x - pi/4, times sqrt(2)
    if order:
        along, across = across, -along
    size = apply("rsqrt", x) * math.sqrt(1 / math.pi)
    return size * (p * along - q * across), size * (p * across + q * along)


def _first_kind(order: int) -> Callable[[Array], Array]:
    def function(x: Array) -> Array:
        size = apply("abs", x)
        near = polynomial(x * x / 32 - 1, _J_NEAR[order])
        far, _ = _wave(order, size)
        if not order:
            return where(size <= 8, near, far)
        return where(size <= 8, near * x, apply("copysign", far, x * far))

    return function


def _second_kind(order: int) -> Callable[[Array], Array]:
    def function(x: Array) -> Array:
        place = x * x / 32 - 1
        first, rest = polynomial(place, _J_NEAR[order]), polynomial(place, _Y_NEAR[order])
        log = apply("log", x) * (2 / math.pi)
        near = log * first + rest
        if order:
            near = near * x - (2 / math.pi) / x
        _, far = _wave(order, x)
        result = where(x <= 8, near, far)
        return where(equal(x, 0), -math.inf, where(x < 0, math.nan, result))

    return function


def _modified(order: int, *, scaled: bool) -> Callable[[Array], Array]:
    """Return a modified function of the second kind; `scaled` by exp(x)."""

    def function(x: Array) -> Array:
        place = x * x * 0.5 - 1
        series, first = polynomial(place, _K_NEAR[order]), polynomial(place, _I_SMALL[order])
        log = apply("log", x)
        near = log * first * x + series / x if order else series - log * first
        far = polynomial(4 / x - 1, _K_FAR[order]) * apply("rsqrt", x)
        power = apply("exp", x if scaled else -x)
        result = where(x <= 2, near * power if scaled else near, far if scaled else far * power)
        return where(equal(x, 0), math.inf, where(x < 0, math.nan, result))

    return function


def _spherical(x: Array) -> Array:
    """sin(x) / x, near 0 by its series."""
    square = x * x
    near = polynomial(square, _SPHERICAL)
    far = where(apply("isinf", x), 0.0, apply("sin", x) / x)
    return where(square < 0.25, near, far)


_SPHERICAL: Sequence[float] = tuple(
    (-1) ** k / math.factorial(2 * k + 1) for k in reversed(range(8))
)

TABLE: Mapping[object, Callable[[Builder, Array], Array]] = {
    aten.special_bessel_j0.default: _in_own_type(_first_kind(0)),
    aten.special_bessel_j1.default: _in_own_type(_first_kind(1)),
    aten.special_bessel_y0.default: _in_own_type(_second_kind(0)),
    aten.special_bessel_y1.default: _in_own_type(_second_kind(1)),
    aten.special_modified_bessel_k0.default: in_double(_modified(0, scaled=False)),
    aten.special_modified_bessel_k1.default: in_double(_modified(1, scaled=False)),
    aten.special_scaled_modified_bessel_k0.default: in_double(_modified(0, scaled=True)),
    aten.special_scaled_modified_bessel_k1.default: in_double(_modified(1, scaled=True)),
    aten.special_spherical_bessel_j0.default: in_double(_spherical),
}
