"""Layouts: every way to read with every way to write, and joined results, beside a copy.

A program of the matrix is `write(y + read(x))`. Programs of `joins` make the parts of one result:
`cat`, `stack`, pads, scatters into slices. Prints for each program the best time of eager, the
speed of Inductor and of ctk relative to eager, the ratio of the two, and for all three the bytes
that must be read and written in this time, as a share of the rate of a copy in the same run: of
1 GB on CUDA, of 4 MB on a CPU, as a result of a program has.

    python -m benchmarks.layouts [--device cpu|cuda] [--dtype float32] [--only WORD,...]
"""

import statistics
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.kernels import begin, chosen, compared, copy_rate
from benchmarks.programs import Program

View: TypeAlias = Callable[[Tensor], Tensor]

READS: Mapping[str, tuple[Callable[[int], tuple[int, ...]], View]] = {
    "contiguous": (lambda n: (n, n), lambda x: x),
    "transposed": (lambda n: (n, n), lambda x: x.t()),
    "row": (lambda n: (1, n), lambda x: x),
    "column": (lambda n: (n, 1), lambda x: x),
    "sliced": (lambda n: (n, n + 24), lambda x: x[:, 8:-16]),
    "step2": (lambda n: (n, 2 * n), lambda x: x[:, ::2]),
    "flipped": (lambda n: (n, n), lambda x: x.flip(1)),
    "windows": (lambda n: (2 * n - 1,), lambda x: x.unfold(0, (x.shape[0] + 1) // 2, 1)),
}
"""The shape of `x` for a square of side n, and a view of it as that square."""

WRITES: Mapping[str, View] = {
    "contiguous": lambda v: v,
    "transposed": lambda v: v.t().contiguous(),
    "sliced": lambda v: F.pad(v, (8, 16)),
    "step2": lambda v: torch.stack((v, v * 2), -1),
    "flipped": lambda v: v.flip(1),
    "halves": lambda v: torch.cat((v, v * 2), 1),
    "shifted": lambda v: v.roll(5, 1),
}
"""How a result is written."""

IMAGE_READS: Mapping[str, View] = {
    "NCHW": lambda x: x,
    "NHWC": lambda x: x.view(x.shape[0], *x.shape[2:], x.shape[1]).permute(0, 3, 1, 2),
    "heads": lambda x: x.view(x.shape[0], x.shape[2], x.shape[1], x.shape[3]).transpose(1, 2),
}
IMAGE_WRITES: Mapping[str, View] = {
    "NCHW": lambda v: v.contiguous(),
    "NHWC": lambda v: v.contiguous(memory_format=torch.channels_last),
    "heads": lambda v: v.transpose(1, 2).contiguous(),
}


def matrix(device: str, dtype: torch.dtype, scale: int) -> Iterator[Program]:
    """Yield `write(y + read(x))` for squares, and for images."""
    n = 1024 * scale
    make = _maker(device, dtype)
    for read_name, (shape, read) in READS.items():
        for write_name, write in WRITES.items():
            run = _sum(read, write)
            yield _program(f"{read_name} to {write_name}", run, make(shape(n)), make((n, n)))
    image = (4, 64, 64 * scale, 64)
    for read_name, read in IMAGE_READS.items():
        for write_name, write in IMAGE_WRITES.items():
            run = _sum(read, write)
            yield _program(f"{read_name} to {write_name}", run, make(image), make(image))


def _sum(read: View, write: View) -> Callable[[Tensor, Tensor], Tensor]:
    def run(x: Tensor, y: Tensor) -> Tensor:
        return write(y + read(x))

    return run


def _maker(device: str, dtype: torch.dtype) -> Callable[[tuple[int, ...]], Tensor]:
    generator = torch.Generator().manual_seed(0)

    def make(shape: tuple[int, ...]) -> Tensor:
        return (torch.randn(shape, generator=generator) * 20).to(device, dtype)

    return make


def _program(name: str, run: Callable[..., Any], *inputs: Tensor) -> Program:
    """Count the elements of the inputs and of the results, each once."""
    results = run(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    return Program(name, run, inputs, sum(each.nbytes for each in (*inputs, *results)))


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the two halves of each head."""
    one, two = x.chunk(2, -1)
    return torch.cat((one * cos - two * sin, two * cos + one * sin), -1)


def rotary_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate neighbouring elements of each head."""
    one, two = x[..., ::2], x[..., 1::2]
    return torch.stack((one * cos - two * sin, two * cos + one * sin), -1).flatten(-2)


def cat_rows(x: Tensor, y: Tensor) -> Tensor:
    """Join two results below each other."""
    return torch.cat((x.relu() + 1, y * 2), 0)


def cat_columns(x: Tensor, y: Tensor) -> Tensor:
    """Join two results side by side."""
    return torch.cat((x.relu() + 1, y * 2), 1)


def cat_eight(x: Tensor) -> Tensor:
    """Join eight parts in another order, each scaled."""
    parts = x.chunk(8, 1)
    return torch.cat([part * (i + 1) for i, part in enumerate(reversed(parts))], 1)


def cat_sums(x: Tensor, y: Tensor) -> Tensor:
    """Join results that have another reader each."""
    a, b = x.sigmoid(), y.sigmoid()
    return torch.cat((a, b, a * b), 1)


def cat_softmax(x: Tensor, y: Tensor) -> Tensor:
    """Join results of reductions of rows."""
    return torch.cat((x.softmax(1), y.softmax(1)), 1)


def cat_product(x: Tensor, y: Tensor) -> Tensor:
    """Join the result of a library call and one of a kernel."""
    return torch.cat((x[:, :64] @ y[:64], x + y), 1)


def cat_channels(x: Tensor, y: Tensor) -> Tensor:
    """Join the channels of images, as a dense block does."""
    return torch.cat((x.relu(), (y + 1).relu()), 1)


def stack_first(x: Tensor, y: Tensor) -> Tensor:
    """Stack two results."""
    return torch.stack((x.relu() + 1, y * 2), 0)


def stack_last(x: Tensor, y: Tensor) -> Tensor:
    """Interleave two results."""
    return torch.stack((x.relu() + 1, y * 2), -1)


def stack_transposed(x: Tensor, y: Tensor) -> Tensor:
    """Stack transposed results."""
    return torch.stack((x.t() + 1, y.t() * 2), 0)


def split_gate(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return two parts, each of its own function."""
    a, b = x.split(x.shape[1] // 2, 1)
    return a.relu() + 1, b * 2


def scatter_slice(x: Tensor, y: Tensor) -> Tensor:
    """Replace columns by a result."""
    return (x + 1).slice_scatter(y[:, 256:512] * 2, 1, 256, 512)


def scatter_step(x: Tensor, y: Tensor) -> Tensor:
    """Replace every second column by a result."""
    return (x + 1).slice_scatter(y[:, ::2] * 2, 1, 0, x.shape[1], 2)


def scatter_select(x: Tensor, y: Tensor) -> Tensor:
    """Replace one row by a result."""
    return (x + 1).select_scatter(y[0] * 2, 0, 3)


def pad_softmax(x: Tensor) -> Tensor:
    """Pad the result of reductions of rows."""
    return F.pad(x.softmax(1), (8, 8, 1, 1))


def pad_reflect(x: Tensor) -> Tensor:
    """Pad images by their own border."""
    return F.pad(x * 2, (2, 2, 2, 2), "reflect")


def repeated(x: Tensor) -> Tensor:
    """Repeat a result."""
    return (x.relu() + 1).repeat(2, 2)


def window_shift(x: Tensor) -> Tensor:
    """Shift images cyclically, as Swin does."""
    return (x * 2).roll((-3, -3), (2, 3))


def two_transposed(x: Tensor, y: Tensor) -> Tensor:
    """Add two transposed operands to a plain one."""
    return (x * 2 + x.t() * y.t()).contiguous()


def transposed_rows(x: Tensor) -> Tensor:
    """Reduce rows of a transposed operand, and write it transposed back."""
    return (x.t() - x.t().mean(1, keepdim=True)).contiguous()


def transposed_sum(x: Tensor, y: Tensor) -> Tensor:
    """Sum the rows of a plain and a transposed operand."""
    return (x * y.t()).sum(1)


def heads_apart(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values of heads, scaled."""
    parts = x.view(x.shape[0], x.shape[1], 3, 16, -1).permute(2, 0, 3, 1, 4)
    q, k, v = ((part * 2).contiguous() for part in parts)
    return q, k, v


def joins(device: str, dtype: torch.dtype, scale: int) -> Iterator[Program]:
    """Yield programs that make the parts of a result, or read with strides and reduce."""
    n, make = 1024 * scale, _maker(device, dtype)
    x, y = make((n, n)), make((n, n))
    half, image = make((n, n // 2)), make((4, 64, 64 * scale, 64))
    heads, angles = make((4, 16, 512 * scale, 64)), make((512 * scale, 32))
    yield _program("rotary", rotary, heads, angles, angles)
    yield _program("rotary_pairs", rotary_pairs, heads, angles, angles)
    for run in (cat_rows, cat_columns, cat_sums, cat_softmax, cat_product, stack_first, stack_last,
                stack_transposed, scatter_slice, scatter_step, scatter_select, two_transposed,
                transposed_sum):  # fmt: skip
        yield _program(run.__name__, run, x, y)
    for run in (cat_eight, split_gate, pad_softmax, transposed_rows):
        yield _program(run.__name__, run, x)
    yield _program("cat_channels", cat_channels, image, image)
    yield _program("repeated", repeated, half)
    for run in (pad_reflect, window_shift):
        yield _program(run.__name__, run, image)
    yield _program("heads_apart", heads_apart, make((1, 256 * scale, 3072)))


def main() -> None:
    """Time the programs, and print a table."""
    args, options = begin(__doc__ or "", blocks=15)
    torch.set_grad_enabled(False)
    rate = copy_rate(args.device)
    print(f"copy rate {rate / 1e9:.1f} GB/s")
    for name in args.dtype.split(","):
        print(f"\n{name:24}{'eager us':>10}{'inductor':>10}{'ctk':>8}{'ctk/ind.':>10}"
              f"   share of copy: eager inductor ctk")  # fmt: skip
        ratios: list[float] = []
        settings = args.device, getattr(torch, name), 4 if args.device == "cuda" else 1
        programs = {each.name: each for each in (*joins(*settings), *matrix(*settings))}
        for program in map(programs.__getitem__, chosen(args.only, programs)):
            timed = compared(program.run, program.inputs, args.blocks, options, typical=min)
            eager, inductor, ours = (timed[key].call for key in ("eager", "inductor", "ctk"))
            ratios.append(inductor / ours)
            shares = (program.nbytes / each / rate for each in (eager, inductor, ours))
            print(f"{program.name:24}{eager * 1e6:10.1f}{eager / inductor:10.2f}{eager / ours:8.2f}"
                  f"{ratios[-1]:10.2f}   " + " ".join(f"{share:8.2f}" for share in shares),
                  flush=True)  # fmt: skip
        mean = statistics.geometric_mean(ratios)
        print(f"geometric mean ctk/inductor {mean:.3f}, worst {min(ratios):.2f}")


if __name__ == "__main__":
    main()
