"""How fast is `flex_attention` beside Inductor's kernels? Prints the ratio for some programs.

    python -m benchmarks.flex_attention [--device cuda] [--backward] [--rounds 15]

Each line: program, type and sizes (batch, heads, length, parts), the milliseconds of Inductor and
of ctk, Inductor's time through ctk's (above 1 ctk is faster), and the largest error of each against
all scores in float64, over the largest number there. The two take turns; a figure is the median.
"""

import argparse
import math
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

Call = Callable[..., Any]
Sizes = tuple[int, int, int, int]


@dataclass(frozen=True)
class Program:
    """A mask and a function of scores; `captured` makes the tensor that the function reads."""

    name: str
    mask: Call | None = None
    score: Call | None = None
    captured: Callable[[Sizes], Tensor] | None = None
    groups: int = 1


PROGRAMS = (
    Program("plain"),
    Program("causal", lambda b, h, q, k: q >= k),
    Program("window", lambda b, h, q, k: (q >= k) & (q - k < 256)),
    Program(
        "alibi", lambda b, h, q, k: q >= k, lambda x: lambda s, b, h, q, k: s + x[h] * (k - q),
        lambda sizes: torch.rand(sizes[1]),
    ),
    Program("capped", lambda b, h, q, k: q >= k, lambda: lambda s, *_: 20 * torch.tanh(s / 20)),
    Program(
        "relative", None, lambda x: lambda s, b, h, q, k: s + x[h, q - k + x.shape[1] // 2],
        lambda sizes: torch.randn(sizes[1], 2 * sizes[2]),
    ),
    Program("grouped", lambda b, h, q, k: q >= k, groups=4),
)  # fmt: skip


def inputs_of(program: Program, sizes: Sizes, dtype: torch.dtype, device: str) -> list[Tensor]:
    """Return queries, keys, values and the captured tensor."""
    torch.manual_seed(0)
    batch, heads, length, parts = sizes
    shapes = [(batch, heads, length, parts)] + 2 * [(batch, heads // program.groups, length, parts)]
    made = [torch.randn(shape) for shape in shapes]
    made += [] if program.captured is None else [program.captured(sizes)]
    return [
        each.to(device, dtype if place < 3 else torch.float32) for place, each in enumerate(made)
    ]


def attention(program: Program, sizes: Sizes, device: str) -> Call:
    """Return the function of the inputs."""
    mask = program.mask
    if mask is not None:
        mask = create_block_mask(mask, None, None, sizes[2], sizes[2], device=device)

    def run(q: Tensor, k: Tensor, v: Tensor, *captured: Tensor) -> Tensor:
        score = None if program.score is None else program.score(*captured)
        return flex_attention(q, k, v, score, mask, enable_gqa=program.groups > 1)

    return run


def dense(program: Program, inputs: Sequence[Tensor]) -> Tensor:
    """Return attention from all scores at once."""
    q, k, v, *captured = inputs
    k, v = (x.repeat_interleave(program.groups, 1) for x in (k, v))
    shape = (*q.shape[:3], k.shape[2])
    views = [[-1 if at == axis else 1 for at in range(4)] for axis in range(4)]
    places = [torch.arange(n, device=q.device).view(v) for n, v in zip(shape, views, strict=True)]
    scores = q @ k.mT * q.shape[-1] ** -0.5
    scores = scores if program.score is None else program.score(*captured)(scores, *places)
    if program.mask is not None:
        scores = scores.masked_fill(~program.mask(*places), float("-inf"))
    return scores.softmax(-1) @ v


def with_backward(call: Call, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the result of a call and the gradients of all inputs."""
    leaves = [each.detach().requires_grad_() for each in inputs]
    result = call(*leaves)
    return [result, *torch.autograd.grad(result, leaves, torch.ones_like(result))]


def without_backward(call: Call, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the result of a call."""
    return [call(*inputs)]


def error(found: Sequence[Tensor], exact: Sequence[Tensor]) -> float:
    """Return the largest relative error, over the largest number of each tensor."""
    pairs = zip(found, exact, strict=True)
    return max(float((x.detach().double() - y).abs().max() / y.abs().max()) for x, y in pairs)


def timed(runs: Sequence[Callable[[], object]], rounds: int, device: str) -> list[float]:
    """Return the median milliseconds of some functions that take turns."""
    found: list[list[float]] = [[] for _ in runs]
    for number in range(rounds + 2):
        for run, seconds in zip(runs, found, strict=True):
            wait(device)
            started = time.perf_counter()
            for _ in range(1 if device == "cpu" else 5):
                run()
            wait(device)
            if number >= 2:
                seconds.append((time.perf_counter() - started) / (1 if device == "cpu" else 5))
    return [statistics.median(seconds) * 1e3 for seconds in found]


def wait(device: str) -> None:
    """Wait for the device."""
    if device != "cpu":
        torch.cuda.synchronize()


def compare(program: Program, sizes: Sizes, dtype: torch.dtype, args: argparse.Namespace) -> str:
    """Return the line of a program; a backend that fails takes NaN milliseconds."""
    torch.compiler.reset()
    inputs = inputs_of(program, sizes, dtype, args.device)
    call = attention(program, sizes, args.device)
    codegen = "c" if args.device == "cpu" else "triton"
    given: Any = {"codegen": codegen, "fallback": ()}
    calls = torch.compile(call), torch.compile(call, backend="ctk", options=given)
    compute = with_backward if args.backward else without_backward
    runs = [partial(compute, each, inputs) for each in calls]
    works = [runs_at_all(run) for run in runs]
    errors = ""
    if not args.no_errors:
        exact = compute(lambda *x: dense(program, x), [each.double() for each in inputs])
        made = (
            error(run(), exact) if ok else math.nan for run, ok in zip(runs, works, strict=True)
        )
        errors = "   error {:.1e} {:.1e}".format(*made)
        del exact
    spent = iter(
        timed([r for r, ok in zip(runs, works, strict=True) if ok], args.rounds, args.device)
    )
    theirs, ours = (next(spent) if ok else math.nan for ok in works)
    name = f"{program.name:10}{str(dtype).removeprefix('torch.'):10}{sizes!s:22}"
    return f"{name}{theirs:9.3f}{ours:9.3f}{theirs / ours:7.2f}{errors}"


def runs_at_all(run: Callable[[], object]) -> bool:
    """Return whether a function does not raise; print the exception of one that does."""
    try:
        run()
    except Exception as error:
        print(type(error).__name__, str(error).strip()[-300:].replace("\n", " "))
        return False
    return True


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--no-errors", action="store_true")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", nargs="*", default=[])
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    small, large = ((1, 8, 1024, 64), (1, 4, 1024, 128)), ((4, 16, 4096, 64), (4, 16, 4096, 128))
    types = (torch.float32, torch.bfloat16) if args.device == "cpu" else (torch.bfloat16,)
    for sizes in small if args.device == "cpu" else large:
        for dtype in types:
            for program in PROGRAMS:
                if not args.only or program.name in args.only:
                    print(compare(program, sizes, dtype, args), flush=True)


if __name__ == "__main__":
    main()
