"""Windows, reductions, scans, sorts, searches, scatters and integers beside Inductor and eager.

One table for each kind of program, as `kernels.py` prints it. Backward passes are called as the
operators of their gradients.

    python -m benchmarks.windows [--dtype float32] [--only KIND,...] [--threads 2]
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.kernels import begin, chosen, print_table
from benchmarks.programs import Program

Inputs = Mapping[str, Any]


def main() -> None:
    """Time the programs, one table for each kind and type."""
    args, options = begin(__doc__ or "", blocks=9)
    torch.set_grad_enabled(False)
    for dtype in args.dtype.split(","):
        for kind in chosen(args.only, KINDS):
            texts, make = KINDS[kind]
            inputs = make(args.device, getattr(torch, dtype))
            title = f"{kind}, {dtype}"
            programs = [program for text in texts for program in _programs(text, inputs)]
            print_table(title, programs, args.blocks, options, 0.0)


def _programs(text: str, inputs: Inputs) -> list[Program]:
    """Return the program of an expression; its free names are inputs.

    An expression with the integer `n` is made for each integer type.
    """
    used = compile(text, text, "eval").co_names
    if "n" in used:
        each = [{**inputs, "n": inputs[f"{d}_n"], "m": inputs[f"{d}_m"]} for d in INTEGERS]
        return [_program(text, f" {d}", of) for d, of in zip(INTEGERS, each, strict=True)]
    return [_program(text, "", inputs)]


def _program(text: str, suffix: str, inputs: Inputs) -> Program:
    names = [name for name in dict.fromkeys(compile(text, text, "eval").co_names) if name in inputs]
    run: Callable[..., Any] = eval(f"lambda {', '.join(names)}: {text}", globals())
    return Program(text + suffix, run, tuple(inputs[name] for name in names), 0)


aten = torch.ops.aten
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")


def _images(device: str, dtype: torch.dtype) -> Inputs:
    draw = torch.Generator(device).manual_seed(0)

    def make(*size: int) -> Tensor:
        return torch.randn(*size, generator=draw, device=device).to(dtype)

    x = make(8, 64, 56, 56)
    volume, line = make(2, 32, 16, 28, 28), make(16, 64, 2048)
    g = {28: make(8, 64, 28, 28), 7: make(8, 64, 7, 7), 56: make(8, 64, 56, 56)}
    places = F.max_pool2d(x, 3, 2, 1, return_indices=True)[1]
    return {
        "x": x, "last": x.contiguous(memory_format=torch.channels_last), "volume": volume,
        "line": line, "g28": g[28], "g7": g[7], "g56": g[56], "places": places,
        "pairs": F.max_pool2d(x, 2, return_indices=True)[1], "g112": make(8, 64, 112, 112),
        "half": make(8, 64, 28, 28), "columns": F.unfold(x, 3, padding=1),
        "cube": make(2, 32, 8, 14, 14), "strip": make(16, 64, 1024), "g2048": make(16, 64, 1024),
    }  # fmt: skip


def _rows(device: str, dtype: torch.dtype) -> Inputs:
    draw = torch.Generator(device).manual_seed(0)

    def make(*size: int) -> Tensor:
        return torch.randn(*size, generator=draw, device=device).to(dtype)

    def draw_integers(limit: int, *size: int) -> Tensor:
        return torch.randint(0, limit, size, generator=draw, device=device)

    x = make(512, 1024)
    inputs = {
        "x": x, "y": make(512, 1024), "cube": make(32, 64, 256), "mask": x > 0, "rare": x > 3,
        "long": make(1 << 20), "whole": draw_integers(100, 512, 1024),
        "sorted": make(1024).sort()[0],
        "at": draw_integers(1024, 512, 1024), "row": draw_integers(512, 4096),
        "table": make(8192, 256), "token": draw_integers(8192, 2048), "g": make(2048, 256),
        "source": make(4096, 1024), "bag": torch.arange(0, 2048, 8, device=device),
        "small": make(1024), "flat": draw_integers(1024, 1 << 19),
    }  # fmt: skip
    for name in INTEGERS:
        inputs[f"{name}_n"] = draw_integers(100, 512, 1024).to(getattr(torch, name))
        inputs[f"{name}_m"] = (draw_integers(6, 512, 1024) + 1).to(getattr(torch, name))
    return inputs


POOLING = (
    "F.max_pool1d(line, 3, 2, 1)", "F.max_pool2d(x, 3, 2, 1)", "F.max_pool2d(x, 2)",
    "F.max_pool2d(x, 3, 1, 1)", "F.max_pool2d(x, 5, 1, 2)", "F.max_pool2d(x.relu(), 3, 2, 1)",
    "F.max_pool2d(last, 3, 2, 1)", "F.max_pool3d(volume, 2)", "F.max_pool3d(volume, 3, 2, 1)",
    "F.max_pool2d(x, 3, 2, 1, return_indices=True)", "F.avg_pool1d(line, 3, 2, 1)",
    "F.avg_pool2d(x, 2)", "F.avg_pool2d(x, 3, 1, 1)", "F.avg_pool2d(last, 3, 2, 1)",
    "F.avg_pool3d(volume, 2)", "F.lp_pool2d(x, 2, 3, 2)", "F.adaptive_avg_pool2d(x, 1)",
    "F.adaptive_avg_pool2d(x, 7)", "F.adaptive_avg_pool2d(x, 5)", "F.adaptive_max_pool2d(x, 7)",
    "F.adaptive_max_pool2d(x, 5)", "F.adaptive_avg_pool1d(line, 8)",
    "F.max_unpool2d(half, pairs, 2)",
)  # fmt: skip

POOLING_BACKWARD = (
    "aten.max_pool2d_with_indices_backward(g28, x, [3, 3], [2, 2], [1, 1], [1, 1], False, places)",
    "aten.max_pool2d_with_indices_backward(g28, x, [2, 2], [2, 2], [0, 0], [1, 1], False, pairs)",
    "aten.avg_pool2d_backward(g28, x, [2, 2], [2, 2], [0, 0], False, True, None)",
    "aten.avg_pool2d_backward(g56, x, [3, 3], [1, 1], [1, 1], False, True, None)",
    "aten._adaptive_avg_pool2d_backward(g7, x)",
    "aten.avg_pool3d_backward(cube, volume, [2, 2, 2], [2, 2, 2], [0, 0, 0], False, True, None)",
)

WINDOWS = (
    "F.unfold(x, 3, padding=1)", "F.fold(columns, (56, 56), 3, padding=1)",
    "x.unfold(2, 3, 1).sum(-1)", "line.unfold(-1, 8, 4).amax(-1)",
    "F.pad(x, (1, 1, 1, 1), 'reflect')", "F.pad(x, (1, 1, 1, 1), 'replicate')",
    "F.pad(x, (1, 1, 1, 1), 'circular')", "F.pad(x, (1, 1, 1, 1))",
    "aten.reflection_pad2d_backward(g56, x[..., 1:-1, 1:-1], [1, 1, 1, 1])",
    "aten.replication_pad2d_backward(g56, x[..., 1:-1, 1:-1], [1, 1, 1, 1])",
    "F.pixel_shuffle(x, 2)", "F.pixel_unshuffle(x, 2)",
)  # fmt: skip

UPSAMPLING = (
    "F.interpolate(x, scale_factor=2)", "F.interpolate(x, scale_factor=2, mode='nearest-exact')",
    "F.interpolate(x, scale_factor=2, mode='bilinear')",
    "F.interpolate(x, scale_factor=2, mode='bilinear', align_corners=True)",
    "F.interpolate(last, scale_factor=2, mode='bilinear')",
    "F.interpolate(x, (40, 40), mode='bilinear')", "F.interpolate(x, scale_factor=0.5)",
    "F.interpolate(x, scale_factor=2, mode='bicubic')", "F.interpolate(x, 28, mode='area')",
    "F.interpolate(line, scale_factor=2, mode='linear')", "F.interpolate(line, scale_factor=2)",
    "F.interpolate(cube, scale_factor=2, mode='trilinear')",
    "aten.upsample_nearest2d_backward(g112, [112, 112], [8, 64, 56, 56])",
    "aten.upsample_bilinear2d_backward(g112, [112, 112], [8, 64, 56, 56], False)",
    "aten.upsample_bicubic2d_backward(g56, [56, 56], [8, 64, 28, 28], False)",
    "aten.upsample_linear1d_backward(line, [2048], [16, 64, 1024], False)",
)  # fmt: skip

SCANS = (
    "x.cumsum(1)", "x.cumsum(0)", "cube.cumsum(1)", "long.cumsum(0)", "x.cumprod(1)",
    "x.cumprod(0)", "x.cummax(1)", "x.cummax(0)", "x.cummin(1)", "x.logcumsumexp(1)",
    "x.logcumsumexp(0)", "whole.cumsum(1)", "whole.cumsum(0)", "mask.cumsum(1)",
    "x.softmax(1).cumsum(1)", "(x * 2).flip(1).cumsum(1).flip(1)", "x.diff(dim=1)",
)  # fmt: skip

ORDER = (
    "x.sort(1)", "x.sort(0)", "x.sort(1, descending=True)", "x.sort(dim=1, stable=True)",
    "x.argsort(1)", "x.topk(10, 1)", "x.topk(2, 1)", "x.topk(1, 1)", "x.topk(10, 0)",
    "x.kthvalue(100, 1)", "x.median(1)", "x.median()", "whole.sort(1)", "long.sort()", "x.msort()",
    "whole.mode(1)",
)  # fmt: skip

SEARCH = (
    "torch.searchsorted(sorted, x)", "torch.bucketize(x, sorted)",
    "torch.bucketize(x, sorted[::64].contiguous(), right=True)", "torch.histc(x, 100, -3, 3)",
    "torch.isin(whole, whole[0, :20])", "torch.where(x > y, x, y)",
    "(x[:, None, :8] == y[:, :64, None]).any(-1)", "F.one_hot(whole, 100)",
    "torch.cdist(x[:, :64], y[:, :64], 1)", "torch.tril(x)",
)  # fmt: skip

GATHERS = (
    "x.gather(1, at)", "x.gather(0, at[:, :] % 512)", "x.index_select(0, row)", "x[row]",
    "x[:, token % 1024]", "x.take_along_dim(at, 1)", "x.take(at)", "F.embedding(token, table)",
    "F.embedding(token, table) * 2", "F.embedding_bag(token, table, bag, mode='sum')",
    "F.embedding_bag(token, table, bag, mode='mean')", "x.roll(3, 1)", "x.masked_fill(mask, 0)",
)  # fmt: skip

SCATTERS = (
    "aten.embedding_dense_backward(g, token, 8192, -1, False)", "x.scatter(1, at, y)",
    "x.scatter_add(1, at, y)", "x.scatter_add(0, at % 512, y)", "x.index_add(0, row, source)",
    "x.index_put((row,), source, accumulate=True)", "x.index_put((row,), source)",
    "small.scatter_add(0, flat, long[: 1 << 19])", "x.scatter_reduce(1, at, y, 'amax')",
    "x.scatter_reduce(1, at, y, 'mean')", "x.index_copy(0, row[:100], source[:100])",
    "x.index_fill(0, row[:100], 1.0)", "table.index_put((token,), g, accumulate=True)",
    "x.select_scatter(small, 0, 3)", "x.slice_scatter(y[:100], 0, 100, 200)",
)  # fmt: skip

ALONG = (
    "x.sum({})", "x.mean({})", "x.amax({})", "x.argmax({})", "x.max({})", "x.min({})",
    "x.var({})", "x.std({})", "x.norm(dim={})", "x.prod({})", "mask.any({})", "rare.any({})",
    "mask.all({})", "x.count_nonzero({})", "x.logsumexp({})", "mask.sum({})", "whole.sum({})",
    "whole.amax({})",
)  # fmt: skip

REDUCTIONS = (
    *(text.format(dim) for text in ALONG for dim in (1, 0)),
    "x.sum()", "x.mean()", "x.amax()", "x.argmax()", "x.var()", "x.norm()", "x.prod()",
    "mask.any()", "rare.any()", "mask.sum()", "whole.amax()", "x.isnan().any()", "(x == y).all()",
    "x.norm(1)", "cube.sum(1)", "cube.amax(1)", "cube.argmax(1)", "cube.var(1)", "cube.sum((0, 2))",
    "cube.mean((0, 1))", "cube.argmax(0)", "x.aminmax()", "x.norm(float('inf'))", "x.norm(3, 1)",
    "(x * y).sum()", "F.normalize(x)", "F.cosine_similarity(x, y)", "long.sum()", "long.argmax()",
    "torch.dist(x, y)",
)  # fmt: skip

ARITHMETIC = (
    "n + m", "n * m", "n // m", "n % m", "n / m", "n << m", "n & m", "n > m",
    "torch.where(n > m, n, m)", "n.clamp(10, 50)", "n // 10", "n.sum(1)", "n.amax(1)",
    "n.bitwise_not()", "n.abs() ^ m", "torch.fmod(n, m)", "n == 7", "n.float() * 0.1", "n.max(1)",
)  # fmt: skip

BOOLS = (
    "mask & rare", "mask | ~rare", "mask ^ rare", "mask.logical_not()", "mask.float()",
    "x.isnan() | (x > 1)", "(x > 0) & (y > 0)", "torch.where(mask, x, y)", "mask.long()",
    "mask * x", "mask.cumsum(1) * mask", "torch.where(mask & rare, whole, 0)", "x.bool()",
    "whole.bool() & mask", "x.to(torch.int32)", "whole.to(torch.int32)", "whole.gcd(whole + 3)",
)  # fmt: skip

KINDS: Mapping[str, tuple[tuple[str, ...], Callable[[str, torch.dtype], Inputs]]] = {
    "pooling": (POOLING, _images),
    "pooling_backward": (POOLING_BACKWARD, _images),
    "windows": (WINDOWS, _images),
    "upsampling": (UPSAMPLING, _images),
    "scans": (SCANS, _rows),
    "order": (ORDER, _rows),
    "search": (SEARCH, _rows),
    "gathers": (GATHERS, _rows),
    "scatters": (SCATTERS, _rows),
    "reductions": (REDUCTIONS, _rows),
    "arithmetic": (ARITHMETIC, _rows),
    "bools": (BOOLS, _rows),
}
"""The expressions of each kind, and the inputs that they name."""


if __name__ == "__main__":
    main()
