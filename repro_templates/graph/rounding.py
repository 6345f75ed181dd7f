"""Run a program with other roundings: each inexact result of an operator is rounded at random.

Where eager itself moves far under other roundings, the result is determined by rounding errors, and
a compiler that rounds elsewhere (another order of a sum, a fused product) is not to blame. Only
roundings vary, never the inputs: exact operators stay exact, so ties, comparisons and rounding to
integers of exact values keep their meaning.

1. An operator that only moves or selects values, or is exact on its operands (0.5 * x, a sum of
   small integers): its result stays.
2. An elementwise operator: its result in float64, on the actual operands, with or without the
   opposite of the error that eager makes, is rounded up or down. In float64 the result moves to a
   neighbour.
3. All others (sums, products of matrices, normalizations, decompositions of matrices) are backward
   stable at best: their operands move to a neighbour, in the dtype in which they are accumulated,
   and so does the result (in a mean of many, moved operands cancel).

    (x * 0.1).floor()    the product moves by an ULP, the floor is exact
    x == x.flip(0)       nothing moves

Source: D. S. Parker, "Monte Carlo arithmetic" (1997), and Verificarlo, which vary every operation
of the machine; here an operator of torch is the unit, and exact results are recognised.
"""

import struct
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from ctk.compiler.fx.tensor_parts import PLAIN_CLASSES
from ctk.compiler.torch_compat.fake.fake_tensors import intercept_ops
from ctk.compiler.torch_compat.fx.custom_kernels import is_custom
from ctk.compiler.torch_compat.fx.graphs import tree_leaves, tree_map
from ctk.compiler.torch_compat.fx.operators import declared_by, written_arguments_of
from ctk.repro_templates.graph.random_draws import DRAWS, operator_name
from ctk.repro_templates.graph.running import generator_states, set_generator_states
from ctk.repro_templates.graph.settings import default_dtype
from ctk.repro_templates.numbers.float64 import WIDER

ACCUMULATED_IN = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
"""The dtype in which operators compute, for each dtype that is stored only."""

INTEGERS_OF = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The integers with the bits of a float, by its size in bytes."""

ROUNDED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
SAMPLE_SIZE = 16
"""Number of elements of a large tensor that are examined before all of them."""

SHORT_BITS = 30
"""A float64 with so many significant bits or fewer is taken for exact."""

_EXACT = """
histc nextafter frexp where masked_fill clamp clamp_min clamp_max hardtanh threshold relu fill
full_like constant_pad_nd
"""
EXACT_NAMES = frozenset(_EXACT.split())
"""Exact operators whose numbers as arguments have the dtype of the result, and exact counts."""

ELEMENTWISE = (
    "_foreach", "_fused", "_to_copy", "copy", "floor_divide", "rsub", "divide", "true_divide",
    "subtract", "multiply", "hardswish", "xlogy", "_prelu_kernel", "hardtanh_backward",
    "hardsigmoid_backward", "hardshrink_backward", "softshrink_backward", "leaky_relu_backward",
    "elu_backward", "softplus_backward", "glu", "mish_backward", "huber_loss_backward",
    "smooth_l1_loss_backward",
)  # fmt: skip
"""Beginnings of elementwise operators that torch does not tag as such.

