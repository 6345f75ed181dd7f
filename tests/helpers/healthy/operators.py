"""Operators that compilers get wrong easily, in programs where they get them right."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.helpers.healthy.base import Call, Healthy


def fourier_filter() -> Call:
    def run(x: Tensor, gain: Tensor) -> Tensor:
        spectrum = torch.fft.rfft2(x) * gain
        return torch.fft.irfft2(spectrum, s=x.shape[-2:]) + torch.fft.fftshift(x).abs()

    return run, (torch.randn(2, 6, 8), torch.rand(6, 5))


def rotary_pairs() -> Call:
    def run(x: Tensor, angle: Tensor) -> tuple[Tensor, Tensor]:
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        turned = pairs * torch.polar(torch.ones_like(angle), angle)
        return torch.view_as_real(turned).flatten(-2), turned.conj().angle()

    return run, (torch.randn(3, 4, 8), torch.randn(4, 4))


def sort_with_ties() -> Call:
    def run(x: Tensor) -> tuple[Tensor, ...]:
        values, order = x.sort(dim=-1, stable=True, descending=True)
        return values, order, x.argsort(stable=True), x.topk(3, dim=-1).values, x.mode(-1).values

    return run, (torch.randint(0, 4, (5, 16)).float(),)


def low_precision_scans() -> Call:
    def run(x: Tensor) -> tuple[Tensor, ...]:
        return x.cumsum(-1), x.cumprod(0), x.float().cumsum(-1).to(x.dtype), x.logcumsumexp(-1)

    return run, (torch.randn(4, 300, dtype=torch.bfloat16),)


def embedding_bag() -> Call:
    bag = nn.EmbeddingBag(10, 4, mode="mean", padding_idx=0)
    words = nn.Embedding(10, 4, max_norm=1.0)

    def run(x: Tensor, offsets: Tensor) -> Tensor:
        return bag(x, offsets) + words(x[: offsets.shape[0]])

    return run, (torch.tensor([1, 2, 4, 5, 4, 3, 2, 9]), torch.tensor([0, 4, 6]))


def sparse_gradients() -> Call:
    words = nn.Embedding(12, 4, sparse=True)

    def run(x: Tensor) -> Tensor:
        return words(x).square().sum(-1)

    return run, (torch.tensor([[1, 2, 2], [4, 1, 11]]),)


def accumulating_writes() -> Call:
    def run(x: Tensor, rows: Tensor, values: Tensor) -> tuple[Tensor, ...]:
        first = x.clone().index_put_((rows,), values, accumulate=True)
        index = rows[:, None].expand_as(values)
        second = x.scatter_reduce(0, index, values, reduce="amax", include_self=False)
        third = x.scatter_reduce(0, index, values, reduce="mean")
        return first, second, third, x.index_reduce(0, rows, values, "prod")

    return run, (torch.randn(5, 3), torch.tensor([0, 2, 2, 4]), torch.randn(4, 3))


def einsum_chain() -> Call:
    def run(x: Tensor, w: Tensor) -> Tensor:
        scores = torch.einsum("bhid,bhjd->bhij", x, x)
        return torch.einsum("bhij,bhjd,de->bihe", scores.softmax(-1), x, w)

    return run, (torch.randn(2, 3, 5, 4), torch.randn(4, 6))


def solved_systems() -> Call:
    def run(x: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        spd = x @ x.mT + 4 * torch.eye(x.shape[-1], device=x.device)
        lower = torch.linalg.cholesky(spd)
        solved = torch.cholesky_solve(b, lower)
        return solved, torch.linalg.solve(spd, b), torch.logdet(spd), torch.linalg.inv(spd)

    return run, (torch.randn(2, 4, 4), torch.randn(2, 4, 2))


def resampling() -> Call:
    def run(x: Tensor, theta: Tensor) -> tuple[Tensor, ...]:
        grid = F.affine_grid(theta, list(x.shape), align_corners=False)
        warped = F.grid_sample(x, grid, padding_mode="reflection", align_corners=False)
        up = F.interpolate(x, scale_factor=1.7, mode="bicubic", align_corners=False)
        down = F.interpolate(x, size=(3, 5), mode="bilinear", antialias=True)
        return warped, up, down, F.pixel_shuffle(x, 2)

    return run, (torch.randn(2, 4, 6, 6), torch.randn(2, 2, 3) * 0.5)


def quantiles() -> Call:
    def run(x: Tensor, q: Tensor) -> tuple[Tensor, ...]:
        low = torch.quantile(x, q, dim=-1, interpolation="lower")
        return low, torch.nanmedian(x, dim=0).values, x.nanquantile(0.3), torch.bucketize(x, q)

    return run, (torch.randn(4, 9), torch.tensor([0.1, 0.5, 0.9]))


def unique_rows() -> Call:
    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        values, inverse = torch.unique(x, return_inverse=True)
        return values * 2, values.float()[inverse].sqrt()

    return run, (torch.tensor([3, 1, 3, 7, 1]),)


def item_decides() -> Call:
    def run(x: Tensor) -> Tensor:
        size = int((x > 0).sum().item())
        return x * size if size > 2 else x - size

    return run, (torch.tensor([1.0, -1.0, 2.0, 3.0]),)


def nonzero_sizes() -> Call:
    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        found = torch.nonzero(x > 0)
        return x[x > 0].exp(), found.sum(0)

    return run, (torch.randn(4, 5),)


def transposed_convolutions() -> Call:
    up = nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1, groups=1)
    deep = nn.Conv1d(4, 8, 3, groups=4, dilation=2, padding="same", padding_mode="circular")

    def run(x: Tensor) -> Tensor:
        return deep(up(x).flatten(2)).tanh()

    return run, (torch.randn(2, 3, 4, 4),)


def channels_last_pool() -> Call:
    model = nn.Sequential(
        nn.Conv2d(4, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.MaxPool2d(2, return_indices=False)
    ).to(memory_format=torch.channels_last)
    return model, (torch.randn(2, 4, 9, 9).to(memory_format=torch.channels_last),)


def strided_windows() -> Call:
    def run(x: Tensor) -> tuple[Tensor, ...]:
        windows = x.as_strided((x.shape[0] - 2, 3), (1, 1))
        spread = x[:, None].expand(-1, 4)
        return windows.mean(-1), spread + 1, x.unfold(0, 4, 2).amax(-1), windows.contiguous()

    return run, (torch.randn(12),)


def integer_overflow() -> Call:
    def run(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        wrapped = x * 3 + 100
        return wrapped, wrapped >> 1, x.to(torch.int32) * 3, y * y, ~x, -x, x.sum(), x.prod()

    return run, (
        torch.tensor([-128, 127, 60, -5], dtype=torch.int8),
        torch.tensor([2**31 - 1, -(2**31), 65536], dtype=torch.int32),
    )


def unsigned_bytes() -> Call:
    def run(x: Tensor) -> tuple[Tensor, ...]:
        return x - 1, x // 7, x % 7, (x.float() / 255).mul(255).round().to(torch.uint8), x & 15

    return run, (torch.tensor([0, 1, 128, 254, 255], dtype=torch.uint8),)


def scaled_float8() -> Call:
    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        scale = 448.0 / x.abs().amax(-1, keepdim=True)
        small = (x * scale).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)
        return small.to(torch.float32) / scale, small

    return run, (torch.randn(4, 16),)


def attention_masks() -> Call:
    def run(q: Tensor, k: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        causal = F.scaled_dot_product_attention(q, k, k, is_causal=True)
        masked = F.scaled_dot_product_attention(q, k, k, attn_mask=mask, scale=0.3)
        grouped = F.scaled_dot_product_attention(q, k[:, :1], k[:, :1], enable_gqa=True)
        return causal, masked, grouped

    mask = torch.tensor([[True, False, True, True, True]])
    return run, (torch.randn(2, 4, 5, 8), torch.randn(2, 4, 5, 8), mask)


def half_softmax_loss() -> Call:
    head = nn.Linear(8, 11, dtype=torch.bfloat16)

    def run(x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(head(x).float(), y, label_smoothing=0.1, ignore_index=2)

    return run, (torch.randn(6, 8, dtype=torch.bfloat16), torch.tensor([0, 2, 10, 4, 2, 1]))


def autocast_regions() -> Call:
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 4))

    def run(x: Tensor) -> Tensor:
        kind = x.device.type
        with torch.autocast(kind, dtype=torch.bfloat16):
            half = model(x)
            with torch.autocast(kind, enabled=False):
                full = model(x.float())
        return half.float() + full

    return run, (torch.randn(3, 8),)


def running_extremes() -> Call:
    def run(x: Tensor) -> tuple[Tensor, ...]:
        values, where = x.cummax(-1)
        return values, where, x.cummin(0).values, x.diff(dim=-1), x.aminmax(dim=0).max

    return run, (torch.tensor([[3.0, 1.0, 3.0, float("nan"), 5.0], [0.0, -0.0, 2.0, 2.0, 1.0]]),)


def infinities() -> Call:
    def run(x: Tensor) -> tuple[Tensor, ...]:
        fixed = x.nan_to_num(nan=1.0, posinf=2.0, neginf=-2.0)
        return fixed, x.sign(), x.maximum(x.flip(0)), torch.copysign(fixed, x), x.isfinite()

    inf = float("inf")
    return run, (torch.tensor([inf, -inf, float("nan"), 0.0, -0.0, 1e-40]),)


PROGRAMS = (
    Healthy("fourier_filter", fourier_filter),
    Healthy("rotary_pairs", rotary_pairs),
    Healthy("sort_with_ties", sort_with_ties),
    Healthy("low_precision_scans", low_precision_scans),
    Healthy("embedding_bag", embedding_bag, backward=True),
    Healthy("sparse_gradients", sparse_gradients, backward=True),
    Healthy("accumulating_writes", accumulating_writes),
    Healthy("einsum_chain", einsum_chain, dynamic=True),
    Healthy("solved_systems", solved_systems),
    Healthy("resampling", resampling),
    Healthy("quantiles", quantiles),
    Healthy("unique_rows", unique_rows),
    Healthy("item_decides", item_decides),
    Healthy("nonzero_sizes", nonzero_sizes),
    Healthy("transposed_convolutions", transposed_convolutions, backward=True),
    Healthy("channels_last_pool", channels_last_pool, backward=True),
    Healthy("strided_windows", strided_windows),
    Healthy("integer_overflow", integer_overflow),
    Healthy("unsigned_bytes", unsigned_bytes),
    Healthy("scaled_float8", scaled_float8),
    Healthy("attention_masks", attention_masks),
    Healthy("half_softmax_loss", half_softmax_loss, backward=True),
    Healthy("autocast_regions", autocast_regions, backward=True),
    Healthy("running_extremes", running_extremes),
    Healthy("infinities", infinities),
)
