"""The tolerance table: complete, ordered, sourced."""

import pytest
import torch

from ctk.repro_templates.numbers.tolerance import EXACT, TABLE, tolerance_for


@pytest.mark.parametrize("dtype", EXACT, ids=str)
def test_a_weaker_promise_never_has_a_tighter_row(dtype):
    rows = [tolerance_for(dtype, TABLE[n]) for n in ("exact", "reassociates", "lowers_precision")]
    assert [row.rtol for row in rows] == sorted(row.rtol for row in rows)
    assert all(row.source and row.atol > 0 for row in rows)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_exact_rows_are_those_of_torch_testing(dtype):
    row = tolerance_for(dtype, EXACT)
    one = torch.ones((), dtype=torch.float64)
    inside = (one * (1 + row.rtol * 0.9) + row.atol * 0.9).to(torch.float64)
    torch.testing.assert_close(inside, one, rtol=row.rtol, atol=row.atol)
    # torch's own defaults accept and refuse at the same distance, in the dtype itself.
    step = 4 * (row.rtol + row.atol)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(
            torch.ones(1, dtype=dtype) * (1 + step), torch.ones(1, dtype=dtype)
        )


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.int64, torch.uint8])
def test_integers_are_exact(dtype):
    row = tolerance_for(dtype, TABLE["lowers_precision"])
    assert (row.rtol, row.atol) == (0.0, 0.0)


def test_complex_numbers_have_the_row_of_their_parts():
    assert tolerance_for(torch.complex64, EXACT) == tolerance_for(torch.float32, EXACT)
    assert tolerance_for(torch.complex128, EXACT) == tolerance_for(torch.float64, EXACT)


def test_float8_is_one_step():
    row = tolerance_for(torch.float8_e4m3fn, EXACT)
    assert row.rtol == torch.finfo(torch.float8_e4m3fn).eps