An operand at a boundary (3 of `hardsigmoid`) must not move to its other side.
"""

SOLVERS = (
    "linalg", "_linalg", "cholesky", "triangular", "lu_", "geqrf", "orgqr", "ormqr", "lstsq",
)  # fmt: skip
"""Beginnings of operators that divide by the rest of a sum."""


def random_rounding(seed: int) -> AbstractContextManager[None]:
    """Return a context in which operators round at random, forward and backward."""
    generator = torch.Generator("cpu").manual_seed(seed)
    return intercept_ops(partial(run_rounded, generator))


def run_rounded(
    generator: torch.Generator, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> object:
    """Run an operator, and replace its inexact results."""
    declared = declared_by(op)
    operands = [each for each in tree_leaves((args, kwargs)) if is_rounded(each)]
    if declared is None or (declared.views and not declared.writes) or not operands:
        return op(*args, **kwargs)
    if is_custom(op):  # its code may compare its operands, and a second call may have effects
        return op(*args, **kwargs)
    name = operator_name(op)
    if name in DRAWS or name.removesuffix("_") in EXACT_NAMES:
        return op(*args, **kwargs)
    is_elementwise = declared.pointwise or name.startswith(ELEMENTWISE)
    change = partial(widened, operands) if is_elementwise else partial(moved, generator)
    known = list(real_parts(operands))
    if declared.writes:
        known = [part.detach().clone() for part in known]
    before = generator_states() if declared.random else ()
    varied = tree_map(change, (args, kwargs))
    result = op(*args, **kwargs)
    after = generator_states() if declared.random else ()
    try:
        if before:
            set_generator_states(before)
        with default_dtype(torch.float64 if is_elementwise else torch.get_default_dtype()):
            other = op(*varied[0], **varied[1])
    except Exception:  # it has no kernel for the other dtype: its rounding is unknown
        return result
    finally:
        if after:
            set_generator_states(after)
    pairs = list(zip(tree_leaves(result), tree_leaves(other), strict=True))
    for at, key in written_arguments_of(op):
        both = [
            tree_leaves(each[0][at] if at < len(each[0]) else each[1].get(key))
            for each in ((args, kwargs), varied)
        ]
        pairs += zip(*both, strict=True)
    if is_elementwise:
        replace_elements(pairs, known, generator)
    else:
        has_sums = not name.startswith(SOLVERS)
        replace_results(pairs, known, generator, has_sums=has_sums)
    return result


def is_rounded(value: object) -> bool:
    """Return whether a value is a plain tensor of floats or complex numbers with a rounding."""
    if not isinstance(value, Tensor) or type(value) not in PLAIN_CLASSES or not value.numel():
        return False
    if value.layout is not torch.strided or value.device.type == "meta":
        return False
    return value.dtype in ROUNDED or value.dtype in (torch.complex64, torch.complex128)


def real_parts(tensors: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yield tensors of floats; a complex one with a last dimension of two."""
    for each in tensors:
        yield torch.view_as_real(each.resolve_conj()) if each.is_complex() else each


def widened(operands: Sequence[Tensor], value: Any) -> Any:
    """Return an argument in float64: a copy of a tensor, a dtype, a number as the kernel has it."""
    if is_rounded(value):
        return value.detach().to(WIDER.get(value.dtype, value.dtype), copy=True)
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, torch.dtype):
        return WIDER.get(value, value)
    if type(value) is float and not any(each.dtype.itemsize == 8 for each in operands):
        return as_float32(value)
    return value


