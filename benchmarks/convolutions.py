"""Convolutions of cuDNN with channels first and last: the measurement behind `to_channels_last`.

A row is a kind of convolution. For each type (`tf32` is float32 on tensor cores) it has the
microseconds of forward and backward with channels first, and their speed with channels last.

    python -m benchmarks.convolutions [--only NAME,...]
"""

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from itertools import product

import torch

from benchmarks.kernels import chosen

aten = torch.ops.aten
TYPES = {
    "bf16": torch.bfloat16, "f16": torch.float16, "tf32": torch.float32, "f32": torch.float32,
}  # fmt: skip
FORMATS = (torch.contiguous_format, torch.channels_last)
KINDS = {
    "first": (32, 3, 224, 64, 7, 2, 1),
    **{f"3x3 {c}": (32, c, side, c, 3, 1, 1) for c, side in (
        (16, 112), (30, 56), (32, 112), (64, 56), (128, 28), (256, 14), (512, 7),
    )},
    "1x1 64 to 256": (32, 64, 56, 256, 1, 1, 1), "1x1 256 to 64": (32, 256, 56, 64, 1, 1, 1),
    "1x1 1024 to 256": (32, 1024, 14, 256, 1, 1, 1), "1x1 16 to 96": (32, 16, 112, 96, 1, 1, 1),
    "1x1 58": (32, 58, 28, 58, 1, 1, 1), "3x3 512 to 64": (32, 512, 14, 64, 3, 1, 1),
    "depthwise 3x3": (32, 96, 56, 96, 3, 1, 96), "depthwise 5x5": (32, 240, 14, 240, 5, 1, 240),
    "32 groups": (32, 256, 28, 256, 3, 1, 32), "8 groups": (32, 64, 56, 64, 3, 1, 8),
    "one image, 64": (1, 64, 56, 64, 3, 1, 1), "one image, 256": (1, 256, 14, 256, 3, 1, 1),
}  # fmt: skip
"""Batch, channels, side, channels of the result, side of the weight, stride, groups."""


def main() -> None:
    """Print a row for each kind."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="")
    names = chosen(parser.parse_args().only, KINDS)
    titles = [f"{name} {way}" for name in TYPES for way in ("forward", "backward")]
    print(f"{'':16}" + "".join(f"{title:>16}" for title in titles))
    for name in names:
        cells = [cell for type_ in TYPES for cell in measure(name, type_)]
        line = "".join(f"{first:9.1f}{first / last:7.2f}" for first, last in cells)
        print(f"{name:16}{line}", flush=True)


def measure(name: str, type_: str) -> list[tuple[float, float]]:
    """Return the microseconds with channels first and last: of forward, and of backward."""
    torch.backends.cudnn.allow_tf32 = type_ == "tf32"
    batch, channels, side, wanted, width, stride, groups = KINDS[name]
    settings = ([stride] * 2, [width // 2] * 2, [1, 1], False, [0, 0], groups)
    found: list[list[float]] = []
    for format_ in FORMATS:
        sizes = ((batch, channels, side, side), (wanted, channels // groups, width, width))
        x, w = (
            torch.randn(each, device="cuda", dtype=TYPES[type_]).contiguous(memory_format=format_)
            for each in sizes
        )
        gradient = torch.randn_like(aten.convolution(x, w, None, *settings))
        operands = (gradient, x, w, None, *settings, [name != "first", True, False])
        forward = partial(aten.convolution, x, w, None, *settings)
        found.append([timed(forward), timed(partial(aten.convolution_backward, *operands))])
    first, last = found
    return list(zip(first, last, strict=True))


def timed(call: Callable[[], object]) -> float:
    """Return the microseconds of a call on the device: the median of 5 times 10 calls."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times: list[float] = []
    for block, turn in product(range(6), range(10)):
        if turn == 0:
            begin.record()
        call()
        if turn == 9:
            end.record()
            torch.cuda.synchronize()
            times += [begin.elapsed_time(end) * 100] * (block > 0)
    return statistics.median(times)


if __name__ == "__main__":
    main()
