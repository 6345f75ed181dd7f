# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false
# (functions of Triton's own language, which has no types for a checker of Python)
"""Functions on the device that generated kernels call.

Importing this imports triton: only modules that compile kernels do so.
"""

import torch
import triton
import triton.language as tl

from ctk.compiler.torch_compat.gpu import triton_launch

libdevice = triton_launch.libdevice()


@triton.jit
def divided(a, b):
    """Return the quotient of floats, rounded correctly: `/` of float32 is an approximation."""
    return tl.math.div_rn(a, b) if a.dtype == tl.float32 else a / b


@triton.jit
def _power(t):
    """Return 2**n of the float 12583039 + n, for n from -126 to 127: its last bits are n + 127."""
    return (t.to(tl.int32, bitcast=True) << 23).to(tl.float32, bitcast=True)


@triton.jit
def _exp2_by_device(x):
    """Return 2**x of float32 by the device's own instruction, which makes 0 of subnormals."""
    return tl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def _exp2_by_triton(x):
    """Return 2**x of float32 where there is no such instruction."""
    return tl.exp2(x)


_has_instruction = not (triton_launch.is_interpreting() or torch.version.hip)
exp2 = _exp2_by_device if _has_instruction else _exp2_by_triton


@triton.jit
def _exp(x):
    """Return exp(x) of float32 within 2.3 ULP: 2**n, n next to x / ln(2), times 2 to the rest.

    2 to the rest is the device's own instruction. So no kernel needs libdevice for it, and linking
    that takes a third of the time to compile one. Infinities come out of the rest.
    """
    near = tl.minimum(tl.maximum(x, -87.33), 88.0)
    t = tl.fma(near, 1.4426950216293335, 12583039.0)
    n = t - 12583039.0
    rest = tl.fma(x, 1.4426950216293335, -n)
    rest = tl.fma(x, 1.925963033500011e-08, rest)
    return exp2(rest) * _power(t)


@triton.jit
def exp(x):
    """Return exp(x)."""
    return _exp(x) if x.dtype == tl.float32 else libdevice.exp(x)


@triton.jit
def maximum_or_nan(a, b):
    """Return the larger one; NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum_or_nan(a, b):
    """Return the smaller one; NaN if either is."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def nan_for_max(x):
    """Return NaN with the sign that an atomic maximum, which compares bits, lets win."""
    return tl.where(x != x, tl.abs(x), x)


@triton.jit
def nan_for_min(x):
    """Return NaN with the sign that an atomic minimum, which compares bits, lets win."""
    below = tl.full(x.shape, -1.0, x.dtype)
    return tl.where(x != x, libdevice.copysign(x, below), x)


@triton.jit
def larger(a, b):
    """Return the larger one of integers."""
    return tl.maximum(a, b)


@triton.jit
def smaller(a, b):
    """Return the smaller one of integers."""
    return tl.minimum(a, b)


@triton.jit
def plus(a, b):
    """Return the sum."""
    return a + b


@triton.jit
def times(a, b):
    """Return the product."""
    return a * b


@triton.jit
def log_add_exp(a, b):
    """Return log(exp(a) + exp(b)) without overflow."""
    high = maximum_or_nan(a, b)
    low = minimum_or_nan(a, b)
    same = high == low  # also infinities, whose difference is NaN
    difference = tl.where(same, 0.0, low - high)
    return high + libdevice.log1p(exp(difference))


@triton.jit
def first_largest(a, at_a, b, at_b):
    """Return the larger one with its place: NaN before numbers, the first place of equal ones."""
    better = (a > b) | ((a != a) & (b == b))
    equal = (a == b) | ((a != a) & (b != b))
    left = better | (equal & (at_a < at_b))
    return tl.where(left, a, b), tl.where(left, at_a, at_b)


@triton.jit
def first_smallest(a, at_a, b, at_b):
    """Return the smaller one with its place: NaN before numbers, the first place of equal ones."""
    better = (a < b) | ((a != a) & (b == b))
    equal = (a == b) | ((a != a) & (b != b))
    left = better | (equal & (at_a < at_b))
    return tl.where(left, a, b), tl.where(left, at_a, at_b)


@triton.jit
def welford(mean_a, m2_a, count_a, mean_b, m2_b, count_b):
    """Return mean, sum of squares around it, and count of two groups together."""
    count = count_a + count_b
    share = tl.where(count == 0.0, 0.0, divided(count_b, count))
    difference = mean_b - mean_a
    mean = mean_a + difference * share
    return mean, m2_a + m2_b + difference * difference * count_a * share, count


@triton.jit
def rescaled(a, sum_a, b, sum_b):
    """Return the maximum of two groups, and the sum of exp(x - maximum) over both.

    Source: M. Milakov, N. Gimelshein, Online normalizer calculation for softmax (2018).
    """
    high = maximum_or_nan(a, b)
    part_a = tl.where(a == high, sum_a, sum_a * exp(a - high))
    part_b = tl.where(b == high, sum_b, sum_b * exp(b - high))
    return high, part_a + part_b


@triton.jit
def floordiv(a, b):
    """Return the quotient of integers, rounded down; 0 for a divisor of 0."""
    safe = tl.where(b == 0, 1, b)
    quotient = a // safe
    down = quotient - ((a % safe != 0) & ((a < 0) != (safe < 0))).to(quotient.dtype)
    return tl.where(b == 0, 0, down)


