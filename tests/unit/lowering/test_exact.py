"""The `exact` mode has the bits of eager, and makes kernels of what can have them."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ctk.compiler.lowering.lower import LoweringOptions
from tests.helpers.lowered import Lowered, captured

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
Unary = Callable[[Tensor], Any]
Binary = Callable[[Tensor, Tensor], Any]

UNARY: dict[str, Unary] = {
    "numbers": lambda x: 0.3 - (x * 0.1 + 0.3) / 0.7,
    "alpha": lambda x: torch.rsub(x, 0.3, alpha=0.7),
    "rest": lambda x: torch.fmod(x, 0.3) + x % 0.7,
    "quotient": lambda x: x // 0.3 + torch.div(x, 0.7, rounding_mode="trunc"),
    "root": lambda x: x.abs().sqrt() + x.abs() ** 0.5 + x.abs().rsqrt(),
    "powers": lambda x: x**2 + x**3 + x**-1 + x**-2 + x**4,
    "rounded": lambda x: x.round() + x.floor() - x.ceil() + x.trunc() + x.frac(),
    "decimals": lambda x: x.round(decimals=1),
    "signs": lambda x: x.sign() * x.abs() - x.neg() + torch.copysign(x, -x),
    "clamped": lambda x: x.clamp(-0.3, 1.3) + F.relu(x) + F.relu6(x) + F.hardtanh(x),
    "hard": lambda x: F.hardswish(x) + F.hardsigmoid(x) + F.hardshrink(x),
    "replaced": lambda x: F.threshold(x, 1.1, 0.1).masked_fill(x < -0.3, 0.7),
    "leaky": lambda x: F.leaky_relu(x) + torch.where(x > 0.1, x, 0.1),
    "degrees": lambda x: torch.rad2deg(x) - torch.deg2rad(x),
    "casts": lambda x: (x.bfloat16() + 1).to(torch.float16).double() * 0.1,
    "inverse": lambda x: torch.reciprocal(x) + 1 / x,
    "functions": lambda x: x.exp() + x.tanh() + torch.sigmoid(x) + x.abs().log1p(),
    "counted": lambda x: x + torch.arange(len(x), dtype=x.dtype) * 0.1,
    "steps": lambda x: torch.arange(0, len(x) * 0.1 - 0.05, 0.1, dtype=x.dtype) * x[:1],
    "line": lambda x: torch.linspace(-1, 3, len(x), dtype=x.dtype),
    "normed": lambda x: F.batch_norm(x[:, None], x[:1], x[:1].abs() + 1),
    "turned": lambda x: x.flip(0) * x.clone(),
}
BINARY: dict[str, Binary] = {
    "sum": torch.add,
    "difference": torch.sub,
    "product": torch.mul,
    "ratio": torch.div,
    "scaled": lambda x, y: torch.add(x, y, alpha=0.3) - torch.sub(x, y, alpha=1.7),
    "larger": lambda x, y: torch.maximum(x, y) * torch.minimum(x, y),
    "fmax": lambda x, y: torch.fmax(x, y) - torch.fmin(x, y),
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.3),
    "addcdiv": lambda x, y: torch.ops.aten.addcdiv(x, x, y, value=0.3),
    "lerp": lambda x, y: torch.lerp(x, y, 0.3) + torch.lerp(x, y, x),
    "fmod": torch.fmod,
    "remainder": torch.remainder,
    "compared": lambda x, y: torch.where(x < y, x, y * 2),
    "huber": lambda x, y: F.huber_loss(x, y, reduction="none", delta=0.3),
    "smooth": lambda x, y: F.smooth_l1_loss(x, y, reduction="none", beta=0.3),
    "squares": lambda x, y: F.mse_loss(x, y, reduction="none"),
    "slope": lambda x, y: F.prelu(x, y[:1]),
    "heaviside": torch.heaviside,
    "mixed": lambda x, y: x * y.float() + y.double() * torch.tensor(0.1),
}


def numbers(length: int, dtype: torch.dtype, seed: int) -> Tensor:
    """Return numbers of many sizes, some special."""
    generator = torch.Generator().manual_seed(seed)
    scale = torch.randint(-3, 4, (length,), generator=generator)
    values = torch.randn(length, generator=generator, dtype=torch.float64) * 2.0**scale
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-40, 6e4])
    chosen = torch.rand(length, generator=generator) < 0.1
    return values.where(~chosen, special[torch.arange(length) % 7].double()).to(dtype)


def check(call: Callable[..., Any], *inputs: Tensor) -> set[str]:
    """Compare each bit but those of NaN; return the operators that were no kernels."""
    lowered = Lowered("c", LoweringOptions(exact=True))
    run = lowered.compile(captured(call, len(inputs)), inputs)
    for mine, eager in zip(run(*inputs), [call(*inputs)], strict=True):
        same = torch.equal(mine.nan_to_num(7.0), eager.nan_to_num(7.0))
        assert same and torch.equal(mine.isnan(), eager.isnan())
        assert torch.equal(mine.signbit() & ~mine.isnan(), eager.signbit() & ~eager.isnan())
    return lowered.operators


def chain(x: Tensor, y: Tensor) -> Tensor:
    return (x + 0.1) * y - x.abs() / 0.7 + x.relu().clamp(max=0.9) * -0.3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_arithmetic_has_the_bits_of_eager_in_kernels(dtype: torch.dtype) -> None:
    assert not check(chain, numbers(67, dtype, 1), numbers(67, dtype, 2))


def test_a_pair_of_float64_keeps_its_rounding_to_float32() -> None:
    """What GCC 12 makes of straight lines loses it: `_GCC_FLAGS` of the toolchain."""
    check(lambda x, y: x * y.float(), *(numbers(6, torch.float64, seed) for seed in (1, 2)))


def test_what_eager_may_round_at_once_is_left_to_it() -> None:
    def call(x: Tensor, y: Tensor) -> Tensor:
        rounded = torch.addcmul(x, y, y, value=0.3) - torch.add(x, y, alpha=0.3).abs().sqrt()
        return rounded + x.amax()

    left = check(call, numbers(67, torch.float32, 3), numbers(67, torch.float32, 4))
    names = ("addcmul.default", "add.Tensor", "sqrt.default", "amax.default")
    assert left == {f"aten.{name}" for name in names}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_each_operator_has_the_bits_of_eager(name: str, dtype: torch.dtype) -> None:
    count, call = (1, UNARY[name]) if name in UNARY else (2, BINARY[name])
    for length in (1, 5, 16, 33, 70, 1027):
        check(call, *(numbers(length, dtype, seed) for seed in range(count)))


@pytest.mark.slow
@pytest.mark.parametrize("length", range(1, 71, 3))
def test_drawn_graphs_have_the_bits_of_eager(length: int) -> None:
    """Three operators, one after the other, over types that are drawn."""
    draw = random.Random(length)
    names = [draw.choice(sorted(BINARY)), draw.choice(sorted(UNARY)), draw.choice(sorted(BINARY))]
    names[1] = "numbers" if names[1] in ("normed", "steps", "line") else names[1]

    def call(x: Tensor, y: Tensor) -> Tensor:
        one = UNARY[names[1]](BINARY[names[0]](x, y))
        return BINARY[names[2]](one, y.to(one.dtype))

    for dtype in FLOATS:
        other = draw.choice(FLOATS) if names[0] in ("sum", "product", "larger") else dtype
        check(call, numbers(length, dtype, 1), numbers(length, other, 2))