def as_float32(value: float) -> float:
    """Return a number as a kernel in float32 has it."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return value


def moved(generator: torch.Generator, value: Any) -> Any:
    """Return an argument whose elements are moved to a neighbour, or not, at random."""
    if is_rounded(value):
        wide = value.detach().to(ACCUMULATED_IN.get(value.dtype, value.dtype), copy=True)
        for part in real_parts([wide]):
            part.copy_(moved_at_random(part, generator))
        return wide
    if isinstance(value, Tensor):
        return value.clone()
    return ACCUMULATED_IN.get(value, value) if isinstance(value, torch.dtype) else value


def replace_elements(
    pairs: Sequence[tuple[object, object]], operands: Sequence[Tensor], generator: torch.Generator
) -> None:
    """Write other roundings into the results of an elementwise operator.

    Args:
        pairs: Each result with that in float64.
        operands: The operands of the call, as they were before it.
    """
    for own, other in tensor_pairs(pairs):
        if is_rounded(own):
            for part, wide in zip(real_parts([own]), real_parts([other]), strict=True):
                part.copy_(rounded_at_random(part, wide, operands, generator))


def replace_results(
    pairs: Sequence[tuple[object, object]],
    operands: Sequence[Tensor],
    generator: torch.Generator,
    *,
    has_sums: bool,
) -> None:
    """Write the results for moved operands into those of an operator, unless they are exact.

    Args:
        operands: The operands of the call, as they were before it.
        has_sums: Whether sums and products are all that the operator computes.
    """
    both = tensor_pairs(pairs)
    floats = [(own, other) for own, other in both if is_rounded(own)]
    parts = [
        pair
        for own, other in floats
        for pair in zip(real_parts([own]), real_parts([other]), strict=True)
    ]
    exact = [find_exact(*pair, operands, has_sums=has_sums) for pair in parts]
    if all(bool(each.all()) for each in exact):
        return
    for (part, value), kept in zip(parts, exact, strict=True):
        new = moved_at_random(value, generator)
        new = new if new.dtype == part.dtype else nearest(part, new.double(), generator)
        part.copy_(torch.where(kept, part, new))
    for own, other in both:  # pivots and masks belong to the numbers
        if not (own.is_floating_point() or own.is_complex()):
            own.copy_(other)


def tensor_pairs(pairs: Sequence[tuple[object, object]]) -> list[tuple[Tensor, Tensor]]:
    """Return the pairs of plain tensors of one shape, each own tensor once."""
    found = {id(own): (own, other) for own, other in pairs}
    return [
        (own, other)
        for own, other in found.values()
        if isinstance(own, Tensor) and isinstance(other, Tensor)
        if own.shape == other.shape and own.numel() and own.layout is torch.strided
    ]


def rounded_at_random(
    own: Tensor, wide: Tensor, operands: Sequence[Tensor], generator: torch.Generator
) -> Tensor:
    """Return an elementwise result, rounded up or down; exact elements stay.

    Args:
        wide: The result in float64.
    """
    if own.dtype is torch.float64:
        is_exact = is_short(own) | is_selected(own, operands)
        return torch.where(is_exact, own, moved_at_random(own, generator))
    error = own.double() - wide
    opposite = wide - draw(own, generator, 2) * error
    value = torch.where(error.isfinite(), opposite, wide)
    return torch.where(own.double() == wide, own, nearest(own, value, generator))


def nearest(like: Tensor, value: Tensor, generator: torch.Generator) -> Tensor:
    """Return float64 numbers in a smaller dtype, rounded up or down at random."""
    near = value.to(like.dtype)
    off = value - near.double()
    is_inexact = (off != 0) & near.isfinite() & (draw(like, generator, 2) == 1)
    toward = torch.where(off > 0, 1, -1)
    return torch.where(is_inexact, neighbour(near, toward), near)


def moved_at_random(value: Tensor, generator: torch.Generator) -> Tensor:
    """Return numbers moved to the neighbour below or above, or not.

    Zeros stay, and ones move toward zero only: domains end there (a probability, a correlation).
    """
    toward = draw(value, generator, 3) - 1
    is_outward = (value.abs() == 1) & (toward * value > 0)
    can_move = value.isfinite() & (value != 0) & (toward != 0) & ~is_outward
    return torch.where(can_move, neighbour(value, toward), value)


def neighbour(value: Tensor, toward: Tensor) -> Tensor:
    """Return the next number up (1) or down (-1); `torch.nextafter` has no float16."""
    integers = INTEGERS_OF[value.dtype.itemsize]
    signed = torch.where(value == 0, torch.copysign(torch.zeros_like(value), toward), value)
    grows = torch.where(signed.signbit(), toward < 0, toward > 0)
    step = torch.where(grows, 1, -1).to(integers)
    return (signed.contiguous().view(integers) + step).view(value.dtype)


def draw(like: Tensor, generator: torch.Generator, count: int) -> Tensor:
    """Return a random number below `count` for each element."""
    return torch.randint(count, like.shape, generator=generator, device="cpu").to(like.device)


def find_exact(own: Tensor, other: Tensor, operands: Sequence[Tensor], *, has_sums: bool) -> Tensor:
    """Return which elements of a result are exact: selected, or sums of few small multiples.

    Where most elements were selected, the others are sums (`index_add`); else an element that
    equals an operand does so by chance. So do most of the elements of a product in bfloat16, which
    are rounded: the result for moved operands, in float32, lies farther away than they moved.

    Args:
        other: The result for moved operands.
    """
    if bool(_is_selected_near(sampled(own), sampled(other), operands).any()):
        selected = _is_selected_near(own, other, operands)
        if float(selected.double().mean()) > 0.5:
            return selected
    is_exact = has_sums and is_exact_sum(own, other, operands)
    return torch.full_like(own, is_exact, dtype=torch.bool)


def _is_selected_near(own: Tensor, other: Tensor, operands: Sequence[Tensor]) -> Tensor:
    return is_selected(own, operands) & _is_near(own, other, own.double().abs())


def _is_near(own: Tensor, other: Tensor, size: Tensor | float) -> Tensor:
    """Return which elements two moved factors of a size can move to those of another result."""
    difference = (own.double() - other.double()).abs()
    return (difference <= 4 * _eps_of(own) * size) | (own == other)


def _eps_of(value: Tensor) -> float:
    return torch.finfo(ACCUMULATED_IN.get(value.dtype, value.dtype)).eps


def is_selected(own: Tensor, operands: Sequence[Tensor]) -> Tensor:
    """Return which elements are elements of the operands, up to the sign."""
    known = torch.cat([part.reshape(-1).abs().to(own.dtype) for part in operands]).to(own.device)
    if own.numel() <= SAMPLE_SIZE:  # `isin` sorts all operands
        return (known == own.abs().unsqueeze(-1)).any(-1)
    return torch.isin(own.abs(), known)


def sampled(value: Tensor) -> Tensor:
    """Return some elements of a tensor, at random places that are the same in each run."""
    if value.numel() <= SAMPLE_SIZE:
        return value
    generator = torch.Generator("cpu").manual_seed(value.numel())
    places = torch.randint(value.numel(), (SAMPLE_SIZE,), generator=generator, device="cpu")
    return value.reshape(-1)[places.to(value.device)]


def is_short(value: Tensor) -> Tensor:
    """Return which float64 numbers have few significant bits, as exact results have."""
    mask = (1 << (53 - SHORT_BITS)) - 1
    return ((value.contiguous().view(torch.int64) & mask) == 0) | ~value.isfinite()


def is_exact_sum(own: Tensor, other: Tensor, operands: Sequence[Tensor]) -> bool:
    """Return whether sums of the operands, and of products of two of them, are always exact.

    All are multiples of a power of two, and so small that no partial sum is rounded:

        operands 3, 5, 200 (multiples of 1), 1000 terms    below 2^24: exact
        operands 0.1, 0.2 (multiples of 2^-27)             inexact
        operands 0.1, 0.2 and a bias of zeros              inexact: zeros have no unit

    Args:
        other: The result for moved operands, which moves no farther than they.
    """
    terms = max(1.0, max(part.numel() for part in operands) / own.numel())
    if len(operands) > 1:
        numels = sorted((part.numel() for part in operands), reverse=True)
        terms = max(terms, (numels[0] * numels[1] / own.numel()) ** 0.5)
    size, unit = 0.0, 1.0
    for parts in (map(sampled, operands), operands):  # a sample refutes it at a small cost
        values = [part.double() for part in parts]
        if not all(bool(value.isfinite().all()) for value in values):
            return False
        ranges = [(_largest_unit(each), float(each.abs().max())) for each in values if each.any()]
        ranges += [(u * v, m * n) for (u, m), (v, n) in combinations(ranges, 2)]
        size = terms * max((size for _, size in ranges), default=0.0)
        unit = min((unit for unit, _ in ranges), default=1.0)
        if size * _eps_of(own) > 2 * unit:
            return False
    is_multiple = torch.fmod(own.double(), unit) == 0
    return bool((is_multiple & _is_near(own, other, size)).all())


def _largest_unit(value: Tensor) -> float:
    """Return the largest power of two of which all numbers, some not zero, are multiples."""
    integers = value.contiguous().view(torch.int64)
    exponent = ((integers >> 52) & 0x7FF) - 1075
    mantissa = (integers & ((1 << 52) - 1)) | (1 << 52)
    lowest = mantissa & -mantissa
    unit = torch.where(value == 0, torch.inf, torch.ldexp(lowest.double(), exponent.double()))
    return float(unit.min())