@triton.jit
def truncdiv(a, b):
    """Return the quotient of integers, rounded to zero; 0 for a divisor of 0."""
    return tl.where(b == 0, 0, a // tl.where(b == 0, 1, b))


@triton.jit
def fmod(a, b):
    """Return the remainder of integers with the sign of `a`; 0 for a divisor of 0."""
    return tl.where(b == 0, 0, a % tl.where(b == 0, 1, b))


@triton.jit
def mod(a, b):
    """Return the remainder of integers with the sign of `b`; 0 for a divisor of 0."""
    rest = fmod(a, b)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def mod_of_floats(a, b):
    """Return the remainder with the sign of `b`; a zero has that of `a`, as torch has it."""
    rest = libdevice.fmod(a, b)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


@triton.jit
def floordiv_of_floats(a, b):
    """Return the quotient rounded down, as Python and torch do: from the remainder."""
    rest = libdevice.fmod(a, b)
    quotient = divided(a - rest, b)
    quotient = tl.where((rest != 0) & ((b < 0) != (rest < 0)), quotient - 1, quotient)
    down = tl.floor(quotient)
    down = tl.where(quotient - down > 0.5, down + 1, down)
    down = tl.where(quotient == 0, libdevice.copysign(quotient * 0, divided(a, b)), down)
    return tl.where(b == 0, divided(a, b), down)


@triton.jit
def truncdiv_of_floats(a, b):
    """Return the quotient rounded to zero."""
    return libdevice.trunc(divided(a, b))


@triton.jit
def shl(a, by, width: tl.constexpr):
    """Shift left; 0 for a shift of less than 0, or of the width and more."""
    fits = (by >= 0) & (by < width)
    return tl.where(fits, a << tl.where(fits, by, 0), 0)


@triton.jit
def shr(a, by, width: tl.constexpr):
    """Shift right; the sign for a shift of less than 0, or of the width and more."""
    fits = (by >= 0) & (by < width)
    return a >> tl.where(fits, by, width - 1)


@triton.jit
def shr_unsigned(a, by, width: tl.constexpr):
    """Shift right; 0 for a shift of less than 0, or of the width and more."""
    fits = (by >= 0) & (by < width)
    return tl.where(fits, a >> tl.where(fits, by, 0), 0)


@triton.jit
def sign(x):
    """Return -1, 0 or 1; 0 for NaN."""
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


@triton.jit
def rsqrt(x):
    """Return 1 / sqrt(x) within 1 ULP; the device's own function is within 2."""
    one = tl.full([], 1.0, x.dtype)
    return tl.math.div_rn(one, tl.sqrt_rn(x)) if x.dtype == tl.float32 else libdevice.rsqrt(x)


@triton.jit
def one_plus_erf(x):
    """Return 1 + erf(x) of float32 within 1.4e-7, and without cancellation where x is negative.

    It is erfc(|x|) or 2 - erfc(|x|), and erfc(t) is 2**p(t) with a polynomial p of degree 10 that
    was fitted on 0 < t < 4.2; beyond that p falls on. Half the instructions of libdevice's erf.
    """
    t = tl.abs(x)
    p = t * -8.873819865584665e-07 + 1.888079714262858e-05
    p = p * t + -0.00017180226859636605
    p = p * t + 0.0008511258056387305
    p = p * t + -0.002203955315053463
    p = p * t + -5.210372546571307e-05
    p = p * t + 0.027837708592414856
    p = p * t + -0.14835307002067566
    p = p * t + -0.9184349179267883
    p = p * t + -1.6279077529907227
    p = p * t
    n = tl.maximum(p, -126.0) + 12583039.0
    tail = tl.exp((p - (n - 12583039.0)) * 0.6931471805599453) * _power(n)
    return tl.where(x < 0, tail, 2.0 - tail)


@triton.jit
def one_plus_tanh(x):
    """Return 1 + tanh(x) without cancellation where x is negative."""
    return 2.0 / (1.0 + exp(-2.0 * x))


@triton.jit
def sigmoid(x):
    """Return 1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + exp(-x))


@triton.jit
def _philox(seed, counter):
    if counter.dtype.primitive_bitwidth == 64:
        low = (counter & 0xFFFFFFFF).to(tl.uint32)
        high = ((counter >> 32) & 0xFFFFFFFF).to(tl.uint32)
    else:
        low = counter.to(tl.uint32)
        high = low * 0
    zero = low * 0
    return tl.philox(seed, low, high, zero, zero)


@triton.jit
def philox(seed, counter, lane):
    """Return word `lane % 4` of a counter, as uint32."""
    w0, w1, w2, w3 = _philox(seed, counter)
    word = lane & 3
    pair = tl.where(word == 0, w0, w1)
    other = tl.where(word == 2, w2, w3)
    return tl.where(word < 2, pair, other)


@triton.jit
def philox_of_fours(seed, counters):
    """Return all words of each counter one after the other: four times as long."""
    w0, w1, w2, w3 = _philox(seed, counters)
    words = tl.join(tl.join(w0, w2), tl.join(w1, w3))
    last: tl.constexpr = len(counters.shape) - 1
    length: tl.constexpr = counters.shape[last] * 4
    return tl.reshape(words, [length] if last == 0 else [counters.shape[0], length])
