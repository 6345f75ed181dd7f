"""Positions that a compiler takes for masks: numbers are loaded from the right places."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ctk.compiler.codegen.c.masks import is_mask
from ctk.compiler.lowering.ir import Const, Load, Op, Value
from ctk.compiler.sizes.index import var
from tests.helpers.lowered import compare

FORMS = {
    "a comparison": lambda a, b, n: a,
    "a choice": lambda a, b, n: torch.where(a > n, 1, 0),
    "a choice beside it": lambda a, b, n: torch.where(a >= 1, 3, 2),
    "a complement": lambda a, b, n: 1 - a,
    "a negative one": lambda a, b, n: -a,
    "bits": lambda a, b, n: (a ^ b) + 1,
    "bits of a number": lambda a, b, n: a ^ 1,
    "a product": lambda a, b, n: a * b * 2,
    "an alternative": lambda a, b, n: a | b,
    "a distance": lambda a, b, n: (a - 1).abs(),
    "by a float": lambda a, b, n: a.float().long(),
    "a sum of two": lambda a, b, n: a + b,
    "a sum with a number": lambda a, b, n: a + n,
    "a choice of numbers": lambda a, b, n: torch.where(b > 0, n, a),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.float64, torch.bfloat16])
def test_numbers_at_positions_of_bools(dtype: torch.dtype) -> None:
    def chosen(x: Tensor, y: Tensor, n: Tensor, table: Tensor) -> list[Tensor]:
        a, b = (x > 0).long(), (y > x).int().long()
        places = [form(a, b, n) for form in FORMS.values()]
        shared = places[0]
        return [
            *(table[place] for place in places),
            table.take(shared),
            F.embedding(shared, table[:, None]),
        ]

    torch.manual_seed(0)
    inputs = torch.randn(333), torch.randn(333), torch.randint(0, 3, (333,))
    compare(chosen, *inputs, torch.arange(3, 11).to(dtype), codegen="c")


def test_a_sum_of_masks_is_a_vector_of_numbers() -> None:
    i = var("i", 8)
    less = Op("lt", (Load("x", i, torch.float32), Const(0.0, torch.float32)), torch.bool)
    one, two, far = (Const(n, torch.int64) for n in (1, 2, 500))
    mask = Op("cast", (less,), torch.int64)

    def of(name: str, *args: Value) -> bool:
        return is_mask(Op(name, args, torch.int64))

    assert is_mask(mask)
    assert of("where", less, one, two)
    assert of("add", mask, two)
    assert of("mul", mask, mask)
    assert not of("add", mask, mask)
    assert not of("where", less, one, far)
    assert not of("mul", mask, Load("n", i, torch.int64))
    assert not of("add", one, two)
