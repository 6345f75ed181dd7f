"""Does one function of a stack beat parallel functions? Prints the ratio for a grid of sizes.

    python -m benchmarks.batch_parallel [--rounds 30]

Each line: the function, how many there are and their elements; then the time of a program compiled
without `batch_parallel` through the time with it, with eager kernels and with kernels in C. Above 1
the batch is faster. The two take turns; a figure is the median of the pairs.
"""

import argparse
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.batch_linears import ratio
from ctk.compiler.pipeline import compile_fx

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
}
GRID = [(count, rows, columns) for count in (2, 8, 32) for rows, columns in ((1, 64), (64, 64))]


def compile_program(
    function: Callable[[Tensor], Tensor], codegen: str, inputs: list[Tensor], *, is_batched: bool
) -> Callable[[], object]:
    """Return a call of a program of parallel calls of a function, compiled."""
    config = {"codegen": codegen, "passes": {"batch_parallel": {"enabled": is_batched}}}

    def program(*inputs: Tensor) -> list[Tensor]:
        return [torch.mm(function(x), x.t()) for x in inputs]

    torch.compiler.reset()
    compiled = torch.compile(program, backend=lambda gm, args: compile_fx(gm, args, config))
    return lambda: compiled(*inputs)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    print(f"{'function':12} {'count':>5} {'size':>8} {'eager':>6} {'c':>6}")
    for name, function in FUNCTIONS.items():
        for count, rows, columns in GRID:
            inputs = [torch.randn(rows, columns) for _ in range(count)]
            found: list[float] = []
            for codegen in ("eager", "c"):
                plain = compile_program(function, codegen, inputs, is_batched=False)
                batched = compile_program(function, codegen, inputs, is_batched=True)
                found.append(ratio(plain, batched, rounds))
            size = f"{rows}x{columns}"
            print(f"{name:12} {count:5} {size:>8} {found[0]:6.2f} {found[1]:6.2f}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
