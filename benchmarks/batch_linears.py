"""Does one batched product beat parallel linears? Prints the ratio for a grid of sizes.

    python -m benchmarks.batch_linears [--rounds 30]

Each line: how many linears, the rows of their input, its columns and those of the result; then the
time of the linears one by one through that of the batch, as `batch_linears` writes it (weights and
biases are stacked in each call), for inputs of their own, for one shared input, and with the
backward pass. Above 1 the batch is faster. The two take turns; a figure is the median of the pairs.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

GRID = [
    (group, rows, columns, results)
    for group in (2, 4, 16)
    for rows, columns, results in (
        (1, 8, 8),
        (1, 64, 64),
        (16, 16, 16),
        (16, 64, 64),
        (128, 64, 64),
        (16, 256, 256),
        (128, 256, 256),
    )
]

Operands = tuple[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor]]


def one_by_one(operands: Operands) -> Sequence[Tensor]:
    """Compute linears as programs write them."""
    return [F.linear(x, w, b) for x, w, b in zip(*operands, strict=True)]


def batched(operands: Operands) -> Sequence[Tensor]:
    """Compute linears as the pass writes them."""
    inputs, weights, biases = operands
    is_shared = all(each is inputs[0] for each in inputs)
    left = inputs[0][None].expand(len(inputs), -1, -1) if is_shared else torch.stack([*inputs])
    right = torch.stack([*weights]).transpose(1, 2)
    return torch.baddbmm(torch.stack([*biases]).unsqueeze(1), left, right).unbind()


def with_backward(compute: Callable[[Operands], Sequence[Tensor]], operands: Operands) -> object:
    """Compute linears and the gradients of all their operands."""
    leaves = list({id(each): each for part in operands for each in part}.values())
    total = torch.stack([each.sum() for each in compute(operands)]).sum()
    return torch.autograd.grad(total, leaves)


def ratio(first: Callable[[], object], second: Callable[[], object], rounds: int) -> float:
    """Return the median of the ratios of their times, taken in turns."""
    found: list[float] = []
    for _ in range(rounds):
        pair: list[float] = []
        for run in (first, second):
            run()
            started = time.perf_counter()
            for _ in range(5):
                run()
            pair.append(time.perf_counter() - started)
        found.append(pair[0] / pair[1])
    return statistics.median(found)


def operands_of(size: Sequence[int], *, shared: bool, gradients: bool) -> Operands:
    """Return the inputs, weights and biases of so many linears."""
    group, rows, columns, results = size

    def drawn(*sizes: int) -> list[Tensor]:
        return [torch.randn(*sizes, requires_grad=gradients) for _ in range(group)]

    inputs = drawn(rows, columns)
    inputs = [inputs[0]] * group if shared else inputs
    return inputs, drawn(results, columns), drawn(results)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    print("linears  rows x columns x results    own inputs   one input   with backward")
    for size in GRID:
        figures: list[float] = []
        for shared in (False, True):
            given = operands_of(size, shared=shared, gradients=False)
            figures.append(ratio(lambda: one_by_one(given), lambda: batched(given), rounds))  # noqa: B023 - called before the next one
        given = operands_of(size, shared=False, gradients=True)
        figures.append(
            ratio(
                lambda: with_backward(one_by_one, given),  # noqa: B023 - as above
                lambda: with_backward(batched, given),  # noqa: B023 - as above
                rounds,
            )
        )
        group, *sizes = size
        shape = " x ".join(map(str, sizes))
        print(f"{group:7}  {shape:24}" + "".join(f"{each:14.2f}" for each in figures))


if __name__ == "__main__":
    main()
