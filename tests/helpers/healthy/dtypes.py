"""Small and odd dtypes: bfloat16, float16, float8, complex, integers, bools, mixed, autocast."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.helpers.healthy.base import Call, Healthy


def bfloat16_mlp() -> Call:
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4))
    return model.to(torch.bfloat16), (torch.randn(8, 16).to(torch.bfloat16),)


def bfloat16_softmax() -> Call:
    return lambda x: (x * 3).softmax(-1).log(), (torch.randn(8, 64).to(torch.bfloat16),)


def float16_norm() -> Call:
    return lambda x: F.layer_norm(x, (32,)) * x.norm(dim=-1, keepdim=True), (
        torch.randn(4, 32).half(),
    )


def float8_round_trip() -> Call:
    def run(x: Tensor) -> Tensor:
        scale = x.abs().amax() / 448.0
        small = (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
        return small.to(torch.float32) * scale

    return run, (torch.randn(16, 16),)


def float8_e5m2() -> Call:
    return lambda x: x.to(torch.float8_e5m2).to(torch.float16) * 2, (torch.randn(32),)


def complex_rotation() -> Call:
    def run(x: Tensor, angle: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        turned = pairs * torch.polar(torch.ones_like(angle), angle)
        return torch.view_as_real(turned).flatten(-2)

    return run, (torch.randn(2, 3, 8), torch.rand(3, 4))


def spectrum() -> Call:
    return lambda x: torch.fft.irfft(torch.fft.rfft(x) * 0.5, n=16), (torch.randn(3, 16),)


def integer_arithmetic() -> Call:
    def run(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return x // y, x % y, x << 1, x & 7, (x.float() / y).round().int()

    return run, (torch.randint(-50, 50, (32,)), torch.randint(1, 9, (32,)))


def small_integers() -> Call:
    return lambda x: (x + 100, x * 3, x.sum(), -x), (torch.arange(-60, 60).to(torch.int8),)


def bools() -> Call:
    return lambda x, y: (x ^ y, x.any(0), (~x).sum(), torch.where(x, 1, 2)), (
        torch.rand(4, 5) > 0.5,
        torch.rand(4, 5) > 0.5,
    )


def mixed_dtypes() -> Call:
    return lambda a, b, c: (a + b) * c.half() + 1.5, (
        torch.randn(6).to(torch.bfloat16),
        torch.randn(6),
        torch.arange(6),
    )


def special_values() -> Call:
    values = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-40, 3e38])
    return lambda x: (x.relu(), x.exp(), x.maximum(x.flip(0)), x / x, x.sign(), x.cumsum(0)), (
        values,
    )


def autocast_region() -> Call:
    layer = nn.Linear(16, 16)

    def run(x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            return layer(x).softmax(-1).float()

    return run, (torch.randn(4, 16),)


def ill_conditioned() -> Call:
    """A mean of large numbers of both signs: what is left is rounding, in eager as well."""
    return lambda x: (x - x.mean()).sum() / x.numel(), (torch.randn(4096) * 1e4,)


PROGRAMS = (
    Healthy("bfloat16_mlp", bfloat16_mlp, backward=True),
    Healthy("bfloat16_softmax", bfloat16_softmax),
    Healthy("float16_norm", float16_norm),
    Healthy("float8_round_trip", float8_round_trip),
    Healthy("float8_e5m2", float8_e5m2),
    Healthy("complex_rotation", complex_rotation),
    Healthy("spectrum", spectrum),
    Healthy("integer_arithmetic", integer_arithmetic),
    Healthy("small_integers", small_integers),
    Healthy("bools", bools),
    Healthy("mixed_dtypes", mixed_dtypes),
    Healthy("special_values", special_values),
    Healthy("autocast_region", autocast_region),
    Healthy("ill_conditioned", ill_conditioned),
)
