"""Results of operators that other roundings leave alone, since they are exact."""

import pytest
import torch

from ctk.repro_templates.graph.rounding import random_rounding
from tests.unit.repro_templates.test_excuses import Program, drawn

EIGHTS, FROM_ONE = torch.arange(64 * 64) % 8, 1 + drawn(64, 64).abs()

LARGE: dict[str, tuple[Program, bool]] = {
    "a product with a permutation": (lambda x: x @ torch.eye(64).flip(0), True),
    "half of the columns selected": (lambda x: x.index_add(1, torch.arange(20), x[:, :20]), False),
    "sums of small integers": (lambda x: (x * 4).round() @ torch.ones(64, 8), True),
    "a product": (lambda x: x @ x.t(), False),
    "zeros first": (lambda x: torch.cat([torch.zeros(60, 64), x[60:]]).sum(0), False),
    "a bias of zeros": (lambda _: torch.addmm(torch.zeros(64), FROM_ONE, FROM_ONE), False),
    "sums into zeros": (lambda _: torch.zeros(8).index_add(0, EIGHTS, FROM_ONE.ravel()), False),
    "integers and a bias of zeros": (
        lambda x: torch.addmm(torch.zeros(64), x.round(), x.round()),
        True,
    ),
    "nothing": (lambda x: x[:, :0] @ x[:0] + x[:0].sum(), True),
}
"""Operators on a tensor of 64 x 64, and whether their results are exact."""


@pytest.mark.parametrize("name", LARGE)
def test_large_results_stay_if_they_are_exact(name: str) -> None:
    program, is_exact = LARGE[name]
    x = drawn(64, 64)
    own = program(x)
    with random_rounding(1):
        assert torch.equal(own, program(x)) is is_exact


@pytest.mark.parametrize(("rows", "columns", "sums"), [(64, 64, 20), (233, 10, 1), (377, 30, 2)])
def test_elements_that_are_only_moved_stay_beside_sums(rows: int, columns: int, sums: int) -> None:
    x, at = drawn(rows, columns), torch.arange(sums)
    own = x.index_add(1, at, x[:, :sums])
    with random_rounding(1):
        other = x.index_add(1, at, x[:, :sums])
    assert torch.equal(own[:, sums:], other[:, sums:])


HALF: dict[str, tuple[Program, bool]] = {
    "a product": (lambda x: x @ (x / 8), False),
    "softmax": (lambda x: x.softmax(-1), False),
    "a normalization": (lambda x: torch.nn.functional.layer_norm(x, (64,)), False),
    "maxima": (lambda x: x.amax(0), True),
    "a product with a permutation": (lambda x: x @ torch.eye(64, dtype=x.dtype).flip(0), True),
    "sums of small integers": (lambda x: x.round() @ x.new_ones(64, 8), True),
}
"""Operators on a tensor of 64 x 64 in 16 bits: many results equal an operand by chance."""


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", HALF)
def test_results_in_16_bits_move_unless_they_are_exact(name: str, dtype: torch.dtype) -> None:
    program, is_exact = HALF[name]
    x = drawn(64, 64).to(dtype)
    own = program(x)
    with random_rounding(1):
        moved = float((program(x) != own).double().mean())
    assert moved == 0 if is_exact else moved > 0.3
