"""The signs of zeros, and other special values, are those of eager."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from ctk.compiler.options.config import Config
from ctk.compiler.pipeline import compile_fx

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
BACKEND = partial(compile_fx, config=Config(codegen="c"))


def same_signs(call: Callable[..., list[Tensor]], *inputs: Tensor) -> None:
    """Compare values, and the sign of each that is not a NaN."""
    torch.compiler.reset()
    compiled = torch.compile(call, backend=BACKEND)(*inputs)
    for number, (eager, found) in enumerate(zip(call(*inputs), compiled, strict=True)):
        torch.testing.assert_close(found, eager, equal_nan=True)
        numbers = ~eager.isnan()
        assert torch.equal(eager.signbit()[numbers], found.signbit()[numbers]), number


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sum_of_negative_zeros_is_positive(dtype: torch.dtype) -> None:
    def sums(one: Tensor, row: Tensor, table: Tensor, cube: Tensor) -> list[Tensor]:
        each = [(one, None), (row, 0), (row, 1), (table, 0), (table.t(), 1), (cube, (0, 1))]
        totals = [x.sum() if dim is None else x.sum(dim) for x, dim in each]
        means = [x.mean() if dim is None else x.mean(dim) for x, dim in each]
        return [*totals, *means, table.nansum(0)]

    shapes = ((), (1, 5), (3, 40), (9, 1, 70))
    same_signs(sums, *(torch.full(shape, -0.0, dtype=dtype) for shape in shapes))


def special(dtype: torch.dtype) -> Tensor:
    tiny, infinity = torch.finfo(dtype).tiny, float("inf")
    numbers = [0.0, tiny, tiny / 4, 0.25, 1, 3, 70, infinity]
    return torch.tensor([*numbers, *(-each for each in numbers), torch.nan]).to(dtype)


def functions(x: Tensor, y: Tensor) -> list[Tensor]:
    bessel = [torch.special.modified_bessel_i1(x)] if x.dtype.itemsize > 2 else []
    return [
        *(torch.xlogy(x, y), torch.special.xlog1py(x, y), torch.fmin(x, y), torch.fmax(x, y)),
        *(torch.special.entr(x), torch.special.i1(x), torch.special.i1e(x), *bessel),
        *(torch.atanh(x), torch.sign(x)),
    ]


@pytest.mark.parametrize("dtype", DTYPES)
def test_functions_of_special_numbers(dtype: torch.dtype) -> None:
    pairs = torch.cartesian_prod(special(dtype), special(dtype))
    same_signs(functions, pairs[:, 0].contiguous(), pairs[:, 1].contiguous())


def test_functions_at_the_ends_of_their_range() -> None:
    def ends(large: Tensor, pole: Tensor, half: Tensor) -> list[Tensor]:
        return [
            *(torch.special.erfcx(large), torch.special.bessel_y0(large) * 0),
            *(torch.lgamma(large), torch.digamma(pole), torch.ldexp(half, half)),
        ]

    largest = torch.finfo(torch.float64).max
    large = torch.tensor([largest, largest / 2, 2.5563e305, 2.5564e305], dtype=torch.float64)
    pole = torch.tensor([-0.99999994, -1.0000001, -1.0, 1e-30])
    same_signs(ends, large, pole, torch.tensor([0.0, 20.0, -3.0], dtype=torch.float16))
