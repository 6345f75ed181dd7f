"""What a tensor holds: recognised from its bits, rebuilt to the same bits, ordered."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ctk.compiler.errors import CaseError
from ctk.compiler.fx.clone import same_bits
from ctk.repro_templates.graph.values import randn
from ctk.toolkit.case.formats.recipes import Piece, WrittenRecipe, find_written_recipe, synthesize
from ctk.toolkit.case.formats.tensor_content import (
    ContentCache,
    ContentRun,
    block_count,
    block_range,
    build_content,
    content_of,
    index_of,
    levels,
    number_from,
    number_of,
    rank_of,
    text_of,
)

DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn,
    torch.complex64, torch.complex128, torch.int64, torch.int8, torch.uint8, torch.bool,
)  # fmt: skip


def one(value: float, place: int = 40, count: int = 144) -> torch.Tensor:
    return torch.zeros(count).index_fill(0, torch.tensor(place), value).reshape(12, -1)


def test_few_numbers_are_runs() -> None:
    assert content_of(torch.zeros(12, 12)).runs == ()
    assert content_of(torch.ones(12, 12)).runs == (ContentRun(0, 144, 1.0),)
    found = content_of(torch.tensor([0, 0, 7, 7, 0, 1.5]))
    assert (found.kind, found.runs) == ("zeros", (ContentRun(2, 4, 7.0), ContentRun(5, 6, 1.5)))
    assert found.nonzeros == 3


def test_numbers_are_said_with_the_digits_that_their_dtype_needs() -> None:
    assert content_of(torch.tensor([0.1, 0.0])).runs == (ContentRun(0, 1, 0.1),)
    assert number_of(torch.tensor(1e30)) == 1e30
    assert number_of(torch.tensor(0.1, dtype=torch.float16)) == 0.1


def test_seeded_values_are_recognised_even_with_zeros_in_them() -> None:
    values = randn((90, 90), seed=3)
    assert content_of(values).kind == "randn:3"
    values.view(-1)[100:5000] = 0
    assert (content_of(values).kind, content_of(values).runs) == (
        "randn:3",
        (ContentRun(100, 5000, 0.0),),
    )
    values.view(-1)[0] = 2
    assert content_of(values).kind == "data"
    assert content_of(torch.arange(100)).kind == "arange"
    assert content_of(torch.arange(100)).runs == ()
    assert content_of(torch.arange(100.0).half()).kind == "arange"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_recipes_of_any_dtype_rebuild_the_same_bits(dtype: torch.dtype) -> None:
    values = torch.zeros(40)
    values[7], values[9:12] = 1, 3
    if dtype.is_floating_point or dtype.is_complex:
        values = values.to(dtype)
        for place, number in enumerate((-0.0, math.inf, -math.inf, math.nan), start=20):
            if dtype != torch.float8_e4m3fn or math.isfinite(number):
                values[place] = torch.tensor(number, dtype=dtype)
    values = values.to(dtype)
    content = content_of(values)
    assert content.kind == "zeros" and same_bits(build_content(content, (40,), dtype), values)
    recipe = find_written_recipe(values)
    assert recipe is not None and same_bits(synthesize(recipe, 40, dtype, "x"), values)


def test_a_nan_of_other_bits_is_no_recipe_and_its_sign_is_kept() -> None:
    odd = torch.zeros(100, dtype=torch.int32)
    odd[3] = 0x7FC00001
    assert content_of(odd.view(torch.float32)).kind == "data"
    odd[3] = -0x400000  # what processors make of 0 / 0
    assert find_written_recipe(odd.view(torch.float32)) == WrittenRecipe(
        "zeros", (Piece(3, 4, "-nan"),)
    )


@settings(max_examples=60, deadline=None)
@given(st.one_of(st.floats(), st.complex_numbers(), st.integers(-(2**63), 2**63 - 1)))
def test_any_number_survives_as_text(number: complex) -> None:
    dtypes: dict[type, torch.dtype] = {float: torch.float64, complex: torch.complex128}
    dtype = dtypes.get(type(number), torch.int64)
    again = number_from(text_of(number), dtype)
    mine, other = (torch.tensor(n, dtype=dtype).reshape(1) for n in (number, again))
    if dtype == torch.int64 or not mine.isnan().any():
        assert same_bits(mine, other)


def test_text_that_is_no_number_of_the_dtype_is_a_case_error() -> None:
    for text, dtype in (("1.5", torch.int64), ("2", torch.bool), ("e", torch.float32)):
        with pytest.raises(CaseError, match=r"x: .*is not a number of torch"):
            synthesize(WrittenRecipe("zeros", (Piece(0, 1, text),)), 4, dtype, "x")
    with pytest.raises(CaseError, match=r"x: .*2, 5.* are not among 4"):
        synthesize(WrittenRecipe("zeros", (Piece(2, 5, "1.0"),)), 4, torch.float32, "x")


DESCENDING = (
    torch.linspace(0.1, 0.9, 144) ** 2, randn((144,), seed=2), randn((144,), seed=0),
    torch.arange(144.0), torch.full((144,), 5.0), torch.ones(144), one(1.0) + one(1.0, 3),
    one(math.nan), one(math.inf), one(110.3), one(1e30), one(0.5), one(-0.0), one(101.0), one(-1.0),
    one(1.0), one(1.0, place=0), torch.zeros(144),
)  # fmt: skip


def test_ranks_descend() -> None:
    ranks = [content_of(values).rank for values in DESCENDING]
    assert ranks == sorted(ranks, reverse=True) and len(set(ranks)) == len(ranks)


def test_whole_numbers_come_before_others() -> None:
    numbers = (0.0, 1.0, -1.0, 2.0, 101.0, 128.0, 1024.0, -0.0, 0.5, 2e3, 1e9, 3.7, math.inf)
    assert [rank_of(n) for n in numbers] == sorted({rank_of(n) for n in numbers})


def test_blocks_halve_down_to_elements() -> None:
    content = content_of(one(1.0, place=40))
    assert levels(144) == 4 and content.blocks == ((0,), (2,), (10,), (40,))
    assert block_range(10, 2, 144) == range(40, 44) and block_range(2, 0, 144) == range(128, 144)
    assert [block_count(level, 144) for level in range(4)] == [3, 9, 36, 144]
    assert content_of(torch.ones(144)).blocks[2:] == (None, None)
    assert levels(1) == 1 and levels(4) == 1 and levels(5) == 2


def test_an_index_is_that_of_the_element() -> None:
    values = torch.arange(24).reshape(2, 3, 4)
    assert all(int(values[index_of(place, (2, 3, 4))]) == place for place in range(24))


def test_what_has_no_numbers_of_its_own_holds_nothing() -> None:
    for value in (3, torch.empty(0), torch.empty(2, device="meta"), torch.eye(3).to_sparse()):
        assert ContentCache().of(value).rank[:2] == (0, 0)


def test_contents_are_worked_out_once_until_written_to() -> None:
    contents, values = ContentCache(), torch.zeros(9)
    first = contents.of(values)
    assert contents.of(values) is first
    values[3] = 1
    assert contents.of(values).nonzeros == 1
    del values
    assert not contents.known
